"""One delivery of a message: what is known of it from its frame on until it is settled."""

from __future__ import annotations

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
    FLAG,
    FLAGGED,
    NEW,
    NOTHING,
    DeadLetterCause,
    Lost,
    Remembered,
    merge,
)
from jmsx.core.ledger import Entry
from jmsx.core.values import Failure

#: The reason of dead letters that could not be understood.
UNDECODABLE: Final = "undecodable"


#: As `next_delivery`: there is none, the message is being moved to a dead letter queue.
DEAD_LETTER: Final = "dead"


class MessageIdentity(NamedTuple):
    """The names that one message is recognised by, as `identity.identify` finds them."""

    key: str  #: its sender's, if that was made for it, else the broker's; what the application sees
    name: str  #: whether its sender sent it before: the key and a digest of the body; empty if there is no key
    copy: str  #: whether it came before: the broker's id and time, and a digest of the body; empty if there is no id
    vouched: bool  #: whether the sender's key was made for this message, so that its count of deliveries is believed


class Limit(IntEnum):
    """Whether a message is over its limit, and what the application's store says of it then."""

    WITHIN = auto()
    OVER = auto()  #: it is handed out only for the store to be asked whether it was done
    NOT_DONE = auto()  #: it was not, as far as that store knows


#: A name of the module, as in `delivery_state`.
WITHIN: Final = Limit.WITHIN


class Failures(NamedTuple):
    """How the deliveries of a message failed, as far as its session knows."""

    failure: Failure | None = None  #: of the present delivery, if that failed
    is_first: bool = False  #: that is the first failure of the message, as far as is known
    first_at: float | None = None  #: seconds, monotonic
    last_at: float | None = None
    #: After a failure: seconds until the message is delivered again, or DEAD_LETTER
    next_delivery: float | str | None = None


#: As far as its session knows, none did.
NOT_FAILED: Final = Failures()


class Delivery:
    """
    A message that the broker dispatched to us; the same object over all local redeliveries.

    What came with it never changes. Each other slot is written by the methods here alone, or by one module alone, which
    `tests/unit/core/test_delivery.py` names.
    """

    __slots__ = (
        "ack_id",
        "arrival",
        "as_it_came",
        "asked",
        "before",
        "dead_letter_cause",
        "ended_at",
        "entry",
        "epoch",
        "expires_at",
        "failed",
        "frame",
        "history",
        "identity",
        "is_last",
        "limit",
        "looked_at",
        "memory_key",
        "message_id",
        "order",
        "owed_end",
        "received_at",
        "runs_on",
        "started_at",
        "state",
        "subscribed",
        "subscription_id",
        "unseen",
        "was_handed_out",
        "wire_subscription",
    )

    def __init__(
        self,
        frame: MessageFrame,
        *,
        arrival: int,
        message_id: str,
        epoch: int,
        received_at: float,
        expires_at: float | None,
        ack_id: str | None = None,
        subscribed: str = "",
    ) -> None:
        headers = frame.headers
        self.frame = frame
        #: The same when the message comes again, whatever is known of it by then
        self.as_it_came = frame
        #: Its number in the session, in the order of arrival
        self.arrival: Final = arrival
        self.order: float = arrival  #: which of the session's consumers is served first: the lowest
        #: The subscription on the wire
        self.wire_subscription: Final = headers.get("subscription", "")
        #: The first wire subscription of its consumer
        self.subscription_id: Final = self.wire_subscription.partition(SUBSCRIPTION_SEPARATOR)[0]
        #: Which connection it came on; its ack id dies with that connection
        self.epoch: Final = epoch
        self.ack_id: Final = headers.get("ack", "") if ack_id is None else ack_id
        #: The same over redeliveries, on whatever link
        self.message_id: Final = message_id
        self.subscribed = subscribed  #: URI of what its consumer reads, or nothing
        self.identity: MessageIdentity | None = None  #: what it is known by, once somebody asked
        self.memory_key: int | None = None  #: the same for the memory of the process
        flagged = headers.get("redelivered") == "true"
        self.before = FLAG if flagged else NOTHING  #: what is known of earlier ones when it comes
        self.history = FLAGGED if flagged else NEW  #: all that is known of those before this one
        self.asked = False  #: what the process and a ledger know of it is in its history
        self.entry: Entry | None = None  #: its last hand-out in the ledger, if one counts
        #: If its process dies with it, the ledger's count makes it a dead letter
        self.is_last = False
        self.received_at: Final = received_at  #: seconds, monotonic
        self.expires_at = expires_at  #: seconds, monotonic; None: never
        self.started_at = received_at
        self.ended_at = received_at
        #: The application still had it when its link was lost, and has not told since that it is done with it
        self.runs_on = False
        self.state = WAITING
        #: How it ends as soon as its ACK is written, which waits for its turn; None: that is not put off
        self.owed_end: Outcome | None = None
        self.limit = WITHIN
        #: Why it becomes a dead letter as soon as it is handed out; None: it does not
        self.dead_letter_cause: DeadLetterCause | None = None
        self.unseen = False  #: it becomes a dead letter before the application gets it
        self.looked_at = False  #: what came without a body was looked for elsewhere
        self.was_handed_out = False  #: the application has got it at least once
        self.failed = NOT_FAILED

    @classmethod
    def of(
        cls,
        frame: MessageFrame,
        arrival: int,
        message_id: str,
        *,
        epoch: int,
        now: float,
        wall: float,
        ack_id: str | None = None,
    ) -> Delivery:
        """Make the delivery of `frame`; `wall` is the time of day in epoch seconds, for its expiry."""
        expires_ms = time_ms(frame.headers.get("expires"))
        expires_at = None if expires_ms is None else now + expires_ms / 1000 - wall
        return cls(
            frame,
            arrival=arrival,
            message_id=message_id,
            epoch=epoch,
            received_at=now,
            expires_at=expires_at,
            ack_id=ack_id,
        )

    def step(self, given: DeliveryInput) -> None:
        """Go to the next state; raises IllegalStateError where that may not happen."""
        self.state = ARROWS.get((self.state, given)) or next_state(self.state, given)

    @property
    def is_alive(self) -> bool:
        """Whether it is neither acknowledged nor ended otherwise."""
        return self.state not in ENDED and self.state not in ACKNOWLEDGED

    @property
    def is_acknowledged(self) -> bool:
        """Whether its ACK is made: it may be handed out once more all the same."""
        return self.state in ACKNOWLEDGED

    def complete(self, shown: MessageFrame | None) -> None:
        """Take the frame that another look at the message has `shown`, with its ack id; None: nothing more is known."""
        self.looked_at = True
        if shown is not None:
            self.identity = self.memory_key = None  # which were others without the body
            self.frame = self.as_it_came = shown

    def go_by(self, frame: MessageFrame) -> None:
        """Be `frame`, in place of the one that came: the same message, or less of it."""
        self.frame = frame

    def never_expires(self) -> None:
        """Note that its time of expiry is not the broker's."""
        self.expires_at = None

    def mark_undecodable(self, error: Exception, frame: MessageFrame | None = None) -> None:
        """
        Mark the message as one that cannot be decoded: it becomes a dead letter, and only its bare frame is used.

        `frame`: all that came of it, where that is only known now.
        """
        self.frame = (self.frame if frame is None else frame).bare()
        self.expires_at = None
        self.dead_letter_cause = DeadLetterCause(UNDECODABLE, _failure(error), sure=True)

    def dies_of(self, cause: DeadLetterCause) -> None:
        """Note why the message becomes a dead letter as soon as it is handed out."""
        self.dead_letter_cause = cause

    def go_over_limit(self) -> None:
        """Note that the message is over its limit: it is a dead letter, unless the application's store is asked."""
        self.limit = Limit.OVER

    def note_not_done(self) -> None:
        """Note that the application's store does not know the message, which is over its limit, as done."""
        self.limit = Limit.NOT_DONE

    def dies_unseen(self) -> None:
        """Note that the message becomes a dead letter before the application gets it."""
        self.unseen = True

    def continue_after_sending_back(self, redeliveries: int) -> None:
        """Count on from the redeliveries before the message was sent back to the broker for later."""
        self.before = self.before._replace(sent_back=redeliveries)
        self._merge()

    def continue_after_loss(self, lost: Lost) -> None:
        """Count on from before a link was lost, which is why the broker delivers the message again."""
        self.before = self.before._replace(lost=lost)
        self._merge()

    def _merge(self, remembered: Remembered | None = None, entry: Entry | None = None) -> None:
        flagged, sent_back, lost = self.before
        self.history = merge(
            flagged=flagged, sent_back=sent_back, lost=lost, remembered=remembered, entry=entry
        )

    def recover(self, failed: Failures, cause: DeadLetterCause | None) -> None:
        """Continue what was known of the message when its link was lost: how it failed, and why it is to die."""
        self.failed = failed
        self.dead_letter_cause = cause

    def begin_hand_out(self, remembered: Remembered | None, entry: Entry | None) -> None:
        """
        Merge what the process has `remembered` and the ledger's `entry` for this hand-out into the history.

        At a later hand-out only the entry is new: whatever else has happened to the message since, this session did.
        """
        if entry is not None:
            self.entry = entry
        if self.asked:
            return
        if remembered is not None or entry is not None:
            self._merge(remembered, entry)
        self.asked = True

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
        # it is noted twice where a listener raised
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
        """Whether the message has failed here, or was sent back to the broker for that."""
        return self.failed.first_at is not None or COUNT_HEADER in self.headers

    def owe(self, outcome: Outcome | None) -> None:
        """Owe nothing but its ACK, with which it ends; None: it has ended already."""
        self.step(DeliveryInput.COPY)
        self.owed_end = outcome

    def owe_nothing(self) -> None:
        """Note that the ACK which it owed is written, and that it has ended with it."""
        self.owed_end = None

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

        It is told of fewer where another session repeated some, and of one more where the broker's flag is all that
        tells of one.
        """
        history = self.history
        before = max(history.deliveries - history.guessed, history.failures)
        return max(before + (not self.unseen), 1)

    def __repr__(self) -> str:
        return f"<Delivery {self.message_id} #{self.delivery_count} epoch {self.epoch}>"


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
