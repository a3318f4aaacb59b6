"""The session: one thread's worth of order, acknowledgement and transaction, on a socket of its own."""

from __future__ import annotations

import itertools
import platform
import time
from typing import TYPE_CHECKING, Final, Self

from jmsx.core.values import (
    NO_FAILURE,
    AcknowledgeMode,
    ConsumerSettings,
    DestinationKind,
    SessionSettings,
    StompAck,
)
from jmsx.drivers.counting import Counting
from jmsx.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidDestinationError,
    JmsxError,
    UnsupportedError,
)
from jmsx.jms.aside import Peer
from jmsx.jms.browser import QueueBrowser
from jmsx.jms.consumer import MessageConsumer
from jmsx.jms.destination import Destination, Queue, TemporaryQueue, Topic
from jmsx.jms.dispatcher import Dispatcher
from jmsx.jms.producer import MessageProducer
from jmsx.jms.scheduling import probe, scheduled
from jmsx.memory import MEMORY
from jmsx.steering import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from jmsx.core.delivery import Delivery
    from jmsx.core.management import Findings
    from jmsx.drivers.open import OpenLink
    from jmsx.jms.connection import Connection
    from jmsx.jms.message import Message
    from jmsx.uri import BrokerAddress


#: Modes in which `message.acknowledge()` does something; in the others it may be called at any time.
_ACKNOWLEDGED: Final = (
    AcknowledgeMode.CLIENT_ACKNOWLEDGE,
    AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
)


class Session:
    """
    Made by `Connection.create_session`; use it from one thread at a time.

    Every call raises IllegalStateError once the session is closed, and ConnectionFailedError once its link is gone.
    """

    def __init__(
        self, mode: AcknowledgeMode, connection: Connection, link: OpenLink, session_id: str
    ) -> None:
        self.mode = mode
        self.session_id = session_id
        self.options = connection.options
        self._connection = connection
        self._ids = itertools.count(1)
        self._closed = False
        self._attach(link)

    @property
    def transacted(self) -> bool:
        """Whether receives and sends take effect at commit()."""
        return self.mode is AcknowledgeMode.SESSION_TRANSACTED

    @property
    def alive(self) -> bool:
        """Whether the threads that serve it run."""
        return self.pump.alive and self._dispatcher.alive

    @property
    def connected(self) -> bool:
        """Whether there is a link, as far as we know, with all consumers on it."""
        return self.pump.reachable

    @property
    def address(self) -> BrokerAddress:
        """Of the broker that it is connected to, or was last."""
        return self.pump.address

    @property
    def greeting(self) -> Mapping[str, str]:
        """The headers of the broker's CONNECTED on the link that there is, or was last."""
        return self.pump.greeting

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def create_queue(self, name: str) -> Queue:
        """The queue called `name`; the broker makes it at first use."""
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """The topic called `name`."""
        return Topic(name)

    def create_temporary_queue(self) -> TemporaryQueue:
        """A new queue that only this session can read, until it is closed."""
        self.check_open()
        return TemporaryQueue(f"{self.session_id}-{next(self._ids)}", owner=self)

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """A producer for `destination`, or for one that is named with each message."""
        self.check_open()
        return MessageProducer(self, destination)

    def create_consumer(
        self,
        destination: Destination,
        *,
        selector: str | None = None,
        no_local: bool = False,
        name: str | None = None,
    ) -> MessageConsumer:
        """
        A consumer; `name` is what it is called in metrics and events (default: the destination).

        Raises InvalidSelectorError, or what the broker says against it.
        """
        self.check_open()
        if not isinstance(destination, Destination):
            raise InvalidDestinationError(f"a consumer needs a queue or topic, not {destination!r}")
        if isinstance(destination, TemporaryQueue) and destination.owner is not self:
            raise InvalidDestinationError(
                f"{destination} belongs to another session; over STOMP only that one can read it"
            )
        kind = DestinationKind.TOPIC if destination.is_topic else DestinationKind.QUEUE
        return self._subscribe(destination, kind, selector, no_local=no_local, name=name)

    def create_durable_consumer(
        self,
        topic: Destination,
        subscription: str,
        *,
        selector: str | None = None,
        no_local: bool = False,
        name: str | None = None,
    ) -> MessageConsumer:
        """
        A consumer of the durable subscription called `subscription`, which the broker keeps while nobody reads it.

        Raises JmsxError if it is in use or the connection has no client id, and UnsupportedError if durable
        subscriptions of the connection live in another session already: over STOMP they share one socket.
        """
        self.check_open()
        if not isinstance(topic, Destination) or not topic.is_topic:
            raise InvalidDestinationError(f"{topic} is no topic, so it has no durable subscription")
        if self.options.client_id is None:
            raise JmsxError("a durable subscription needs a connection with a client_id")
        self._connection.claim_client_id(self, subscription)
        try:
            return self._subscribe(
                topic,
                DestinationKind.DURABLE,
                selector,
                no_local=no_local,
                name=name or subscription,
                durable_name=subscription,
            )
        except BaseException:
            self._connection.release_durable(subscription)
            raise

    def create_shared_consumer(self, topic: Destination, subscription: str) -> MessageConsumer:
        """
        JMS 2.0's shared subscription: over STOMP no broker has one, so this raises UnsupportedError.

        The error says what the broker has instead: on Classic virtual topics, as for its Java client.
        """
        raise UnsupportedError(f"no shared {subscription!r} of {topic}: {self.dialect.sharing}")

    create_shared_durable_consumer = create_shared_consumer

    def create_browser(self, queue: Destination, *, selector: str | None = None) -> QueueBrowser:
        """A browser of what lies in `queue`; raises InvalidDestinationError for a topic."""
        self.check_open()
        if not isinstance(queue, Destination) or queue.is_topic:
            raise InvalidDestinationError(f"{queue} is no queue, so it cannot be browsed")
        return QueueBrowser(self, queue, selector)

    def unsubscribe(self, subscription: str) -> None:
        """
        Remove a durable subscription.

        Raises BrokerError while a consumer uses it, InvalidDestinationError if there is none of that name.
        """
        self.check_open()
        if self.dialect.management is not None:
            peer = self._peer(f"UNSUBSCRIBE {subscription}")
            self._connection.aside.remove_durable(peer, self.options.client_id, subscription)
            return
        self._connection.claim_client_id(self, None)
        self.pump.ask(
            f"UNSUBSCRIBE {subscription}",
            lambda core, _now: core.conversation.unsubscribe_durable(subscription),
        )

    def examine(self, destination: Destination, kind: DestinationKind | None = None) -> Findings:
        """
        What the broker's management tells of a destination that shall be consumed, and what goes badly with it.

        Asked once in a connection's life. Raises InvalidDestinationError if a consumer would take messages that are
        not meant for it.
        """
        self.check_open()
        if kind is None:
            kind = DestinationKind.TOPIC if destination.is_topic else DestinationKind.QUEUE
        peer = self._peer(f"examination of {destination}")
        return self._connection.aside.examine(peer, destination.uri, kind)

    def commit(self) -> None:
        """
        Make all sends and receives since the last commit final, together.

        Raises IllegalStateError if not transacted, TransactionRolledBackError if the broker refused, and
        TransactionInDoubtError if its answer was lost. After a refusal the session goes on, on a new link, and what it
        had received comes again.
        """
        self.check_open()
        self.pump.commit()

    def rollback(self, cause: BaseException | None = None) -> None:
        """
        Undo the sends, and deliver again what was received, by the redelivery policy.

        `cause` goes to the evidence and, at the end of the policy, to the dead letter; a `Reject` makes what was
        received dead letters at once, a `Retry` sets the delay. Raises IllegalStateError if not transacted.
        """
        self.check_open()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        self.pump.call(lambda core, now: core.rollback(now, failure))
        self.pump.wake()  # an idle listener has something to do again

    def recover(self, cause: BaseException | None = None) -> None:
        """
        Deliver again what is not acknowledged; raises IllegalStateError if transacted.

        `cause` is told and steers as in `rollback`.
        """
        self.check_open()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        self.pump.call(lambda core, now: core.recover(now, failure))
        self.pump.wake()

    def close(self) -> None:
        """
        Wait for a running listener, roll back what is not committed, give the rest back, and say farewell.

        Idempotent. From within a listener it does not wait for that listener.
        """
        if self._closed:
            return
        self._closed = True
        reachable = self.pump.reachable
        self.pump.hurry()
        self._dispatcher.stop()
        try:
            self.pump.tidy_up()
            if self.pump.error is None:
                for request in self.pump.call(lambda core, now: core.close(now)):
                    self.pump.wait(request)
        finally:
            self.pump.leave("session closed")
            self._connection.forget(self, reachable=reachable)

    def relink(self, client_id: str | None) -> None:
        """
        Go on with a new link that carries `client_id`; the connection's affair.

        Raises UnsupportedError if something binds the session to the link that it has.
        """
        if not self.pump.core.idle:
            raise UnsupportedError(
                f"session {self.pump.source.session_id} has consumers on its socket, so it cannot take"
                " another client id; make durable consumers first, or in a session of their own"
            )
        self.pump.leave("session moved")
        self._attach(self._connection.open_link(client_id))

    def _attach(self, link: OpenLink) -> None:
        marked = self.options.commit_markers and self.transacted
        settings = SessionSettings(
            mode=self.mode,
            broker=link.broker,
            session_id=self.session_id,
            dead_letter=self.options.dead_letter,
            host=platform.node(),
            marker_day=int(time.time() // 86400) if marked else None,
        )
        self.client_id = link.client_id
        self.dialect = link.dialect
        self.pump = link.attach(settings, self._connection.connection_id, MEMORY)
        self.pump.running = self._connection.started
        self.pump.on_lost = self._connection.lost
        self.pump.counting = Counting(self._connection.ledger)
        self._dispatcher = Dispatcher(self.pump, self.dialect, self.bind)

    def abort(self) -> None:
        """Drop the socket without farewell: the broker takes back all that is not settled."""
        self.pump.end("aborted")

    def renew(self, reason: str) -> None:
        """Go on with a new link and new subscriptions; what is not settled is the broker's again."""
        self.pump.renew(reason)

    def pause(self) -> None:
        """Hand out nothing until `resume()`."""
        self.pump.running = False

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait `timeout` seconds (None: for ever) for a running listener, unless it calls; False if it runs on."""
        return self._dispatcher.wait_idle(timeout)

    def resume(self) -> None:
        """Hand out messages (again)."""
        self.pump.running = True
        self.pump.wake()

    def released(self, durable_name: str | None) -> None:
        """A consumer is closed."""
        if durable_name is not None:
            self._connection.release_durable(durable_name)

    def broker_schedules(self) -> bool:
        """Whether the broker delays messages that ask for it."""
        connection = self._connection
        if connection.scheduler is None:
            connection.scheduler = probe(self)
        return connection.scheduler

    def next_subscription_id(self) -> str:
        """A subscription id that the session has not used yet."""
        return str(next(self._ids))

    def check_open(self) -> None:
        """Raise IllegalStateError if closed, ConnectionFailedError if the link is gone."""
        if self._closed:
            raise IllegalStateError("The Session is closed")
        self.pump.check()

    def check_receive(self) -> None:
        """Raise IllegalStateError where `receive()` may not be called."""
        self.check_open()
        if self._dispatcher.active:
            raise IllegalStateError(
                "Cannot synchronously receive a message when a MessageListener is set"
            )

    def listen(self, subscription_id: str, listener: Callable[[Message], object] | None) -> None:
        """Give a consumer its listener, or take it away."""
        self.check_open()
        self._dispatcher.set(subscription_id, listener)

    def bind(self, message: Message, delivery: Delivery) -> Message:
        """Let `message.acknowledge()` settle `delivery`."""

        def acknowledge() -> None:
            if self.mode not in _ACKNOWLEDGED:
                return
            self.check_open()
            self.pump.call(lambda core, now: core.acknowledge(delivery, now))

        message.on_acknowledge(acknowledge)
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _peer(self, what: str) -> Peer:
        """The broker at the other end, now; an outage is waited through."""
        return self.pump.submit(what, lambda _core, _now: Peer(self.broker, self.dialect))

    @property
    def broker(self) -> str:
        """The address of the broker that the session is, or was last, connected to."""
        return self.pump.source.broker

    def _subscribe(
        self,
        destination: Destination,
        kind: DestinationKind,
        selector: str | None,
        *,
        no_local: bool,
        name: str | None,
        durable_name: str | None = None,
    ) -> MessageConsumer:
        options = dict(destination.address.options)
        selector = options.pop("selector", None) if selector is None else selector
        prefetch = self._prefetch(options.pop("prefetchSize", None), kind)
        policy = self.options.policy(destination.uri)
        non_blocking = self.options.non_blocking_redelivery or policy.non_blocking
        ack = self._stomp_ack(non_blocking=non_blocking)
        auto = self.mode is AcknowledgeMode.AUTO_ACKNOWLEDGE
        grave = self.examine(destination, kind).grave
        settings = ConsumerSettings(
            subscription_id=self.next_subscription_id(),
            name=name or destination.uri,
            destination=destination.uri,
            kind=kind,
            mode=self.mode,
            stomp_ack=ack,
            headers=self.dialect.subscribe_headers(
                destination=destination.uri,
                ack=ack,
                selector=selector,
                durable_name=durable_name,
                no_local=no_local,
                options=options,
            ),
            origin=self._origin(destination, kind, durable_name),
            grave=grave.destination,
            grave_frames=grave.before,
            prefetch=max(prefetch, 1),
            policy=policy,
            optimize=self.options.optimize() if auto and prefetch > 0 else None,
            non_blocking_redelivery=non_blocking,
            scheduled=scheduled(self, destination.uri, kind, policy),
        )
        self._prepare(settings, durable_name)
        self.pump.ask(
            f"SUBSCRIBE {destination}",
            lambda core, now: core.subscribe(settings, now),
            repeat=True,
        )
        return MessageConsumer(
            self,
            destination,
            settings.subscription_id,
            pull=prefetch == 0,
            durable_name=durable_name,
        )

    def _prepare(self, settings: ConsumerSettings, durable_name: str | None) -> None:
        """What is better found out before SUBSCRIBE, and not on the session's own link."""
        peer, aside = self._peer(f"SUBSCRIBE {settings.destination}"), self._connection.aside
        aside.try_selector(peer, settings.headers)
        if durable_name is not None:
            aside.claim_durable(peer, self.options.client_id, durable_name, settings.headers)

    def _origin(self, destination: Destination, kind: DestinationKind, durable: str | None) -> str:
        """What names the queue or subscription for ever, wherever it is read."""
        if kind is DestinationKind.QUEUE:
            return destination.uri
        if durable is None:
            return f"{destination.uri}:{self.session_id}"
        return f"{destination.uri}:durable:{self.options.client_id}.{durable}"

    def _stomp_ack(self, *, non_blocking: bool) -> StompAck:
        """Cumulative where local order is dispatch order; single ACKs elsewhere (classic.md 3.1)."""
        single = (
            self.mode is AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
            or non_blocking
            or (self.transacted and self.options.transacted_individual_ack)
        )
        return StompAck.CLIENT_INDIVIDUAL if single else StompAck.CLIENT

    def _prefetch(self, given: str | None, kind: DestinationKind) -> int:
        if given is None:
            return self.options.prefetch_policy.prefetch(kind)
        if not given.isdigit():
            raise ConfigurationError(f"consumer.prefetchSize={given}: must be 0 or more")
        return int(given)
