"""
A broker in memory, at the level of STOMP frames, with the manners of a real one.

It has no socket, thread, clock or randomness: `now` is an argument, ids are counters. What one frame causes happens
before the call returns, on all links, in the order in which the real broker's tasks would run:

>>> from jmsx.core.frames import Frame
>>> from jmsx.testing import FakeBroker
>>> broker = FakeBroker()
>>> link = broker.open_link(now=0.0)
>>> link.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), now=0.0)
>>> [frame.command for frame in link.take_frames()]
['CONNECTED']

What would silently go another way than on the real broker raises NotImplementedError: composite and wildcard
destinations, a `transformation` other than `jms-map-xml`, periodic and cron schedules, retroactive consumers, pending
limits, and selectors that calculate with strings. Not modelled at all: virtual topics, flow control and memory limits,
security, advisories, restarts, frame size limits, heart-beats (`FakeBrokerServer` has them), and that a queue with both
persistent and other messages gives out a backlog's persistent ones first.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING

from jmsx.testing.fake_destination import Destination, Kind, parse_stomp_name
from jmsx.testing.fake_link import FakeLink
from jmsx.testing.fake_queue import BrowserSubscription, FakeQueue, QueueSubscription
from jmsx.testing.fake_selector import Selector, SelectorSyntaxError
from jmsx.testing.fake_subscription import DurableSubscription, TopicSubscription
from jmsx.testing.fake_topic import FakeTopic
from jmsx.testing.faults import BrokerFault, Cut, FaultPlan, Refusal
from jmsx.testing.manners import CLASSIC, Manners

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.fake_consumer import StompConsumer
    from jmsx.testing.fake_message import StoredMessage
    from jmsx.testing.fake_transaction import FakeTransaction

_ORIGIN = 1_700_000_000.0
_NOT_SCHEDULED = {"AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"}


class FakeBroker:
    """
    Queues, topics, durable subscriptions and links.

    Args:
        manners: which broker to be like.
        origin: the wall-clock time at `now` = 0, in seconds since 1970; it dates messages and expires them.
    """

    def __init__(self, manners: Manners = CLASSIC, *, origin: float = _ORIGIN) -> None:
        self.manners = manners
        self.faults = FaultPlan()
        self.links: list[FakeLink] = []  #: those that are open, oldest first
        self.durables: dict[tuple[str, str], DurableSubscription] = {}  #: by client id and name
        self._origin = origin
        self._now = 0.0
        self._queues: dict[Destination, FakeQueue] = {}
        self._topics: dict[Destination, FakeTopic] = {}
        self._todo: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._dead_letters_seen: set[str] = set()
        self._ids = itertools.count(1)
        self._ack_ids = itertools.count(1)

    # -- for tests ------------------------------------------------------------------------------

    def open_link(self, now: float) -> FakeLink:
        """A new connection, on which the client has not said CONNECT; `now` in seconds, monotonic."""
        self.arrive(now)
        link = FakeLink(self, f"ID:fake-1-1:{next(self._ids)}")
        self.links.append(link)
        return link

    def drop(self, link: FakeLink, now: float) -> None:
        """Let the socket of `link` die."""
        self.arrive(now)
        link.close()
        self.settle()

    def queue(self, name: str) -> FakeQueue:
        """The queue called `name` (with or without `/queue/`), made if it is not there."""
        found = parse_stomp_name(name) or Destination(Kind.QUEUE, name)
        return self._queue(found)

    def topic(self, name: str) -> FakeTopic:
        """The topic called `name` (with or without `/topic/`), made if it is not there."""
        found = parse_stomp_name(name) or Destination(Kind.TOPIC, name)
        return self._topic(found)

    def refuse_next(
        self, command: str, message: str = "refused by the test", *, link: FakeLink | None = None
    ) -> None:
        """
        Have the broker fail the next `command`: ERROR instead of RECEIPT.

        The converter has done its part by then, as on a real broker: a refused COMMIT has lost its name, a refused ACK
        its ack id, and a frame in a transaction without `receipt` makes it rollback-only.
        """
        self.faults.add(Refusal(command, message, link))

    def cut_next(self, command: str, *, applied: bool, link: FakeLink | None = None) -> None:
        """Let the socket die at the next `command`: before the broker saw it, or `applied` but not answered."""
        self.faults.add(Cut(command, applied, link))

    # -- time -----------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """When `handle_timer` is next due (seconds, monotonic), or None if nothing waits."""
        return self._timers[0][0] if self._timers else None

    def handle_timer(self, now: float) -> None:
        """Do what is due: scheduled messages, and each queue's look for expired messages."""
        self.arrive(now)

    def arrive(self, now: float) -> None:
        """Let time go on to `now`, doing what is due on the way; raises ValueError if it would go back."""
        if not now >= self._now:  # also refuses NaN
            raise ValueError(f"time does not go back: it is {self._now}, not {now}")
        while self._timers and self._timers[0][0] <= now:
            due, _, work = heapq.heappop(self._timers)
            self._now = due
            work()
            self.settle()
        self._now = now

    @property
    def now(self) -> float:
        """The time that was last told (seconds, monotonic)."""
        return self._now

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return round((self._origin + self._now) * 1000)

    def _at(self, moment: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (moment, next(self._ids), work))

    # -- work that waits for the end of what is going on ----------------------------------------

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` after what is going on now: the broker's other threads."""
        self._todo.append(work)

    def settle(self) -> None:
        """Do all that waits, until the broker is at rest."""
        while self._todo:
            self._todo.popleft()()

    # -- destinations ---------------------------------------------------------------------------

    def create(self, destination: Destination) -> Destination:
        """Make `destination` if it is not there, and return it."""
        if destination.is_queue:
            self._queue(destination)
        else:
            self._topic(destination)
        return destination

    def delete(self, destination: Destination) -> None:
        """Forget `destination` and what is in it."""
        self._queues.pop(destination, None)
        self._topics.pop(destination, None)

    def _queue(self, destination: Destination) -> FakeQueue:
        if destination not in self._queues:
            queue = FakeQueue(destination, self, self.manners, lambda q: self.later(q.iterate))
            self._queues[destination] = queue
            self._at(self._now + self.manners.expiry_period, lambda: self._sweep(queue))
        return self._queues[destination]

    def _topic(self, destination: Destination) -> FakeTopic:
        if destination not in self._topics:
            self._topics[destination] = FakeTopic(destination, self)
        return self._topics[destination]

    def _sweep(self, queue: FakeQueue) -> None:
        if self._queues.get(queue.destination) is queue:
            queue.sweep()
            self._at(self._now + self.manners.expiry_period, lambda: self._sweep(queue))

    # -- messages -------------------------------------------------------------------------------

    def send(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Store or publish `message`; raises BrokerFault if its temporary destination is gone."""
        destination = message.destination
        known = destination in self._queues or destination in self._topics
        if destination.is_temporary and not known:
            raise BrokerFault(
                str(destination), "org.apache.activemq.DestinationDoesNotExistException"
            )
        for name in _NOT_SCHEDULED & message.properties.keys():
            raise NotImplementedError(f"the fake broker has no {name}")
        if self.manners.scheduler and "AMQ_SCHEDULED_DELAY" in message.properties:
            self._schedule(message, transaction)
        else:
            self._place(message, transaction)

    def _place(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        if message.destination.is_queue:
            self._queue(message.destination).send(message, transaction)
        else:
            self._topic(message.destination).send(message, transaction)

    def _schedule(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """
        Keep `message` back for its delay, which counts from the commit.

        Source: probes-classic.md "AMQ_SCHEDULED_DELAY over STOMP"; same message id, and scheduledJobId tells it.
        """
        delay = int(message.properties.pop("AMQ_SCHEDULED_DELAY")) / 1000
        message.properties["scheduledJobId"] = message.message_id

        def start() -> None:
            self._at(self._now + delay, lambda: self._place(message, None))

        if transaction is None:
            start()
        else:
            transaction.enlist(on_commit=start)

    def send_to_dead_letter_queue(self, message: StoredMessage, cause: str | None) -> None:
        """
        Copy `message` there, unless it is not persistent, comes from there, or was there before.

        Source: classic.md 1.13; activemq-broker 6.1.8 AbstractDeadLetterStrategy and RegionBroker.
        """
        target = Destination(Kind.QUEUE, self.manners.dead_letter_queue)
        seen = message.message_id in self._dead_letters_seen
        self._dead_letters_seen.add(message.message_id)
        if message.persistent and not seen and message.destination != target:
            self._queue(target).send(message.dead_letter(target, cause), None)

    # -- links and their consumers --------------------------------------------------------------

    def register(self, link: FakeLink, client_id: str | None) -> str:
        """Give `link` its client id; raises BrokerFault if another link has it."""
        if client_id is None:
            return link.connection_id
        if any(other.client_id == client_id for other in self.links):
            raise BrokerFault(
                f"Broker: localhost - Client: {client_id} already connected from tcp://127.0.0.1:1",
                "jakarta.jms.InvalidClientIDException",
            )
        return client_id

    def forget(self, link: FakeLink) -> None:
        """The connection is over."""
        self.links.remove(link)

    def next_message_id(self, link: FakeLink) -> str:
        """A message id, such as the broker makes for what `link` sends."""
        return f"{link.connection_id}:-1:1:{next(self._ids)}"

    def next_consumer_id(self, link: FakeLink) -> str:
        """A consumer id."""
        return f"{link.connection_id}:-1:{next(self._ids)}"

    def next_ack_id(self) -> str:
        """The `ack` of a MESSAGE."""
        return f"ID:fake-1-2:{next(self._ack_ids)}"

    def add_consumer(self, consumer: StompConsumer) -> None:
        """Let `consumer` take part; raises BrokerFault on a bad selector or a durable one in use."""
        options = consumer.options
        if options.selector_text is not None:
            try:
                options.selector = Selector(options.selector_text)
            except SelectorSyntaxError as error:
                raise BrokerFault(
                    options.selector_text, "jakarta.jms.InvalidSelectorException"
                ) from error
        if options.destination.is_queue:
            self._add_queue_consumer(consumer)
        elif options.subscription_name is not None:
            self._add_durable_consumer(consumer, options.subscription_name)
        else:
            topic = self._topic(options.destination)
            subscription = TopicSubscription(options, self, consumer.deliver)
            topic.subscriptions.append(subscription)
            consumer.subscription = subscription

    def _add_queue_consumer(self, consumer: StompConsumer) -> None:
        options = consumer.options
        queue = self._queue(options.destination)
        if options.browser:
            browser = BrowserSubscription(
                options, self, consumer.deliver, queue, consumer.end_browse
            )
            consumer.subscription = browser
            self.later(browser.open_window)
            return
        subscription = QueueSubscription(options, self, consumer.deliver, queue)
        consumer.subscription = subscription
        queue.add_consumer(subscription)

    def _add_durable_consumer(self, consumer: StompConsumer, name: str) -> None:
        """
        Come back to a durable subscription, or begin it; another selector or topic begins it anew, without its backlog.

        Source: classic.md 2.5; TopicRegion.addConsumer.
        """
        options = consumer.options
        client_id = consumer.link.client_id or ""
        known = self.durables.get((client_id, name))
        if known is not None and known.active:
            raise BrokerFault(
                f"Durable consumer is in use for client: {client_id} and subscriptionName: {name}"
            )
        if known is not None and _is_changed(known, consumer):
            self.delete_durable(client_id, name)
            known = None
        if known is None:
            known = DurableSubscription(options, self, consumer.deliver)
            self.durables[client_id, name] = known
            self._topic(options.destination).subscriptions.append(known)
        else:
            known.activate(options, consumer.deliver)
        consumer.subscription = known

    def remove_consumer(self, consumer: StompConsumer) -> None:
        """End `consumer`; raises BrokerFault if the broker never had it."""
        subscription, consumer.subscription = consumer.subscription, None
        match subscription:
            case BrowserSubscription():
                pass
            case QueueSubscription():
                subscription.queue.remove_consumer(subscription)
            case DurableSubscription():
                subscription.deactivate()
            case TopicSubscription():
                self._topic(consumer.options.destination).subscriptions.remove(subscription)
            case _:
                raise BrokerFault(
                    "Cannot remove a consumer that had not been registered:"
                    f" {consumer.options.consumer_id}",
                    "java.lang.IllegalStateException",
                )

    def delete_durable(self, client_id: str, name: str) -> None:
        """Delete a durable subscription; raises BrokerFault if there is none or it is in use."""
        known = self.durables.get((client_id, name))
        if known is None:
            raise BrokerFault(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {name}",
                "jakarta.jms.InvalidDestinationException",
            )
        if known.active:
            raise BrokerFault("Durable consumer is in use")
        del self.durables[client_id, name]
        self._topic(known.options.destination).subscriptions.remove(known)


def _is_changed(known: DurableSubscription, consumer: StompConsumer) -> bool:
    before, after = known.options, consumer.options
    return (before.destination, before.selector_text, before.no_local) != (
        after.destination,
        after.selector_text,
        after.no_local,
    )
