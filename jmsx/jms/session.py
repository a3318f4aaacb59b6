"""The session: the unit of message order, acknowledgement and transactions, for one thread, on a socket of its own."""

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
    Creates producers, consumers and browsers, and holds their transaction; made by `Connection.create_session`.

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
        """Return the queue called `name`; the broker creates it at its first use."""
        self._link.check_open()
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """Return the topic called `name`."""
        self._link.check_open()
        return Topic(name)

    def create_temporary_queue(self) -> TemporaryQueue:
        """
        Return a new queue from which only this session can consume, and which ends with the session.

        It keeps messages that come before it has a consumer. Raises ConnectionFailedError if there is no link, and the
        broker's error if it refuses the queue.
        """
        return self._link.make_temporary_queue()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic to which only this session can subscribe, and which ends with the session."""
        return self._link.make_temporary_topic()

    def create_producer(self, destination: Destination | str | None = None) -> MessageProducer:
        """Return a producer for `destination`; None: each `send()` names one."""
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

        Raises InvalidSelectorError, ConfigurationError for options that make no sense in a session of this mode, the
        broker's error if it refuses the subscription, and what `set_listener` raises.

        Args:
            destination: a queue or topic; a temporary one must have been created by this session.
            selector: a JMS message selector; None: the consumer receives all messages.
            no_local: do not receive messages that were sent over this connection.
            name: the consumer's name in metrics, events and logs; None: the destination.
            listener: as if `set_listener` were called at once; None: `receive()` asks for messages.
            options: options of this consumer alone, such as its prefetch; None: those of the connection.

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
        Return a consumer of the durable subscription called `subscription`.

        The broker keeps messages for the subscription while it has no consumer. Over STOMP, all durable subscriptions
        of a client id share one socket, so create them in one session, the first of them before any other consumer.

        Raises UsageError if the subscription is in use or the connection has no client id, and UnsupportedError if
        another session has durable subscriptions of the connection, or if the session that has the socket with the
        client id has other consumers.

        Args:
            topic: the topic that is subscribed to.
            subscription: the name of the subscription, the same each time; it belongs to the connection's client id.
            selector: as for `create_consumer`; with another selector than before, the subscription is created anew.
            no_local: do not receive messages that were sent over this connection.
            name: the consumer's name in metrics, events and logs; None: the subscription.
            options: options of this consumer alone; None: those of the connection.

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
            raise UsageError(  # not InvalidClientIdError: as in Java
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
        selector: str | None = None,  # noqa: ARG002 - a call as in Java gets the error below
    ) -> MessageConsumer:
        """
        Raise UnsupportedError, for no broker offers JMS 2.0's shared subscriptions over STOMP.

        The error says what the broker offers instead: Classic has virtual topics, as for its Java client.
        """
        raise UnsupportedError(
            f"no shared subscription {subscription!r} of {topic}: {self._link.dialect.sharing}"
        )

    create_shared_durable_consumer = create_shared_consumer

    def create_browser(self, queue: Destination | str, selector: str | None = None) -> QueueBrowser:
        """
        Return a browser of the messages in `queue`; raises InvalidDestinationError for a topic.

        If the broker cannot parse `selector`, InvalidSelectorError is raised when the browser is iterated over.
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

        Raises IllegalStateError if the session is not transacted, TransactionRolledBackError if the broker refused, and
        TransactionInDoubtError if the broker's answer was lost, to this commit() or to an earlier one that was
        interrupted. After a refusal the session goes on, on a new link, and the messages of the transaction are
        delivered again.
        """
        self._link.check_open()
        self._link.calls.commit()

    def rollback(self, cause: BaseException | None = None) -> None:
        """
        Discard the messages sent since the last commit, and redeliver those received, by the redelivery policy.

        `cause` is reported in events and, when the policy gives up, in the dead letter. A `Reject` makes the received
        messages dead letters at once, a `Retry` sets the delay. If a commit() was interrupted, this waits for its
        answer first: if that commit succeeded it cannot be undone, and the log says so; or that its outcome is
        unknown. Raises IllegalStateError if the session is not transacted.
        """
        link = self._link
        link.check_open()
        link.calls.begin_rollback()
        failure = NO_FAILURE if cause is None else failure_of(cause)
        link.engine.call(lambda core, now: core.rollback(now, failure))
        if cause is not None:
            link.dispatcher.failed(cause, failure)
        link.engine.wake()  # a listener that waits gets the messages again

    def recover(self, cause: BaseException | None = None) -> None:
        """
        Redeliver all unacknowledged messages; raises IllegalStateError if the session is transacted.

        `cause` is reported in events, and may be a `Reject` or a `Retry`, as in `rollback`.
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
        Wait for a running listener or commit, roll back, leave unacknowledged messages to the broker, and disconnect.

        Idempotent. Until it returns, the running listener may still use the session. A listener that closes its own
        session is not waited for, and its message counts as handled. If a listener has not returned after
        `request_timeout`, this goes on without it, and its message is delivered again.
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
            # Prepare once, not with each repeated SUBSCRIBE: after one that was not answered, the broker may have
            # subscribed us already, and a durable subscription that is in use cannot be claimed.
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
        except BaseException:  # also Ctrl-C: a consumer that nobody has would keep messages
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
    Return the link of a session, for adapters, the app and tests.

    They need more than JMS's calls, such as the broker's address and dialect, or whether the session's threads run.
    """
    return session._link  # noqa: SLF001 - an application has no use for it
