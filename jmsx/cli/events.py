"""`jmsx events …`: look after the folder of an event log."""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer

from jmsx import plugins
from jmsx.cli.printing import JsonOption, print_json
from jmsx.cli.terminal import console, visible
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Look after the folder of an event log.", no_args_is_help=True)
_out = console()
_TAIL_SECONDS: Final = 0.2


@app.callback()
def events() -> None:
    """Look after the folder of an event log."""


@app.command()
def validate(
    directory: Annotated[Path, typer.Argument(help="The directory of an event log.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """
    Name each line that a report would put aside, and why, and each file that it would not read; exit 1 if there is any.

    Each segment is looked at by itself: one number with two contents in two segments is found by `jmsx report` only.

    Example: jmsx events validate /var/log/jmsx
    """
    _check_is_there(directory)
    if _tell(plugins.load("jmsx.logs", "faults")(directory), "nothing is wrong", as_json=as_json):
        raise typer.Exit(1)


@app.command()
def compact(
    directory: Annotated[Path, typer.Argument(help="The directory of an event log.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """
    Put closed segments into Parquet, sorted by writer and number, which takes about an eighth of the room.

    A report reads them as it reads segments, and says the same. A segment is removed when the Parquet that holds it is
    on the disk and was read again to the last byte; this may be interrupted at any time, and called again.

    Example: jmsx events compact /var/log/jmsx
    """
    _check_is_there(directory)
    none = "there is no closed segment that is not compacted"
    _tell(plugins.load("jmsx.logs", "compact")(directory), none, as_json=as_json)


def _check_is_there(directory: Path) -> None:
    """Raise ConfigurationError if there is no such folder, before what takes long to import."""
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is no directory of an event log")


def _tell(said: Iterable[str], none: str, *, as_json: bool) -> int:
    """Print what is said, as it comes, or what to say where nothing is; returns how much it was."""
    if as_json:
        told = list(said)
        print_json(told)
        return len(told)
    count = 0
    for one in said:
        _out.print(one)
        count += 1
    if not count:
        _out.print(none)
    return count


@app.command()
def tail(
    directory: Annotated[Path, typer.Argument(help="The directory of an event log.")],
    *,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="So many of those that are there first.")
    ] = 10,
    kind: Annotated[
        str | None, typer.Option(help="Only events of this kind, such as conn.lost.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show what is written to an event log, by every writer, one line an event, until it is interrupted (Ctrl-C).

    Example: jmsx events tail /var/log/jmsx -n 0 --kind conn.lost
    """
    follow = plugins.load("jmsx.logs", "follow")
    try:
        for said in follow(directory, last=lines, wait=_wait, kind=kind, as_json=as_json):
            if as_json:
                print_json(json.loads(said))
            else:
                _out.print(visible(said, keep=""))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _wait() -> None:
    """Give writers time; ends the command when nobody reads any more what it says, as after `| head`."""
    time.sleep(_TAIL_SECONDS)
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)  # errors only
    if reader.poll(0):
        raise typer.Exit(0)
