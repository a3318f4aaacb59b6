"""
One consumer: what waits to be handed out, what was handed out and is not settled, and how it is settled.

The order of effects follows `ActiveMQMessageConsumer.java` (6.3.1): `beforeMessageIsConsumed` (941-978),
`afterMessageIsConsumed` (986-1063) and `rollback` (1249-1391).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from jmsx.core import events
from jmsx.core.batching import Batch, batch_rule
from jmsx.core.delivery import Delivery, Held
from jmsx.core.delivery_state import (
    ACK,
    ACKED,
    CONSUME,
    COPIED,
    HAND_OUT,
    TO_SETTLE,
    DeliveryInput,
    DeliveryState,
)
from jmsx.core.dialect import Dialect
from jmsx.core.events import EACH, EXPLICIT, AckTrigger, LateOutcome, Outcome
from jmsx.core.frames import Frame, Outbox
from jmsx.core.held_on_lost_links import HeldOnLostLinks
from jmsx.core.non_blocking_redelivery import NonBlockingRedelivery
from jmsx.core.open_copies import OpenCopies
from jmsx.core.process_memory import ConsumerMemory
from jmsx.core.reporting import ConsumerReports
from jmsx.core.requests import Requests, silent, unanswered
from jmsx.core.values import ConsumerSettings, Failure
from jmsx.core.window import Unsettled, Window
from jmsx.errors import JmsxError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: So many times the prefetch may wait to be handed out; more would fill the memory.
FLOOD: Final = 100

#: The id on the wire of transactions with ACKs that a broker which has miscounted would refuse outside one.
_WIRE_NAME: Final = "jmsx-ack"

#: Bytes of bodies that may wait beyond twice the prefetch; a hundred prefetches of large messages would fill it, too.
FLOOD_BYTES: Final = 512 * 1024 * 1024


def put_off(delivery: Delivery) -> None:
    """Note that `delivery` was handed out and waits for its handler, until that has `begun`."""
    delivery.ended_at = -math.inf


def begun(deliveries: Iterable[Delivery]) -> None:
    """Note that the handler of these deliveries is called now."""
    for delivery in deliveries:
        delivery.ended_at = delivery.started_at


class ConsumerCore:
    """The state of one subscription; times are seconds, monotonic."""

    def __init__(
        self,
        settings: ConsumerSettings,
        dialect: Dialect,
        outbox: Outbox,
        memory: ConsumerMemory,
        now: float,
        *,
        requests: Requests,
        on_lost_links: HeldOnLostLinks,
        changes: Callable[[ConsumerCore], None],
        releases: Callable[[], list[Frame]],
    ) -> None:
        """
        Begin without messages.

        `changes` is called before anything changes that `Agenda` looks at; `releases` returns the frames that end every
        transaction which keeps a window of the session open.
        """
        self.settings = settings
        self._requests = requests
        self._on_lost_links = on_lost_links
        self._changes = changes
        self._releases = releases
        #: Its ACKs may be written too late for the broker to go on sending
        self._may_open_window = settings.individual or not settings.acknowledges_itself
        self.memory = memory
        self.reports = ConsumerReports(settings, dialect, outbox)
        self.waiting: deque[Delivery] = deque()  #: received, to be handed out, oldest first
        #: Handed out and neither consumed nor settled, oldest first
        self.delivered: dict[Delivery, None] = {}
        self.window: Window = dialect.window(settings)
        self.batch: Batch
        self._acks_each: bool  #: the ACK of what `receive()` returns waits for no batch
        self.schedule = NonBlockingRedelivery()
        #: On this link bodies are not translated as the settings ask for: a message without a body may have one
        self.untranslated = False
        self.blind = False  #: on this link the broker is not asked to translate bodies
        self.paused_until: float | None = None  #: blocking redelivery: nothing is handed out before
        self.widened = False  #: a transaction may keep its window open
        #: After a NACK on this link the broker may not know any more how many messages a cumulative ACK covers
        self.miscounted = False
        self.copies: OpenCopies
        self.wanted_since: float | None  #: since when the application waits for a message
        self._measured_at = -math.inf  #: when it was told last how many messages are here
        self._idle_since: float | None
        #: Acknowledged by a `receive()` that was interrupted then: to be handed out once more, on whatever link.
        self._unreturned: dict[Delivery, None] = {}
        #: Acknowledged messages may be handed out once more, and be among those that the application has
        self._hands_out_acknowledged = False
        self._dialect = dialect
        self._outbox = outbox
        #: Functions that tell when something is due, besides the batch and the end of a pause
        self._further_timers: list[Callable[[], float | None]] = []
        if settings.non_blocking_redelivery:
            self._further_timers.append(self.schedule.deadline)
        if self._may_open_window:
            self._further_timers.append(self._wants_more_at)
        self._begin(now)

    @property
    def unsettled(self) -> Unsettled:
        """The deliveries that were handed out at least once and are not settled, oldest first."""
        if self._hands_out_acknowledged:
            all_of_them = (*self.delivered, *self.schedule.pending())
            return [one for one in all_of_them if not one.is_acknowledged]
        if not len(self.schedule):
            return self.delivered.keys()
        return [*self.delivered, *self.schedule.pending()]

    @property
    def unsettled_count(self) -> int:
        """How many deliveries were handed out at least once and are not settled."""
        return len(self.unsettled) if self._hands_out_acknowledged else self._handed_out

    @property
    def _handed_out(self) -> int:
        """How many messages were handed out at least once, and are here: also those acknowledged since."""
        return len(self.delivered) + len(self.schedule)

    @property
    def in_hand(self) -> int:
        """How many messages are here: they wait, or the application has them, or the broker has yet to be told."""
        return len(self.waiting) + self._handed_out + len(self.batch) + len(self.copies)

    def measure(self, now: float) -> None:
        """Report how many messages wait here, and how many the application has, and had when that was told last."""
        buffered = len(self.waiting) + len(self.schedule) + len(self.copies)
        has = [*self.delivered, *self.batch.consumed]
        still = sum(one.started_at < self._measured_at for one in has)
        self.reports.measured(buffered, len(has), still, now)
        self._measured_at = now

    @property
    def resting(self) -> bool:
        """Whether nothing that was handed out is, or may be, unsettled."""
        return not (self._handed_out or self.batch or self.copies.blocking)

    @property
    def held_back(self) -> bool:
        """Whether messages wait that are not handed out before the broker has answered."""
        return bool(self.waiting and self.copies.blocking)

    @property
    def next_order(self) -> float:
        """
        The `order` of the message that would be handed out next, if there is no pause; infinity if none may be handed
        out.
        """
        if not self.waiting or self.copies.blocking:
            return math.inf
        return self.waiting[0].order

    def is_ready(self, now: float) -> bool:
        """Return whether a message waits, and may be handed out."""
        if self.paused_until is not None:
            self.end_pause(now)
        return bool(self.waiting) and not self.copies.blocking and self.paused_until is None

    @property
    def delivering_since(self) -> float:
        """
        When the oldest delivery that is not settled was handed out (seconds, monotonic);
        infinity if there is none.
        """
        return next(iter(self.delivered)).started_at if self.delivered else math.inf

    @property
    def window_full(self) -> bool:
        """Whether the broker sends nothing until the window is opened, because the application holds a whole window."""
        return not self.waiting and self.window.full(self.unsettled_count)

    @property
    def has_room(self) -> bool:
        """Whether the broker may send more to this consumer, as far as the session knows."""
        return not self.window.full(self.unsettled_count + len(self.waiting))

    def accept(self, deliveries: list[Delivery], now: float) -> None:
        """Take messages that the broker sent; raises ProtocolError if they are far more than it may send."""
        self._changes(self)
        if self._unreturned:
            self._know_again(deliveries)
        self.waiting.extend(deliveries)
        self._refuse_flood()
        if self.window.counting:
            self.window.arrived(deliveries)
        self._idle_since = None
        refused = [
            one.failures
            for one in deliveries
            if (lost := one.history.lost) is not None and lost.refused
        ]
        if refused:
            self._pause(self.settings.policy.delay(max(1, *refused)), now)
        self.reports.received(deliveries, now)

    def _pause(self, delay: float, now: float) -> None:
        """Hand out nothing for `delay` seconds; a pause that is longer goes on."""
        if delay > 0 and (self.paused_until is None or now + delay > self.paused_until):
            self.paused_until = now + delay

    def _know_again(self, deliveries: list[Delivery]) -> None:
        """
        Drop deliveries whose ACK was lost with its link: their messages have come again
        and are handed out instead.
        """
        names = {one.message_id for one in deliveries}
        for one in [one for one in self._unreturned if one.message_id in names]:
            del self._unreturned[one]
            if one in self.waiting:
                self.waiting.remove(one)

    def _refuse_flood(self) -> None:
        """Raise ProtocolError if far more messages, or bytes, wait than an honest broker would ever send ahead."""
        ahead, prefetch = len(self.waiting), max(self.settings.prefetch, 1)
        if ahead <= 2 * prefetch or not self.window.limited:
            return
        unsettled = self.unsettled_count
        most = FLOOD * (max(prefetch, 10) + unsettled)
        told = f"more than {most} messages" if ahead > most else ""
        if not told and ahead > 2 * (prefetch + unsettled):
            size = sum(len(one.frame.body) for one in self.waiting)
            told = f"{ahead} messages with {size} bytes" if size > FLOOD_BYTES else ""
        if told:
            raise ProtocolError(
                f"the broker sent {told} ahead, and the prefetch is {self.settings.prefetch}"
            )

    def hand_out(self, now: float, held: Held) -> Delivery | None:
        """
        Return the next message for the application, or None. `held` gets it before it leaves the queue of waiting
        messages.

        It is added to `delivered` before it leaves that queue, so that it can be found wherever this is interrupted.
        """
        if self.copies.blocking or (self.paused_until is not None and now < self.paused_until):
            return None
        self._changes(self)
        while self.waiting:
            delivery = held.delivery = self.waiting[0]
            copied = delivery.state is COPIED
            if not copied:
                delivery.started_at = delivery.ended_at = now
                self.wanted_since = None
                self.delivered[delivery] = None
                delivery.step(HAND_OUT)
            self.waiting.popleft()
            if not self.waiting:
                self._idle_since = now
            if not copied:
                return delivery
            self.acknowledge_originals([delivery], now)
        return None

    def decline(self, delivery: Delivery) -> None:
        """
        Put back a message that `hand_out` returned and the application does not get yet:
        it is the next one again.
        """
        self._changes(self)
        self.waiting.appendleft(delivery)
        del self.delivered[delivery]
        delivery.step(DeliveryInput.TAKE_BACK)
        self._idle_since = None

    def put_back(self, delivery: Delivery) -> bool:
        """
        Put back the message that was handed out last and not returned to the application: it is the next one again.

        An acknowledged message is put back, too: nobody else will get it. This may be interrupted, and called again.
        Returns False if the state of the message cannot be known, because it was being moved to a dead letter queue or
        its ACK, or that of its batch, was being written; then drop the link.
        """
        self._changes(self)
        handed_out = delivery in self.delivered
        if delivery.state in (DeliveryState.CLOSING, DeliveryState.GONE):
            return delivery.state is DeliveryState.GONE
        if delivery.is_acknowledged:
            self._unreturned[delivery] = None
            self._hands_out_acknowledged = True
        elif not (handed_out or delivery in self.waiting or delivery in self.batch):
            return False
        if delivery not in self.waiting:
            self.waiting.appendleft(delivery)
        self._idle_since = None
        if handed_out:
            if delivery.state is not DeliveryState.SETTLED:
                self._outbox.unseen([delivery.entry])
            del self.delivered[delivery]
        self.batch.withdraw(delivery)
        delivery.step(DeliveryInput.TAKE_BACK)
        return not (delivery.state is DeliveryState.ACKING or self.batch.is_torn)

    def acknowledge_originals(self, batch: Sequence[Delivery], now: float) -> None:
        """
        Acknowledge messages (oldest first) that have copies or need none.

        If a cumulative ACK would settle older messages, too, the message waits among them and is settled with them.
        """
        self._changes(self)
        alone = []
        for delivery in batch:
            if delivery.is_acknowledged:
                continue
            delivery.step(DeliveryInput.COPY)
            older = 0 if self.settings.individual else self.older_waiting(delivery)
            if older:
                self.waiting.insert(older, delivery)
            elif self.delivered and not self.settings.individual:
                self.delivered[delivery] = None
            else:
                alone.append(delivery)
        if alone:
            self._write_owed(alone, now)

    def _write_owed(self, batch: list[Delivery], now: float) -> None:
        """
        Write ACKs for `batch`, behind the ACK of what is consumed.

        A cumulative ACK of `batch` would settle what is consumed, too, and Artemis ends the link at a second ACK.
        """
        self.flush(AckTrigger.EACH, now)
        self.write_acks(batch)
        owed = [one for one in batch if one.decided.owed_end is not None]
        if owed:
            self.reports.acknowledged(owed, AckTrigger.EACH, now)
            self.end_owed(owed, now)

    def older_waiting(self, delivery: Delivery) -> int:
        """
        Return how many messages wait that came before `delivery`.

        Where ACKs are cumulative, messages wait in the order in which they came.
        """
        for index, one in enumerate(self.waiting):
            if one.arrival.number >= delivery.arrival.number:
                return index
        return len(self.waiting)

    def settles_alone(self, batch: Sequence[Delivery]) -> bool:
        """Return whether the ACKs of `batch` (oldest first, taken from what was delivered) settle nothing else."""
        if self.settings.individual:
            return True
        return not (self.delivered or self.older_waiting(batch[-1]))

    def take_delivered(self, only: Delivery | None = None) -> list[Delivery]:
        """Take over what was handed out and is neither consumed nor settled, oldest first; `only`: this one."""
        self._changes(self)
        if only is not None:
            del self.delivered[only]
            return [only]
        delivered, self.delivered = self.delivered, {}
        return list(delivered)

    def acknowledge_waiting_originals(self, now: float) -> None:
        """
        Acknowledge the originals of dead letters that no older message precedes; call it
        before the consumer closes.

        A message that is still being moved precedes them, too: a cumulative ACK would settle it without its copy.
        """
        self._changes(self)
        if self.delivered or self.copies.blocking or self.copies.committing:
            return
        originals = []
        while self.waiting and self.waiting[0].state is COPIED:
            originals.append(self.waiting.popleft())
        if originals:
            self._write_owed(originals, now)

    def cut(self, now: float) -> tuple[list[Delivery], list[Delivery]]:
        """
        Start anew after the link was lost. Returns what was handed out and not settled, and what was not handed out.

        The broker delivers both again. A pause before a redelivery goes on, because the same messages come first.
        """
        self._changes(self)
        owed = self.batch.owed()
        self.batch.settle(now)
        if owed:
            self.reports.dropped(len(owed), now)
        for delivery in owed:
            delivery.count_not_failed()
        held = [one for one in self.delivered if not one.is_acknowledged]
        self._on_lost_links.add(held, self.memory, bounded=not self.settings.transacted)
        handed_out = [*owed, *held]
        self.end(handed_out, Outcome.ABANDONED, now)
        self.end_unwritten(self.copies.owed, Outcome.ABANDONED, now)
        unreturned = [one for one in self.waiting if one.is_acknowledged]
        for delivery in unreturned:
            delivery.step(ACKED)
        again = {one: None for one in self.delivered if one in self._unreturned}
        waiting = self.give_back(Outcome.ABANDONED, now)
        self.window = self.window.again()
        self._begin(now)
        self.waiting.extend(unreturned)
        self.delivered = again
        return handed_out, waiting

    def give_back(self, outcome: Outcome, now: float) -> list[Delivery]:
        """
        Forget and return all messages that the application does not hold: the broker delivers them again.

        A message that it is done with, and that has no ACK yet, ends with `outcome`.
        """
        self._changes(self)
        waiting = [
            one for one in (*self.waiting, *self.schedule.clear()) if not one.is_acknowledged
        ]
        self.waiting.clear()
        self.end_unwritten(waiting, outcome, now)
        self.memory.given_back(one for one in waiting if one.is_alive)
        return waiting

    def come_again(self, now: float) -> list[Delivery]:
        """
        Forget and return what waits, on a link that stays: the broker delivers it again by another subscription.

        Nothing of it was handed out; what an interrupted `receive()` has acknowledged on an older link goes on waiting.
        """
        unreturned = [one for one in self.waiting if one.is_acknowledged]
        left = self.give_back(Outcome.ABANDONED, now)
        self.waiting.extend(unreturned)
        return left

    def _begin(self, now: float) -> None:
        """Reset what belongs to one link."""
        self._changes(self)
        settings = self.settings
        self.waiting.clear()
        self.delivered = {}
        self.widened = self.miscounted = False
        rule = batch_rule(settings, self.window.batch_bytes)
        self.batch = Batch(rule, now)
        self._acks_each = rule.trigger is AckTrigger.EACH
        self.copies = OpenCopies(lambda: self._changes(self), self.acknowledge_originals)
        self.wanted_since = None
        self._idle_since = now

    def want(self, now: float) -> None:
        """Note that the application waits for a message of this consumer."""
        if self.wanted_since is None:
            self._changes(self)
            self.wanted_since = now

    def consumed(self, delivery: Delivery, now: float, *, returning: bool) -> None:
        """
        Note that the application is done with `delivery`; AUTO and DUPS_OK owe an ACK for it.

        `returning`: `receive()` is about to return it, so an ACK for each message must be written now. Nothing is owed
        for a delivery that its own listener has recovered.
        """
        if delivery.is_acknowledged:
            self.returned(delivery)
            return
        delivery.ended_at = now
        if not self.settings.acknowledges_itself or delivery not in self.delivered:
            return
        self._changes(self)
        if returning and self._acks_each and not self.batch.consumed:
            self.acknowledge([delivery], EACH, now)
            del self.delivered[delivery]  # last, so that it is found wherever this is interrupted
            return
        trigger = self.batch.note(delivery, now)
        delivery.step(CONSUME)
        if delivery.entry is not None:
            self._outbox.finish([delivery.entry])
        del self.delivered[delivery]  # last: `put_back` reports as unseen what is in it
        if trigger is None and returning and self._acks_each:
            trigger = EACH
        if trigger is not None:
            self.flush(trigger, now)

    def note_end(self, delivery: Delivery, now: float) -> None:
        """Note when the application was done with `delivery`, whether well or not."""
        delivery.ended_at = now

    def returned(self, delivery: Delivery) -> None:
        """Forget a message that was acknowledged before it reached the application, which has it now."""
        self._changes(self)
        self.delivered.pop(delivery, None)
        self._unreturned.pop(delivery, None)

    def consumed_late(self, delivery: Delivery, now: float) -> bool:
        """
        Note that the application is done with a delivery of a lost link, which the broker delivers again.

        Returns whether an ACK was owed and is reported as dropped.
        """
        if not self.settings.acknowledges_itself:
            return False
        self.reports.dropped(1, now)
        self.memory.acknowledged([delivery])
        return True

    def ended_late(self, delivery: Delivery, now: float, failure: Failure | None = None) -> None:
        """Report, once, how a delivery went that the application still had when its link was lost; None: it is done."""
        if delivery.runs_on:
            delivery.runs_on = False
            outcome = LateOutcome.DONE if failure is None else LateOutcome.FAILED
            if failure is not None and failure.error_type is None:
                outcome = LateOutcome.UNDONE
            self.reports.ended_late(delivery, outcome, failure, now)

    def flush(self, trigger: AckTrigger, now: float, *, idle: bool = False) -> None:
        """Write the ACK that the consumed batch owes, if any. `idle`: nothing is left to hand out."""
        self._changes(self)
        batch = self.batch.owed()
        if batch:
            self.acknowledge(batch, trigger, now)
        self.batch.settle(now, idle=idle)

    def acknowledge(
        self,
        batch: list[Delivery],
        trigger: AckTrigger,
        now: float,
        outcome: Outcome = Outcome.ACKNOWLEDGED,
    ) -> None:
        """
        Write plain ACKs that settle `batch` (oldest first), and report them: one for all, or one for each if
        individual.

        A message that an interrupted `receive()` has acknowledged may be in `batch`; it gets no second ACK.
        """
        alive = [one for one in batch if one.is_alive]
        counted = [one for one in batch if one.entry is not None]
        # The ledger has heard of those whose ACK was put off. If the ACKs cannot be written, it forgets none.
        done = [
            one.entry for one in counted if one.is_alive and one.state is not DeliveryState.OWED
        ]
        told = self._outbox.ends
        owed = [one for one in batch if not one.is_acknowledged] if told else []
        self.write_acks(batch)
        if owed:
            self.reports.acknowledged(owed, trigger, now)
        if counted:
            self._outbox.finish(done)
            self.forget_counts(counted)
        self._end(alive, outcome, now)
        if len(alive) < len(batch):
            self.end_owed(batch, now)

    def acknowledge_one(self, delivery: Delivery, now: float) -> None:
        """
        Settle one message of an INDIVIDUAL session; a second call does nothing.

        A message that waits for its redelivery is settled and delivered again all the same, as in Java.
        """
        self._changes(self)
        self.delivered.pop(delivery, None)
        if delivery.state in TO_SETTLE:
            self._hands_out_acknowledged |= delivery.state is not DeliveryState.HELD
            self.acknowledge([delivery], EXPLICIT, now)

    def acknowledge_some(self, batch: list[Delivery], now: float) -> None:
        """Settle messages (oldest first) of an INDIVIDUAL session that its application has done together."""
        self._changes(self)
        done = [one for one in batch if one in self.delivered and one.is_alive]
        for delivery in done:
            del self.delivered[delivery]
            delivery.ended_at = now
        if done:
            self.acknowledge(done, AckTrigger.EACH, now)

    def write_acks(self, batch: Sequence[Delivery]) -> None:
        """
        Write the ACKs that settle `batch`, and report nothing.

        Where the broker may have miscounted they are in a transaction of their own, in which it does not count.
        """
        acks = self._acks_in_a_transaction if self.miscounted else self.ack_frames
        frames = acks(batch)
        self._changes(self)
        for delivery in batch:
            delivery.step(ACK)
        self._outbox.transmit(*frames)
        for delivery in batch:
            delivery.step(ACKED)
        if self.miscounted:
            self.window.reset()
        elif self.window.counting:
            self.window.settled(batch)

    def _acks_in_a_transaction(self, batch: Sequence[Delivery]) -> list[Frame]:
        """
        Return the frames that settle `batch` although the broker has miscounted; if it refuses them, drop the link.

        It refuses them, and would for ever, if it has lost the messages themselves, and not only their number.
        """
        owed = [one for one in batch if not one.is_acknowledged]

        def answered(_now: float, error: JmsxError | None) -> JmsxError | None:
            if error is not None and not unanswered(error):
                self.memory.processed(owed)
            if error is not None and not silent(error):
                self._outbox.disconnect(f"acknowledgements are refused for good: {error}")
            return error

        receipt_id = self._requests.open("COMMIT", self.settings.destination, answered).receipt_id
        wire = {"transaction": _WIRE_NAME}
        begin = [*self._releases(), Frame("BEGIN", wire)]
        commit = Frame("COMMIT", {**wire, "receipt": receipt_id})
        return [*begin, *self.ack_frames(batch, **wire), commit]

    def ack_frames(self, batch: Sequence[Delivery], **headers: str) -> list[Frame]:
        """Return the ACK frames that settle `batch`; `headers`, such as the transaction, are on each of them."""
        owed = [one for one in batch if not one.is_acknowledged]
        if not self.settings.individual:
            owed = newest(owed)
        acks = [Frame("ACK", {"id": one.arrival.ack_id, **headers}) for one in owed]
        return [*self.release_window(), *acks] if self.widened else acks

    def nack_frames(self, batch: list[Delivery], receipts: Iterable[str]) -> list[Frame]:
        """
        Return the frames that give `batch` to the broker's dead letter strategy: one NACK
        each, never in a transaction.
        """
        self._changes(self)
        self.miscounted = self._dialect.nack_miscounts and not self.settings.individual
        last = batch[-1].arrival.number
        older = sum(1 for one in self.delivered if one.arrival.number < last)
        self.window.settled(batch, older=older)
        nacks = [nack(one, receipt) for one, receipt in zip(batch, receipts, strict=True)]
        return [*self.release_window(), *nacks]

    def release_window(self) -> Sequence[Frame]:
        """Return the frames that end the transaction which keeps the window open, if there is one."""
        if not self.widened:
            return ()
        self._changes(self)
        self.widened = False
        return self.window.release()

    def reset_window(self) -> None:
        """Note that what was handed out is settled in a transaction, or will be handed out again."""
        self._changes(self)
        self.window.reset()

    def settled(self, batch: Sequence[Delivery]) -> None:
        """Note that ACKs of `batch`, which somebody else writes, settle it outside a transaction."""
        self._changes(self)
        self.window.settled(batch)

    def roll_back(
        self,
        batch: list[Delivery],
        failure: Failure,
        now: float,
        draw: Callable[[], float],
        *,
        order: float,
    ) -> bool:
        """
        Deliver `batch` (oldest first, all handed out) again after the policy's delay; False if the policy is exhausted.

        Where redelivery is blocking, the longest of several delays holds up all of them.
        The newest message decides for the whole batch. An exhausted batch is left untouched; make it a dead letter.
        `order`: its place among the messages of other consumers if there is no delay; after a delay it comes before
        them. Source: `ActiveMQMessageConsumer.java:1274-1391`.
        """
        alive = [one for one in batch if one.state is not COPIED]
        failures = alive[-1].failures + 1 if alive else 0
        policy = failure.policy or self.settings.policy
        if policy.exhausted(failures):
            return False
        self.end(batch, Outcome.ROLLED_BACK, now)
        self.reset_window()
        for delivery in alive:
            delivery.count_failed()
            delivery.begin_again()
        delay = failure.delay if alive else 0.0
        if delay is None:
            delay = policy.delay(failures, draw)
        blocking = not self.settings.non_blocking_redelivery
        for delivery in batch:
            delivery.step(DeliveryInput.FAIL if blocking else DeliveryInput.REST)
        if blocking:
            self._pause(delay, now)
            for delivery in batch:
                delivery.order = -math.inf if delay > 0 else order
            self._wait_again(batch)
        else:
            self.schedule.add(now + max(delay, 0.0), batch)
        for delivery in alive:
            self.reports.redelivery(delivery, delay, now, blocking=blocking)
        return True

    def release(self, batch: Sequence[Delivery]) -> None:
        """Put `batch` in front of what waits, as if it had never been handed out, because nobody could handle it."""
        self._outbox.unseen(one.entry for one in self._released(batch))

    def undo(self, batch: Sequence[Delivery]) -> None:
        """Put `batch` in front of what waits: what was done with it is undone, and it has not failed."""
        undone = self._released(batch)
        for delivery in undone:
            delivery.count_undone()
        self._outbox.finish(one.entry for one in undone)

    def _released(self, batch: Sequence[Delivery]) -> list[Delivery]:
        """Put back and return what of `batch` was handed out."""
        self._changes(self)
        wanted = set(batch)
        given_back = [one for one in self.delivered if one in wanted]
        self.delivered = {one: None for one in self.delivered if one not in wanted}
        self.take_back(given_back)
        return given_back

    def not_seen(self, delivery: Delivery) -> None:
        """Have the ledger note that the application did not get the message after all."""
        self._outbox.unseen([delivery.entry])

    def take_back(self, batch: list[Delivery]) -> None:
        """Put `batch` in front of what waits: it could not be sent back to the broker."""
        self._changes(self)
        for delivery in batch:
            delivery.step(DeliveryInput.TAKE_BACK)
        self._wait_again(batch)

    def _wait_again(self, batch: list[Delivery]) -> None:
        """Put `batch` (oldest first) in front of what came later; older ones may be waiting again already."""
        if not batch:
            return
        front = list(batch)
        while self.waiting and self.waiting[0].arrival.number < batch[-1].arrival.number:
            front.append(self.waiting.popleft())
        if len(front) > len(batch):
            front.sort(key=lambda one: one.arrival.number)
        self.waiting.extendleft(reversed(front))
        self._idle_since = None

    def close_without_link(self, now: float) -> None:
        """Close the consumer when there is no link on which its messages could be acknowledged."""
        self.give_up(now)
        self.reports.closed(now)

    def give_up(self, now: float) -> None:
        """Report the ACKs that are owed for messages of a lost link as dropped: there will be no other link."""
        held = self._on_lost_links.of(self.memory)
        if held and self.settings.acknowledges_itself:
            self.reports.dropped(len(held), now)
        self._on_lost_links.forget(self.memory)

    def next_timer(self) -> float | None:
        """Return when `handle_timer` has something to do or a pause ends (seconds, monotonic), or None."""
        due = self.batch.deadline(self._idle_since) if self.batch.consumed else None
        if self.paused_until is not None and (due is None or self.paused_until < due):
            due = self.paused_until
        for next_timer in self._further_timers:
            at = next_timer()
            if at is not None and (due is None or at < due):
                due = at
        return due

    def handle_timer(self, now: float, *, unread: bool = False) -> None:
        """Do what is due. `unread`: bytes have come that were not parsed yet, so more messages may be here."""
        self._changes(self)
        self.end_pause(now)
        due = self.schedule.take_due(now)
        if due:
            for delivery in due:
                delivery.step(DeliveryInput.DUE)
            self.waiting.extend(due)
            self._idle_since = None
        idle_since = None if unread else self._idle_since
        deadline = self.batch.deadline(idle_since)
        if deadline is not None and deadline <= now:
            self.flush(self.batch.late_trigger, now, idle=idle_since is not None)
        wants_more_at = self._wants_more_at() if self._may_open_window else None
        if wants_more_at is not None and wants_more_at <= now and not unread:
            self.wanted_since = now
            self.widened = True
            self._outbox.transmit(*self.window.open(self.unsettled))

    def end_pause(self, now: float) -> None:
        """End the pause before a redelivery if its time has come."""
        if self.paused_until is not None and self.paused_until <= now:
            self._changes(self)
            self.paused_until = None

    def end(
        self,
        batch: Iterable[Delivery],
        outcome: Outcome,
        now: float,
        transaction_id: str | None = None,
    ) -> None:
        """Report how these deliveries ended, and have the ledger forget those that are settled."""
        batch = list(batch)
        if outcome in events.SETTLED:
            self.forget_counts(batch)
            self.end_owed(batch, now, transaction_id)
        elif outcome in (Outcome.RELEASED, Outcome.ABANDONED):
            self.end_unwritten(batch, outcome, now)
        # The others have ended already
        self._end([one for one in batch if one.is_alive], outcome, now, transaction_id)

    def owe(self, batch: list[Delivery], outcome: Outcome) -> None:
        """
        Put back messages (oldest first) that were handed out, and of which only the ACK is owed; it waits for its turn.

        Now a cumulative ACK would settle older messages, too. They end with `outcome` when their ACK is written, and
        not before: if it never is, the broker delivers them again.
        """
        for delivery in batch:
            delivery.owe(outcome)
        self._outbox.finish(one.entry for one in batch)
        self.take_back(batch)

    def end_owed(
        self, batch: Iterable[Delivery], now: float, transaction_id: str | None = None
    ) -> None:
        """End those of `batch` whose ACK was put off by `owe`, and is written now."""
        for delivery in batch:
            outcome = delivery.decided.owed_end
            if outcome is not None:
                delivery.owe_nothing()
                self.forget_counts([delivery])
                self._end([delivery], outcome, now, transaction_id)

    def end_unwritten(self, batch: Iterable[Delivery], outcome: Outcome, now: float) -> None:
        """End by `outcome` those of `batch` whose ACK was put off by `owe`, and is never written; none has failed."""
        for delivery in batch:
            if delivery.decided.owed_end is not None:
                self.memory.acknowledged([delivery])
                self.reports.ended(delivery, outcome, now, None)

    def _end(
        self,
        alive: list[Delivery],
        outcome: Outcome,
        now: float,
        transaction_id: str | None = None,
    ) -> None:
        if outcome in events.DONE:
            self.memory.acknowledged(alive)
        elif outcome in (Outcome.ABANDONED, Outcome.RELEASED):
            over = [one for one in alive if one not in self._on_lost_links]
            self.memory.lost(over)
            self.count_failures(over)
            self.memory.in_hand(one for one in alive if one in self._on_lost_links)
        if alive:
            self._outbox.ended_at = now
        if not self._outbox.ends:
            return
        for delivery in alive:
            # -inf: it waits for its handler
            unseen = delivery.decided.unseen or delivery.ended_at == -math.inf
            if unseen or delivery.ended_at == delivery.started_at:  # or its handler settles it
                lost = outcome is Outcome.ABANDONED
                delivery.ended_at = delivery.arrival.received_at if lost and unseen else now
                raised = (failure := delivery.failed.failure) is not None and failure.error_type
                delivery.runs_on = lost and not (unseen or raised)
            self.reports.ended(delivery, outcome, now, transaction_id)

    def forget_counts(self, batch: Iterable[Delivery]) -> None:
        """Have the ledger forget these messages, which are settled on the broker."""
        self._outbox.settle(one.entry for one in batch)

    def count_failures(self, batch: Iterable[Delivery]) -> None:
        """Have the ledger count these as failed, unless it is told later that they have not."""
        self._outbox.fail(one.entry for one in batch)

    def key(self, delivery: Delivery) -> str:
        """Return the stable identity of a message."""
        return self.reports.key(delivery)

    def _wants_more_at(self) -> float | None:
        """Return when the window must be opened because the application waits and no message comes, or None."""
        if self.wanted_since is None or self._idle_since is None or self.copies.blocking:
            return None
        patience = self.window.patience(self.unsettled_count)
        return None if patience is None else max(self.wanted_since, self._idle_since) + patience


def newest(batch: Sequence[Delivery]) -> list[Delivery]:
    """Return the newest delivery of each wire subscription: its cumulative ACK covers the others."""
    return list({one.arrival.wire_subscription: one for one in batch}.values())


def nack(delivery: Delivery, receipt_id: str) -> Frame:
    """Return the NACK of one message, with a receipt if `receipt_id` is not empty."""
    receipt = {"receipt": receipt_id} if receipt_id else {}
    return Frame("NACK", {"id": delivery.arrival.ack_id, **receipt})
