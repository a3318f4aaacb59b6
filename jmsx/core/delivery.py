"""One delivery of a message: what is known of it from its frame on until it is settled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Final, NamedTuple

from jmsx.core.delivery_state import (
    ACKNOWLEDGED,
    ARROWS,
    ENDED,
    WAITING,
    DeliveryInput,
    next_state,
)
from jmsx.core.events import Outcome
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import COUNT_HEADER, SUBSCRIPTION_SEPARATOR, time_ms
from jmsx.core.history import (
    FLAGGED,
    NEW,
    DeadLetterCause,
    History,
    Lost,
    Remembered,
)
from jmsx.core.ledger import Entry
from jmsx.core.values import Failure

#: The reason of dead letters that could not be understood.
UNDECODABLE: Final = "undecodable"


#: As `next_delivery`: there is none, the message is being moved to a dead letter queue.
DEAD_LETTER: Final = "dead"


class MessageIdentity(NamedTuple):
    """The names that one message is recognised by, as `identity.identify` finds them."""

    key: str  #: the sender's key, if it was made for this message, else the broker's id; the application sees it
    name: str  #: tells whether the sender sent it before: key and digest of the body; empty if there is no key
    copy: str  #: tells whether it came before: the broker's id and time, and digest of the body; empty without an id
    vouched: bool  #: whether the sender's key was made for this message, so that its count of deliveries is believed


class Limit(IntEnum):
    """Whether a message is over its limit, and what the application's store says of it then."""

    WITHIN = auto()
    OVER = auto()  #: it is handed out only for the store to be asked whether it was done
    NOT_DONE = auto()  #: that store does not know it as done


#: A name of the module, as in `delivery_state`.
WITHIN: Final = Limit.WITHIN


class Failures(NamedTuple):
    """How the deliveries of a message failed, as far as its session knows."""

    failure: Failure | None = None  #: how the present delivery failed; None: it has not
    is_first: bool = False  #: `failure` is the first one of the message, as far as is known
    first_at: float | None = None  #: seconds, monotonic
    last_at: float | None = None
    #: After a failure: seconds until the message is delivered again, or DEAD_LETTER
    next_delivery: float | str | None = None


#: No delivery has failed, as far as the session knows.
NOT_FAILED: Final = Failures()


class Progress(IntEnum):
    """How far a message has come here."""

    ARRIVED = auto()
    ASKED = auto()  #: what the process and a ledger know of it is in its history
    HANDED_OUT = auto()  #: the application has got it at least once


# Names of the module, as in `delivery_state`.

ARRIVED: Final = Progress.ARRIVED
HANDED_OUT: Final = Progress.HANDED_OUT


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided about a message, besides the usual: the application gets it, and then its ACK is due."""

    limit: Limit = WITHIN
    #: Why it becomes a dead letter as soon as it is handed out; None: it does not
    dead_letter_cause: DeadLetterCause | None = None
    unseen: bool = False  #: it becomes a dead letter before the application gets it
    #: How it ends as soon as its ACK is written, which waits for its turn; None: its ACK is not put off
    owed_end: Outcome | None = None
    #: If the process dies during this hand-out, the ledger's count makes the message a dead letter
    is_last: bool = False


#: For most messages nothing else is decided.
UNDECIDED: Final = Decision()


@dataclass(slots=True, eq=False)
class Arrival:
    """
    What came with a MESSAGE frame, who reads it, and what its message is known by, once that was found.

    An Arrival never changes: if more of the message is found, or its expiry is not the broker's, another Arrival takes
    its place.
    """

    frame: MessageFrame  #: all that was shown of the message, by which it is recognised when it comes again
    number: int  #: its place in the session's order of arrival
    message_id: str  #: stays the same over redeliveries, on whatever link
    epoch: int  #: which connection it came on; its ack id dies with that connection
    received_at: float  #: seconds, monotonic
    expires_at: float | None  #: seconds, monotonic; None: never
    ack_id: str
    wire_subscription: str  #: the subscription on the wire
    subscription_id: str  #: the first wire subscription of its consumer
    subscribed: str  #: URI of what its consumer reads, or nothing
    looked_at: bool = False  #: its missing body was looked up (drivers/body_lookup.py)
    identity: MessageIdentity | None = None  #: None: not computed yet
    memory_key: int | None = None  #: by which the process remembers it; None: not computed yet


class Delivery:
    """
    A message that the broker dispatched to us; the same object over all local redeliveries.

    Each slot is written by the methods here alone, or by one module alone, which `tests/unit/core/test_delivery.py`
    names.
    """

    __slots__ = (
        "arrival",
        "decided",
        "ended_at",
        "entry",
        "failed",
        "frame",
        "history",
        "order",
        "progress",
        "runs_on",
        "started_at",
        "state",
    )

    def __init__(self, arrival: Arrival, history: History) -> None:
        self.arrival = arrival
        self.frame = arrival.frame  #: the frame that is used: all that came, or less
        self.history = history  #: what is known of the deliveries before this one
        self.failed = NOT_FAILED
        self.decided = UNDECIDED
        self.progress = ARRIVED
        self.state = WAITING
        self.entry: Entry | None = None  #: its last hand-out in the ledger, if one counts
        #: Of the session's consumers, the one whose next message has the lowest `order` is served first
        self.order: float = arrival.number
        self.started_at = self.ended_at = arrival.received_at
        #: The application still had it when its link was lost, and has not told since that it is done with it
        self.runs_on = False

    @classmethod
    def of(
        cls,
        frame: MessageFrame,
        number: int,
        message_id: str,
        *,
        epoch: int,
        now: float,
        wall: float,
        ack_id: str | None = None,
        subscribed: str = "",
    ) -> Delivery:
        """Make the delivery of `frame`; `wall` is the time of day in epoch seconds, for its expiry."""
        headers = frame.headers
        expires_ms = time_ms(headers.get("expires"))
        wire_subscription = headers.get("subscription", "")
        return cls(
            Arrival(  # in the order of its fields
                frame,
                number,
                message_id,
                epoch,
                now,
                None if expires_ms is None else now + expires_ms / 1000 - wall,
                headers.get("ack", "") if ack_id is None else ack_id,
                wire_subscription,
                wire_subscription.partition(SUBSCRIPTION_SEPARATOR)[0],
                subscribed,
            ),
            FLAGGED if headers.get("redelivered") == "true" else NEW,
        )

    def step(self, given: DeliveryInput) -> None:
        """Go to the next state; raises IllegalStateError where that may not happen."""
        self.state = ARROWS.get((self.state, given)) or next_state(self.state, given)

    @property
    def is_alive(self) -> bool:
        """Whether the delivery is neither acknowledged nor ended otherwise."""
        return self.state not in ENDED and self.state not in ACKNOWLEDGED

    @property
    def is_acknowledged(self) -> bool:
        """Whether its ACK is written, or being written; even so it may be handed out once more."""
        return self.state in ACKNOWLEDGED

    def complete(self, shown: MessageFrame | None) -> None:
        """Take the frame that another look at the message has `shown`, with its ack id; None: nothing more is known."""
        if shown is None:
            self.arrival = replace(self.arrival, looked_at=True)
            return
        self.frame = shown
        # both depend on the body
        self.arrival = replace(
            self.arrival, frame=shown, looked_at=True, identity=None, memory_key=None
        )

    def go_by(self, frame: MessageFrame) -> None:
        """Use `frame` in place of the one that came: the same message, or less of it."""
        self.frame = frame

    def never_expires(self) -> None:
        """Note that its time of expiry is not the broker's."""
        self.arrival = replace(self.arrival, expires_at=None)

    def mark_undecodable(self, error: Exception, frame: MessageFrame | None = None) -> None:
        """
        Mark the message as one that cannot be decoded: it becomes a dead letter, and only its bare frame is used.

        `frame`: all that came of it, where that is only known now.
        """
        self.frame = (self.frame if frame is None else frame).bare()
        self.never_expires()
        self.dies_of(DeadLetterCause(UNDECODABLE, _failure(error), sure=True))

    def dies_of(self, cause: DeadLetterCause) -> None:
        """Note why the message becomes a dead letter as soon as it is handed out."""
        self.decided = replace(self.decided, dead_letter_cause=cause)

    def go_over_limit(self) -> None:
        """Note that the message is over its limit: it is a dead letter, unless the application's store is asked."""
        self.decided = replace(self.decided, limit=Limit.OVER)

    def note_not_done(self) -> None:
        """Note that the application's store does not know the message, which is over its limit, as done."""
        self.decided = replace(self.decided, limit=Limit.NOT_DONE)

    def dies_unseen(self) -> None:
        """Note that the message becomes a dead letter before the application gets it."""
        self.decided = replace(self.decided, unseen=True)

    def note_last(self, *, is_last: bool) -> None:
        """Note whether the ledger's count makes the message a dead letter if its process dies with this hand-out."""
        if is_last is not self.decided.is_last:
            self.decided = replace(self.decided, is_last=is_last)

    def continue_after_sending_back(self, redeliveries: int) -> None:
        """Count on from the redeliveries before the message was sent back to the broker for later."""
        self.history = self.history.merged(sent_back=redeliveries)

    def continue_after_loss(self, lost: Lost) -> None:
        """Count on from before a link was lost, which is why the broker delivers the message again."""
        self.history = self.history.merged(lost=lost)

    def recover(self, failed: Failures, cause: DeadLetterCause | None) -> None:
        """Continue what was known of the message when its link was lost: how it failed, and why it is a dead letter."""
        self.failed = failed
        if cause is not None:
            self.dies_of(cause)

    def begin_hand_out(self, remembered: Remembered | None, entry: Entry | None) -> None:
        """
        Merge what the process has `remembered` and the ledger's `entry` for this hand-out into the history.

        At a later hand-out only the entry is new: whatever else has happened to the message since, this session did.
        """
        if entry is not None:
            self.entry = entry
        if self.progress is not ARRIVED:
            return
        if remembered is not None or entry is not None:
            self.history = self.history.merged(remembered=remembered, entry=entry)
        self.progress = Progress.ASKED

    def note_handed_out(self) -> None:
        """Note that the application has got the message."""
        self.progress = HANDED_OUT

    def forget_hand_out(self) -> None:
        """Forget the last hand-out, of which the ledger has been told."""
        self.entry = None

    def count_failed(self) -> None:
        """Count this delivery as failed; what follows belongs to the next one."""
        self.history = self.history.failed()

    def count_undone(self) -> None:
        """Count this delivery as one that is undone, and has not failed."""
        self.history = self.history.undone()

    def count_not_failed(self) -> None:
        """Count this delivery as one that has not failed, where its link is lost."""
        self.history = self.history.not_failed()

    def count_failures(self, failures: int) -> None:
        """Count so many failures, as the process remembers them."""
        self.history = self.history._replace(failures=failures)

    def note_failure(self, failure: Failure, now: float) -> None:
        """Note that this delivery failed."""
        before = self.failed
        # a failure is noted twice where a listener raised
        is_first = before.is_first if failure is before.failure else not self.failed_before
        first_at = now if before.first_at is None else before.first_at
        self.failed = Failures(failure, is_first, first_at, now, before.next_delivery)

    def begin_again(self) -> None:
        """Note that the next delivery of the message begins, which has not failed."""
        self.failed = self.failed._replace(failure=None)

    def expect_next(self, next_delivery: float | str | None) -> None:
        """Note in how many seconds the message is delivered again, or that it is a DEAD_LETTER; None: nobody knows."""
        self.failed = self.failed._replace(next_delivery=next_delivery)

    @property
    def failed_before(self) -> bool:
        """Whether the message has failed here, or was sent back to the broker because it failed."""
        return self.failed.first_at is not None or COUNT_HEADER in self.headers

    def owe(self, outcome: Outcome | None) -> None:
        """Note that only its ACK is owed, with which it ends by `outcome`; None: it has ended already."""
        self.step(DeliveryInput.COPY)
        self.decided = replace(self.decided, owed_end=outcome)

    def owe_nothing(self) -> None:
        """Note that the ACK which was owed is written, with which the delivery has ended."""
        self.decided = replace(self.decided, owed_end=None)

    @property
    def message_id(self) -> str:
        """What the broker knows the message by (JMSMessageID), over redeliveries and links."""
        return self.arrival.message_id

    @property
    def dead_letter_cause(self) -> DeadLetterCause | None:
        """Why the message becomes a dead letter as soon as it is handed out; None: it does not."""
        return self.decided.dead_letter_cause

    @property
    def headers(self) -> dict[str, str]:
        """The MESSAGE headers."""
        return self.frame.headers

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before (JMSRedelivered), as far as jmsx knows or the broker says."""
        history = self.history
        return history.deliveries > 0 or history.flag_unexplained

    @property
    def redelivery_count(self) -> int:
        """How many deliveries were before this one, as the application is told."""
        return self.history.deliveries

    @property
    def failures(self) -> int:
        """How many deliveries before this one failed: what a redelivery policy limits."""
        return self.history.failures

    @property
    def delivery_count(self) -> int:
        """Which delivery this is, counted from 1 (JMSXDeliveryCount)."""
        return self.history.deliveries + 1

    @property
    def attempts(self) -> int:
        """
        How many deliveries the application has seen, as far as is known; 1 also where it has seen none.

        `delivery_count` may be less, if another session repeated some, or one more, if only the broker's flag tells of
        that one.
        """
        history = self.history
        before = max(history.deliveries - history.guessed, history.failures)
        return max(before + (not self.decided.unseen), 1)

    def __repr__(self) -> str:
        return f"<Delivery {self.message_id} #{self.delivery_count} epoch {self.arrival.epoch}>"


class Held:
    """Holds the message of one `receive()` from the moment when it leaves the waiting ones; for `take_back`."""

    __slots__ = ("delivery",)

    def __init__(self) -> None:
        self.delivery: Delivery | None = None


def _failure(error: Exception) -> Failure:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - its text may raise, too
        text = ""
    return Failure(type(error).__name__, text)
