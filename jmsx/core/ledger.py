"""
A ledger counts how often each unsettled message was handed out, and outlives the process.

STOMP has no counts, so a message that kills its process would be delivered for ever. A ledger is written before each
hand-out, as Artemis does with `persist-delivery-count-before-delivery`; its entry is passed to `HandingOut.admit`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable


class StoreKey(NamedTuple):
    """Names one message in a ledger or an idempotency store, over links, processes and restarts."""

    place: str  #: the queue, or the durable subscription
    key: str  #: what identifies the message there, such as the broker's id and a digest of the body


class Entry(NamedTuple):
    """One hand-out of a message, as a ledger has it."""

    identity: StoreKey
    number: int  #: which hand-out of the message this is, from 1
    #: How many earlier hand-outs did not fail, although the broker got no ACK for them
    finished: int = 0
    #: How many of them have no end yet: the process that has the message lives
    in_doubt: int = 0
    unseen: int = 0  #: how many of them the application has not seen: they were given back

    @property
    def deliveries(self) -> int:
        """How many hand-outs before this one reached the application."""
        return self.number - 1 - self.unseen

    @property
    def failures(self) -> int:
        """How many of those failed: by an error, or with their process."""
        return max(self.deliveries - self.finished - self.in_doubt, 0)


class HandOutEnd(Enum):
    """How a hand-out ended; each is told by itself, because several consumers may have the message at once."""

    #: The application has done them without failing; they are not acknowledged yet
    FINISHED = auto()
    FAILED = auto()  #: the application has failed at them, or will not say any more how they went
    UNSEEN = auto()  #: the application has not got them after all
    SETTLED = auto()  #: the broker has them no more


class Ledger(Protocol):
    """
    Counts hand-outs; used by many threads.

    A ledger whose database is away raises StoreError at once: it tries to connect only once a second. Until the
    database is back, the messages wait.
    """

    def begin(self, identity: StoreKey) -> Entry | None:
        """
        Record one more hand-out of a message, before the application sees it; None: this one is not counted.

        Raises StoreError if the store is away: then do not hand out the message.
        """

    def finish(self, entries: Iterable[Entry]) -> None:
        """Record that the application has done these without failing; they are not acknowledged yet."""

    def settle(self, entries: Iterable[Entry]) -> None:
        """Record that these are settled on the broker; they may be forgotten."""

    def flush(self) -> None:
        """
        Write what `finish` and `settle` have put off; called when there is nothing to hand out.

        Raises StoreError if the store is away; what was not written is kept for the next call.
        """


@runtime_checkable
class DoubtingLedger(Ledger, Protocol):
    """
    A ledger that knows which process has each hand-out, and whether that lives.

    To a ledger without these methods a hand-out has failed as soon as the message is handed out again, unless `finish`
    was called for it; so `finish` is called, too, for hand-outs that the application has not seen.
    """

    def fail(self, entries: Iterable[Entry]) -> None:
        """Record that the application has failed at these: nobody need ask whether its process lives."""

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Record that the application has not seen these: they are no deliveries."""


@runtime_checkable
class StagedLedger(DoubtingLedger, Protocol):
    """
    A ledger that knows which hand-outs still wait for their handler: for a store, for the rest of a batch, for their
    turn.

    To a ledger without these methods a hand-out that waits has failed if its process dies.
    """

    def take(self, identity: StoreKey) -> Entry | None:
        """Do as `begin`; but if the process dies before `reach`, the application has not seen the message."""

    def reach(self, entries: Iterable[Entry]) -> None:
        """
        Record that the application is about to see these, which were taken.

        Raises StoreError if the store is away: then do not show them to the application.
        """
