"""The session: one thread's worth of order, acknowledgement and transaction, on a socket of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from jmsx.core.values import NO_FAILURE, ConsumerSettings, DestinationKind
from jmsx.errors import (
    BrokerTimeoutError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    UnsupportedError,
)
from jmsx.handlers import check_runs
from jmsx.jms import subscribing
from jmsx.jms.aside import Peer
from jmsx.jms.browser import QueueBrowser
from jmsx.jms.consumer import MessageConsumer
from jmsx.jms.destination import (
    Destination,
    Queue,
    Temporary,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from jmsx.jms.destination import destination as destination_of
from jmsx.jms.producer import MessageProducer
from jmsx.jms.scheduling import probe
from jmsx.jms.served import Served
from jmsx.jms.subscribing import Wanted
from jmsx.steering import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from jmsx.core.management import Findings
    from jmsx.jms.message import Message


class Session(Served):
    """
    Made by `Connection.create_session`; use it from one thread at a time.

    Every call raises IllegalStateError once the session is closed, and ConnectionFailedError once its link is gone.
    """

    def create_queue(self, name: str) -> Queue:
        """The queue called `name`; the broker makes it at first use."""
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """The topic called `name`."""
        return Topic(name)

    def create_temporary_queue(self) -> TemporaryQueue:
        """
        A new queue that only this session can read, until it is closed; answers may come before it has a consumer.

        Raises ConnectionFailedError if there is no link, and what the broker says against it.
        """
        self.check_open()
        made = TemporaryQueue(f"{self.session_id}-{next(self._ids)}", owner=self)
        self._temporary.add(made.uri)
        headers = self.dialect.holding_headers(made.uri)
        if headers is not None:
            self.pump.ask(
                f"SUBSCRIBE {made}",
                lambda core, _now: core.browsings.open(_holder(made), made.uri, headers),
                repeat=True,
            )
        return made

    def create_temporary_topic(self) -> TemporaryTopic:
        """A new topic that only this session can read, until it is closed."""
        self.check_open()
        return TemporaryTopic(f"{self.session_id}-{next(self._ids)}", owner=self)

    def check_temporary(self, destination: Destination) -> None:
        """Raise InvalidDestinationError if it is another program's temporary queue, and gone, as far as one can ask."""
        if isinstance(destination, Temporary) or not destination.uri.startswith("temp-queue://"):
            return
        if self.dialect.management is not None:
            peer = self._peer(f"SEND {destination}")
            self._connection.aside.check_temporary(peer, destination.uri)

    def forget_temporary(self, destination: Temporary) -> None:
        """Have the broker remove a queue of this session that was deleted, where it can be told."""
        self._temporary.discard(destination.uri)
        if self.dialect.management is not None and not self._closed and self.pump.error is None:
            self.pump.finish(
                lambda core, _now: core.browsings.close(_holder(destination), destination.uri)
            )
            peer = self._peer(f"DELETE {destination}")
            self._connection.aside.remove_temporary(peer, [destination.uri])

    def consumes(self, destination: Destination) -> bool:
        """Whether a consumer of this session reads `destination`."""
        uri = destination.uri
        return self.pump.call(lambda core, _now: core.consumes(uri))

    def create_producer(self, destination: Destination | str | None = None) -> MessageProducer:
        """A producer for `destination`, or for one that is named with each message."""
        self.check_open()
        target = None if destination is None else destination_of(destination)
        return MessageProducer(self, target)

    def create_consumer(
        self,
        destination: Destination | str,
        *,
        selector: str | None = None,
        no_local: bool = False,
        name: str | None = None,
        listener: Callable[[Message], object] | None = None,
    ) -> MessageConsumer:
        """
        A consumer; `name` is what it is called in metrics and events (default: the destination).

        With a `listener` it is as if `set_listener` were called at once. Raises InvalidSelectorError, what the broker
        says against it, and what `set_listener` does.
        """
        self.check_open()
        if listener is not None:
            check_runs(listener)
        destination = destination_of(destination)
        if isinstance(destination, Temporary):
            destination.check()
        if isinstance(destination, Temporary) and destination.owner is not self:
            raise InvalidDestinationError(
                f"{destination} belongs to another session; over STOMP only that one can read it"
            )
        kind = DestinationKind.TOPIC if destination.is_topic else DestinationKind.QUEUE
        consumer = self._subscribe(
            Wanted(
                destination=destination, kind=kind, selector=selector, no_local=no_local, name=name
            )
        )
        if listener is not None:
            try:
                consumer.set_listener(listener)
            except BaseException:
                consumer.close()
                raise
        return consumer

    def create_durable_consumer(
        self,
        topic: Destination | str,
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
        topic = destination_of(topic)
        if not topic.is_topic:
            raise InvalidDestinationError(
                f"{topic} is no topic, so it has no durable subscription; write topic://{topic.name}"
            )
        if topic.is_temporary:  # Source: `ActiveMQSession.createDurableSubscriber`
            raise InvalidDestinationError(
                f"{topic} is temporary, and a durable subscription outlives it; take a topic with a name"
            )
        if self.options.client_id is None:
            raise JmsxError(  # and no InvalidClientIdError, as in Java
                "a durable subscription needs a connection with a client id, the same each time:"
                " Connection(..., client_id=...) or ?jms.clientID=... in its URL"
            )
        self._connection.claim_client_id(self, subscription)
        try:
            return self._subscribe(
                Wanted(
                    destination=topic,
                    kind=DestinationKind.DURABLE,
                    selector=selector,
                    no_local=no_local,
                    name=name or subscription,
                    durable_name=subscription,
                )
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

    def create_browser(
        self, queue: Destination | str, *, selector: str | None = None
    ) -> QueueBrowser:
        """A browser of what lies in `queue`; raises InvalidDestinationError for a topic."""
        self.check_open()
        queue = destination_of(queue)
        if queue.is_topic:
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
        peer = self._peer(f"SUBSCRIBE {destination}")
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
        received dead letters at once, a `Retry` sets the delay. The answer to a commit() that was interrupted is
        awaited before, and what that committed stays. Raises IllegalStateError if not transacted.
        """
        self.check_open()
        self.pump.await_commit()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        self.pump.call(lambda core, now: core.rollback(now, failure))
        if cause is not None:
            self._dispatcher.failed(cause, failure)
        self.pump.wake()  # an idle listener has something to do again

    def recover(self, cause: BaseException | None = None) -> None:
        """
        Deliver again what is not acknowledged; raises IllegalStateError if transacted.

        `cause` is told and steers as in `rollback`.
        """
        self.check_open()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        self.pump.call(lambda core, now: core.recover(now, failure))
        if cause is not None:
            self._dispatcher.failed(cause, failure)
        self.pump.wake()

    def close(self) -> None:
        """
        Wait for a running listener or commit, roll back what is not committed, give the rest back, and say farewell.

        Idempotent. From within a listener it does not wait for that listener, whose message is then done; one that has
        not returned after `request_timeout` is left alone, and its message comes again.
        """
        if self._closed:
            return
        self._closed = True
        reachable = self.pump.reachable
        self.pump.hurry()
        idle = self._dispatcher.stop()
        try:
            self.pump.tidy_up()
            if self.pump.error is None:
                self.pump.linger()
                for request in self.pump.call(lambda core, now: core.close(now, idle=idle)):
                    self.pump.wait(request)
        except BrokerTimeoutError:
            self.pump.end("no farewell")  # which would not be answered either
            raise
        finally:
            self.pump.leave("session closed")
            if reachable:
                peer = Peer(self.broker, self.dialect)
                self._connection.aside.remove_temporary(peer, self._temporary)
            self._connection.forget(self, reachable=reachable)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _subscribe(self, wanted: Wanted) -> MessageConsumer:
        settings = subscribing.settings(self, wanted)
        try:
            self._prepare(settings, wanted.durable_name)
            self.pump.ask(
                f"SUBSCRIBE {wanted.destination}",
                lambda core, now: core.subscribe(settings, now),
                repeat=True,
            )
        except InvalidSelectorError as error:
            raise InvalidSelectorError(
                f"the selector {wanted.selector!r} of a consumer of {wanted.destination} is none to the broker: {error}"
            ) from error
        return MessageConsumer(
            self,
            wanted.destination,
            settings.subscription_id,
            pull=subscribing.prefetch(self, wanted) == 0,
            durable_name=wanted.durable_name,
        )

    def _prepare(self, settings: ConsumerSettings, durable_name: str | None) -> None:
        """What is better found out before SUBSCRIBE, and not on the session's own link."""
        peer, aside = self._peer(f"SUBSCRIBE {settings.destination}"), self._connection.aside
        aside.try_selector(peer, settings.headers)
        if durable_name is not None:
            aside.claim_durable(peer, self.options.client_id, durable_name, settings.headers)


def _holder(queue: Temporary) -> str:
    """The id of the subscription by which a temporary queue is there before it is read."""
    return f"holds-{queue.name}"
