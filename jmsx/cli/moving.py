"""Acting on many dead letters at once: choosing them, showing the plan, asking the user, and showing progress."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import typer

from jmsx.cli.interrupts import sigterm_as_ctrl_c
from jmsx.cli.printing import print_json
from jmsx.cli.terminal import console, visible
from jmsx.dead_letters.access import Access
from jmsx.dead_letters.letter import DeadLetter
from jmsx.errors import BrokerTimeoutError, ConfigurationError, ConnectionFailedError, JmsxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_out = console()
_err = console(stderr=True)


class Found(NamedTuple):
    """The dead letters that the filters of a command chose."""

    letters: list[DeadLetter]
    hidden: str  #: a sentence about messages that the broker does not show; empty: none
    staying: int = 0  #: letters that were chosen, and cannot be moved
    absent: frozenset[str] = frozenset()  #: ids that the command names, and were not found

    def warn(self) -> None:
        """Warn of messages that the broker does not show, and of ids that were not found."""
        if self.hidden:
            _err.tell(self.hidden, style="yellow")
        if self.absent:
            names = ", ".join(sorted(self.absent))
            _err.tell(visible(f"not there: {names}", keep=""), style="yellow")


def find(
    access: Access,
    queue: str,
    fits: Callable[[DeadLetter], bool],
    limit: int | None,
    *,
    bodies: bool = False,
) -> Found:
    """Find the dead letters in `queue` that fit, from its head, at most `limit` of them."""
    with _reading() as show:
        letters, seen = _chosen(access.look(queue, bodies=bodies), fits, limit, show)
    return Found(letters, "" if len(letters) == limit else hidden(access, queue, seen))


def _chosen(
    looked: Iterable[DeadLetter],
    fits: Callable[[DeadLetter], bool],
    limit: int | None,
    show: Callable[[int], None],
) -> tuple[list[DeadLetter], int]:
    """Return the letters that fit, at most so many, and how many were looked at, which `show` is told meanwhile."""
    letters, seen = [], 0
    for seen, letter in enumerate(looked, 1):
        show(seen)
        if fits(letter):
            letters.append(letter)
            if len(letters) == limit:
                break
    return letters, seen


@contextmanager
def _reading() -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many messages have been read: a broker takes minutes to tell a hundred thousand."""
    if not _err.is_terminal:
        yield lambda _seen: None
        return
    from rich import progress as parts  # noqa: PLC0415 - not for `jmsx --help`

    columns = (parts.TextColumn("{task.completed:,.0f} messages read"), parts.TimeElapsedColumn())
    with parts.Progress(*columns, console=_err.rich, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda seen: bar.update(task, completed=seen)


def hidden(access: Access, queue: str, seen: int) -> str:
    """Return a sentence that says how many messages of `queue` the broker does not show; empty: `seen` are all."""
    total = access.count(queue) or 0
    return f"{seen:,} of {total:,} messages can be seen; {access.remedy}" if seen < total else ""


@dataclass(frozen=True, slots=True)
class Move:
    """One action on dead letters, such as a replay."""

    find: Callable[[int | None], Found]  #: finds chosen letters that can be moved
    plan: Callable[[Sequence[DeadLetter]], str]  #: describes the action
    act: Callable[[Sequence[DeadLetter]], Iterator[list[str]]]
    doubt: str  #: where a letter may be after an interruption
    limit: int | None
    rate: float | None = None  #: messages a second

    def carry_out(self, *, dry_run: bool, yes: bool, as_json: bool) -> None:
        """
        Show the plan, ask the user, and do it; exit code 1 if a chosen letter stays, or was not found.

        If the broker shows further letters only after others have left the queue, those are found then, and included.
        """
        found = self._look(self.limit, 0)
        planned, done = len(found.letters), 0
        follows = f", and what lies behind them ({found.hidden})" if found.hidden else ""
        told = f"{self.plan(found.letters)}{follows}" if planned else "nothing to do"
        # names in it come from whoever may send: a line feed in one could forge a line of the plan
        (_err if as_json else _out).tell(visible(told, keep=""))
        if not planned or found.absent:
            found.warn()
        if planned and not dry_run:
            if not yes:
                _confirm()
            done = self._do(found.letters)
            while found.hidden and done == planned and (self.limit is None or done < self.limit):
                found = self._look(None if self.limit is None else self.limit - done, done)
                planned += len(found.letters)
                if not found.letters or found.absent:
                    found.warn()
                if not found.letters:
                    break
                done += self._do(found.letters)
        missing = 0 if dry_run else planned - done + len(found.absent)
        staying = 0 if planned == self.limit else found.staying
        gone = planned - done
        rest = f"; {gone:,} {'was' if gone == 1 else 'were'} not there any more" if gone else ""
        result = f"{done:,} done{rest}" if planned and not dry_run else ""
        counts = {"planned": planned, "done": done, "missing": missing, "staying": staying}
        _tell_result(result, {**counts, "dry_run": dry_run} if as_json else None)
        if missing or (staying and not dry_run):
            raise typer.Exit(1)

    def _look(self, limit: int | None, done: int) -> Found:
        """Return what is meant; says, where that is interrupted or the broker is lost, what was done before."""
        try:
            with sigterm_as_ctrl_c() if done else nullcontext():
                return self.find(limit)
        except (KeyboardInterrupt, BrokerTimeoutError, ConnectionFailedError):
            _err.tell(
                f"{done:,} were done for certain; the others lie where they lay"
                if done
                else "nothing was done; do the same again"
            )
            raise

    def _do(self, letters: Sequence[DeadLetter]) -> int:
        """Return how many were done; what is interrupted says so, and leaves nothing half done."""
        from rich import progress as parts  # noqa: PLC0415 - not for `jmsx --help`

        done, total, began = 0, len(letters), time.monotonic()
        columns = (
            parts.TextColumn("{task.fields[speed]}"),
            parts.BarColumn(),
            parts.MofNCompleteColumn(),
            parts.TimeRemainingColumn(),
        )
        disable = not _err.is_terminal
        with (
            sigterm_as_ctrl_c(),
            parts.Progress(*columns, console=_err.rich, disable=disable) as progress,
        ):
            task = progress.add_task("", total=total, speed="")
            try:
                for moved in self.act(letters):
                    done += len(moved)
                    passed = time.monotonic() - began
                    ahead = self._ahead(done, passed)
                    speed = f"{done / max(passed + ahead, 0.001):,.0f}/s"
                    progress.update(task, completed=done, speed=speed)
                    time.sleep(ahead)
            except (KeyboardInterrupt, JmsxError):
                _err.tell(
                    f"{done:,} of {total:,} were done for certain; each of the others is {self.doubt}"
                )
                raise
        return done

    def _ahead(self, done: int, passed: float) -> float:
        """Return for how many seconds nothing may be moved, `done` being moved in `passed` seconds."""
        return 0.0 if self.rate is None else max(done / self.rate - passed, 0.0)


def _tell_result(words: str, counts: Mapping[str, int] | None) -> None:
    """Print `counts` as JSON, or else words; where that cannot be printed the words go to standard error."""
    try:
        if counts is not None:
            print_json(counts)
        elif words:
            _out.print(words)
    except OSError:  # a full disk, or a broken pipe
        _err.print(words)
        raise


def _confirm() -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigurationError("nobody can be asked here; say --yes, or --dry-run")
    if not typer.confirm("Go on?"):
        _err.print("nothing was done")
        raise typer.Exit(1)
