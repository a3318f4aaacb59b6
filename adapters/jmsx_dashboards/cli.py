"""`jmsx dashboards`: write boards, rules and runbooks for a place, and draw the boards without Grafana."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from jmsx.cli.printing import JsonOption, print_json, timestamp
from jmsx.cli.terminal import console
from jmsx.cli.times import instant, seconds
from jmsx.cli.writing import writing
from jmsx.errors import ConfigurationError
from jmsx.files import appearing
from jmsx.plugins import command_needing

if TYPE_CHECKING:
    from collections.abc import Sequence

# ruff: noqa: PLC0415 - the boards, and the metrics that they name, would be a third of `jmsx --help`

app = typer.Typer(
    help="Grafana's boards, Prometheus' rules and runbooks.",
    no_args_is_help=True,
    add_completion=False,
)

_err = console(stderr=True)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")],
    *,
    runbooks: Annotated[
        str, typer.Option(help="URL of the runbooks, once you have put them somewhere.")
    ],
    grafana: Annotated[str, typer.Option(help="URL of Grafana, for the links of alerts.")] = "",
    budgets: Annotated[
        Path | None,
        typer.Option(
            help='TOML: [default] and ["queue://…"] with dead_letters, late (shares), seconds.'
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Write boards, rules, runbooks, and files for Grafana's provisioning and for Docker Compose.

    Example: jmsx dashboards export monitoring --runbooks https://wiki.example.org/jmsx
    """
    with command_needing("jmsx_dashboards"):
        from jmsx_dashboards.files import write
        from jmsx_dashboards.model import Links, Settings, read_budgets

    settings = Settings() if budgets is None else read_budgets(budgets)
    links = Links(runbooks=runbooks.rstrip("/"), grafana=grafana.rstrip("/"))
    with writing(str(folder)):
        written = write(folder, links, settings)
    _tell(written, as_json=as_json)
    _err.print(f"put {folder}/runbooks where {links.runbooks} leads to")


@app.command()
def render(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")],
    *,
    prometheus: Annotated[str, typer.Option(help="URL of Prometheus.")] = "http://localhost:9090",
    since: Annotated[
        str, typer.Option(help="When it begins: 30m, 3h, 7d ago, or 2026-11-22T10:00 (UTC).")
    ] = "3h",
    until: Annotated[
        str | None, typer.Option(help="When it ends, written as --since; else now.")
    ] = None,
    board: Annotated[
        list[str] | None, typer.Option(help="A board, such as overview; all, if none is named.")
    ] = None,
    scrape: Annotated[float, typer.Option(help="Seconds between two scrapes.", min=0.1)] = 15.0,
    runbooks: Annotated[str, typer.Option(help="URL of the runbooks.")] = "runbooks",
    as_json: JsonOption = False,
) -> None:
    """
    Draw the boards from what Prometheus answers: one page boards.html, and a PNG of each.

    Example: jmsx dashboards render night --since 2026-11-22T02:30 --until 2026-11-22T04:00
    """
    with command_needing("jmsx_dashboards"):
        from jmsx_dashboards.asking import Prometheus, Span
        from jmsx_dashboards.boards import BOARDS
        from jmsx_dashboards.model import Links
        from jmsx_dashboards.pictures import ask_all, page, write_picture

    span = Span(*_period(since, until, datetime.now(UTC)), scrape)
    names = {one.uid.removeprefix("jmsx-"): one for one in BOARDS}
    unknown = [name for name in board or () if name not in names]
    if unknown:
        raise ConfigurationError(f"there is no board {unknown[0]!r}; there are {', '.join(names)}")
    chosen = [names[name] for name in board or names]
    answers = ask_all(Prometheus(prometheus), chosen, span)
    text = page(chosen, answers, span, Links(runbooks.rstrip("/")))
    pictures = {one.uid: folder / f"{one.uid}.png" for one in chosen}
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        with appearing(whole := folder / "boards.html") as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        for one in chosen:
            with appearing(pictures[one.uid]) as unfinished:
                write_picture(unfinished, one, answers[one.uid], span)
    _tell([whole, *pictures.values()], as_json=as_json)


def _tell(written: Sequence[Path], *, as_json: bool) -> None:
    """Print what was written."""
    if as_json:
        print_json([str(path) for path in written])
        return
    for path in written:
        typer.echo(path)


def _period(since: str, until: str | None, now: datetime) -> tuple[float, float]:
    """Return when it begins and ends, epoch seconds."""
    end = (instant("--until", until, now) or now).timestamp()
    try:
        begin = now.timestamp() - seconds("--since", since)
    except ConfigurationError:
        begin = (instant("--since", since, now) or now).timestamp()
    if begin >= end:
        raise ConfigurationError(f"--since {since} is not before the end, {timestamp(end)} UTC")
    return begin, end
