"""Output of commands: tables for a terminal or a pipe, JSON, and points in time."""

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

#: The longest text in a column, in characters.
_COLUMN: Final = 60

#: How many characters a column needs on the screen besides its text.
_BORDER: Final = 3

#: The text of an empty cell.
NOTHING: Final = "-"

_NUMBER: Final = re.compile(r"[0-9,]+")

JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else.")
]


def print_json(value: object) -> None:
    """Print one JSON value, on one line in a pipe."""
    _out.print_json(json.dumps(value), indent=None, ensure_ascii=True)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """
    Print a table on a terminal; into a pipe, one line for each row, with tabs between the cells and no head.

    If the terminal is too narrow, each cell that is not empty gets a line of its own: rich would cut ids and names.
    """
    if not _out.is_terminal:
        for row in rows:
            print_row(*row)
        return
    from rich.cells import cell_len  # noqa: PLC0415 - only some commands print one
    from rich.table import Table  # noqa: PLC0415 - only some commands print one

    seen = [[visible(text, keep="") for text in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(head, *seen, strict=True)]
    if sum(widths) + _BORDER * len(widths) + 1 > _out.rich.width:
        _print_lines(head, seen)
        return
    table = Table(*head)
    for row in seen:
        table.add_row(*row)
    for column in table.columns:
        if all(_NUMBER.fullmatch(str(text)) for text in column.cells):
            column.justify = "right"
    _out.print(table)


def _print_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as lines, with a line between two of them."""
    width = max(map(len, head))
    for number, row in enumerate(rows):
        if number:
            _out.print("")
        for name, text in zip(head, row, strict=True):
            if text != NOTHING:
                _out.print(f"{name:{width}}  {text}")


def print_row(*texts: str) -> None:
    """Print `texts` on one line with tabs between them, for a pipe; rich's console would turn tabs into spaces."""
    typer.echo("\t".join(visible(text, keep="") for text in texts))


def short(text: str, most: int = _COLUMN) -> str:
    """Return the first line of a text, cut to `most` characters."""
    line = text.partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def timestamp(seconds: float | None) -> str:
    """Return a point in time (epoch seconds) as text in UTC, to the second."""
    if seconds is None:
        return NOTHING
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
