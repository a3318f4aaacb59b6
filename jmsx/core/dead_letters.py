"""
Dead letters: how a message that shall not be delivered again leaves the broker's queue, and is not lost.

Where NACK makes the broker bury the message under its own strategy, NACK it is, and it is a dead letter when the broker
has answered. Everywhere else a copy is sent first, and the original is acknowledged when the broker has confirmed the
copy; until then it stays unacknowledged, and a consumer with cumulative ACKs hands out nothing, because a later ACK
would cover the original too.

Where ACKs take part in transactions, the two are one transaction of our own, so that a crash leaves one of them. Its
ACKs and its COMMIT are written when every copy is confirmed: an ERROR that answers a frame with a receipt, or that the
converter raises, spoils no transaction, and a COMMIT behind it would settle an original without a copy.

Source: `ActiveMQMessageConsumer.java:1281-1298`; BROKER.md C26, C30-C32 and C43 (Classic), A27 (Artemis).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from jmsx.core.consumer import nack, newest
from jmsx.core.death_headers import DeathCertificate
from jmsx.core.delivery import DEAD, UNDECODABLE, Doom
from jmsx.core.events import Outcome
from jmsx.core.frames import Frame
from jmsx.core.identity import stamp_again
from jmsx.core.requests import silent, unanswered
from jmsx.core.values import NO_FAILURE, DeadLetterStrategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.actions import Outbox
    from jmsx.core.browsers import Browsings
    from jmsx.core.consumer import ConsumerCore
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.requests import Request, Requests
    from jmsx.core.values import Failure, SessionSettings
    from jmsx.errors import JmsxError

#: Seconds before a copy that the broker refused is sent again.
RETRY: Final = 5.0

#: Single ACKs of a consumer in transactions of ours, on one link. Classic keeps each such message until the link ends,
#: and at every COMMIT searches all of them for each that is unacknowledged; with a thousand: 20 ms and more (measured).
SINGLE_ACKS: Final = 100


@dataclass(slots=True, eq=False)
class _Burial:
    """One message on its way to a dead letter queue."""

    consumer: ConsumerCore
    delivery: Delivery
    destination: str  #: URI of its copy; empty: the broker's own strategy
    reason: str
    failure: Failure
    #: The broker may have settled the original, and nobody knows
    in_doubt: bool = field(init=False)
    before: str = ""  #: URI of a copy that may have to be confirmed before the broker is asked

    def __post_init__(self) -> None:
        self.in_doubt = not self.destination


@dataclass(slots=True, eq=False)
class _Exchange:
    """Copies, and the ACKs of their originals, in one transaction of our own."""

    consumer: ConsumerCore
    batch: list[Delivery]  #: what is acknowledged, oldest first
    burials: list[_Burial]
    wire: dict[str, str]  #: the header that names the transaction
    awaited: int  #: copies without an answer
    refused: bool = False  #: one of them was
    settles: bool = False  #: the ACKs are in it


class DeadLetters:
    """Buries messages for one session."""

    def __init__(
        self,
        settings: SessionSettings,
        dialect: Dialect,
        requests: Requests,
        outbox: Outbox,
        *,
        releases: Callable[[], list[Frame]],
        in_transaction: Callable[[], bool],
        browsings: Browsings,
    ) -> None:
        self.wall_offset = 0.0  #: epoch seconds minus monotonic ones, for what people read
        self._host = settings.host
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._releases = releases  #: what ends every transaction that keeps a window open
        self._in_transaction = in_transaction  #: whether one of the application is on the link
        self._browsings = browsings
        self._exchanges = 0
        self._plain: set[str] = set()  #: where the broker refused to commit copies
        self._open: list[_Burial] = []
        self._refused: list[tuple[float, _Burial]] = []
        self._kept: set[Delivery] = set()  #: no copy has them, so no ACK may cover them

    def bury(
        self,
        consumer: ConsumerCore,
        batch: list[Delivery],
        reason: str,
        failure: Failure,
        now: float,
        *,
        alone: bool = False,
        destination: str = "",
    ) -> None:
        """
        Get rid of `batch` (oldest first, in nobody else's hands) because of `reason`.

        Copies go to the URI `destination`, if one is given, and else where dead letters go.
        `alone`: nothing else is handed out until copies are confirmed, as it is anyway where ACKs are cumulative.
        """
        alive = [one for one in batch if not (one.buried or one.acknowledged)]
        by_broker = [one for one in alive if self._broker_buries(consumer, one, reason)]
        nacked = set(by_broker)
        by_copy = [one for one in alive if one not in nacked]
        parks = bool(by_copy) and (alone or not consumer.settings.individual)
        burials = [_Burial(consumer, one, "", reason, failure) for one in by_broker]
        graves = {one: destination or self._grave(consumer, one) for one in alive}
        for burial in burials:
            deleted = self._may_be_deleted(consumer, burial.delivery, reason)
            burial.before = graves[burial.delivery] if deleted else ""
            burial.in_doubt = not burial.before
            self._add(
                burial, parks=parks or (bool(burial.before) and not consumer.settings.individual)
            )
        known = [one for one in burials if not one.before]
        if known:
            receipts = [self._ask(burial).receipt_id for burial in known]
            nacks = consumer.nack_frames([one.delivery for one in known], receipts)
            self._outbox.transmit(*nacks)
        for burial in burials:
            if burial.before:
                self._bury_unread(burial, now)
        left = [one for one in batch if one not in nacked]
        if left and not by_copy:  # buried before, and their ACK was waiting for the others
            consumer.write_acks(left)
        copied = [_Burial(consumer, one, graves[one], reason, failure) for one in by_copy]
        for burial in copied:
            self._add(burial, parks=parks)
        if copied:
            self._bury_by_copy(consumer, left, copied)

    def _may_be_deleted(self, consumer: ConsumerCore, delivery: Delivery, reason: str) -> bool:
        """
        Whether a NACK may delete what is worth a copy: so far only headers of another's message say that it does not.

        What could not be understood has nothing in a copy that its bare headers in the log do not tell; but of what is
        torn the copy has all that came.
        """
        if consumer.settings.dead_letter == DeadLetterStrategy.BROKER:
            return False
        if reason == UNDECODABLE and not delivery.frame.broken:
            return False
        return not self._dialect.genuine(delivery)

    def _bury_unread(self, burial: _Burial, now: float) -> None:
        """
        Ask whether the broker has as persistent what came without a body: then a NACK keeps it, and it is whole.

        A selector goes by what the broker knows itself, whatever the headers say.
        """

        def told(shown: bool) -> None:  # noqa: FBT001 - a callback
            if burial not in self._open:
                return
            if shown:
                self._nack(burial)
            else:
                self._bury_twice(burial)

        self._browsings.ask(burial.delivery, "JMSDeliveryMode = 'PERSISTENT'", told, now)

    def _nack(self, burial: _Burial) -> None:
        """Let the broker bury what will not be deleted, or has a copy."""
        burial.before, burial.in_doubt = "", True
        receipt = self._ask(burial).receipt_id
        self._outbox.transmit(*burial.consumer.nack_frames([burial.delivery], [receipt]))

    def _bury_twice(self, burial: _Burial) -> None:
        """Have a copy of what came confirmed, and then NACK the original, which is whole where that moves it."""

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if burial not in self._open:
                return error
            if error is not None:
                self._refuse(burial, error, now)
                return error
            self._nack(burial)
            return None

        request = self._requests.open("SEND", burial.before, answered)
        self._outbox.transmit(*self._copy_frames(burial, receipt=request.receipt_id))

    def _bury_by_copy(
        self, consumer: ConsumerCore, batch: list[Delivery], burials: list[_Burial]
    ) -> None:
        """Copy `burials`, and acknowledge `batch`, in which they are, with them or else behind them."""
        plain = self._plain.intersection(burial.destination for burial in burials)
        one = self._dialect.transactional_ack and not plain
        if one and self._may_settle(consumer, batch):
            self._exchange(consumer, batch, burials)
            return
        for burial in burials:
            self._outbox.transmit(*self._copy_frames(burial, receipt=self._ask(burial).receipt_id))
        self._settle_later(consumer, batch)

    def expire(self, consumer: ConsumerCore, delivery: Delivery, now: float) -> None:
        """
        Give an expired message to the broker's strategy for expired messages; where it has none, to ours.

        Where nothing but a copy does that, it goes where the broker puts what expires in its own hands.

        If the sender may have written its expiry, the broker may know of none, and would delete it; then it is copied.
        Source: `ActiveMQMessageConsumer.java:976-984`; STOMP's nearest to an EXPIRED ack is NACK (BROKER.md C59).
        """
        genuine = self._dialect.genuine(delivery)
        by_broker = consumer.settings.dead_letter == DeadLetterStrategy.BROKER
        if self._dialect.nack_buries and (genuine or by_broker):
            self._outbox.transmit(*consumer.nack_frames([delivery], [""]))
            consumer.end([delivery], Outcome.EXPIRED, now)
        elif consumer.settings.expired:
            where = consumer.settings.expired
            self.bury(consumer, [delivery], "expired", NO_FAILURE, now, destination=where)
        elif not genuine or delivery.headers.get("persistent") == "true":
            self.bury(consumer, [delivery], "expired", NO_FAILURE, now)
        else:
            consumer.end([delivery], Outcome.EXPIRED, now)
            consumer.settle_buried(delivery)

    def after(self, consumer: ConsumerCore, then: Callable[[], None]) -> None:
        """
        Run `then` when no copy for `consumer`, which is closing, is awaited any more.

        Copies that were refused are not tried again: those messages stay the broker's.
        """
        consumer.copies.after(then)
        for _, burial in list(self._refused):
            if burial.consumer is consumer:
                self._give_up(burial, burial.delivery.ended_at)
        consumer.copies.finish()

    def next_timer(self) -> float | None:
        """When a refused copy is sent again."""
        return min((at for at, _ in self._refused), default=None)

    def handle_timer(self, now: float) -> None:
        """Send again the copies that are due."""
        due = [burial for at, burial in self._refused if at <= now]
        self._refused = [entry for entry in self._refused if entry[0] > now]
        for burial in due:
            if burial.before:
                self._bury_twice(burial)
            elif burial.destination:
                receipt = self._ask(burial).receipt_id
                self._outbox.transmit(*self._copy_frames(burial, receipt=receipt))
            else:
                self._outbox.transmit(nack(burial.delivery, self._ask(burial).receipt_id))

    def lose(self, now: float) -> list[tuple[ConsumerCore, Delivery]]:
        """
        The link is gone: forget and return all that is not confirmed.

        The broker has the originals; each is told its doom, so that it is buried as soon as it comes again. But a NACK
        or a COMMIT may have been done, and somebody may move the message back: that it comes is no proof.
        """
        burials, self._open = self._open, []
        self._refused = []
        self._kept.clear()
        for burial in burials:
            burial.delivery.doom = Doom(burial.reason, burial.failure, sure=not burial.in_doubt)
            burial.consumer.end([burial.delivery], Outcome.ABANDONED, now)
            if burial.in_doubt:
                burial.consumer.recollection.doubted([burial.delivery])
        return [(burial.consumer, burial.delivery) for burial in burials]

    def _broker_buries(self, consumer: ConsumerCore, delivery: Delivery, reason: str) -> bool:
        strategy = consumer.settings.dead_letter
        if strategy == DeadLetterStrategy.BROKER:
            return self._dialect.nack_buries
        if not self._dialect.carries(delivery.headers, delivery.frame.body):
            return self._dialect.buried_by_broker(delivery, consumer.settings.kind)
        if strategy != DeadLetterStrategy.SAFE or reason == UNDECODABLE:
            return False  # whoever reads it again may not understand the original either
        return self._dialect.buried_by_broker(delivery, consumer.settings.kind)

    def _grave(self, consumer: ConsumerCore, delivery: Delivery) -> str:
        """
        Where a copy goes: the named queue, or else where the broker has its dead letters.

        There goes what lay in the named queue already: a copy beside it would come to the same consumer for ever.
        """
        settings = consumer.settings
        here = (settings.destination, self._dialect.addresses(delivery.headers).destination)
        named = settings.dead_letter
        return settings.grave if named in set(DeadLetterStrategy) or named in here else named

    def _copy_frames(self, burial: _Burial, **headers: str) -> list[Frame]:
        """The SEND of the copy, with `headers`, and what has to be before it."""
        settings, failure = burial.consumer.settings, burial.failure
        certificate = DeathCertificate(
            reason=burial.reason,
            destination=settings.destination,
            origin=settings.origin,
            delivery_count=burial.delivery.delivery_count,
            consumer=settings.name,
            error_type=failure.error_type,
            error_message=failure.error_message,
            stack=failure.stack,
            limit=settings.policy.maximum_redeliveries,
            host=self._host,
            first_failure=self._epoch_ms(burial.delivery.first_failed_at),
            last_failure=self._epoch_ms(burial.delivery.last_failed_at),
        )
        place = burial.destination or burial.before
        copy = self._copy(burial.delivery, place, certificate)
        before = {
            settings.expired: settings.expired_frames,
            settings.grave: settings.grave_frames,
        }
        frames = before.get(place, ())
        return [*frames, Frame("SEND", {**copy.headers, **headers}, copy.body)]

    def _copy(self, delivery: Delivery, destination: str, certificate: DeathCertificate) -> Frame:
        """The copy; of a message that bursts here, too, one of its bare frame."""
        try:
            copy = self._dialect.dead_letter_copy(delivery, destination, certificate)
            # for where it was: there it is the same message again, when somebody moves it back
            return stamp_again(copy, delivery, certificate.destination, self._dialect)
        except Exception as error:  # noqa: BLE001 - one message must not end the session
            delivery.condemn(error)
            return self._dialect.dead_letter_copy(delivery, destination, certificate)

    def _ask(self, burial: _Burial) -> Request:
        """The question whether it is a dead letter."""

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                self._confirmed(burial, now)
            else:
                self._refuse(burial, error, now)
            return error

        if burial.destination:
            return self._requests.open("SEND", burial.destination, answered)
        return self._requests.open("NACK", burial.consumer.settings.destination, answered)

    def _epoch_ms(self, at: float | None) -> int | None:
        return None if at is None else round((at + self.wall_offset) * 1000)

    def _confirmed(self, burial: _Burial, now: float) -> None:
        if burial not in self._open:
            return
        self._remove(burial)
        consumer = burial.consumer
        self._report(burial, now)
        if consumer.settings.individual and burial.destination:
            consumer.settle_buried(burial.delivery)
        consumer.copies.finish()

    def _refuse(self, burial: _Burial, error: JmsxError, now: float) -> None:
        if burial in self._open:
            self._tell_refused(burial, error, now)
            self._try_later(burial, now)

    @staticmethod
    def _tell_refused(burial: _Burial, error: JmsxError, now: float) -> None:
        burial.consumer.evidence.not_buried(burial.delivery, str(error), burial.destination, now)

    def _try_later(self, burial: _Burial, now: float) -> None:
        """A copy that is not made is tried again, unless its consumer closes."""
        self._refused.append((now + RETRY, burial))
        if burial.consumer.copies.closing:
            self._give_up(burial, now)
            burial.consumer.copies.finish()

    def _add(self, burial: _Burial, *, parks: bool) -> None:
        self._open.append(burial)
        burial.delivery.prospect = DEAD
        burial.consumer.copies.add(burial, parks=parks)

    def _remove(self, burial: _Burial) -> None:
        self._open.remove(burial)
        burial.consumer.copies.remove(burial)

    def _give_up(self, burial: _Burial, now: float) -> None:
        self._remove(burial)
        self._kept.add(burial.delivery)
        self._refused = [entry for entry in self._refused if entry[1] is not burial]
        burial.consumer.end([burial.delivery], Outcome.RELEASED, now)

    # Copy and ACK in one transaction ---------------------------------------------------------------------------------

    def _exchange(
        self, consumer: ConsumerCore, batch: list[Delivery], burials: list[_Burial]
    ) -> None:
        """Begin it, and send the copies in it."""
        self._exchanges += 1
        wire = {"transaction": f"jmsx-dead-{self._exchanges}"}
        exchange = _Exchange(consumer, batch, burials, wire, len(burials))
        frames = [Frame("BEGIN", wire)]
        for burial in burials:

            def sent(
                now: float, error: JmsxError | None, burial: _Burial = burial
            ) -> JmsxError | None:
                self._copied(exchange, burial, error, now)
                return error

            request = self._requests.open("SEND", burial.destination, sent)
            frames += self._copy_frames(burial, **wire, receipt=request.receipt_id)
        self._outbox.transmit(*frames)

    def _copied(
        self, exchange: _Exchange, burial: _Burial, error: JmsxError | None, now: float
    ) -> None:
        """One copy is in it, or was refused; after the last answer it ends."""
        exchange.awaited -= 1
        if error is not None:
            exchange.refused = True
            self._tell_refused(burial, error, now)
        if exchange.awaited:
            return
        if not exchange.refused:
            self._commit(exchange)
            return
        if error is None or not silent(error):
            self._outbox.transmit(*self._releases(), Frame("ABORT", exchange.wire))
        self._settle_later(exchange.consumer, exchange.batch)
        for each in exchange.burials:  # one of them must not keep the others from being copied
            self._try_later(each, now)

    def _commit(self, exchange: _Exchange) -> None:
        consumer = exchange.consumer

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                self._committed(exchange, now)
            else:
                self._not_committed(exchange, error, now)
            return error

        request = self._requests.open("COMMIT", exchange.burials[0].destination, answered)
        alone = consumer.settings.individual or consumer.copies.no_others(exchange.burials)
        exchange.settles = alone and self._may_settle(consumer, exchange.batch)
        acks: list[Frame] = []
        if exchange.settles:
            acks = consumer.ack_frames(exchange.batch, **exchange.wire)
            consumer.window.reset()
            if consumer.settings.individual:
                consumer.copies.single_acks += len(acks)
            for burial in exchange.burials:
                burial.in_doubt = True
        commit = Frame("COMMIT", {**exchange.wire, "receipt": request.receipt_id})
        self._outbox.transmit(*self._releases(), *acks, commit)

    def _may_settle(self, consumer: ConsumerCore, batch: list[Delivery]) -> bool:
        """Whether ACKs of `batch` settle nothing else, and meet none of the application's transaction."""
        if self._in_transaction():
            return False
        if consumer.settings.individual:
            return consumer.copies.single_acks + len(batch) <= SINGLE_ACKS
        older = any(one.arrival < batch[-1].arrival for one in consumer.waiting)
        return not (older or consumer.delivered or self._kept)

    def _committed(self, exchange: _Exchange, now: float) -> None:
        if not exchange.settles:
            self._settle_later(exchange.consumer, exchange.batch)
            for burial in exchange.burials:
                self._confirmed(burial, now)
            return
        for burial in exchange.burials:
            self._remove(burial)
            self._report(burial, now)
            burial.delivery.buried = True
        exchange.consumer.copies.finish()

    def _not_committed(self, exchange: _Exchange, error: JmsxError, now: float) -> None:
        """
        Refused: neither was done, and only another link can free the originals (BROKER.md C32).

        So it is with a fault of the broker's, after which both may have been done.
        """
        if not silent(error):
            self._plain.update(burial.destination for burial in exchange.burials)
            for burial in exchange.burials:
                burial.in_doubt = unanswered(error)
            self._outbox.disconnect(f"dead letters could not be copied: {error}")
        self._settle_later(exchange.consumer, exchange.batch)
        for burial in exchange.burials:
            self._refuse(burial, error, now)

    # Behind the copies -----------------------------------------------------------------------------------------------

    def _settle_later(self, consumer: ConsumerCore, batch: list[Delivery]) -> None:
        """Acknowledge `batch` when there is a copy of each; where ACKs are single, each follows its own copy."""
        if not consumer.settings.individual:
            consumer.copies.when_clear(lambda: self._settle(consumer, batch))

    def _settle(self, consumer: ConsumerCore, batch: list[Delivery]) -> None:
        """Acknowledge `batch` (oldest first), up to the first of which there is no copy."""
        kept = [index for index, one in enumerate(batch) if one in self._kept]
        for delivery in newest(batch[: kept[0]] if kept else batch):
            consumer.settle_buried(delivery)

    def _report(self, burial: _Burial, now: float) -> None:
        consumer, delivery, failure = burial.consumer, burial.delivery, burial.failure
        consumer.evidence.dead_lettered(delivery, burial.reason, failure, burial.destination, now)
        consumer.end([delivery], Outcome.DEAD_LETTERED, now)
        if burial.destination:
            consumer.recollection.copied([delivery])
        else:  # it lies in a queue of the broker's, and may be moved back and be new
            consumer.recollection.forget([delivery])
