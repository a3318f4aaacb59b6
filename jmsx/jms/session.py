"""The session: one thread's worth of order, acknowledgement and transaction, on a socket of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from jmsx.config.options import ConsumerOptions
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.option_checks import check_flag, check_name, plain_text, wrong_type
from jmsx.core.values import NO_FAILURE, ConsumerSettings, DestinationKind
from jmsx.errors import InvalidDestinationError, InvalidSelectorError, UnsupportedError, UsageError
from jmsx.jms import subscribing
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
from jmsx.jms.handlers import check_runs
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.outcomes import failure_of
from jmsx.jms.producer import MessageProducer
from jmsx.jms.subscribing import ConsumerRequest, durable

if TYPE_CHECKING:
    from collections.abc import Callable


class Session:
    """
    Makes producers, consumers and browsers, and holds their transaction; made by `Connection.create_session`.

    Use it from one thread at a time.

    Every call raises IllegalStateError once the session is closed, and ConnectionFailedError once its link is gone.
    """

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    @property
    def mode(self) -> AcknowledgeMode:
        """The acknowledge mode, as given to `create_session`."""
        self._link.check_not_closed()
        return self._link.mode

    @property
    def transacted(self) -> bool:
        """Whether receives and sends take effect at commit()."""
        self._link.check_not_closed()
        return self._link.transacted

    def create_queue(self, name: str) -> Queue:
        """Return the queue called `name`; the broker makes it at first use."""
        self._link.check_open()
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """Return the topic called `name`."""
        self._link.check_open()
        return Topic(name)

    def create_temporary_queue(self) -> TemporaryQueue:
        """
        Return a new queue that only this session can read, until it is closed; answers may come before it has a
        consumer.

        Raises ConnectionFailedError if there is no link, and what the broker says against it.
        """
        return self._link.make_temporary_queue()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic that only this session can read, until it is closed."""
        return self._link.make_temporary_topic()

    def create_producer(self, destination: Destination | str | None = None) -> MessageProducer:
        """Return a producer for `destination`, or for one that is named with each message."""
        self._link.check_open()
        target = None if destination is None else destination_of(destination)
        return MessageProducer(self._link, target)

    def create_consumer(
        self,
        destination: Destination | str,
        selector: str | None = None,
        *,
        no_local: bool = False,
        name: str | None = None,
        listener: Callable[[Message], object] | None = None,
        options: ConsumerOptions | None = None,
    ) -> MessageConsumer:
        """
        Return a consumer of `destination`, which may be a text, such as `queue://orders`.

        Raises InvalidSelectorError, ConfigurationError for options that make no sense in a session of this mode, what
        the broker says against it, and what `set_listener` does.

        Args:
            destination: a queue or topic; a temporary one must be of this session.
            selector: JMS message selector of the messages that come; None: all.
            no_local: leave out what was sent over this connection.
            name: what it is called in metrics, events and logs; None: the destination.
            listener: as if `set_listener` were called at once; None: `receive()` asks for messages.
            options: settings of this consumer alone, such as its prefetch; None: all are the connection's.

        """
        self._link.check_open()
        if listener is not None:
            check_runs(listener)
        _check_said(name, no_local=no_local)
        destination = destination_of(destination)
        if isinstance(destination, Temporary):
            destination.check()
        if destination.is_temporary and not self._link.owns(destination):
            raise InvalidDestinationError(
                f"{destination} belongs to another session; over STOMP only that one can read it"
            )
        kind = DestinationKind.TOPIC if destination.is_topic else DestinationKind.QUEUE
        return self._subscribe(
            ConsumerRequest(
                destination=destination,
                kind=kind,
                selector=selector,
                no_local=no_local,
                name=name,
                options=_checked(options),
            ),
            listener,
        )

    def create_durable_consumer(
        self,
        topic: Destination | str,
        subscription: str,
        selector: str | None = None,
        *,
        no_local: bool = False,
        name: str | None = None,
        options: ConsumerOptions | None = None,
    ) -> MessageConsumer:
        """
        Return a consumer of the durable subscription called `subscription`, which the broker keeps while nobody reads
        it.

        Raises UsageError if it is in use or the connection has no client id, and UnsupportedError if durable
        subscriptions of the connection live in another session already, or the session that has its client id has
        other consumers: over STOMP they share one socket, so make the first before all other consumers.

        Args:
            topic: whose messages it gets.
            subscription: its name, the same each time; it belongs to the connection's client id.
            selector: as of `create_consumer`, and so are `no_local` and `options`; another one begins it anew.
            no_local: leave out what was sent over this connection.
            name: what it is called in metrics, events and logs; None: the subscription.
            options: settings of this consumer alone; None: all are the connection's.

        """
        link, own = self._link, _checked(options)
        link.check_open()
        check_name("the name of a durable subscription", subscription)
        subscription = plain_text(subscription)
        _check_said(name, no_local=no_local)
        topic = destination_of(topic)
        if not topic.is_topic:
            raise InvalidDestinationError(
                f"{topic} is no topic, so it has no durable subscription; write topic://{topic.name}"
            )
        if topic.is_temporary:  # Source: `ActiveMQSession.createDurableSubscriber`
            raise InvalidDestinationError(
                f"{topic} is temporary, and a durable subscription outlives it; take a topic with a name"
            )
        if link.options.client_id is None:
            raise UsageError(  # and no InvalidClientIdError, as in Java
                f"durable subscription {subscription!r} of {topic} needs a connection to {link.broker} with a client"
                " id, the same each time: Connection(..., client_id=...) or ?jms.clientID=... in its URL"
            )
        link.shared.claim_client_id(link, subscription)
        try:
            return self._subscribe(
                ConsumerRequest(
                    destination=topic,
                    kind=DestinationKind.DURABLE,
                    selector=selector,
                    no_local=no_local,
                    name=name or subscription,
                    options=own,
                    durable_name=subscription,
                )
            )
        except BaseException:
            link.shared.release_durable(subscription)
            raise

    def create_shared_consumer(
        self,
        topic: Destination | str,
        subscription: str,
        selector: str | None = None,  # noqa: ARG002 - who writes it as in Java hears what there is instead
    ) -> MessageConsumer:
        """
        Raise UnsupportedError, for no broker has JMS 2.0's shared subscriptions over STOMP.

        The error says what the broker has instead: on Classic virtual topics, as for its Java client.
        """
        raise UnsupportedError(
            f"no shared subscription {subscription!r} of {topic}: {self._link.dialect.sharing}"
        )

    create_shared_durable_consumer = create_shared_consumer

    def create_browser(self, queue: Destination | str, selector: str | None = None) -> QueueBrowser:
        """
        Return a browser of what lies in `queue`; raises InvalidDestinationError for a topic.

        A selector that the broker cannot read is an InvalidSelectorError when somebody iterates, and not before.
        """
        self._link.check_open()
        queue = destination_of(queue)
        if queue.is_topic:
            raise InvalidDestinationError(f"{queue} is no queue, so it cannot be browsed")
        return QueueBrowser(self._link, queue, selector)

    def unsubscribe(self, subscription: str) -> None:
        """
        Remove a durable subscription.

        Raises BrokerError while a consumer uses it, InvalidDestinationError if there is none of that name.
        """
        link = self._link
        link.check_open()
        check_name("the name of a durable subscription", subscription)
        subscription = plain_text(subscription)
        named = durable(link.options.client_id, subscription)
        if link.dialect.management is not None:
            peer = link.peer(f"UNSUBSCRIBE {subscription}")
            link.shared.inquiries.remove_durable(peer, link.options.client_id, subscription)
            link.calls.engine.call(lambda core, now: core.report_removed(named, now))
            return
        link.shared.claim_client_id(link, None)
        link.calls.ask(
            f"UNSUBSCRIBE {subscription}",
            lambda core, _now: core.unsubscribe_durable(subscription, named),
        )

    def commit(self) -> None:
        """
        Make all sends and receives since the last commit final, together.

        Raises IllegalStateError if not transacted, TransactionRolledBackError if the broker refused, and
        TransactionInDoubtError if its answer was lost, also of a commit() before that was interrupted. After a refusal
        the session goes on, on a new link, and what it had received comes again.
        """
        self._link.check_open()
        self._link.calls.commit()

    def rollback(self, cause: BaseException | None = None) -> None:
        """
        Undo the sends, and deliver again what was received, by the redelivery policy.

        `cause` is told in events and, when the policy gives up, in the dead letter; a `Reject` makes what was
        received dead letters at once, a `Retry` sets the delay. If a commit() was interrupted, its answer is awaited
        first: what it has committed stays so, and the log says that, or that nobody knows. Raises IllegalStateError
        if not transacted.
        """
        link = self._link
        link.check_open()
        link.calls.begin_rollback()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        link.engine.call(lambda core, now: core.rollback(now, failure))
        if cause is not None:
            link.dispatcher.failed(cause, failure)
        link.engine.wake()  # an idle listener has something to do again

    def recover(self, cause: BaseException | None = None) -> None:
        """
        Deliver again what is not acknowledged; raises IllegalStateError if transacted.

        `cause` is told in events, and may be a `Reject` or a `Retry`, as in `rollback`.
        """
        link = self._link
        link.check_open()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        link.engine.call(lambda core, now: core.recover(now, failure))
        if cause is not None:
            link.dispatcher.failed(cause, failure)
        link.engine.wake()

    def close(self) -> None:
        """
        Wait for a running listener or commit, roll back what is not committed, give the rest back, and say DISCONNECT.

        Idempotent. The running listener may still use all of the session. From within a listener it does not wait for
        that listener, whose message is then done; one that has not returned after `request_timeout` is left alone, and
        its message comes again.
        """
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _subscribe(
        self, wanted: ConsumerRequest, listener: Callable[[Message], object] | None = None
    ) -> MessageConsumer:
        calls, what = self._link.calls, f"SUBSCRIBE {wanted.destination}"
        prefetch = subscribing.prefetch(self._link, wanted)
        settings = calls.persist(what, lambda: subscribing.settings(self._link, wanted, prefetch))
        consumer = MessageConsumer(
            self._link,
            wanted.destination,
            settings.subscription_id,
            pull=prefetch == 0,
            durable_name=wanted.durable_name,
        )
        try:
            # Not once more with each SUBSCRIBE: behind one without an answer the broker may have us as a subscriber,
            # and a durable subscription that is in use cannot be claimed.
            calls.persist(what, lambda: self._prepare(settings, wanted.durable_name))
            calls.persist(
                what,
                lambda: calls.ask(
                    what, lambda core, now: core.subscribe(settings, now), repeat=True
                ),
            )
            if listener is not None:
                consumer.set_listener(listener)
            return consumer  # noqa: TRY300 - a signal may come here, too
        except InvalidSelectorError as error:
            raise InvalidSelectorError(
                f"the broker cannot read the selector {wanted.selector!r} of a consumer of {wanted.destination}:"
                f" {error}"
            ) from error
        except BaseException:  # Ctrl-C, too: messages would come to it, and nobody has it
            calls.disown(settings.subscription_id)
            raise

    def _prepare(self, settings: ConsumerSettings, durable_name: str | None) -> None:
        """Find out what is better known before SUBSCRIBE, and not on the session's own link."""
        link = self._link
        peer, inquiries = link.peer(f"SUBSCRIBE {settings.destination}"), link.shared.inquiries
        inquiries.try_selector(peer, settings.headers)
        if durable_name is not None:
            client_id = link.options.client_id
            inquiries.claim_durable(peer, client_id, durable_name, settings.headers)


def _check_said(name: str | None, *, no_local: bool) -> None:
    """Raise ConfigurationError for a consumer's name or no_local that is none."""
    check_flag("no_local", no_local)
    if name is not None:
        check_name("name", name)


def _checked(options: ConsumerOptions | None) -> ConsumerOptions:
    """Return the options that were given; raises ConfigurationError for what are none."""
    if not isinstance(options, ConsumerOptions | None):
        raise wrong_type("options of a consumer", "ConsumerOptions(...) or None", options)
    return ConsumerOptions() if options is None else options


def link_of(session: Session) -> SessionLink:
    """
    Return the link of a session: what adapters, the app and tests need of it that is none of JMS's calls.

    Such as the broker's address and its dialect, or whether the threads that serve it live.
    """
    return session._link  # noqa: SLF001 - an application has no use for it
