"""One delivery of a message: what is known of it from its frame on until it is settled."""

from __future__ import annotations

from typing import Final, NamedTuple

from jmsx.core.delivery_state import (
    ACKNOWLEDGED,
    ARROWS,
    ENDED,
    DeliveryInput,
    DeliveryState,
    next_state,
)
from jmsx.core.events import Outcome
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import SUBSCRIPTION_SEPARATOR, time_ms
from jmsx.core.ledger import Entry
from jmsx.core.values import Failure

#: The reason of dead letters that could not be understood.
UNDECODABLE: Final = "undecodable"


#: As `next_delivery`: there is none, the message is being moved to a dead letter queue.
DEAD_LETTER: Final = "dead"


class DeadLetterCause(NamedTuple):
    """Why a message becomes a dead letter as soon as it is handed out."""

    #: `max_redeliveries`, `rejected`, `expired` or `undecodable`
    reason: str
    failure: Failure
    sure: bool  #: the broker cannot have made it a dead letter already
    refused: int = 0  #: NACKs of it that the broker has refused, on whatever links


class MessageIdentity(NamedTuple):
    """The names that one message is recognised by, as `identity.identify` finds them."""

    key: str  #: its sender's, if that was made for it, else the broker's; what the application sees
    name: str  #: whether its sender sent it before: the key and a digest of the body; empty if there is no key
    copy: str  #: whether it came before: the broker's id and time, and a digest of the body; empty if there is no id
    vouched: bool  #: the key was made for this message, and so was its count


class Delivery:
    """
    A message that the broker dispatched to us; the same object over all local redeliveries.

    `redelivery_count` starts at 0, or at 1 ("at least") where the broker flagged the message as redelivered, because
    STOMP carries the flag only. Classic flags all that was on its way to somebody, seen or not, so that one is a guess
    and no failure. What this process knows of the message, or a ledger, takes its place.
    """

    __slots__ = (
        "ack_id",
        "arrival",
        "as_it_came",
        "certain_count",
        "commit_refused",
        "continued",
        "count_on_arrival",
        "count_when_sent_back",
        "dead_letter_cause",
        "ended_at",
        "entry",
        "epoch",
        "expires_at",
        "failure",
        "first_failed_at",
        "flagged",
        "frame",
        "identity",
        "is_flag_explained",
        "last_failed_at",
        "looked_at",
        "message_id",
        "next_delivery",
        "not_failed",
        "order",
        "owed_end",
        "received_at",
        "redelivery_count",
        "started_at",
        "state",
        "subscribed",
        "subscription_id",
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
    ) -> None:
        headers = frame.headers
        self.frame = frame
        #: The same when the message comes again, whatever is known of it by then
        self.as_it_came = frame
        self.arrival = arrival  #: its number in the session, in the order of arrival
        self.order: float = arrival  #: which of the session's consumers is served first: the lowest
        self.wire_subscription = headers.get("subscription", "")  #: the subscription on the wire
        #: The first wire subscription of its consumer
        self.subscription_id = self.wire_subscription.partition(SUBSCRIPTION_SEPARATOR)[0]
        self.epoch = epoch  #: which connection it came on; its ack id dies with that connection
        self.ack_id = headers.get("ack", "") if ack_id is None else ack_id
        self.message_id = message_id  #: the same over redeliveries, on whatever link
        self.subscribed = ""  #: URI of what its consumer reads, or nothing
        self.identity: MessageIdentity | None = None  #: what it is known by, once somebody asked
        #: Redeliveries before it was sent back to the broker, which has it as a new message since
        self.count_when_sent_back = 0
        self.certain_count = 0  #: redeliveries that are certain; the broker's flag is a guess
        #: The broker says that it was delivered before
        self.flagged = headers.get("redelivered") == "true"
        #: It was on its way to this process, which knows what became of it, whatever the flag says
        self.is_flag_explained = False
        self.redelivery_count = int(self.flagged)
        #: Redeliveries when it came; the broker counts none of our own
        self.count_on_arrival = self.redelivery_count
        self.entry: Entry | None = None  #: its last hand-out in the ledger, if one counts
        #: Redeliveries that are not known to follow a failure; below 0 where more have failed than the broker counts
        self.not_failed = self.redelivery_count
        self.received_at = received_at  #: seconds, monotonic
        self.expires_at = expires_at  #: seconds, monotonic; None: never
        self.started_at = received_at
        self.ended_at = received_at
        self.state = DeliveryState.WAITING
        #: How it ends as soon as its ACK is written, which waits for its turn; None: that is not put off
        self.owed_end: Outcome | None = None
        #: Why it becomes a dead letter as soon as it is handed out; None: it does not
        self.dead_letter_cause: DeadLetterCause | None = None
        self.looked_at = False  #: what came without a body was looked for elsewhere
        self.was_handed_out = False  #: the application has got it at least once
        self.continued = False  #: its count comes from before its link was lost
        self.commit_refused = False  #: its count comes from before a commit that the broker refused
        self.first_failed_at: float | None = None
        self.last_failed_at: float | None = None
        self.failure: Failure | None = None  #: if it failed
        #: After a failure: seconds until it is delivered again, or DEAD_LETTER
        self.next_delivery: float | str | None = None

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
            self.identity = None  # which was another one without the body
            self.frame = shown

    def mark_undecodable(self, error: Exception) -> None:
        """Mark the message as one that cannot be decoded: it becomes a dead letter, and only its bare frame is used."""
        self.frame = self.frame.bare()
        self.expires_at = None
        self.dead_letter_cause = DeadLetterCause(UNDECODABLE, _failure(error), sure=True)

    def continue_after_sending_back(self, redeliveries: int) -> None:
        """Start counting at the redeliveries before the message was sent back to the broker for later."""
        self.count_when_sent_back = self.certain_count = redeliveries
        self.redelivery_count = self.count_on_arrival = max(self.redelivery_count, redeliveries)
        self.not_failed = self.redelivery_count - redeliveries

    def continue_after_loss(self, redelivery_count: int, not_failed: int) -> None:
        """Go on counting from before the link was lost, which is why the broker flags the message."""
        self.continued = self.is_flag_explained = True
        self.redelivery_count = self.count_on_arrival = redelivery_count
        self.not_failed = not_failed

    def continue_after_refusal(self, redelivery_count: int, not_failed: int) -> None:
        """Go on counting from before a commit that the broker refused, which counts as a failure."""
        self.continue_after_loss(redelivery_count, not_failed)
        self.certain_count = redelivery_count
        self.commit_refused = True

    def continue_from_memory(self, deliveries: int, failures: int) -> None:
        """Take over what the process remembers: how often the message was handed out, and how many of these failed."""
        self.is_flag_explained = True
        if deliveries >= self.certain_count:
            self.certain_count = self.redelivery_count = self.count_on_arrival = deliveries
            self.not_failed = deliveries - failures

    def continue_from_ledger(self, entry: Entry) -> None:
        """Note that the ledger has counted this hand-out; go on from its number at the first one."""
        if self.entry is None:
            number = self.count_when_sent_back + entry.number
            if number > self.certain_count:
                self.not_failed = entry.finished
            self.redelivery_count = self.count_on_arrival = max(self.certain_count, number - 1)
        self.entry = entry

    def note_undone(self) -> None:
        """Note that this delivery is over and did not fail: what was done with it is undone."""
        self.redelivery_count += 1
        self.not_failed += 1

    def note_failure(self, failure: Failure, now: float) -> None:
        """Note that this delivery failed."""
        self.failure = failure
        self.first_failed_at = now if self.first_failed_at is None else self.first_failed_at
        self.last_failed_at = now

    @property
    def headers(self) -> dict[str, str]:
        """The MESSAGE headers."""
        return self.frame.headers

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before (JMSRedelivered), as far as jmsx knows or the broker says."""
        return self.redelivery_count > 0 or (self.flagged and not self.is_flag_explained)

    @property
    def failures(self) -> int:
        """How many deliveries before this one failed: what a redelivery policy limits."""
        return self.redelivery_count - self.not_failed

    @property
    def delivery_count(self) -> int:
        """Which delivery this is, counted from 1 (JMSXDeliveryCount)."""
        return self.redelivery_count + 1

    @property
    def attempts(self) -> int:
        """How many deliveries are known; the application is told of fewer where another session repeated some."""
        return max(self.delivery_count, self.failures + 1)

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
