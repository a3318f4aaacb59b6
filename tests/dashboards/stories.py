"""Events to tell an observer: one of each kind to change as needed, and a story with all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from jmsx.core.events import (
    AckDropped,
    AckTrigger,
    ClockCompared,
    ConnectFailed,
    ConsumerMeasured,
    DeadLetterFailed,
    DeliveryEnded,
    DeliveryEndedLate,
    ErrorReceived,
    LateOutcome,
    LinkClosed,
    LinkMeasured,
    LinkOpened,
    LinkRestored,
    MessageDeadLettered,
    MessagesAcknowledged,
    MessageSent,
    MessagesReceived,
    Outcome,
    QueueCounted,
    ReceiptMissed,
    RedeliveryScheduled,
    Source,
    SubscriptionClosed,
    SubscriptionOpened,
    SubscriptionRemoved,
    TransactionEnded,
    TransactionOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.core.events import Event

AT: Final = 1_000.0  #: seconds, monotonic
WALL: Final = 1_700_000_000.0  #: seconds since the epoch at `AT`
CONSUMER: Final = "handle"
DESTINATION: Final = "queue://orders"
WHO: Final = {"destination": DESTINATION, "consumer": CONSUMER}

SOURCE: Final = Source(
    broker="broker:61613", broker_kind="classic", connection_id="c1", session_id="s1", epoch=1
)
LINK_OPENED: Final = LinkOpened(at=AT, server="ActiveMQ/6.1.8", seconds=0.02)
LINK_CLOSED: Final = LinkClosed(at=AT, reason="closed")
LINK_RESTORED: Final = LinkRestored(at=AT, seconds=2.5, attempts=3)
CONNECT_FAILED: Final = ConnectFailed(at=AT, result="refused", detail="nobody there")
LINK_MEASURED: Final = LinkMeasured(
    at=AT,
    heard_at=AT + 2,
    silence_limit=20.0,
    frames_in=30,
    frames_out=20,
    bytes_in=3000,
    bytes_out=2000,
    unanswered=4,
)
CONSUMER_MEASURED: Final = ConsumerMeasured(
    at=AT, consumer=CONSUMER, destination=DESTINATION, buffered=5, in_process=2
)
CLOCK_COMPARED: Final = ClockCompared(at=AT, ahead=-0.25, within=0.002, every=60.0)
RECEIPT_MISSED: Final = ReceiptMissed(at=AT, command="SEND", subject=DESTINATION)
SUBSCRIBED: Final = SubscriptionOpened(
    at=AT,
    consumer=CONSUMER,
    destination=DESTINATION,
    ack_mode="client",
    prefetch=100,
    maximum_redeliveries=6,
    optimize_acknowledge=False,
)
UNSUBSCRIBED: Final = SubscriptionClosed(at=AT, consumer=CONSUMER, destination=DESTINATION)
LATE: Final = DeliveryEndedLate(
    at=AT,
    consumer=CONSUMER,
    destination=DESTINATION,
    message_key="7",
    attempt=1,
    epoch=1,
    started_at=AT,
    outcome=LateOutcome.DONE,
)
REMOVED: Final = SubscriptionRemoved(at=AT, subscription="durable:shop.orders")
RECEIVED: Final = MessagesReceived(
    at=AT, consumer=CONSUMER, destination=DESTINATION, messages=1, redelivered=0
)
#: Sent 2 s before it arrived, waited 0.25 s, took 0.5 s, acknowledged 0.125 s later.
ENDED: Final = DeliveryEnded(
    at=AT,
    consumer=CONSUMER,
    destination=DESTINATION,
    message_id="ID:1",
    message_key="ID:1",
    correlation_id=None,
    ack_mode="client",
    prefetch=100,
    attempt=1,
    redelivered=False,
    sent_ms=int((WALL - 2.875) * 1000),
    received_at=AT - 0.875,
    started_at=AT - 0.625,
    ended_at=AT - 0.125,
    outcome=Outcome.ACKNOWLEDGED,
)
ACKNOWLEDGED: Final = MessagesAcknowledged(
    at=AT, consumer=CONSUMER, destination=DESTINATION, messages=1, trigger=AckTrigger.EACH
)
REDELIVERY: Final = RedeliveryScheduled(
    at=AT,
    consumer=CONSUMER,
    destination=DESTINATION,
    message_key="ID:1",
    next_attempt=2,
    delay=1.0,
    blocking=True,
    by_broker=False,
)
DEAD_LETTERED: Final = MessageDeadLettered(
    at=AT,
    consumer=CONSUMER,
    destination=DESTINATION,
    message_id="ID:1",
    message_key="ID:1",
    attempts=7,
    reason="max_redeliveries",
    error_type="ValueError",
    error_message="no such order",
    dead_letter_destination=None,
    by_copy=False,
)
DEAD_LETTER_FAILED: Final = DeadLetterFailed(
    at=AT,
    consumer=CONSUMER,
    destination=DESTINATION,
    message_key="ID:1",
    reason="no, because of ID:1",
)
SENT: Final = MessageSent(
    at=AT,
    destination=DESTINATION,
    message_key="ID:2",
    outcome="confirmed",
    started_at=AT - 0.25,
    size=10,
)
TRANSACTION: Final = TransactionEnded(
    at=AT,
    transaction_id="t1",
    outcome=TransactionOutcome.COMMITTED,
    started_at=AT - 1.5,
    sends=2,
    acknowledgements=3,
)
ERROR: Final = ErrorReceived(at=AT, message="no")
ACK_DROPPED: Final = AckDropped(at=AT, consumer=CONSUMER, destination=DESTINATION, messages=2)

COUNTED: Final = QueueCounted(
    at=AT, destination=DESTINATION, enqueued=20, dequeued=13, expired=0, size=7, every=60.0
)


class IdleLog:
    """The numbers of an event log that has written something and waits for nothing."""

    records, errors, queued, unsynced_seconds = 7, 0, 0, 0.0

    def dropped_by_kind(self) -> dict[str, int]:
        """Tell of nothing."""
        return {}


def stand_still() -> tuple[float, float]:
    """A clock for tests: monotonic and wall seconds of the moment `AT`."""
    return AT, WALL


def working_hours() -> Iterator[Event]:
    """One round of all that can happen to messages: 11 come in, 2 of them again, and 1 stays unsettled."""
    yield replace(RECEIVED, messages=11, redelivered=2)
    yield replace(ENDED, outcome=Outcome.ROLLED_BACK, error_type="ValueError")
    yield REDELIVERY
    yield replace(REDELIVERY, delay=0.0)
    for attempt, outcome in enumerate(Outcome, start=1):
        if outcome is not Outcome.ROLLED_BACK:
            yield replace(ENDED, outcome=outcome, attempt=attempt)
    yield replace(ENDED, sent_ms=int((WALL + 60) * 1000))
    yield replace(ENDED, ack_mode="transacted", outcome=Outcome.COMMITTED, attempt=2)
    for trigger in AckTrigger:
        yield replace(ACKNOWLEDGED, trigger=trigger, messages=3)
    yield DEAD_LETTERED
    yield replace(DEAD_LETTERED, reason="rejected")
    yield DEAD_LETTER_FAILED
    yield ACK_DROPPED
    for sent in ("confirmed", "unconfirmed", "error"):
        yield replace(SENT, outcome=sent)
    for ended in TransactionOutcome:
        yield replace(TRANSACTION, outcome=ended)
    yield ERROR
    yield CONNECT_FAILED
    yield RECEIPT_MISSED
    yield CONSUMER_MEASURED
    yield CLOCK_COMPARED
    yield COUNTED


def lifetime() -> Iterator[tuple[Event, Source]]:
    """A session from its first socket over a lost one to its orderly end, with every kind of event."""
    lost = replace(LINK_CLOSED, reason="io", in_doubt=True)
    for event in (LINK_OPENED, SUBSCRIBED, *working_hours(), LINK_MEASURED, lost):
        yield event, SOURCE
    again = replace(SOURCE, epoch=2)
    closing = (LATE, UNSUBSCRIBED, RECEIVED, REMOVED, LINK_CLOSED)
    for event in (LINK_OPENED, SUBSCRIBED, LINK_RESTORED, *working_hours(), *closing):
        yield event, again
