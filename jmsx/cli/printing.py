"""What commands print: rows for a person or for a pipe, JSON, instants."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from jmsx.cli.terminal import console, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

_out = console()

#: Characters of a text in a column.
_COLUMN: Final = 60

_NUMBER: Final = re.compile(r"[0-9,]+")

JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else.")
]


def print_json(value: object) -> None:
    """One JSON value, on one line in a pipe."""
    _out.print_json(json.dumps(value), indent=None, ensure_ascii=True)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for a person; for a pipe a line each, with tabs between, and no head."""
    if not _out.is_terminal:
        for row in rows:
            print_row(*row)
        return
    from rich.table import Table  # noqa: PLC0415 - only some commands print one

    table = Table(*head)
    for row in rows:
        table.add_row(*(visible(text, keep="") for text in row))
    for column in table.columns:
        if all(_NUMBER.fullmatch(str(text)) for text in column.cells):
            column.justify = "right"
    _out.print(table)


def print_row(*texts: str) -> None:
    """A line with tabs between, for a pipe; the console of rich would make spaces of them."""
    typer.echo("\t".join(visible(text, keep="") for text in texts))


def short(text: str, most: int = _COLUMN) -> str:
    """The first line of a text, cut to so many characters."""
    line = text.partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def timestamp(seconds: float | None) -> str:
    """An instant (epoch seconds) in UTC, to the second."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
