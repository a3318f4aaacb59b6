"""
Moves messages that shall not be delivered again to a dead letter queue.

Where NACK makes the broker move the message by its own strategy, NACK is sent, and the message is a dead letter when
the broker has answered. Everywhere else a copy is sent first, and the original is acknowledged when the broker has
confirmed the copy. Until either answer a consumer with cumulative ACKs hands out nothing, because a later ACK would
cover the original too. A NACK that is refused is of no more use on its link; a broker that refuses it on several gets a
copy, or is asked less and less often where a copy would not have all of the message, or is not wanted.

Where ACKs take part in transactions, copy and ACK are in one transaction of jmsx's own, so that a crash leaves either
the copy or the original. Its ACKs and its COMMIT are written when every copy is confirmed: an ERROR that answers a
frame with a receipt, or that the converter raises, spoils no transaction, and a COMMIT behind it would settle an
original without a copy.

Source: `ActiveMQMessageConsumer.java:1281-1298`; BROKER.md C26, C30-C32, C43 and C76 (Classic), A27 (Artemis).
"""

from __future__ import annotations

import itertools
from bisect import insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx.core.browsers import Browsers
from jmsx.core.consumer import ConsumerCore, nack
from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import DEAD_LETTER, UNDECODABLE, Delivery
from jmsx.core.delivery_state import DeliveryInput
from jmsx.core.destination_names import is_pattern, one_of
from jmsx.core.dialect import Dialect
from jmsx.core.events import LateOutcome, Outcome
from jmsx.core.frames import Frame, Outbox
from jmsx.core.history import DeadLetterCause
from jmsx.core.identity import stamp_again
from jmsx.core.requests import Request, Requests, silent, unanswered
from jmsx.core.values import NO_FAILURE, DeadLetterStrategy, Failure, SessionSettings
from jmsx.errors import JmsxError, LinkError, ResourceAllocationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: Seconds before a copy that the broker refused is sent again, and before a second NACK of a message.
RETRY: Final = 5.0

#: How often that time doubles from one refused NACK of a message to the next: up to five minutes.
DOUBLINGS: Final = 6

#: The same for a copy whose refusal ends the link: up to 80 s, so that a health probe sees it all the time. Artemis
#: counts a delivery for each such end, and moves or deletes the message after ten, by default (its BROKER.md, A71).
COPY_DOUBLINGS: Final = 4

#: After so many refused NACKs of a message the next link begins with a copy of it, where that is as good.
FEW: Final = 3

#: Single ACKs of a consumer in jmsx's own transactions, on one link. Classic keeps each such message until the link
#: ends, and at every COMMIT searches all of them for each that is unacknowledged; with a thousand: 7 ms
#: instead of 1 (jmsx_classic/BROKER.md C68).
SINGLE_ACKS: Final = 100


#: The transaction on the wire that asks whether the broker has room for a dead letter.
_ROOM: Final = "jmsx-room"

#: The reason that is told of a message which the broker has no more, and no consumer will be given once more.
_NO_MORE: Final = (
    "the connection was lost before the copy was confirmed, and its consumer is closed; an interrupted receive() had"
    " acknowledged the message, so that it may be lost"
)


class Dead(NamedTuple):
    """A message that is to be a dead letter, and why."""

    delivery: Delivery
    reason: str
    failure: Failure


@dataclass(slots=True, eq=False)
class _Move:
    """One message on its way to a dead letter queue."""

    consumer: ConsumerCore
    delivery: Delivery
    destination: str  #: URI of its copy; empty: the broker's own strategy
    reason: str
    failure: Failure
    #: The broker may have settled the original, and nobody knows
    in_doubt: bool = field(init=False)
    unanswered: bool = False  #: one of its NACKs had no answer, or one that leaves that open
    copy_first_to: str = ""  #: URI of a copy that may have to be confirmed before the NACK
    #: How often the broker has refused its NACK on this link, or has ended a link over its copy
    refused: int = 0
    receipt: str = ""  #: id of the receipt for its copy
    too_large: bool = False  #: the broker has ended the link over its copy's size

    def __post_init__(self) -> None:
        self.in_doubt = not self.destination


@dataclass(slots=True, eq=False)
class _CopyTransaction:
    """Copies, and the ACKs of their originals, in one transaction of jmsx's own."""

    consumer: ConsumerCore
    batch: list[Delivery]  #: the messages to acknowledge, oldest first
    moves: list[_Move]
    wire: dict[str, str]  #: the header that names the transaction
    awaited: int  #: copies without an answer
    refused: list[_Move] = field(default_factory=list)  #: moves whose copies were refused
    settles: bool = False  #: its ACKs are in the transaction


class DeadLetters:
    """Moves messages of one session to dead letter queues."""

    def __init__(
        self,
        settings: SessionSettings,
        dialect: Dialect,
        requests: Requests,
        outbox: Outbox,
        *,
        releases: Callable[[], list[Frame]],
        in_transaction: Callable[[], bool],
        browsers: Browsers,
    ) -> None:
        self.wall_offset = 0.0  #: epoch seconds minus monotonic ones, for what people read
        self._host = settings.host
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._releases = releases  #: returns frames that end transactions which keep windows open
        self._in_transaction = in_transaction  #: tells whether the application has one open
        self._browsers = browsers
        self._transactions = 0
        self._plain: set[str] = set()  #: URIs for which the broker refused to commit copies
        self._open: dict[_Move, None] = {}
        self.refused: list[tuple[float, _Move]] = []  #: with the time of the next try
        #: Transactions whose copies the broker has, and that are to be committed; see `_commit_ready`.
        self._ready: list[_CopyTransaction] = []

    def move(
        self,
        consumer: ConsumerCore,
        dead: Sequence[Dead],
        now: float,
        *,
        alone: bool = False,
        destination: str = "",
    ) -> None:
        """
        Move `dead` (oldest first) to dead letter queues; nobody else may still handle them.

        Messages that fail together are to be moved by one call: while older messages are not settled, copy and ACK
        cannot be in one transaction. Copies go to the URI `destination`, if one is given, and else to the consumer's
        dead letter queue. `alone`: nothing else is handed out until the copies are confirmed, which is always so where
        ACKs are cumulative.
        """
        # the broker cannot move a message that an interrupted receive() has acknowledged
        alive = [one for one in dead if one.delivery.is_alive or one.delivery.is_acknowledged]
        by_broker = [
            one
            for one in alive
            if not one.delivery.is_acknowledged
            and self._moved_by_broker(consumer, one.delivery, one.reason)
        ]
        nacked = {one.delivery for one in by_broker}
        by_copy = [one for one in alive if one.delivery not in nacked]
        # some may have a copy, and wait for their ACK
        left = [one.delivery for one in dead if one.delivery not in nacked]
        cumulative = not consumer.settings.individual
        moves = [_Move(consumer, one.delivery, "", one.reason, one.failure) for one in by_broker]
        queues = {
            one.delivery: destination or self._queue_for(consumer, one.delivery) for one in alive
        }
        for one, move in zip(by_broker, moves, strict=True):
            deleted = self._may_be_deleted(consumer, one.delivery, one.reason)
            move.copy_first_to = queues[one.delivery] if deleted else ""
            move.in_doubt = not move.copy_first_to
            self._add(move, blocks=cumulative)
        known = [one for one in moves if not one.copy_first_to]
        if known:
            self._move_by_nack(consumer, known)
        for move in moves:
            if move.copy_first_to:
                self._move_unread(move, now)
        if left and not by_copy:  # copied before, and their ACK was waiting for the others
            self._settle_later(consumer, left)
            consumer.copies.finish(now)
        copied = [
            _Move(consumer, one.delivery, queues[one.delivery], one.reason, one.failure)
            for one in by_copy
        ]
        for move in copied:
            self._add(move, blocks=alone or cumulative)
        if copied:
            self._move_by_copy(consumer, left, copied, now)

    def _may_be_deleted(self, consumer: ConsumerCore, delivery: Delivery, reason: str) -> bool:
        """
        Return whether a NACK may make the broker delete a message that is worth a copy.

        That is so where only headers which the sender may have written say that the broker keeps it. An undecodable
        message is not copied for that: the log has its headers. A truncated one is, because its copy has all that came.
        """
        if consumer.settings.dead_letter == DeadLetterStrategy.BROKER:
            return False
        in_log = reason == UNDECODABLE and not delivery.frame.broken
        if in_log and not _fits_no_frame(delivery):
            return False
        return not self._dialect.reading.genuine(delivery)

    def _move_unread(self, move: _Move, now: float) -> None:
        """
        Ask whether the broker holds a message as persistent that came without its body, or that no copy has room for:
        then NACK keeps all of it.

        A selector goes by what the broker knows itself, whatever the headers say.
        """

        def told(shown: bool) -> None:  # noqa: FBT001 - a callback with one answer
            if move not in self._open:
                return
            if shown:
                move.copy_first_to = ""
                self._move_by_nack(move.consumer, [move])
            elif _fits_no_frame(move.delivery):
                self._try_later(move, None, now, _pause(move.delivery))
            else:
                self._copy_then_nack(move)

        self._browsers.ask(move.delivery, "JMSDeliveryMode = 'PERSISTENT'", told, now)

    def _move_by_nack(self, consumer: ConsumerCore, moves: list[_Move]) -> None:
        """
        Send NACKs of `moves`; a broker that would delete what it has no room for is asked first whether it has room.

        The question is the SEND of a dead letter in a transaction that is aborted: it is refused as the broker's own
        dead letter would be.
        """
        if (
            consumer.settings.dead_letter == DeadLetterStrategy.BROKER
            or not self._dialect.nack_needs_room
        ):
            self._nack(consumer, moves)
            return
        for move in moves:
            move.in_doubt = move.unanswered

        def told(now: float, error: JmsxError | None) -> JmsxError | None:
            there = [move for move in moves if move in self._open]
            if isinstance(error, ResourceAllocationError):
                for move in there:
                    self._tell_refused(move, error, now)
                    self._try_later(move, error, now)
            elif there and (error is None or not silent(error)):
                self._nack(consumer, there)
            return error

        queue = consumer.settings.dead_letter_queue
        wire = {"transaction": _ROOM}
        receipt = self._requests.open("SEND", queue, told).receipt_id
        headers = {**self._dialect.writing.send_headers(queue), "persistent": "true", **wire}
        send = Frame("SEND", {**headers, "receipt": receipt})
        frames = (*self._releases(), Frame("BEGIN", wire), send, Frame("ABORT", wire))
        self._outbox.transmit(*frames)

    def _nack(self, consumer: ConsumerCore, moves: list[_Move]) -> None:
        """Have the broker dead-letter messages that it will not delete, or of which there are copies."""
        for move in moves:
            move.copy_first_to, move.in_doubt = "", True
        receipts = [self._ask(move).receipt_id for move in moves]
        nacks = consumer.nack_frames([one.delivery for one in moves], receipts)
        self._outbox.transmit(*nacks)

    def _copy_then_nack(self, move: _Move) -> None:
        """
        Have a copy of what came confirmed, and then NACK the original, which the broker
        may still move as a whole.
        """

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if move not in self._open:
                return error
            if error is not None:
                self._refuse(move, error, now)
                return error
            self._nack(move.consumer, [move])
            return None

        request = self._requests.open("SEND", move.copy_first_to, answered, is_copy=True)
        self._outbox.transmit(*self._copy_frames(move, receipt=request.receipt_id))

    def _move_by_copy(
        self, consumer: ConsumerCore, batch: list[Delivery], moves: list[_Move], now: float
    ) -> None:
        """
        Copy `moves`, and acknowledge `batch`, which includes them.

        Copies and ACKs are in one transaction as far as the ACKs settle nothing else; the rest is acknowledged when its
        copies are confirmed. The rest is written first, for with cumulative ACKs the COMMIT acknowledges only if no
        other copy is unanswered.
        """
        plain = self._plain.intersection(move.destination for move in moves)
        one = self._dialect.transactional_ack and not plain
        most = self._settle_alone(consumer, batch) if one else 0
        most = next((n for n, each in enumerate(batch[:most]) if _fits_no_frame(each)), most)
        within = set(batch[:most])
        together = [move for move in moves if move.delivery in within]
        behind = batch[most:] if together else batch
        for move in moves:
            if move.delivery in within:
                continue
            pause = _pause(move.delivery)
            if pause and (self._dialect.errors_close or _fits_no_frame(move.delivery)):
                self._try_later(move, None, now, pause)
            else:
                self._outbox.transmit(*self._copy_frames(move, receipt=self._ask(move).receipt_id))
        self._settle_later(consumer, behind)
        if together:
            self._move_in_transaction(consumer, batch[:most], together)

    def expire(self, consumer: ConsumerCore, delivery: Delivery, now: float) -> None:
        """
        Give an expired message to the broker's strategy for expired messages; where NACK does not do that, send a copy.

        The copy goes where the broker puts expired messages itself. A message whose expiry its sender may have written
        is copied, too: the broker may know of no expiry and would delete it. Source:
        `ActiveMQMessageConsumer.java:976-984`; STOMP's nearest to an EXPIRED ack is NACK (BROKER.md C59).
        """
        delivery.dies_unseen()
        genuine = self._dialect.reading.genuine(delivery)
        by_broker = consumer.settings.dead_letter == DeadLetterStrategy.BROKER
        if self._dialect.nack_dead_letters and (genuine or by_broker):
            self._outbox.transmit(*consumer.nack_frames([delivery], [""]))
            consumer.end([delivery], Outcome.EXPIRED, now)
        elif consumer.settings.expired:
            where = consumer.settings.expired
            self.move(consumer, [Dead(delivery, "expired", NO_FAILURE)], now, destination=where)
        elif not genuine or delivery.headers.get("persistent") == "true":
            self.move(consumer, [Dead(delivery, "expired", NO_FAILURE)], now)
        else:
            consumer.end([delivery], Outcome.EXPIRED, now)
            consumer.acknowledge_originals([delivery], now)

    def after(self, consumer: ConsumerCore, then: Callable[[float], None], now: float) -> None:
        """
        Run `then` when no copy for `consumer`, which is closing, is awaited any more.

        Copies that were refused are not tried again: their originals stay with the broker.
        """
        consumer.copies.after(then)
        for _, move in list(self.refused):
            if move.consumer is consumer:
                self._give_up(move, now)
        consumer.copies.finish(now)

    def next_timer(self) -> float | None:
        """Return when the next refused copy is sent again (seconds, monotonic), or None."""
        return self.refused[0][0] if self.refused else None

    def handle_timer(self, now: float) -> None:
        """Send again the copies that are due."""
        due = [move for at, move in self.refused if at <= now]
        self.refused = [entry for entry in self.refused if entry[0] > now]
        for move in due:
            if move.copy_first_to:
                self._copy_then_nack(move)
            elif move.destination:
                receipt = self._ask(move).receipt_id
                self._outbox.transmit(*self._copy_frames(move, receipt=receipt))
            elif not move.refused:
                self._move_by_nack(move.consumer, [move])
            else:
                move.in_doubt = True
                self._outbox.transmit(nack(move.delivery, self._ask(move).receipt_id))

    def too_large(self) -> None:
        """
        Note that the broker ends the link because a frame is beyond one of its limits; that is taken to be the copy
        which it had to answer next, if it was a copy.

        On the next link that copy is without what only people read. If it is too large again, the broker moves the
        whole message itself, where NACK does that; else the copy ends a link now and then. A SEND in a transaction asks
        for no answer: if it was too large, and a copy follows it, the copy is wrongly taken for the cause.
        """
        oldest = self._requests.oldest
        for move in self._open:
            move.too_large |= oldest is not None and oldest.receipt_id == move.receipt

    def lose(self, now: float) -> list[tuple[ConsumerCore, Delivery]]:
        """
        Forget and return all that is not confirmed, because the link is gone.

        The broker has the originals. Each remembers why it was to be a dead letter, and is moved as soon as it comes
        again. But a NACK or COMMIT may have been done, and somebody may have moved the message back, so that it comes
        proves nothing. The process keeps its counts, save of a message that was NACKed and may come back as new; a copy
        has another id.
        """
        moves, self._open = list(self._open), {}
        self.refused, self._ready = [], []
        for move in moves:
            refused = _refused_before(move.delivery) + move.refused
            too_large = _too_large_before(move.delivery) + move.too_large
            sure = not move.in_doubt
            move.delivery.dies_of(
                DeadLetterCause(
                    move.reason, move.failure, sure=sure, refused=refused, too_large=too_large
                )
            )
            move.consumer.end([move.delivery], Outcome.ABANDONED, now)
            move.consumer.ended_late(move.delivery, now, move.failure)  # given back before
            if move.in_doubt:
                reports = move.consumer.reports
                reports.ended_late(move.delivery, LateOutcome.IN_DOUBT, move.failure, now)
            if not move.delivery.decided.unseen:
                move.delivery.count_failed()
            if move.destination:
                move.consumer.memory.dying(move.delivery)
            elif move.in_doubt:
                move.consumer.memory.perhaps_dead_lettered([move.delivery])
            if move.delivery.is_acknowledged and move.consumer.copies.closing:
                self._tell_refused(move, _NO_MORE, now)
            elif move.delivery.is_acknowledged:  # nobody else has it
                move.consumer.waiting.append(move.delivery)
        for consumer in {move.consumer for move in moves}:  # what those that close still owe
            consumer.end_unwritten(consumer.copies.owed, Outcome.ABANDONED, now)
        return [(move.consumer, move.delivery) for move in moves]

    def _moved_by_broker(self, consumer: ConsumerCore, delivery: Delivery, reason: str) -> bool:
        strategy = consumer.settings.dead_letter
        if strategy == DeadLetterStrategy.BROKER:
            return self._dialect.nack_dead_letters
        if not self._dialect.reading.carries(delivery.headers, delivery.frame.body):
            return self._dialect.copying.dead_lettered_by_broker(delivery, consumer.settings.kind)
        large = _fits_no_frame(delivery)
        if not large and (
            # whoever reads it again may not understand the original either
            reason == UNDECODABLE or strategy != DeadLetterStrategy.SAFE
        ):
            return False
        if _refused_before(delivery) >= FEW:
            return False
        copying, kind = self._dialect.copying, consumer.settings.kind
        return copying.dead_lettered_by_broker(delivery, kind, asked=large)

    def _queue_for(self, consumer: ConsumerCore, delivery: Delivery) -> str:
        """
        Return the URI that a copy goes to: the queue that the application named, or else the broker's dead letter
        queue.

        A message that came from the named queue goes to the broker's: else the copy would come to the same consumer for
        ever. A header tells where it came from, but the sender of another protocol's message may have written that: it
        counts only where the consumer reads more than one queue.
        """
        settings, reading = consumer.settings, self._dialect.reading
        here = {settings.destination}
        if is_pattern(settings.destination) or reading.genuine(delivery):
            here.add(reading.addresses(delivery.headers).destination or "")
        named = settings.dead_letter
        return (
            settings.dead_letter_queue
            if named in set(DeadLetterStrategy) or named in here
            else named
        )

    def _copy_frames(self, move: _Move, **headers: str) -> list[Frame]:
        """Return the SEND of the copy, with `headers`, behind the frames that must precede it."""
        settings, failure = move.consumer.settings, move.failure
        if _too_large_before(move.delivery):  # the log has what it lacks then
            failure = replace(failure, error_message=None, stack=None)
        move.receipt = headers["receipt"]
        lay = settings.destination
        if is_pattern(lay):  # a header tells which of these the message was in
            told = self._dialect.reading.addresses(move.delivery.headers)
            lay = one_of(lay, told.destination or "") or lay
        death = DeathRecord(
            reason=move.reason,
            destination=lay,
            key=move.consumer.key(move.delivery),
            origin=settings.origin,
            delivery_count=move.delivery.attempts,
            consumer=settings.name,
            error_type=failure.error_type,
            error_message=failure.error_message,
            stack=failure.stack,
            limit=(failure.policy or settings.policy).maximum_redeliveries,
            host=self._host,
            first_failure=self._epoch_ms(move.delivery.failed.first_at),
            last_failure=self._epoch_ms(move.delivery.failed.last_at),
        )
        place = move.destination or move.copy_first_to
        copy = self._copy(move.delivery, place, death)
        before = {
            settings.expired: settings.expired_frames,
            settings.dead_letter_queue: settings.dead_letter_queue_frames,
        }
        frames = before.get(place, ())
        return [*frames, Frame("SEND", {**copy.headers, **headers}, copy.body)]

    def _copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Return the copy; if making it fails, a copy of the bare frame."""
        try:
            copy = self._dialect.copying.dead_letter_copy(delivery, destination, death)
            # its key is stamped for the queue where it was: when somebody moves it back, it is the same message again
            return stamp_again(copy, delivery, death.destination, self._dialect.reading)
        except Exception as error:  # noqa: BLE001 - one message must not end the session
            delivery.mark_undecodable(error)
            return self._dialect.copying.dead_letter_copy(delivery, destination, death)

    def _ask(self, move: _Move) -> Request:
        """Open the request whose answer tells whether the message is a dead letter."""

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                self._confirmed(move, now)
            else:
                self._refuse(move, error, now)
            return error

        if move.destination:
            return self._requests.open("SEND", move.destination, answered, is_copy=True)
        return self._requests.open("NACK", move.consumer.settings.destination, answered)

    def _epoch_ms(self, at: float | None) -> int | None:
        return None if at is None else round((at + self.wall_offset) * 1000)

    def _confirmed(self, move: _Move, now: float) -> None:
        if move not in self._open:
            return
        consumer = move.consumer
        self._report(move, now, settled=False)
        self._remove(move, DeliveryInput.COPY if move.destination else DeliveryInput.MOVED)
        if consumer.settings.individual and move.destination:
            consumer.acknowledge_originals([move.delivery], now)
        self._commit_ready(consumer)
        consumer.copies.finish(now)

    def _refuse(self, move: _Move, error: JmsxError, now: float) -> None:
        if move not in self._open:
            return
        self._tell_refused(move, error, now)
        if not (move.destination or move.copy_first_to):
            move.unanswered |= unanswered(error)
            move.in_doubt = move.unanswered
        if move.destination or move.copy_first_to or silent(error):
            move.refused += self._dialect.errors_close and not silent(error)
            self._try_later(move, error, now)
            return
        move.refused += 1
        in_vain = move.refused > 1 and not move.consumer.settings.individual
        if in_vain and not self._in_transaction():  # a COMMIT would be in doubt
            self._outbox.disconnect(f"a message can be dead-lettered on another link only: {error}")
        doublings = min(_refused_before(move.delivery) + move.refused - 1, DOUBLINGS)
        self._try_later(move, error, now, RETRY * 2**doublings)

    @staticmethod
    def _tell_refused(move: _Move, error: JmsxError | str, now: float) -> None:
        move.consumer.reports.dead_letter_failed(move.delivery, str(error), move.destination, now)

    def _try_later(
        self, move: _Move, error: JmsxError | None, now: float, delay: float = RETRY
    ) -> None:
        """Try again after `delay` seconds, unless its consumer closes; if the link is lost, `lose` is next."""
        insort(self.refused, (now + delay, move), key=lambda entry: entry[0])
        if not isinstance(error, LinkError):
            self._commit_ready(move.consumer)
        if move.consumer.copies.closing and not isinstance(error, LinkError):
            self._give_up(move, now)
            move.consumer.copies.finish(now)

    def _add(self, move: _Move, *, blocks: bool) -> None:
        self._open[move] = None
        move.delivery.expect_next(DEAD_LETTER)
        move.consumer.copies.add(move.delivery, DeliveryInput.DEAD_LETTER, blocks=blocks)

    def _remove(self, move: _Move, given: DeliveryInput) -> None:
        del self._open[move]
        move.consumer.copies.remove(move.delivery, given)

    def _give_up(self, move: _Move, now: float) -> None:
        self.refused = [entry for entry in self.refused if entry[1] is not move]
        move.consumer.end([move.delivery], Outcome.RELEASED, now)
        del self._open[move]
        move.consumer.copies.keep(move.delivery)

    # Copy and ACK in one transaction ---------------------------------------------------------------------------------

    def _move_in_transaction(
        self, consumer: ConsumerCore, batch: list[Delivery], moves: list[_Move]
    ) -> None:
        """Begin a transaction and send the copies in it."""
        self._transactions += 1
        wire = {"transaction": f"jmsx-dead-{self._transactions}"}
        transaction = _CopyTransaction(consumer, batch, moves, wire, len(moves))
        frames = [Frame("BEGIN", wire)]
        for move in moves:

            def sent(now: float, error: JmsxError | None, move: _Move = move) -> JmsxError | None:
                self._copied(transaction, move, error, now)
                return error

            request = self._requests.open("SEND", move.destination, sent, is_copy=True)
            frames += self._copy_frames(move, **wire, receipt=request.receipt_id)
        self._outbox.transmit(*frames)

    def _copied(
        self, transaction: _CopyTransaction, move: _Move, error: JmsxError | None, now: float
    ) -> None:
        """Note that one copy was taken or refused; after the last answer commit, or abort."""
        transaction.awaited -= 1
        if error is not None:
            transaction.refused.append(move)
            self._tell_refused(move, error, now)
        if transaction.awaited:
            return
        if not transaction.refused:
            self._ready.append(transaction)
            self._commit_ready(transaction.consumer)
            return
        lost = error is not None and silent(error)
        if not lost:
            self._outbox.transmit(*self._releases(), Frame("ABORT", transaction.wire))
        single = transaction.consumer.settings.individual
        apart = transaction.refused if single and not lost else transaction.moves
        self._settle_later(transaction.consumer, transaction.batch)
        for each in apart:  # a refused copy must not hold up the others
            self._try_later(each, error, now)
        others = [each for each in transaction.moves if each not in apart]
        if others:  # their ACKs are single, and settle nothing that has no copy
            left = [each.delivery for each in others]
            self._move_by_copy(transaction.consumer, left, others, now)

    def _commit_ready(self, consumer: ConsumerCore) -> None:
        """
        Commit what was copied for `consumer`, unless a NACK of its own is unanswered.

        A cumulative ACK would settle the original that was NACKed, too. And if a COMMIT without an ACK loses its
        answer, there may be copies beside the originals, which are then copied again.
        """
        if not self._ready:
            return
        refused = {move for _, move in self.refused}
        if consumer.settings.individual or not any(
            one.consumer is consumer and not one.destination and one not in refused
            for one in self._open
        ):
            ready = [one for one in self._ready if one.consumer is consumer]
            self._ready = [one for one in self._ready if one.consumer is not consumer]
            for one in ready:
                self._commit(one)

    def _commit(self, transaction: _CopyTransaction) -> None:
        consumer = transaction.consumer

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                self._committed(transaction, now)
            else:
                self._not_committed(transaction, error, now)
            return error

        request = self._requests.open("COMMIT", transaction.moves[0].destination, answered)
        moved = [move.delivery for move in transaction.moves]
        alone = consumer.settings.individual or consumer.copies.no_others(moved)
        batch = transaction.batch
        transaction.settles = alone and self._settle_alone(consumer, batch) == len(batch)
        acks: list[Frame] = []
        if transaction.settles:
            acks = consumer.ack_frames(transaction.batch, **transaction.wire)
            consumer.reset_window()
            if consumer.settings.individual:
                consumer.copies.single_acks += len(acks)
            for move in transaction.moves:
                move.in_doubt = True
        commit = Frame("COMMIT", {**transaction.wire, "receipt": request.receipt_id})
        self._outbox.transmit(*self._releases(), *acks, commit)

    def _settle_alone(self, consumer: ConsumerCore, batch: list[Delivery]) -> int:
        """
        Return how many of `batch`, from the oldest on, have ACKs that settle nothing else.

        A transaction of the application may be open beside this one: it has no ACKs before its COMMIT (BROKER.md C30).
        """
        copies = consumer.copies
        if consumer.settings.individual:
            return min(len(batch), max(SINGLE_ACKS - copies.single_acks, 0))
        if copies.committing:
            return 0
        alone = itertools.takewhile(
            lambda one: consumer.settles_alone([one]) and copies.may_cover(one), batch
        )
        return sum(1 for _ in alone)

    def _committed(self, transaction: _CopyTransaction, now: float) -> None:
        if not transaction.settles:
            self._settle_later(transaction.consumer, transaction.batch)
            for move in transaction.moves:
                self._confirmed(move, now)
            return
        for move in transaction.moves:
            self._report(move, now, settled=True)
            self._remove(move, DeliveryInput.MOVED)
        transaction.consumer.end_owed(transaction.batch, now)
        transaction.consumer.copies.finish(now)

    def _not_committed(self, transaction: _CopyTransaction, error: JmsxError, now: float) -> None:
        """
        Leave the originals to the next link after a refused COMMIT, which neither copied nor acknowledged (BROKER.md
        C32).

        A fault of the broker is handled in the same way, although it may have done both.
        """
        if not silent(error):
            self._plain.update(move.destination for move in transaction.moves)
            for move in transaction.moves:
                move.in_doubt = unanswered(error)
            self._outbox.disconnect(f"dead letters could not be copied: {error}")
        self._settle_later(transaction.consumer, transaction.batch)
        for move in transaction.moves:
            self._refuse(move, error, now)

    # Behind the copies -----------------------------------------------------------------------------------------------

    @staticmethod
    def _settle_later(consumer: ConsumerCore, batch: list[Delivery]) -> None:
        """Acknowledge `batch` when every copy is confirmed; where ACKs are single, each one follows its own copy."""
        if not consumer.settings.individual:
            consumer.copies.settle_when_clear(batch)

    def _report(self, move: _Move, now: float, *, settled: bool) -> None:
        """Report the dead letter; `settled`: a copy, in one transaction with the ACK of its original."""
        consumer, delivery, failure = move.consumer, move.delivery, move.failure
        consumer.reports.dead_lettered(delivery, move.reason, failure, move.destination, now)
        consumer.end([delivery], Outcome.DEAD_LETTERED, now)
        if delivery.is_acknowledged:
            consumer.returned(delivery)
        if move.destination:
            consumer.memory.copied([delivery], only_ack_owed=not settled)
        else:  # it is in the broker's dead letter queue; if it is moved back, it is to count as new
            consumer.memory.forget([delivery])


def _refused_before(delivery: Delivery) -> int:
    """Return how often, on earlier links, the broker has refused a message's NACK, or ended the link over its copy."""
    cause = delivery.dead_letter_cause
    return 0 if cause is None else cause.refused


def _too_large_before(delivery: Delivery) -> int:
    """Return how often the broker has ended a link because a copy of it was too large."""
    cause = delivery.dead_letter_cause
    return 0 if cause is None else cause.too_large


def _fits_no_frame(delivery: Delivery) -> bool:
    """Return whether a copy was too large even without what only people read."""
    return _too_large_before(delivery) > 1


def _pause(delivery: Delivery) -> float:
    """Return seconds to wait before it is copied on this link: its copies have ended earlier links."""
    ended = max(_refused_before(delivery), _too_large_before(delivery) - 1)
    return RETRY * 2 ** min(ended - 1, COPY_DOUBLINGS) if ended > 0 else 0.0
