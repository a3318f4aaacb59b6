"""`jmsx report EVENTS`: an event log turned into a verdict, tables and a page."""

from __future__ import annotations

import inspect
import json
import sys
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from jmsx import plugins
from jmsx.cli import exits
from jmsx.cli.interrupts import first_of_two
from jmsx.cli.terminal import console
from jmsx.cli.times import instant, seconds
from jmsx.cli.writing import writing
from jmsx.clock import SystemClock
from jmsx.core.headers import whole
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

_out = console()
_err = console(stderr=True)

_ENGINES: Final = "jmsx.reports"
_STREAMS: Final = "jmsx.streams"
#: The command-line options of settings that the report engines call by another name.
_FLAGS: Final = {"deadline_seconds": "--deadline", "report_seconds": "--every"}
#: The exit code for each verdict; FAILED means that there is no report.
_EXITS: Final = {
    "balanced": exits.DONE,
    "suspect": exits.SUSPECT,
    "unverifiable": exits.UNVERIFIABLE,
}
_REASONS: Final = 5


class ReportCommand(TyperCommand):
    """A command with exit code 1 for wrong arguments, instead of 2, which means that the log is suspect."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Do as the base class does, but raise ConfigurationError for wrong arguments."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            told = getattr(error, "format_message", None)
            if told is None:
                raise
            raise ConfigurationError(f"{told()} (see: jmsx report --help)") from error


def report(
    events: Annotated[
        Path, typer.Argument(help="The directory of an event log, or one with those of many hosts.")
    ],
    *,
    out: Annotated[
        Path, typer.Option(help="Where tables, summary.json and report.html go.")
    ] = Path("report"),
    since: Annotated[
        str | None,
        typer.Option(
            help="Judge what was sent from 2026-11-22T10:00 (UTC) on, or in the last 24h."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Judge what was sent before then; as --since.")
    ] = None,
    deadline: Annotated[
        str,
        typer.Option(
            help="What was sent, or due again, less than this ago may still wait: 300, 5m, 2h."
        ),
    ] = "0",
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE=N", help="So many processes must be heard of; repeatable."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Who does the work: spark, or local processes (no Java needed)."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="The master that Spark works on, such as local[2].")
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="Write the outcome for node_exporter's textfile collector, as FILE.prom.",
            metavar="FILE",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, and nothing else.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on while the log is written, by Spark; Ctrl-C ends."),
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            help="With --follow: the first report comes so long after the start, and each next one after the last.",
            show_default="1m",
        ),
    ] = None,
) -> None:
    """
    Audit an event log: was all that was sent settled, once?

    Exit code: 0 balanced, 2 suspect (something is proven wrong), 3 unverifiable, 1 there is no report; with --follow
    that of the last one.

    Example: jmsx report /var/log/jmsx --since 24h
    """
    now = datetime.fromtimestamp(SystemClock().wall(), UTC)
    begin, end = instant("--since", since, now), instant("--until", until, now)
    if begin is not None and end is not None and begin >= end:
        raise ConfigurationError(
            f"--since {since} is not before --until {until}, so there is nothing to judge"
        )
    options: dict[str, Any] = {
        "deadline_seconds": seconds("--deadline", deadline) or None,
        "expect": _expected(expect or []) or None,
        "since": begin,
        "until": end,
        "master": master,
        "report_seconds": None if every is None else _pause(every),
    }
    given = {option: value for option, value in options.items() if value is not None}
    make = _following if follow else _once
    tell = None if metrics is None else _metrics(metrics)
    code = exits.FAILED
    with closing(make(events, out, engine, given)) as reports:
        for at, made in reports:
            if tell is not None:
                tell(made, at)
            if as_json:
                indent = None if follow else 2  # one line for each report
                sys.stdout.write(json.dumps(made.audit, indent=indent) + "\n")
                sys.stdout.flush()
            elif follow:
                _out.print(f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} {made.line}")
            else:
                _tell(made)
            code = _EXITS.get(made.audit["verdict"], _EXITS["unverifiable"])
    raise typer.Exit(code)


def _once(
    events: Path, out: Path, engine: str | None, given: dict[str, Any]
) -> Generator[tuple[float, Any]]:
    """Make the report; yield when it was begun, and it."""
    name = engine or _default_engine()
    work = plugins.load(_ENGINES, name)
    _must_take(work, f"the engine {name}", given)
    begun = SystemClock().wall()
    with _progress(work) as shown:
        made = work(events, out, **given, **shown)
    yield begun, made


def _following(
    events: Path, out: Path, engine: str | None, given: dict[str, Any]
) -> Generator[tuple[float, Any]]:
    """Make one report after the other, until a signal; yield when each was made, and it."""
    if engine not in (None, "spark"):
        raise ConfigurationError(
            f"--follow is done by Spark, and not by the engine {engine}; leave --engine out"
        )
    work = plugins.load(_STREAMS, "spark")
    _must_take(work, "--follow", given)
    _err.print(f"following {events}, for the report in {out}; Ctrl-C ends")
    enough = threading.Event()

    def end() -> None:
        _err.print("ending; once more aborts …")
        enough.set()

    with first_of_two(end), closing(work(events, out, **given, is_enough=enough.is_set)) as reports:
        for made in reports:
            yield SystemClock().wall(), made


def _metrics(path: Path) -> Callable[[Any, float], None]:
    """
    Make what writes the metrics of a report and of when it was begun; what is missing for it is told before the work.

    Raises:
        ConfigurationError: no prometheus_client, no such folder, no file; on writing: it cannot be written.

    """
    write = plugins.load("jmsx.metrics", "report")
    try:
        target = path.resolve()  # the file is replaced, and a symbolic link would be, too
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise ConfigurationError(
            f"--metrics {path} is a link that leads nowhere: {error}"
        ) from error
    if not target.parent.is_dir():
        raise ConfigurationError(
            f"--metrics {path}: {target.parent} is no directory; make it first"
        )
    if target.exists() and not target.is_file():
        raise ConfigurationError(
            f"--metrics {path} is no file; name one that may be replaced, such as jmsx.prom"
        )

    def tell(made: Any, now: float) -> None:
        horizon = made.audit.get("horizon")
        with writing(f"the report lies in {made.report}, but --metrics {path}"):
            write(
                target,
                made.audit,
                made.rows,
                now=now,
                horizon=None if horizon is None else horizon / 1_000_000,
            )

    return tell


def _tell(made: Any) -> None:
    """Print the verdict, why, and where the page lies."""
    _out.tell(made.line)
    for reason in (made.audit.get("reasons") or [])[:_REASONS]:
        _out.tell(f"  {reason}")
    _out.print(str(made.report))


def _default_engine() -> str:
    if find_spec("pyspark") is not None:
        return "spark"
    _err.print("pyspark is not installed, so local processes do the work (--engine local)")
    return "local"


def _must_take(work: Callable[..., Any], asked: str, given: dict[str, Any]) -> None:
    """Refuse options that what was `asked` for does not know: a report that passed them over would mislead."""
    known = inspect.signature(work).parameters
    for option in given:
        if option not in known:
            instead = {"master": "--engine spark", "report_seconds": "--follow"}.get(option)
            raise ConfigurationError(
                f"{asked} takes no {_FLAGS.get(option, f'--{option}')}; leave it out"
                + (f", or use {instead}" if instead else "")
            )


@contextmanager
def _progress(work: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Show on a terminal how far the reading is; in a pipe nothing."""
    if not _err.is_terminal or "progress" not in inspect.signature(work).parameters:
        yield {}
        return
    from rich import progress as parts  # noqa: PLC0415 - not for `jmsx --help`

    columns = (
        parts.TextColumn("reading"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
    )
    with parts.Progress(*columns, console=_err.rich, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield {"progress": lambda done, of: bar.update(task, completed=done, total=of)}


def _pause(every: str) -> float:
    pause = seconds("--every", every)
    if pause == 0:
        raise ConfigurationError(f"--every must be more than 0 s, not {every!r}; write 30s, or 1m")
    return pause


def _expected(texts: Sequence[str]) -> dict[str, int]:
    """Read SERVICE=N, of each service once."""
    expected: dict[str, int] = {}
    for text in texts:
        service, equals, number = text.rpartition("=")
        if not (equals and service and whole(number, least=1)):
            raise ConfigurationError(
                f"--expect {text!r} is not SERVICE=N: write the service as its event log names it,"
                " and how many processes of it there are at once, as in --expect shop=2"
            )
        if service in expected:
            raise ConfigurationError(f"--expect names the service {service!r} twice")
        expected[service] = int(number)
    return expected
