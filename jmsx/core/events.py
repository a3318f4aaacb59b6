"""
What happened, as values that nobody changes: the one source of metrics, event log and logs.

They are not frozen, because a frozen dataclass takes four times as long to make, and each message has two or three of
them. Events of single messages take positional arguments, too, because keywords take Python longer than all else: a
`DeliveryEnded` takes 1.6 microseconds with them, and 0.6 without.

The core reports events in the order of the frames on the wire. Times are seconds on the monotonic clock of the process
that made them; whoever writes them down converts them, once. One `DeliveryEnded` is reported for each delivery, when it
has ended, with all that is known of that delivery.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


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


class LateOutcome(StrEnum):
    """How a delivery went that ended after its link was lost."""

    DONE = "done"  #: its handler has returned, or the application acknowledged or committed it
    FAILED = "failed"  #: its handler has raised
    UNDONE = "undone"  #: recovered, rolled back or given back
    IN_DOUBT = "in_doubt"  #: the broker was asked to make it a dead letter, and has not answered


class AckTrigger(StrEnum):
    """Why an ACK was written."""

    EACH = "each"  #: AUTO: a delivery is done, perhaps with others of the last 5 ms
    THRESHOLD = "threshold"  #: a batch is full
    IDLE = "idle"  #: the local buffer ran dry, or a timeout passed
    EXPLICIT = "explicit"  #: the application called acknowledge()
    COMMIT = "commit"  #: a transaction was committed
    CLOSE = "close"  #: the consumer or session closes


#: Reasons for the ACK of a single message, as names of the module: see core/delivery_state.py.
EACH: Final = AckTrigger.EACH
EXPLICIT: Final = AckTrigger.EXPLICIT


class TransactionOutcome(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class Source:
    """
    Where an event comes from: one session on one connection to one broker.

    Args:
        broker: its address without credentials, such as `127.0.0.1:61613`.
        broker_kind: the dialect, such as `classic`.
        connection_id: one for each jmsx `Connection`.
        session_id: one for each session.
        epoch: which socket of the session, counted from 1.

    """

    broker: str
    broker_kind: str
    connection_id: str
    session_id: str
    epoch: int


@dataclass(slots=True)
class MessagesReceived:
    """
    MESSAGE frames of one chunk came in for one consumer.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        messages: how many.
        redelivered: how many of them carried the broker's `redelivered` flag.

    """

    at: float
    consumer: str
    destination: str
    messages: int
    redelivered: int


@dataclass(slots=True)
class DeliveryEnded:
    """
    One delivery of one message, from its MESSAGE frame to its end.

    Args:
        at: when it ended and, where an ACK was due, that was written; seconds, monotonic, as all times here.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        message_id: the broker's.
        message_key: the message's identity: the sender's `jmsx_key`, else the broker's stable id.
        correlation_id: the sender's; None: the message has none.
        ack_mode: the session's acknowledge mode, such as `auto`.
        prefetch: the consumer's, in messages.
        attempt: which delivery of this message, counted from 1; a lower bound across crashes.
        redelivered: whether it was delivered before, by our count or the broker's flag.
        sent_ms: the broker's `timestamp` header, epoch milliseconds; None: it has none.
        received_at: when it came in.
        started_at: when it was handed to the application.
        ended_at: when the application was done with it; if its link was lost before its handler was called: when it
            came in; if it was lost while that ran: as `at`.
        outcome: how it ended.
        error_type: class name of what the handler raised; None: nothing.
        error_place: file and line, the innermost of the application's code.
        error_stack: the traceback, with those of its causes, in one line and without their messages; None: it is not
            the first failure of the message, or the event of its dead letter has it.
        transaction_id: the transaction that it was part of; None: none.
        size: bytes of the body.
        subscription: whose copy of a topic's messages it is; None: of a queue.

    """

    at: float
    consumer: str
    destination: str
    message_id: str
    message_key: str
    correlation_id: str | None
    ack_mode: str
    prefetch: int
    attempt: int
    redelivered: bool
    sent_ms: int | None
    received_at: float
    started_at: float
    ended_at: float
    outcome: Outcome
    error_type: str | None = None
    error_place: str | None = None
    error_stack: str | None = None
    transaction_id: str | None = None
    size: int = 0
    subscription: str | None = None


@dataclass(slots=True, kw_only=True)
class DeliveryEndedLate:
    """
    How a delivery went that ended `abandoned`, because its link was lost while the application had it.

    If the broker was asked for a dead letter, and did not answer, this is reported at once (`in_doubt`); that the
    application gave the message back before that is an event of its own. It is not reported if the process, session or
    consumer ends before.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        message_key: the message's identity: the sender's `jmsx_key`, else the broker's stable id.
        attempt: which delivery of this message, counted from 1; a lower bound across crashes.
        epoch: the socket of the session that it came on, which is lost.
        started_at: when it was handed to the application; seconds, monotonic.
        outcome: how that went.
        error_type: class name of what the handler raised; None: nothing.
        error_place: file and line, the innermost of the application's code.
        subscription: whose copy of a topic's messages it is; None: of a queue.

    """

    at: float
    consumer: str
    destination: str
    message_key: str
    attempt: int
    epoch: int
    started_at: float
    outcome: LateOutcome
    error_type: str | None = None
    error_place: str | None = None
    subscription: str | None = None


@dataclass(slots=True)
class MessagesAcknowledged:
    """
    One ACK frame was written, settling `messages` messages.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        messages: how many it settled.
        trigger: why it was written.

    """

    at: float
    consumer: str
    destination: str
    messages: int
    trigger: AckTrigger


@dataclass(slots=True, kw_only=True)
class RedeliveryScheduled:
    """
    A message will be delivered again by us after `delay` seconds.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        message_key: the message's identity: the sender's `jmsx_key`, else the broker's stable id.
        next_attempt: which delivery of the message that will be, counted from 1.
        delay: seconds until then.
        blocking: whether later messages of the consumer wait for it.
        by_broker: whether it waits in the broker's scheduler, which goes on when the consumer has ended.

    """

    at: float
    consumer: str
    destination: str
    message_key: str
    next_attempt: int
    delay: float
    blocking: bool
    by_broker: bool


@dataclass(slots=True, kw_only=True)
class MessageDeadLettered:
    """
    The broker has confirmed that a message is a dead letter (`by_copy`: as our copy).

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        message_id: the broker's.
        message_key: the message's identity: the sender's `jmsx_key`, else the broker's stable id.
        attempts: deliveries that the application has seen; 1 also where it has seen none.
        reason: `max_redeliveries`, `rejected`, `expired`, `undecodable`.
        error_type: class name of what the handler raised last; None: nothing.
        error_message: what that said.
        dead_letter_destination: where it is; None where the broker's own strategy decides.
        by_copy: whether it is our copy that is there; if not, the broker moved the message.
        error_place: file and line, the innermost of the application's code.
        error_stack: the traceback, with those of its causes, in one line and without their messages.

    """

    at: float
    consumer: str
    destination: str
    message_id: str
    message_key: str
    attempts: int
    reason: str
    error_type: str | None
    error_message: str | None
    dead_letter_destination: str | None
    by_copy: bool
    error_place: str | None = None
    error_stack: str | None = None


@dataclass(slots=True, kw_only=True)
class DeadLetterFailed:
    """
    A dead letter could not be confirmed; the original stays unacknowledged.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        message_key: the message's identity: the sender's `jmsx_key`, else the broker's stable id.
        reason: why not.
        dead_letter_destination: where it was to go; None where the broker's own strategy decides.

    """

    at: float
    consumer: str
    destination: str
    message_key: str
    reason: str
    dead_letter_destination: str | None = None


@dataclass(slots=True)
class MessageSent:
    """
    A SEND ended, well or not.

    Args:
        at: when; seconds, monotonic.
        destination: where it was sent to, such as `queue://orders`.
        message_key: the identity that it was given.
        outcome: `confirmed` by receipt or commit, `unconfirmed` (none came), `error`, `rolled_back`.
        started_at: when it was begun; seconds, monotonic.
        size: bytes of the body.
        transaction_id: the transaction that it was part of; None: none.
        expires_ms: the broker may throw it away from then on, epoch milliseconds; None: never.
        cause_key: key of the message whose listener sent it; None: no listener did, or one that had several messages,
            or a thread that a listener started.
        duplicate_id: id by which the broker drops a second such message there; None: none, or the message's identity.

    """

    at: float
    destination: str
    message_key: str

    outcome: str
    started_at: float
    size: int
    transaction_id: str | None = None
    expires_ms: int | None = None

    cause_key: str | None = None
    duplicate_id: str | None = None


@dataclass(slots=True, kw_only=True)
class TransactionEnded:
    """
    A transaction of the session ended.

    Args:
        at: when; seconds, monotonic.
        transaction_id: its name on the wire.
        outcome: how it ended.
        started_at: when it was begun; seconds, monotonic.
        sends: messages sent in it.
        acknowledgements: messages that were acknowledged in it.

    """

    at: float
    transaction_id: str
    outcome: TransactionOutcome
    started_at: float
    sends: int
    acknowledgements: int


@dataclass(slots=True, kw_only=True)
class SubscriptionOpened:
    """
    The broker confirmed a subscription.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        ack_mode: the session's acknowledge mode, such as `auto`.
        prefetch: in messages.
        maximum_redeliveries: the limit of its redelivery policy; -1: for ever.
        optimize_acknowledge: whether its ACKs are batched.
        subscription: whose copy of a topic's messages it gets; None: of a queue.
        selective: whether the broker may give it less than all that waits there: it has a selector, does without what
            its connection sends, has `consumer.*` options, or asks for each message; None: unknown.

    """

    at: float
    consumer: str
    destination: str
    ack_mode: str
    prefetch: int
    maximum_redeliveries: int
    optimize_acknowledge: bool
    subscription: str | None = None
    selective: bool | None = None


@dataclass(slots=True, kw_only=True)
class SubscriptionClosed:
    """
    A consumer was closed.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.

    """

    at: float
    consumer: str
    destination: str


@dataclass(slots=True, kw_only=True)
class SubscriptionRemoved:
    """
    The broker confirmed that a durable subscription is removed, and with it the messages that it still had.

    Args:
        at: when; seconds, monotonic.
        subscription: as in `SubscriptionOpened`.

    """

    at: float
    subscription: str


@dataclass(slots=True, kw_only=True)
class LinkOpened:
    """
    A socket to the broker is up and the broker said CONNECTED.

    Args:
        at: when; seconds, monotonic.
        server: the broker's own words, such as `ActiveMQ/6.1.8`.
        seconds: how long connecting took.

    """

    at: float
    server: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class LinkClosed:
    """
    A socket to the broker is gone: `closed` by us, or lost (`heartbeat`, `error_frame`, `io`, `protocol`).

    Args:
        at: when; seconds, monotonic.
        reason: `closed` by us, or lost: `heartbeat`, `error_frame`, `io`, `protocol`.
        detail: what the socket or the broker said.
        in_doubt: whether a commit was not answered, and the next socket will tell how it ended.

    """

    at: float
    reason: str
    detail: str = ""
    in_doubt: bool = False


@dataclass(slots=True, kw_only=True)
class LinkRestored:
    """
    After a loss there is a link again, with every subscription on it.

    Args:
        at: when; seconds, monotonic.
        seconds: how long there was none.
        attempts: rounds over all brokers.

    """

    at: float
    seconds: float
    attempts: int


@dataclass(slots=True, kw_only=True)
class ConnectFailed:
    """
    A broker that was tried did not let us in; there may be others, and other attempts.

    Args:
        at: when; seconds, monotonic.
        result: `refused` (no connection, or no CONNECTED frame), `credentials`, `timeout`, `tls`, `settings`.
        detail: what the socket or the broker said.

    """

    at: float

    result: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class LinkMeasured:
    """
    What has gone over the session's socket since it was opened; told now and then, and at its end.

    Args:
        at: when; seconds, monotonic.
        heard_at: when the last bytes of the broker came, heart-beats too; seconds, monotonic.
        silence_limit: seconds without any after which the link is dropped; 0: no heart-beats are agreed.
        frames_in: frames read.
        frames_out: frames written.
        bytes_in: bytes read.
        bytes_out: bytes written.
        unanswered: frames of the session that the broker has yet to answer; 0 at the socket's end.

    """

    at: float
    heard_at: float

    silence_limit: float
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    unanswered: int = 0


@dataclass(slots=True, kw_only=True)
class ConsumerMeasured:
    """
    How many messages of a consumer are here; told now and then, with `LinkMeasured`.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        buffered: they wait to be handed out, some until a redelivery is due, or the broker has moved them.
        in_process: the application has them: their handlers run, or they are not acknowledged or committed.
        still_in_process: of these, those that it had already when this was told last.

    """

    at: float
    consumer: str
    destination: str
    buffered: int
    in_process: int
    still_in_process: int = 0


@dataclass(slots=True, kw_only=True)
class ReceiptMissed:
    """
    The broker has not answered a frame in the time that it had; nobody waits for it any more.

    Args:
        at: when; seconds, monotonic.
        command: of the frame, such as `SEND`.
        subject: destination, transaction or consumer.

    """

    at: float
    command: str
    subject: str


@dataclass(slots=True, kw_only=True)
class ErrorReceived:
    """
    The broker sent ERROR.

    Args:
        at: when; seconds, monotonic.
        message: what it says.
        receipt_id: of the frame that it answers; None: it names none.

    """

    at: float
    message: str
    receipt_id: str | None = None


@dataclass(slots=True, kw_only=True)
class AckDropped:
    """
    An acknowledgement was not sent: its connection is gone, and the broker delivers again.

    Args:
        at: when; seconds, monotonic.
        consumer: the consumer's name.
        destination: the destination as subscribed, such as `queue://orders`.
        messages: how many it was for.
        reason: why; `stale_epoch` is all there is.

    """

    at: float
    consumer: str
    destination: str
    messages: int
    reason: str = field(default="stale_epoch")


@dataclass(slots=True, kw_only=True)
class QueueCounted:
    """
    The broker told its own counts of one queue: what it has seen since it was started.

    Args:
        at: when; seconds, monotonic.
        destination: the queue, such as `queue://orders`.
        enqueued: messages that came in.
        dequeued: messages that left: acknowledged, dead-lettered or expired.
        expired: messages whose time was over.
        size: messages in it now, at consumers too.
        every: seconds until the broker is asked again.

    """

    at: float
    destination: str
    enqueued: int
    dequeued: int
    expired: int
    size: int
    every: float


@dataclass(slots=True, kw_only=True)
class ClockCompared:
    """
    The broker stamped a message of ours, which shows its clock.

    Args:
        at: when; seconds, monotonic.
        ahead: seconds that its clock is ahead of this host's; negative: behind.
        within: how far that may be off, seconds: half of the round trip.
        every: seconds until the broker is asked again.

    """

    at: float
    ahead: float
    within: float
    every: float


Event = (
    MessagesReceived
    | DeliveryEnded
    | DeliveryEndedLate
    | MessagesAcknowledged
    | RedeliveryScheduled
    | MessageDeadLettered
    | DeadLetterFailed
    | MessageSent
    | TransactionEnded
    | SubscriptionOpened
    | SubscriptionClosed
    | SubscriptionRemoved
    | LinkOpened
    | LinkClosed
    | LinkRestored
    | ConnectFailed
    | LinkMeasured
    | ConsumerMeasured
    | ReceiptMissed
    | ErrorReceived
    | AckDropped
    | QueueCounted
    | ClockCompared
)
