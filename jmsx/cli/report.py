"""`jmsx report EVENTS`: aggregate an event log by Spark into tables and a page."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from jmsx import plugins
from jmsx.cli.terminal import console

_out = console()


def report(
    events: Annotated[Path, typer.Argument(help="The directory of an event log.")],
    out: Annotated[Path, typer.Option(help="Where tables and report.html go.")],
) -> None:
    """Turn an event log into gold tables and one HTML report; exit 2 when its audit is suspect."""
    result = plugins.load("jmsx.reports", "spark")(events, out)
    _out.print(f"{result.audit['verdict']}: {result.report}")
    if result.audit["verdict"] == "suspect":
        raise typer.Exit(2)
