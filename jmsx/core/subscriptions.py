"""
The consumers of a session: they are opened, opened again on each new link, and closed; and which of them is next.

A session may have a thousand consumers, of which a message changes one. So each calls `Agenda.note` before it changes,
and only those are looked at again to find which one is served next, or has something due.
"""

from __future__ import annotations

import math
from collections import Counter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from jmsx.core.browsers import Browsers
from jmsx.core.consumer import ConsumerCore
from jmsx.core.dead_letters import DeadLetters
from jmsx.core.delivery import ARRIVED, Delivery
from jmsx.core.delivery_state import DeliveryState
from jmsx.core.destination_names import is_pattern
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger, Outcome
from jmsx.core.frames import Frame, MessageFrame, Outbox
from jmsx.core.headers import COUNT_HEADER, SUBSCRIPTION_SEPARATOR
from jmsx.core.held_on_lost_links import HeldOnLostLinks
from jmsx.core.history import Lost
from jmsx.core.identity import count
from jmsx.core.lost_deliveries import LostDeliveries
from jmsx.core.process_memory import ConsumerMemory, ProcessMemory
from jmsx.core.requests import Request, Requests, answered, subscribe
from jmsx.core.translating import Translating, doubted, is_browsable
from jmsx.core.values import ConsumerSettings, DestinationKind, Failure
from jmsx.errors import BrokerTimeoutError, IllegalStateError, JmsxError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence


#: Consumers that are remembered when they are closed: what the broker sent meanwhile comes soon, or never.
_LEFT: Final = 100

#: Old entries of a heap, beyond four for each consumer, from which on it is made anew.
_SPARE: Final = 64


def _narrow(subscription_id: str) -> str:
    """Return the id of the further subscription by which a consumer gets only what a commit in doubt waits for."""
    return f"{subscription_id}{SUBSCRIPTION_SEPARATOR}again"


class Subscriptions:
    """Keeps the consumers of a session by subscription id; a consumer outlives its links until it is closed."""

    def __init__(
        self,
        dialect: Dialect,
        requests: Requests,
        outbox: Outbox,
        *,
        dead_letters: DeadLetters,
        lost_deliveries: LostDeliveries,
        memory: ProcessMemory,
        translating: Translating,
        browsers: Browsers,
    ) -> None:
        self._dialect = dialect
        self._browsers = browsers
        self._translating = translating
        self._requests = requests
        self._outbox = outbox
        self._dead_letters = dead_letters
        self._memory = memory
        self._consumers: dict[str, ConsumerCore] = {}
        self.agenda = Agenda()
        self._lost_deliveries = lost_deliveries
        #: The UNSUBSCRIBEs of which some may not be answered, and the prefetch of each one's consumer
        self._unsubscribing: dict[Request, int] = {}
        self._closing: list[str] = []  #: consumers closed inside a transaction
        self._leaving: dict[str, ConsumerMemory] = {}  #: closed consumers that are still subscribed
        self._left: dict[str, ConsumerMemory] = {}  #: unsubscribed, but more may come
        self.linked = False  #: there is a link to write to
        self.on_lost_links = HeldOnLostLinks(outbox)
        #: Requests of the consumers that are to be subscribed on this link, when what must come before is done.
        self._awaited: dict[str, Request] = {}
        #: Consumers that get only what a commit in doubt has received, until its end
        self._narrowed: dict[str, ConsumerCore] = {}
        self._beside: set[str] = set()  #: narrow subscriptions that stay beside the whole ones
        self._narrow_ended: set[str] = set()  #: narrow ones that have ended on this link

    def __iter__(self) -> Iterator[ConsumerCore]:
        # Over a copy, made in one step: probes ask without the session's lock.
        return iter(list(self._consumers.values()))

    def __len__(self) -> int:
        return len(self._consumers)

    def __contains__(self, subscription_id: str) -> bool:
        return subscription_id in self._consumers

    @property
    def prefetch(self) -> int:
        """How many messages the broker may send without an acknowledgement, to all together and to those that close."""
        closing = (one for request, one in self._unsubscribing.items() if not request.done)
        return sum(max(one, 1) for one in (*(one.settings.prefetch for one in self), *closing))

    def get(self, subscription_id: str) -> ConsumerCore | None:
        """Return the consumer, or None if it is closed."""
        return self._consumers.get(subscription_id)

    def find(self, subscription_id: str) -> ConsumerCore:
        """Return the consumer; raises IllegalStateError if it is closed."""
        if subscription_id not in self._consumers:
            raise IllegalStateError("The Consumer is closed")
        return self._consumers[subscription_id]

    def next_ready(self, subscription_ids: Collection[str], now: float) -> ConsumerCore | None:
        """
        Return the consumer among these whose message is next, in the order of arrival, or None if none has one.

        Raises IllegalStateError for a single one that is closed.
        """
        if len(subscription_ids) > 1:
            return self.agenda.next_ready(subscription_ids, now)
        for subscription_id in subscription_ids:
            consumer = self.find(subscription_id)
            return consumer if consumer.is_ready(now) else None
        return None

    def want(self, subscription_ids: Collection[str], now: float) -> None:
        """Note that the application waits for a message of these consumers; raises what `next_ready` raises."""
        if len(subscription_ids) > 1:
            wanted = self.agenda.unwanted(subscription_ids)
        else:
            wanted = [self.find(subscription_id) for subscription_id in subscription_ids]
        for consumer in wanted:
            consumer.want(now)

    def release_windows(self) -> list[Frame]:
        """Return the frames that end transactions which keep windows open: none may be open beside one with ACKs."""
        widened = self.agenda.widened()
        return [frame for consumer in widened for frame in consumer.release_window()]

    def accept(self, subscription_id: str, deliveries: list[Delivery], now: float) -> bool:
        """Give messages that came to their consumer; False if there is none."""
        if self._leaving:
            self._browsers.came(subscription_id, now)
        consumer = self._consumers.get(subscription_id)
        if consumer is None:
            memory = self._leaving.get(subscription_id, self._left.get(subscription_id))
            if memory is not None:
                memory.given_back(deliveries)
            return False
        if self._narrow_ended:
            deliveries = self._without_late(consumer, deliveries)
        for delivery in deliveries:
            if consumer.blind:
                delivery.go_by(doubted(delivery.frame, self._dialect))
            arrival = delivery.arrival
            arrival.subscribed = consumer.settings.destination
            past = arrival.expires_at is not None and arrival.expires_at <= now
            if past and not self._dialect.reading.genuine(delivery):
                delivery.never_expires()  # no broker sends what has expired
            if COUNT_HEADER in delivery.frame.headers or len(self._lost_deliveries):
                self.recall(consumer, delivery)
        consumer.accept(deliveries, now)
        return True

    def _without_late(self, consumer: ConsumerCore, deliveries: list[Delivery]) -> list[Delivery]:
        """Return those that the broker does not take back with a subscription that has ended."""
        late = [one for one in deliveries if one.arrival.wire_subscription in self._narrow_ended]
        consumer.memory.given_back(late)
        return [one for one in deliveries if one not in late]

    def mark_truncated(self, frame: MessageFrame) -> bool:
        """
        Mark a message that was taken as whole as truncated, as `frame` tells.

        If it still waits, it becomes a dead letter when it is handed out. Returns whether the application holds it;
        then drop the link, so that it comes again.
        """
        headers = frame.bare().headers
        consumer = self._consumers.get(
            headers.get("subscription", "").partition(SUBSCRIPTION_SEPARATOR)[0]
        )
        if consumer is None:
            return False
        ack_id = headers.get(self._dialect.ack_header, "")
        for delivery in consumer.waiting:
            if delivery.arrival.ack_id == ack_id:
                delivery.mark_undecodable(ProtocolError(frame.broken), frame)
                return False
        held = (*consumer.unsettled, *consumer.batch.owed())
        return any(one.arrival.ack_id == ack_id for one in held)

    def recall(self, consumer: ConsumerCore, delivery: Delivery) -> None:
        """Continue the count of a message that has come: from before it was sent back, or lost with a link."""
        try:
            if delivery.dead_letter_cause is None:
                delivery.continue_after_sending_back(count(delivery, self._dialect.reading))
                self._lost_deliveries.recall(consumer, delivery)
        except Exception as error:  # noqa: BLE001 - one message must not end the session
            delivery.mark_undecodable(error)

    def consumed_late(self, delivery: Delivery, now: float) -> None:
        """Note that the application is done with a message of a lost link: its last delivery did not fail."""
        consumer = self._consumers[delivery.arrival.subscription_id]
        if consumer.consumed_late(delivery, now):
            self.note_not_failed([delivery])

    def note_not_failed(self, deliveries: Sequence[Delivery]) -> None:
        """
        Note that the last deliveries of messages of lost links did not fail: they were done, or the application has
        not seen them.
        """
        for delivery in deliveries:
            self._finish(delivery)
            self.on_lost_links.told(delivery)
        self._tell_next(deliveries, lambda lost: lost._replace(failures=lost.failures - 1))

    def note_failed(self, deliveries: Sequence[Delivery], failure: Failure) -> None:
        """Note that the last deliveries of messages of lost links have failed, and how, if that is known."""
        for delivery in deliveries:
            self.on_lost_links.failed(delivery)
        if failure.error_type is not None:
            self._tell_next(deliveries, lambda lost: lost._replace(failure=failure))

    def _tell_next(self, deliveries: Sequence[Delivery], told: Callable[[Lost], Lost]) -> None:
        """Have the next delivery of each message of a lost link know what is `told` of this one."""
        # Messages that came again before the application was done: how often each name is to be told.
        come = Counter[int]()
        for delivery in deliveries:
            consumer = self._consumers[delivery.arrival.subscription_id]
            if not self._lost_deliveries.tell(consumer, delivery, told):
                come[consumer.memory.key(delivery)] += 1
        if not come:
            return
        for consumer in self:
            for one in consumer.waiting:
                lost = one.history.lost
                if lost is None or one.progress is not ARRIVED:
                    continue
                for _ in range(come[consumer.memory.key(one)]):
                    one.continue_after_loss(lost := told(lost))

    def _finish(self, delivery: Delivery) -> None:
        """Have the ledger note that the hand-out did not fail; once, however often that is told."""
        self._outbox.finish([delivery.entry])
        delivery.forget_hand_out()

    def acknowledged_late(self, delivery: Delivery, now: float, *, alone: bool) -> None:
        """Note that the application is done with a message of a lost link; not `alone`: with all that it still held."""
        self.note_held_done(now, delivery if alone else None)
        self._finish(delivery)  # more links may have been lost since

    def note_held_done(self, now: float, only: Delivery | None = None) -> None:
        """Note that the application is done with the messages of lost links that it still held, or `only` one."""
        for delivery in self.on_lost_links.untold if only is None else [only]:
            self._consumers[delivery.arrival.subscription_id].ended_late(delivery, now)
        self.note_held_not_failed(only)

    def end_held(self, failure: Failure, now: float) -> None:
        """Report the end of deliveries that the application had when their links were lost, unless that is told."""
        for delivery in self.on_lost_links.untold:
            self._consumers[delivery.arrival.subscription_id].ended_late(delivery, now, failure)

    def note_held_not_failed(self, only: Delivery | None = None) -> None:
        """
        Note that the messages of lost links that the application still held have not failed, or `only` one.

        Only the links have failed; one that was given back meanwhile may have come again to any session of the process.
        """
        held = [
            one
            for one in (self.on_lost_links if only is None else [only])
            if one in self.on_lost_links
        ]
        for delivery in held:
            self._consumers[delivery.arrival.subscription_id].memory.acknowledged([delivery])
        self.note_not_failed(held)

    def note_held_failed(self, failure: Failure) -> None:
        """Note that the messages of lost links that the application still held have failed."""
        self.note_failed(list(self.on_lost_links), failure)

    # The link --------------------------------------------------------------------------------------------------------

    def reopen(self) -> list[Request]:
        """
        Prepare to subscribe all consumers on a new link; call `subscribe` to do so, and wait for the requests.

        A consumer that is refused stays open for the next link.
        """
        self.linked = True
        for consumer in self:

            def then(
                now: float, error: JmsxError | None, consumer: ConsumerCore = consumer
            ) -> JmsxError | None:
                if error is None and consumer.settings.subscription_id in self:
                    consumer.reports.opened(now)
                return error

            request = self._requests.open("SUBSCRIBE", consumer.settings.destination, then)
            self._awaited[consumer.settings.subscription_id] = request
        return list(self._awaited.values())

    def subscribe(self, inputs: Sequence[Delivery] = ()) -> None:
        """
        Subscribe all consumers that `reopen` has prepared.

        `inputs`: what a commit in doubt waits for; if there are any, consumers of queues get only these until
        `subscribe_wholly`.
        """
        awaited, self._awaited = self._awaited, {}
        for subscription_id, request in awaited.items():
            consumer = self._consumers[subscription_id]
            if not (inputs and self._subscribe_narrowly(consumer, request, inputs)):
                self._subscribe(consumer, request)

    def _subscribe_narrowly(
        self, consumer: ConsumerCore, request: Request, inputs: Sequence[Delivery]
    ) -> bool:
        settings = consumer.settings
        if settings.kind is not DestinationKind.QUEUE:
            return False
        narrowed = self._dialect.writing.narrowed(self._headers(consumer), inputs)
        if narrowed is None:
            return False
        self._narrowed[settings.subscription_id] = consumer
        own = {"id": _narrow(settings.subscription_id), "receipt": request.receipt_id}
        self._outbox.transmit(Frame("SUBSCRIBE", {**narrowed, **own}))
        return True

    def subscribe_wholly(self, now: float) -> None:
        """
        Have all consumers that stay open get all of their messages from now on.

        The narrow subscription ends first, and the broker takes back its waiting messages: a queue that gives all
        messages of a group, or all that it has, to one subscription would offer them to the narrow one alone (BROKER.md
        A24). When that is confirmed they are in their old places, in front of others, and the whole subscription
        begins. A narrow one stays only if a message of which just the ACK is owed waits behind another one: whoever got
        it would do it once more. Call this again when a transaction has ended, until all of those are settled.
        """
        self._end_beside()
        for subscription_id in [one for one in self._narrowed if one not in self._closing]:
            consumer = self._narrowed.pop(subscription_id)
            consumer.acknowledge_waiting_originals(now)
            if any(one.state is DeliveryState.COPIED for one in consumer.waiting):
                self._beside.add(_narrow(subscription_id))
                self._outbox.transmit(Frame("SUBSCRIBE", self._headers(consumer)))
            else:
                self._end_narrow(consumer, now)

    def _end_beside(self) -> None:
        """End the narrow subscriptions beside whole ones of which everything is settled."""
        for narrow in sorted(self._beside):
            consumer = self._consumers.get(narrow.partition(SUBSCRIPTION_SEPARATOR)[0])
            if consumer is None or not consumer.resting:
                continue
            if all(one.arrival.wire_subscription != narrow for one in consumer.waiting):
                self._beside.discard(narrow)
                self._narrow_ended.add(narrow)
                self._outbox.transmit(Frame("UNSUBSCRIBE", {"id": narrow}))

    def _end_narrow(self, consumer: ConsumerCore, now: float) -> None:
        """End a consumer's narrow subscription; the whole one begins when the broker has confirmed that."""
        subscription_id = consumer.settings.subscription_id
        lost = [one for one in consumer.come_again(now) if one.history.lost is not None]
        self._lost_deliveries.note(consumer, lost, handed_out=False)
        self._lost_deliveries.trim()

        def then(_now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None and self._consumers.get(subscription_id) is consumer:
                del self._awaited[subscription_id]
                self._outbox.transmit(Frame("SUBSCRIBE", self._headers(consumer)))
            return error

        narrow = _narrow(subscription_id)
        self._narrow_ended.add(narrow)
        request = self._requests.open("UNSUBSCRIBE", consumer.settings.destination, then)
        self._awaited[subscription_id] = request
        headers = {"id": narrow, "receipt": request.receipt_id}
        self._outbox.transmit(Frame("UNSUBSCRIBE", headers))

    def refuse_further(self) -> None:
        """Note that the broker has refused one of the further subscriptions that windows have asked for."""
        for consumer in self:
            consumer.window.refused()

    def lose(self, now: float, *, refused: bool) -> None:
        """
        Remember what was not settled, because the link is gone and the broker delivers it again.

        `refused`: the broker has complained of what the application did with the messages that it holds. When they come
        again they wait as the policy says, because the cause will still be there the next moment.
        """
        self.linked = False
        self._awaited.clear()
        for consumer in self:
            handed_out, waiting = consumer.cut(now)
            self._lost_deliveries.note(consumer, handed_out, handed_out=True, refused=refused)
            self._lost_deliveries.note(consumer, waiting, handed_out=False)
        for consumer, delivery in self._dead_letters.lose(now):
            self._lost_deliveries.note(consumer, [delivery], handed_out=False)
        self._lost_deliveries.trim()
        self.close_deferred(now)
        self._unsubscribing.clear()
        self._leaving.clear()
        self._left.clear()
        self._narrowed.clear()
        self._beside.clear()
        self._narrow_ended.clear()

    def translated(self) -> list[ConsumerSettings]:
        """Return the consumers of single queues whose messages the broker translates on this link."""
        return [
            one.settings
            for one in self
            if not one.untranslated
            and is_browsable(one.settings)
            and not is_pattern(one.settings.destination)
            and len(self._dialect.untranslated(one.settings.headers)) < len(one.settings.headers)
        ]

    # Opening and closing ---------------------------------------------------------------------------------------------

    def open(self, settings: ConsumerSettings, now: float) -> Request:
        """Open a consumer; its messages come as soon as the broker has confirmed it."""
        memory = ConsumerMemory(self._memory, settings, self._dialect)
        consumer = ConsumerCore(
            settings,
            self._dialect,
            self._outbox,
            memory,
            now,
            requests=self._requests,
            on_lost_links=self.on_lost_links,
            changes=self.agenda.note,
            releases=self.release_windows,
        )
        self._consumers[settings.subscription_id] = consumer
        self.agenda.add(consumer)

        def then(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                consumer.reports.opened(now)
                return None
            self._forget(settings.subscription_id)
            if isinstance(error, BrokerTimeoutError):  # it may still succeed, and must not stay
                self._outbox.transmit(Frame("UNSUBSCRIBE", {"id": settings.subscription_id}))
            return error

        request = self._requests.open("SUBSCRIBE", settings.destination, then)
        self._subscribe(consumer, request)
        return request

    def close(
        self, subscription_id: str, now: float, *, committing: bool, idle: bool = True
    ) -> Request:
        """
        Close a consumer; one with messages in an open transaction is closed when that ends.

        So is any while the session is `committing`: its ACKs may be written when the broker has committed the sends.

        The message that it was handing out is acknowledged in AUTO mode, unless its listener has not returned (not
        `idle`) and is not the caller. In the other modes the broker delivers it again. Source:
        `ActiveMQMessageConsumer.java:733-759,843-900`.
        """
        consumer = self._consumers.get(subscription_id)
        if consumer is None:
            return answered("UNSUBSCRIBE", subscription_id)
        if self._is_subscribed(consumer) and (
            committing or (consumer.settings.transacted and consumer.delivered)
        ):
            self._closing.append(subscription_id)
            return answered("UNSUBSCRIBE", consumer.settings.destination)
        return self._unsubscribe(consumer, now, idle=idle)

    def close_deferred(self, now: float) -> None:
        """Close the consumers that waited for the end of the transaction, or of the link."""
        closing, self._closing = self._closing, []
        for subscription_id in closing:
            if subscription_id in self._consumers:
                self._unsubscribe(self._consumers[subscription_id], now)

    def close_all(self, now: float, *, idle: bool = True) -> list[Request]:
        """Close every consumer; wait for the requests."""
        for consumer in self:
            self._unsubscribe(consumer, now, idle=idle)
        return [request for request in self._unsubscribing if not request.done]

    def _is_subscribed(self, consumer: ConsumerCore) -> bool:
        """Return whether the broker has, or may have, the consumer's SUBSCRIBE on the present link."""
        return self.linked and consumer.settings.subscription_id not in self._awaited

    def _forget(self, subscription_id: str) -> None:
        consumer = self._consumers.pop(subscription_id, None)
        if consumer is not None:
            self.agenda.remove(consumer)

    def _subscribe(self, consumer: ConsumerCore, request: Request) -> None:
        headers = self._headers(consumer)
        trial = self._dialect.writing.trial(consumer.settings.destination, headers)
        subscribe(headers, request, self._requests, self._outbox, trial=trial)

    def _headers(self, consumer: ConsumerCore) -> dict[str, str]:
        """Return the headers of its SUBSCRIBE, without receipt, and note whether these ask for translation."""
        wanted = consumer.settings.headers
        if self._translating.untranslated(consumer.settings):
            wanted = self._dialect.untranslated(wanted)
        consumer.untranslated = len(wanted) < len(consumer.settings.headers)
        consumer.blind = self._dialect.translation_header not in (None, *wanted)
        return {
            "id": consumer.settings.subscription_id,
            **wanted,
            **consumer.window.subscribe_headers(),
        }

    def _wires(self, consumer: ConsumerCore) -> list[str]:
        """Return the wire subscriptions that feed the consumer, the first one first."""
        subscription_id = consumer.settings.subscription_id
        narrow = _narrow(subscription_id)
        if self._narrowed.pop(subscription_id, None) is not None:
            return [narrow]
        beside = [narrow] if narrow in self._beside else []
        return [*consumer.window.subscription_ids, *beside]

    def _unsubscribe(self, consumer: ConsumerCore, now: float, *, idle: bool = True) -> Request:
        settings = consumer.settings
        if not self._is_subscribed(consumer):  # the broker has forgotten it
            self._forget(settings.subscription_id)
            consumer.close_without_link(now)
            awaited = self._awaited.pop(settings.subscription_id, None)
            if awaited is not None:
                self._requests.answer(awaited.receipt_id, now)
            return answered("UNSUBSCRIBE", settings.destination)
        self.on_lost_links.forget(consumer.memory)
        consumer.flush(AckTrigger.CLOSE, now)
        if settings.acknowledges_itself and consumer.delivered and idle:
            consumer.acknowledge(consumer.take_delivered(), AckTrigger.CLOSE, now)
        consumer.acknowledge_waiting_originals(now)
        self._outbox.transmit(*consumer.release_window())
        room = consumer.has_room or bool(consumer.copies)
        consumer.end(consumer.delivered, Outcome.RELEASED, now)
        left = [*consumer.delivered, *consumer.give_back(Outcome.RELEASED, now)]
        consumer.copies.stay(one for one in left if one.is_alive)
        self._leaving[settings.subscription_id] = consumer.memory
        self._forget(settings.subscription_id)
        consumer.reports.closed(now)
        request = self._requests.open("UNSUBSCRIBE", settings.destination)
        self._unsubscribing = {one: n for one, n in self._unsubscribing.items() if not one.done}
        self._unsubscribing[request] = settings.prefetch
        receipt = {"receipt": request.receipt_id}
        ids = reversed(self._wires(consumer))
        *further, first = [Frame("UNSUBSCRIBE", {"id": one}) for one in ids]
        frames = [*further, Frame("UNSUBSCRIBE", {**first.headers, **receipt})]

        def note(batch: Iterable[Delivery]) -> None:
            copied = [one for one in batch if one.state is DeliveryState.COPIED]
            self._lost_deliveries.note(consumer, copied, handed_out=False)
            self._lost_deliveries.trim()

        def leave(now: float) -> None:
            if settings.subscription_id not in self._leaving:  # its link was lost
                return
            note(consumer.copies.owed)
            flags = settings.kind is DestinationKind.QUEUE and self._dialect.flags_redelivery
            if room and flags:
                # Classic flags all that it has dispatched, also what it drops because an UNSUBSCRIBE overtakes it: of
                # that it would not be known that nobody saw it (BROKER.md C38).
                name, destination = settings.subscription_id, settings.destination
                self._browsers.await_end(name, destination, lambda: self._leave(name, frames), now)
            else:
                self._leave(settings.subscription_id, frames)

        note(left)  # if they come again, only their ACK is owed
        # An ACK after UNSUBSCRIBE is ignored or refused, so copies that are on their way come first.
        self._dead_letters.after(consumer, leave, now)
        return request

    def _leave(self, subscription_id: str, frames: Sequence[Frame]) -> None:
        """End a subscription with `frames`, and remember its consumer for what comes yet."""
        self._left[subscription_id] = self._leaving.pop(subscription_id)
        if len(self._left) > _LEFT:
            del self._left[next(iter(self._left))]
        self._outbox.transmit(*frames)


class Agenda:
    """
    Keeps what is next for the consumers of one session; times are seconds, monotonic.

    What is found is kept in heaps, whose old entries are skipped. The order of the steps is
    such that an interrupted one is done again.
    """

    def __init__(self) -> None:
        #: A number for each open consumer, in the order of their opening.
        self._ties: dict[ConsumerCore, int] = {}
        self._opened = 0
        #: Consumers that have changed since their timers were looked at, as after each call; and since the rest was.
        self._untimed: dict[ConsumerCore, None] = {}
        self._changed: dict[ConsumerCore, None] = {}
        self._timers = _Heap()
        self._paused = _Heap()  #: consumers by the end of their pause
        self._ready = _Heap()  #: consumers by the `order` of the message that is next
        #: Consumers of which the application wants no message yet
        self._unwanted: dict[ConsumerCore, None] = {}
        #: Consumers of which the application holds messages
        self._holding: dict[ConsumerCore, None] = {}
        self._widened: dict[ConsumerCore, None] = {}  #: a transaction may keep their window open

    def add(self, consumer: ConsumerCore) -> None:
        """Keep a consumer that was opened."""
        self._opened += 1
        self._ties[consumer] = self._opened
        self.note(consumer)

    def remove(self, consumer: ConsumerCore) -> None:
        """Forget a consumer that is closed."""
        for heap in (self._timers, self._paused, self._ready):
            heap.forget(consumer)
        for some in (self._untimed, self._changed, self._unwanted, self._holding, self._widened):
            some.pop(consumer, None)
        self._ties.pop(consumer, None)

    def note(self, consumer: ConsumerCore) -> None:
        """Note that a consumer is about to change."""
        self._untimed[consumer] = self._changed[consumer] = None

    def next_timer(self) -> float | None:
        """Return when the first consumer has something due, or None."""
        if self._untimed:
            self._look_at_all(self._untimed, self._set_timer)
        first = self._timers.first()
        return None if first is None else first[0]

    def take_due(self, now: float) -> list[ConsumerCore]:
        """Return the consumers that have something due; they are looked at again, whether they do it or not."""
        self._look_at_all(self._untimed, self._set_timer)
        due = []
        while (first := self._timers.first()) is not None and first[0] <= now:
            due.append(first[1])
            self._again(self._timers, first[1])
        return due

    def next_ready(self, subscription_ids: Container[str], now: float) -> ConsumerCore | None:
        """Return the consumer among these whose message is next, by order, or None if none has one."""
        self._look()
        while (first := self._paused.first()) is not None and first[0] <= now:
            self._again(self._paused, first[1])
            first[1].end_pause(now)
        self._look()
        while (first := self._ready.first()) is not None:
            if first[1].settings.subscription_id in subscription_ids:
                return first[1]
            self._again(self._ready, first[1])
        return None

    def unwanted(self, subscription_ids: Container[str]) -> list[ConsumerCore]:
        """Return the consumers among these of which the application wants no message yet."""
        self._look()
        return [one for one in self._unwanted if one.settings.subscription_id in subscription_ids]

    def holding(self) -> list[ConsumerCore]:
        """Return the consumers of which the application holds messages, in the order of their opening."""
        self._look()
        return sorted(self._holding, key=self._ties.__getitem__)

    def widened(self) -> list[ConsumerCore]:
        """Return the consumers whose window a transaction may keep open, in the order of their opening."""
        self._look()
        return sorted(self._widened, key=self._ties.__getitem__)

    def _again(self, heap: _Heap, consumer: ConsumerCore) -> None:
        """Take a consumer out of a heap; it comes in again at the next look."""
        self.note(consumer)
        heap.forget(consumer)

    def _look(self) -> None:
        """Look at those that have changed, but for their timers."""
        if self._changed:
            self._look_at_all(self._changed, self._look_at)

    def _look_at_all(
        self, noted: dict[ConsumerCore, None], look_at: Callable[[ConsumerCore, int], None]
    ) -> None:
        for consumer in list(noted):
            tie = self._ties.get(consumer)
            if tie is not None:
                look_at(consumer, tie)
            noted.pop(consumer, None)

    def _set_timer(self, consumer: ConsumerCore, tie: int) -> None:
        timer = consumer.next_timer()
        self._timers.set(consumer, math.inf if timer is None else timer, tie)

    def _look_at(self, consumer: ConsumerCore, tie: int) -> None:
        paused_until = consumer.paused_until
        if paused_until is None:
            self._ready.set(consumer, consumer.next_order, tie)
            self._paused.forget(consumer)
        else:
            self._paused.set(consumer, paused_until, tie)
            self._ready.forget(consumer)
        _keep(self._unwanted, consumer, belongs=consumer.wanted_since is None)
        _keep(self._holding, consumer, belongs=bool(consumer.delivered))
        _keep(self._widened, consumer, belongs=consumer.widened)


class _Heap:
    """Consumers by a number, the least first; a consumer has one number, or infinity: then it is not in it."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, ConsumerCore]] = []
        self._number: dict[ConsumerCore, float] = {}

    def set(self, consumer: ConsumerCore, number: float, tie: int) -> None:
        """Give a consumer its number; of equal ones the least `tie` comes first."""
        if number == self._number.get(consumer, math.inf):
            return
        if number != math.inf:
            heappush(self._entries, (number, tie, consumer))
        self._number[consumer] = number
        if len(self._entries) > 4 * len(self._number) + _SPARE:
            entries = [one for one in self._entries if self._number.get(one[2]) == one[0]]
            heapify(entries)
            self._entries = entries

    def first(self) -> tuple[float, ConsumerCore] | None:
        """Return the least number with its consumer, or None."""
        entries = self._entries
        while entries:
            number, _, consumer = entries[0]
            if self._number.get(consumer) == number:
                return number, consumer
            heappop(entries)
        return None

    def forget(self, consumer: ConsumerCore) -> None:
        """Take a consumer out."""
        self._number.pop(consumer, None)


def _keep(some: dict[ConsumerCore, None], consumer: ConsumerCore, *, belongs: bool) -> None:
    if belongs:
        some[consumer] = None
    elif some:
        some.pop(consumer, None)
