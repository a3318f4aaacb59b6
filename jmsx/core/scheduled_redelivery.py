"""
Redelivery by the broker's scheduler: the message is sent back with a delay, and the original acknowledged.

So no message waits in the process: it takes no room in the prefetch window, and a crash does not bring it back early;
but order is given up. The copy has a new message id and keeps the key. A header has its redelivery count, from which a
ledger counts on. Where ACKs take part in transactions, SEND and ACK are one transaction; elsewhere the ACK follows when
the broker has confirmed the copy. If that ACK is lost with the link, the original comes again, to any session of the
process. Handed out, it would be done twice; so it is sent back once more, and the broker, which knows the copy by its
identity, drops the second one.

Source: BROKER.md C45 (Classic) and A13 (Artemis) on `AMQ_SCHEDULED_DELAY`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.consumer import ConsumerCore
from jmsx.core.death_headers import CUT_HEADER
from jmsx.core.delivery import Delivery
from jmsx.core.delivery_state import DeliveryInput, DeliveryState
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger, Outcome
from jmsx.core.frames import Frame, Outbox
from jmsx.core.identity import stamp
from jmsx.core.requests import Requests, unanswered
from jmsx.core.values import Failure
from jmsx.errors import JmsxError

if TYPE_CHECKING:
    from collections.abc import Callable


#: The transaction on the wire in which a message is sent back and acknowledged.
_WIRE_NAME: Final = "jmsx-postpone"


class ScheduledRedelivery:
    """Sends the failed messages of one session back to the broker, which delivers them later."""

    def __init__(
        self,
        dialect: Dialect,
        requests: Requests,
        outbox: Outbox,
        *,
        releases: Callable[[], list[Frame]],
    ) -> None:
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._releases = releases  #: returns frames that end transactions which keep windows open

    def schedule(
        self,
        consumer: ConsumerCore,
        batch: list[Delivery],
        failure: Failure,
        now: float,
        draw: Callable[[], float],
    ) -> bool:
        """
        Have the broker deliver `batch` (oldest first, all handed out) again; False if the session has to do that
        itself, as where the ACK would settle more than the batch.

        The newest message decides the delay for all, as in a redelivery by the session.
        """
        alive = [one for one in batch if one.is_alive]
        if not (consumer.settings.scheduled and alive and consumer.settles_alone(batch)):
            return False
        attempt, policy = alive[-1].failures + 1, failure.policy or consumer.settings.policy
        delay = policy.delay(attempt, draw) if failure.delay is None else failure.delay
        if policy.exhausted(attempt) or delay <= 0:
            return False
        if not all(self._dialect.reading.carries(one.headers, one.frame.body) for one in alive):
            return False  # a copy would lack the body
        if not all(self._fits(one, consumer) for one in alive):
            return False  # a copy would lack some of the headers
        consumer.end(batch, Outcome.ROLLED_BACK, now)
        for delivery in alive:
            delivery.count_failed()
            consumer.reports.redelivery(delivery, delay, now, by_broker=True)
        self._send_back(consumer, batch, alive, delay)
        return True

    def send_back_again(
        self,
        consumer: ConsumerCore,
        delivery: Delivery,
        failures: int,
        draw: Callable[[], float],
    ) -> bool:
        """
        Send back once more an original that was sent back after `failures` failures, and has come again.

        It was just handed out, and the application has not seen it. False if its consumer does not use the scheduler.
        """
        if not consumer.settings.scheduled:
            return False
        delivery.count_failures(failures)
        delay = max(consumer.settings.policy.delay(failures, draw), 0.0)
        consumer.take_delivered(delivery)
        self._send_back(consumer, [delivery], [delivery], delay)
        return True

    def _send_back(
        self, consumer: ConsumerCore, batch: list[Delivery], alive: list[Delivery], delay: float
    ) -> None:
        copies = [self._copy(one, consumer, delay) for one in alive]
        for delivery in alive:
            blocks = not consumer.settings.individual
            consumer.copies.add(delivery, DeliveryInput.SEND_BACK, blocks=blocks)
        if not self._dialect.transactional_ack:
            consumer.memory.sent_back(alive)
        self._send(consumer, batch, copies)

    def _fits(self, delivery: Delivery, consumer: ConsumerCore) -> bool:
        copy = self._dialect.copying.scheduled_copy(delivery, consumer.settings, "", 0.0)
        return CUT_HEADER not in copy.headers

    def _copy(self, delivery: Delivery, consumer: ConsumerCore, delay: float) -> Frame:
        key, settings = consumer.key(delivery), consumer.settings
        copy = self._dialect.copying.scheduled_copy(delivery, settings, key, delay)
        headers = stamp(copy.headers, copy.body, key, settings.destination, self._dialect.reading)
        return Frame("SEND", headers, copy.body)

    def _send(self, consumer: ConsumerCore, batch: list[Delivery], copies: list[Frame]) -> None:
        moved = [one for one in batch if one.state is DeliveryState.LEAVING]

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            given = DeliveryInput.COPY if error is None else DeliveryInput.TAKE_BACK
            for delivery in moved:
                consumer.copies.remove(delivery, given)
            if error is None:
                alone = consumer.settles_alone(batch) and not consumer.copies.committing
                if self._dialect.transactional_ack:
                    for delivery in batch:
                        delivery.step(DeliveryInput.SETTLE)
                elif alone:
                    consumer.write_acks(batch)
                else:  # it has come again, and the application holds others, or commits them
                    consumer.copies.settle_when_clear(batch)
                if self._dialect.transactional_ack or alone:
                    consumer.reports.acknowledged(batch, AckTrigger.EACH, now)
                consumer.memory.given_back(batch)  # after a crash the broker may have both
                consumer.forget_counts(batch)
                consumer.end_owed(batch, now)
            else:
                if not unanswered(error):
                    consumer.memory.not_sent_back(moved)
                consumer.take_back(batch)
                self._outbox.disconnect(f"a message could not be sent back: {error}")
            consumer.copies.finish(now)
            return error

        place = consumer.settings.destination
        request = self._requests.open("SEND", place, answered, is_copy=True)
        receipt = {"receipt": request.receipt_id}
        if self._dialect.transactional_ack:
            wire = {"transaction": _WIRE_NAME}
            begin = [*self._releases(), Frame("BEGIN", wire)]
            acks = consumer.ack_frames(batch, **wire)
            consumer.reset_window()
            sends = [Frame("SEND", {**copy.headers, **wire}, copy.body) for copy in copies]
            end = Frame("COMMIT", {**wire, **receipt})
            self._outbox.transmit(*begin, *sends, *acks, end)
        else:
            *others, last = copies
            self._outbox.transmit(*others, Frame("SEND", {**last.headers, **receipt}, last.body))
