"""
What is known of the earlier deliveries of one message: one value, merged from all sources.

STOMP has no counts, only a flag, and each source knows something else: the session knows what it lost with a link
(lost_deliveries.py); the process, what any of its sessions had (process_memory.py); a ledger, what was handed out on
this host (ledger.py); and jmsx's own header, what was before the message was sent back to the broker's scheduler. The
session and the header are asked when the message comes. The process and the ledger are asked once, when it is handed
out for the first time: until then another session or process may have it. From then on all goes by this value: the
limit, the number of the delivery, the flag, the headers of a dead letter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from jmsx.core.ledger import Entry
from jmsx.core.values import Failure


class Lost(NamedTuple):
    """What the session knows of a message that it lost with a link, for when it comes again."""

    deliveries: int
    failures: int
    refused: bool  #: the broker did not commit it, or complained of what was sent for it, and so the link was lost
    #: It came with the broker's flag, and no earlier delivery was known: perhaps another host had it
    flag_unexplained: bool = False
    #: How the last of `deliveries` failed, where the application has said so
    failure: Failure | None = None


class DeadLetterCause(NamedTuple):
    """Why a message becomes a dead letter as soon as it is handed out."""

    #: `max_redeliveries`, `rejected`, `expired` or `undecodable`
    reason: str
    failure: Failure
    sure: bool  #: the broker cannot have made it a dead letter already
    refused: int = 0  #: NACKs of it, or copies that ended their links, that the broker has refused
    too_large: int = 0  #: copies of it for whose size the broker has ended a link

    def holds(self, *, flagged: bool) -> bool:
        """Return whether this still counts when the message comes; if not, it was moved back, or the broker crashed."""
        return self.sure or flagged


class Remembered(NamedTuple):
    """What the process remembers of a message: how often it was handed out, and how often it failed."""

    deliveries: int  #: as the broker and Java clients count, so without local redeliveries
    failures: int  #: those of local redeliveries, too
    #: A copy of it is with the broker's scheduler, or may be: what comes is the original, whose ACK got lost
    sent_back: bool = False
    #: The broker has confirmed a copy of it as a dead letter, in no transaction with its ACK, which may have got lost
    only_ack_owed: bool = False
    #: Its copy was on its way, and was not confirmed
    dead_letter_cause: DeadLetterCause | None = None
    #: It came with the broker's flag, was not handed out, and nobody here knows of any delivery of it
    only_flagged: bool = False
    guessed: bool = False  #: one of `deliveries` is known by that flag alone


class History(NamedTuple):
    """The deliveries of a message before this one, as far as jmsx knows, and what was known of them when it came."""

    deliveries: int  #: as the application is told
    #: How many of them failed, which is what a redelivery policy limits; more than `deliveries`, where the application
    #: is told of fewer because another session repeated some
    failures: int
    on_arrival: int  #: deliveries before it came; the broker counts none of those that follow
    flagged: bool = False  #: the broker says that it was delivered before
    #: Redeliveries before it was sent back to the broker, which has it as a new message since
    sent_back: int = 0
    #: What its session knows of it from a lost link, after which it comes again
    lost: Lost | None = None
    #: The broker says that it was delivered before, and nobody here knows of that
    flag_unexplained: bool = False
    #: One of `deliveries` is known by the broker's flag alone, so that perhaps nobody has seen it
    guessed: bool = False
    #: How many of `failures` are deliveries that this session lost with a link, and whose end nobody has told
    untold: int = 0

    def merged(
        self,
        *,
        sent_back: int | None = None,
        lost: Lost | None = None,
        remembered: Remembered | None = None,
        entry: Entry | None = None,
    ) -> History:
        """Return the history of a message that has come, merged with what else is known of it; None: nothing new."""
        return merge(
            flagged=self.flagged,
            sent_back=self.sent_back if sent_back is None else sent_back,
            lost=self.lost if lost is None else lost,
            remembered=remembered,
            entry=entry,
        )

    def failed(self) -> History:
        """Return the history of the next delivery: this one has failed."""
        return self._replace(deliveries=self.deliveries + 1, failures=self.failures + 1)

    def undone(self) -> History:
        """Return the history of the next delivery: what was done with this one is undone, and it has not failed."""
        return self._replace(deliveries=self.deliveries + 1)

    def not_failed(self) -> History:
        """Return the history with one failure less: a delivery that was counted as failed has not failed."""
        return self._replace(failures=self.failures - 1, untold=max(self.untold - 1, 0))


#: No earlier delivery is known.
NEW: Final = History(0, 0, 0)

#: The broker's flag means "at least one". Classic flags all that was on its way to a consumer, seen or not, so that
#: delivery is a guess, and counts as no failure.
FLAGGED: Final = History(1, 0, 1, flagged=True, flag_unexplained=True, guessed=True)


def merge(
    *,
    flagged: bool,
    sent_back: int = 0,
    lost: Lost | None = None,
    remembered: Remembered | None = None,
    entry: Entry | None = None,
) -> History:
    """
    Merge what is known of a message: by the broker's flag, the count with which it was `sent_back` to the broker, this
    session, this process, and a ledger, whose `entry` is the hand-out that follows.

    Where these sources differ, the one that comes later in this list is right, if it knows of at least as many
    deliveries as are certain. The flag is a guess, and after a loss another session may have had the message; but the
    process may have forgotten what was counted before it was sent back, or before a refused commit. A ledger knows
    nothing of what was before the message was sent back, and forgets settled messages, which the process may remember.
    """
    delivered_before = flagged or (lost is not None and lost.flag_unexplained)
    if remembered is not None and remembered.only_flagged:
        delivered_before, remembered = True, None
    explained = lost is not None and not lost.flag_unexplained
    deliveries, failures = max(1 if delivered_before else 0, sent_back), sent_back
    certain = sent_back
    guessed = False
    untold = 0
    if lost is not None:
        deliveries, failures = lost.deliveries, lost.failures
        certain = deliveries if lost.refused else certain
    # What this session knows counts more, as long as nobody else got the message.
    if remembered is not None and (lost is None or remembered.deliveries > deliveries):
        explained = True
        if remembered.deliveries >= certain:
            deliveries, failures = remembered.deliveries, remembered.failures
            guessed = remembered.guessed
    if remembered is not None:
        certain = max(certain, remembered.deliveries)
    if entry is not None and sent_back + entry.deliveries >= certain:
        deliveries = sent_back + entry.deliveries
        failures = sent_back + entry.failures
        guessed = False
        # they may be this session's own, which counts them as failed
        if entry.in_doubt and lost is not None:
            untold = max(lost.failures - failures, 0)
            failures += untold
    unexplained = delivered_before and not explained
    return History(
        deliveries,
        failures,
        on_arrival=deliveries,
        flagged=flagged,
        sent_back=sent_back,
        lost=lost,
        flag_unexplained=unexplained,
        guessed=guessed or (unexplained and entry is None and not sent_back),
        untold=untold,
    )
