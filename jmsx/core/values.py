"""Value types of the core: kinds of destination, settings of sessions and consumers, failures and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import Policy, RedeliveryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping


class StompAck(StrEnum):
    """The `ack` header of SUBSCRIBE."""

    CLIENT = "client"  #: an ACK covers everything dispatched before it, too
    CLIENT_INDIVIDUAL = "client-individual"


class DestinationKind(Enum):
    """What a consumer reads; prefetch and acknowledgement differ by it."""

    QUEUE = "queue"
    TOPIC = "topic"
    DURABLE = "durable"  #: a durable subscription of a topic


class DeadLetterStrategy(StrEnum):
    """Who dead-letters a message, where the application names no destination for that."""

    SAFE = "safe"  #: the broker, and a confirmed copy of ours wherever the broker would delete it
    #: The broker alone, as with the Java client: it deletes what its strategy does not keep
    BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeAcknowledge:
    """
    Batching of AUTO acknowledgements; times in seconds.

    Source: `ActiveMQMessageConsumer.java:992-1016`, `ActiveMQConnectionFactory.java:137-138`.
    """

    timeout: float = 0.3  #: a batch older than this goes out with the next message; 0: off
    scheduled_interval: float = 0.0  #: a batch goes out at least this often; 0: off


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What does not change during the life of a session."""

    mode: AcknowledgeMode
    broker: str  #: address without credentials, for errors
    session_id: str
    host: str = ""  #: this machine's name, for dead letters
    marker_day: int | None = None  #: today, in days since the epoch; None: no commit markers
    #: An unconfirmed send may be repeated on another broker, which has taken over all that the first one had
    anywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What does not change during the life of a consumer."""

    subscription_id: str
    name: str  #: in metrics and events
    destination: str  #: URI, such as `queue://orders`
    kind: DestinationKind
    mode: AcknowledgeMode
    stomp_ack: StompAck
    #: Headers of the SUBSCRIBE frame, as the dialect made them, without the window's
    headers: Mapping[str, str]
    #: A lasting name of the queue or subscription, the same for all consumers that read it
    origin: str
    #: URI of the queue for copies of dead letters, where the application names none
    dead_letter_queue: str
    prefetch: int  #: messages, >= 1
    policy: Policy = field(default_factory=RedeliveryPolicy)
    dead_letter: str = DeadLetterStrategy.SAFE  #: a strategy, or the destination URI of our copies
    optimize: OptimizeAcknowledge | None = None  #: only in AUTO mode
    non_blocking_redelivery: bool = False
    scheduled: bool = False  #: the broker's scheduler keeps messages until their redelivery
    #: Frames that are written before each copy to `dead_letter_queue`, so that the queue exists
    dead_letter_queue_frames: tuple[Frame, ...] = ()
    expired: str = ""  #: URI of the queue for copies of messages that expired here; empty: none
    expired_frames: tuple[Frame, ...] = ()  #: written before each copy to `expired`
    #: In events: the subscription by which the consumer reads a topic; None: it reads a queue
    subscription: str | None = None
    #: In events: the broker may give this consumer only some of the messages that wait there
    selective: bool = False

    # Derived from these once, because they are needed for each message:

    #: Each message is acknowledged by a frame of its own
    individual: bool = field(init=False, repr=False, compare=False)
    #: Messages are settled at commit
    transacted: bool = field(init=False, repr=False, compare=False)
    #: The session acknowledges without being told to (AUTO and DUPS_OK)
    acknowledges_itself: bool = field(init=False, repr=False, compare=False)
    #: ACKs are batched and nothing is rolled back, as in DUPS_OK on a topic; source:
    #: `ActiveMQMessageConsumer.java:312-318,944`
    lazy: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look up what the mode does."""
        does = self.mode.does
        follows = {
            "individual": self.stomp_ack is StompAck.CLIENT_INDIVIDUAL,
            "transacted": does.transacted,
            "acknowledges_itself": does.acknowledges_itself,
            "lazy": does.batches_topics and self.kind is not DestinationKind.QUEUE,
        }
        for name, value in follows.items():
            object.__setattr__(self, name, value)


class Disposition(Enum):
    """What is done with a message whose handler raised."""

    REDELIVER = "redeliver"  #: deliver it again, or make it a dead letter, by the policy
    REJECT = "reject"  #: dead letter, at once
    DISCARD = "discard"  #: acknowledge and forget, counted
    DUPLICATE = "duplicate"  #: acknowledge and forget, counted: it was done before
    RELEASE = "release"  #: not handled, and not its fault: it waits again, uncounted
    UNDO = "undo"  #: its handler's work is rolled back with that of others: it waits again as redelivered, not failed


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery failed, and what is done with the message."""

    error_type: str | None = None
    error_message: str | None = None
    stack: str | None = None  #: the traceback, with the messages of the exceptions
    disposition: Disposition = Disposition.REDELIVER
    delay: float | None = None  #: seconds; overrides the policy's
    place: str | None = None  #: file and line, where the application's code failed
    policy: Policy | None = None  #: for this kind of failure; None: the consumer's
    trace: str | None = None  #: the traceback in one line, without the messages of the exceptions


#: For a rollback() or recover() that the application calls: no handler has raised.
NO_FAILURE = Failure()


class QueueCounts(NamedTuple):
    """The broker's own counts of one queue, in messages; all but `size` since the broker or queue was started."""

    enqueued: int
    dequeued: int  #: acknowledged, dead-lettered or expired
    expired: int
    size: int  #: in the queue now, dispatched ones too
