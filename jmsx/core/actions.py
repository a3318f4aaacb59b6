"""
What the core asks its driver to do: an ordered list of frames to write and events to report.

Nobody changes an action, as nobody changes a frame or an event; to make frozen ones would take Python three times as
long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsx.core.events import Event
from jmsx.core.frames import Frame
from jmsx.core.ledger import Entry, HandOutEnd

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Transmit:
    """Write these frames to the broker, in order, as one burst."""

    frames: tuple[Frame, ...]
    waits: bool = False  #: they may wait a moment, to go with what is written next


@dataclass(slots=True)
class Report:
    """Tell the observers about `event`."""

    event: Event


@dataclass(slots=True)
class Record:
    """Tell the ledger how these hand-outs ended."""

    entries: tuple[Entry, ...]
    end: HandOutEnd

    @property
    def holds_unwritten(self) -> bool:
        """Whether it is true also where the frames beside it could not be written; what is settled, the broker says."""
        return self.end is not HandOutEnd.SETTLED


@dataclass(slots=True)
class Disconnect:
    """Drop the link, because what it holds cannot be saved; `reason` is a sentence for errors and the log."""

    reason: str


Action = Transmit | Report | Record | Disconnect


class Outbox:
    """Collects actions until the driver takes them, oldest first."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        #: Whether somebody wants the events that every message has, which else are not made
        self.detailed = True
        #: SENDs since the link is up, while the broker must count the same
        self.sends: int | None = 0

    def transmit(self, *frames: Frame, waits: bool = False) -> None:
        """Ask for `frames` to be written as one burst; if that `waits` a moment, they may go with what follows."""
        self._actions.append(Transmit(frames, waits))
        if self.sends is not None:
            for frame in frames:
                self.sends += frame.command == "SEND"

    def report(self, event: Event) -> None:
        """Ask for `event` to be reported."""
        self._actions.append(Report(event))

    def finish(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger note that hand-outs, as far as it has `entries` of them, did not fail; once for each."""
        self._record(entries, HandOutEnd.FINISHED)

    def settle(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger forget the messages that it has `entries` of, which the broker does not have any more."""
        self._record(entries, HandOutEnd.SETTLED)

    def fail(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger note that hand-outs, as far as it has `entries` of them, have failed."""
        self._record(entries, HandOutEnd.FAILED)

    def unseen(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger note that the application did not get hand-outs, as far as it has `entries` of them."""
        self._record(entries, HandOutEnd.UNSEEN)

    def _record(self, entries: Iterable[Entry | None], end: HandOutEnd) -> None:
        known = [entry for entry in entries if entry is not None]
        if known:
            self._actions.append(Record(tuple(known), end))

    def disconnect(self, reason: str) -> None:
        """Ask for the link to be dropped."""
        self._actions.append(Disconnect(reason))

    def take(self) -> list[Action]:
        """Hand over what was collected, and forget it. Carry the actions out in their order."""
        actions, self._actions = self._actions, []
        return actions
