"""`jmsx events …`: look after the folder of an event log."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from jmsx import plugins
from jmsx.cli.terminal import console

app = typer.Typer(help="Look after the folder of an event log.", no_args_is_help=True)
_out = console()


@app.callback()
def events() -> None:
    """Look after the folder of an event log."""


@app.command()
def validate(
    directory: Annotated[Path, typer.Argument(help="The directory of an event log.")],
) -> None:
    """
    Name each line that a report would put aside, and why, and each file that it would not read; exit 1 if there is any.

    Each segment is looked at by itself: one number with two contents in two segments is found by `jmsx report` only.
    """
    found = 0
    for said in plugins.load("jmsx.logs", "faults")(directory):
        _out.print(said)
        found += 1
    if found:
        raise typer.Exit(1)
    _out.print("nothing is wrong")
