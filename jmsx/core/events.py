"""
What happened, as values that nobody changes: the one source of metrics, event log and logs.

They are not frozen, because a frozen dataclass takes four times as long to make (4.9 against 1.3 microseconds for
`DeliveryEnded`), and each message has two or three of them.

The core reports them in the order in which the wire saw them. Times are seconds on the monotonic clock of
the process that made them; whoever writes them down converts once, at the edge. One `DeliveryEnded` is
reported for each delivery, built when its fate is known, with the whole story of that delivery in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How one delivery ended."""

    ACKNOWLEDGED = "acknowledged"  #: the broker was told that the message is done
    COMMITTED = "committed"  #: the same, by the commit of a transaction
    ROLLED_BACK = "rolled_back"  #: failed, recovered or rolled back: it is delivered again by us
    DEAD_LETTERED = "dead_lettered"  #: given to the dead letter queue
    DISCARDED = "discarded"  #: acknowledged on purpose without being done
    DUPLICATE = "duplicate"  #: acknowledged without being done, because it was done before
    EXPIRED = "expired"  #: its time to live was over before the application saw it
    RELEASED = "released"  #: given back to the broker by an orderly close
    ABANDONED = "abandoned"  #: the connection was lost; the broker delivers it again


#: Outcomes by which the application, or somebody for it, was done with the message.
DONE = frozenset({Outcome.ACKNOWLEDGED, Outcome.COMMITTED, Outcome.DISCARDED, Outcome.DUPLICATE})

#: Outcomes after which the broker no longer holds the message for anyone.
SETTLED = DONE | {Outcome.DEAD_LETTERED, Outcome.EXPIRED}


class AckTrigger(StrEnum):
    """Why an ACK was written."""

    EACH = "each"  #: AUTO: one delivery is done
    THRESHOLD = "threshold"  #: a batch is full
    IDLE = "idle"  #: the local buffer ran dry, or a timeout passed
    EXPLICIT = "explicit"  #: the application called acknowledge()
    COMMIT = "commit"  #: a transaction was committed
    CLOSE = "close"  #: the consumer or session closes


class TransactionOutcome(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class Source:
    """Where an event comes from: one session on one connection to one broker."""

    broker: str  #: the broker's address without credentials, such as `127.0.0.1:61613`
    broker_kind: str  #: the dialect, such as `classic`
    connection_id: str  #: one per jmsx `Connection`
    session_id: str  #: one per session
    epoch: int  #: which socket of the session, counted from 1


@dataclass(slots=True, kw_only=True)
class MessagesReceived:
    """MESSAGE frames of one chunk came in for one consumer."""

    at: float
    consumer: str
    destination: str
    messages: int
    redelivered: int  #: how many of them carried the broker's `redelivered` flag


@dataclass(slots=True, kw_only=True)
class DeliveryEnded:
    """One delivery of one message, from frame to fate."""

    at: float  #: when its fate was known and, where an ACK was due, written
    consumer: str  #: the listener's name
    destination: str  #: as subscribed, such as `queue://orders`
    message_id: str
    message_key: str  #: stable identity: the sender's `jmsx_key`, else the broker's stable id
    correlation_id: str | None
    ack_mode: str
    prefetch: int  #: messages
    attempt: int  #: which delivery of this message, counted from 1; a lower bound across crashes
    redelivered: bool
    sent_ms: int | None  #: the broker's `timestamp` header, epoch milliseconds
    received_at: float
    started_at: float  #: handed to the application
    ended_at: float  #: the application was done with it
    outcome: Outcome
    error_type: str | None = None  #: class name of what the handler raised
    error_place: str | None = None  #: file and line, the innermost of the application's code
    transaction_id: str | None = None
    size: int = 0  #: bytes of the body
    subscription: str | None = None  #: whose copy of a topic's messages it is; None: of a queue


@dataclass(slots=True, kw_only=True)
class MessagesAcknowledged:
    """One ACK frame was written, settling `messages` messages."""

    at: float
    consumer: str
    destination: str
    messages: int
    trigger: AckTrigger


@dataclass(slots=True, kw_only=True)
class RedeliveryScheduled:
    """A message will be delivered again by us after `delay` seconds."""

    at: float
    consumer: str
    destination: str
    message_key: str
    next_attempt: int  #: counted from 1
    delay: float
    blocking: bool  #: later messages of the consumer wait for it


@dataclass(slots=True, kw_only=True)
class MessageDeadLettered:
    """The broker has confirmed that a message is a dead letter (`by_copy`: as our copy)."""

    at: float
    consumer: str
    destination: str
    message_id: str
    message_key: str
    attempts: int
    reason: str  #: `max_redeliveries`, `rejected`, `expired`, `undecodable`
    error_type: str | None
    error_message: str | None
    dead_letter_destination: str | None  #: None where the broker's own strategy decides
    by_copy: bool
    error_place: str | None = None  #: file and line, the innermost of the application's code


@dataclass(slots=True, kw_only=True)
class DeadLetterFailed:
    """A dead letter could not be confirmed; the original stays unacknowledged."""

    at: float
    consumer: str
    destination: str
    message_key: str
    reason: str
    dead_letter_destination: str | None = None  #: None where the broker's own strategy decides


@dataclass(slots=True, kw_only=True)
class MessageSent:
    """A SEND ended, well or not."""

    at: float
    destination: str
    message_key: str
    #: `confirmed` by receipt or commit, `unconfirmed` (none came), `error`, `rolled_back`
    outcome: str
    started_at: float
    size: int
    transaction_id: str | None = None
    expires_ms: int | None = None  #: the broker may throw it away from then on, epoch milliseconds
    #: Of the message whose listener sent it while it ran; None: none did, one of several, or a thread that one started.
    cause_key: str | None = None


@dataclass(slots=True, kw_only=True)
class TransactionEnded:
    """A transaction of the session ended."""

    at: float
    transaction_id: str
    outcome: TransactionOutcome
    started_at: float
    sends: int
    acknowledgements: int


@dataclass(slots=True, kw_only=True)
class SubscriptionOpened:
    """The broker confirmed a subscription."""

    at: float
    consumer: str
    destination: str
    ack_mode: str
    prefetch: int
    maximum_redeliveries: int
    optimize_acknowledge: bool
    subscription: str | None = None  #: whose copy of a topic's messages it gets; None: of a queue


@dataclass(slots=True, kw_only=True)
class SubscriptionClosed:
    """A consumer was closed."""

    at: float
    consumer: str
    destination: str


@dataclass(slots=True, kw_only=True)
class LinkOpened:
    """A socket to the broker is up and the broker said CONNECTED."""

    at: float
    server: str  #: the broker's own words, such as `ActiveMQ/6.1.8`
    seconds: float  #: how long connecting took


@dataclass(slots=True, kw_only=True)
class LinkClosed:
    """A socket to the broker is gone: `closed` by us, or lost (`heartbeat`, `error_frame`, `io`, `protocol`)."""

    at: float
    reason: str
    detail: str = ""
    in_doubt: bool = False  #: a commit was not answered, and the next socket will tell how it ended


@dataclass(slots=True, kw_only=True)
class LinkRestored:
    """After a loss there is a link again, with every subscription on it."""

    at: float
    seconds: float  #: how long there was none
    attempts: int  #: rounds over all brokers


@dataclass(slots=True, kw_only=True)
class ConnectFailed:
    """A broker that was tried did not let us in; there may be others, and other attempts."""

    at: float
    #: `refused` (no socket, or no welcome), `credentials`, `timeout`, `tls`, `settings`.
    result: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class LinkMeasured:
    """What has gone over the session's socket since it was opened; told now and then, and at its end."""

    at: float
    heard_at: float  #: the last bytes of the broker, heart-beats too
    #: Seconds without any after which the link is dropped; 0: no heart-beats are agreed.
    silence_limit: float
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int


@dataclass(slots=True, kw_only=True)
class ReceiptMissed:
    """The broker has not answered a frame in the time that it had; nobody waits for it any more."""

    at: float
    command: str  #: of the frame, such as `SEND`
    subject: str  #: destination, transaction or consumer


@dataclass(slots=True, kw_only=True)
class ErrorReceived:
    """The broker sent ERROR."""

    at: float
    message: str
    receipt_id: str | None = None


@dataclass(slots=True, kw_only=True)
class AckDropped:
    """An acknowledgement was not sent: its connection is gone, and the broker delivers again."""

    at: float
    consumer: str
    destination: str
    messages: int
    reason: str = field(default="stale_epoch")


@dataclass(slots=True, kw_only=True)
class QueueCounted:
    """The broker told its own counts of one queue: what it has seen since it was started."""

    at: float
    destination: str
    enqueued: int
    dequeued: int  #: acknowledged, dead-lettered or expired
    expired: int
    size: int  #: messages in it now, at consumers too


Event = (
    MessagesReceived
    | DeliveryEnded
    | MessagesAcknowledged
    | RedeliveryScheduled
    | MessageDeadLettered
    | DeadLetterFailed
    | MessageSent
    | TransactionEnded
    | SubscriptionOpened
    | SubscriptionClosed
    | LinkOpened
    | LinkClosed
    | LinkRestored
    | ConnectFailed
    | LinkMeasured
    | ReceiptMissed
    | ErrorReceived
    | AckDropped
    | QueueCounted
)
