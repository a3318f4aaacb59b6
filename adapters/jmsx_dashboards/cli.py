"""`jmsx dashboards`: write boards, rules and runbooks for a place, and draw the boards without Grafana."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from jmsx.cli.terminal import console
from jmsx_dashboards.files import write
from jmsx_dashboards.model import Links, Settings, read_budgets

app = typer.Typer(
    help="Grafana's boards, Prometheus' rules and runbooks.",
    no_args_is_help=True,
    add_completion=False,
)

_err = console(stderr=True)


@app.callback()
def root() -> None:
    """Grafana's boards, Prometheus' rules and runbooks."""


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
) -> None:
    """
    Write boards, rules, runbooks, and files for Grafana's provisioning and for Docker Compose.

    Example: jmsx dashboards export monitoring --grafana https://grafana.example.org --runbooks
    https://wiki.example.org/jmsx
    """
    settings = Settings() if budgets is None else read_budgets(budgets)
    links = Links(runbooks=runbooks.rstrip("/"), grafana=grafana.rstrip("/"))
    for path in write(folder, links, settings):
        typer.echo(path)
    _err.print(f"put {folder}/runbooks where {links.runbooks} leads to")
