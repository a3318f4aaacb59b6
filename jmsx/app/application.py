"""The application: consumers by decorator, started, supervised and drained together."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jmsx.app.registration import Consumer, takes_session
from jmsx.app.worker import Worker
from jmsx.core.policy import RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.core.values import AcknowledgeMode
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    IllegalStateError,
    JmsxError,
)
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination, destination
from jmsx.jms.message import Message
from jmsx.log import logger
from jmsx.observe import Observer, Observers
from jmsx.options import PrefetchPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType, TracebackType

    from jmsx.app.registration import Handler
    from jmsx.core.dialect import Body
    from jmsx.core.policy import Policy
    from jmsx.jms.message import Property
    from jmsx.jms.producer import MessageProducer

H = TypeVar("H", bound="Handler")

_log = logger("jmsx.app")


class App:
    """
    Consumers and a sender on one broker.

    Every consumer's worker has a session, a socket and a thread of its own. `options` are those of `Connection`; the
    decorator's win for its consumer. The app owns its observers: they are closed when it stops.
    """

    def __init__(
        self, url: str | None = None, *, observers: Iterable[Observer] = (), **options: Any
    ) -> None:
        self.url = url
        self._observers: list[Observer] = list(observers)
        self._options = options
        self._consumers: dict[str, Consumer] = {}
        self._connections: list[Connection] = []
        self._sender = _Sender(self)
        self._stopping = threading.Event()
        self._failure: JmsxError | None = None
        self._running = False

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The registered consumers."""
        return tuple(self._consumers.values())

    def observe(self, *observers: Observer) -> None:
        """Add observers; before `start()`."""
        self._check_not_running()
        self._observers.extend(observers)

    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE,
        redelivery: Policy | None = None,
        name: str | None = None,
        **settings: Any,
    ) -> Callable[[H], H]:
        """
        Make the decorated function the handler of `source`, such as `queue://orders`.

        It is called as `handler(message)`, or `handler(message, session)` if it takes two arguments. When it returns,
        the message is settled (with SESSION_TRANSACTED, all that it sent through `session` too); when it raises, the
        message is delivered again by `redelivery`; it may raise Retry, Reject or Discard to say more. Further settings
        are those of `Consumer`. Raises ConfigurationError for settings that make no sense.
        """

        def register(handler: H) -> H:
            self._check_not_running()
            label = name or handler.__qualname__
            if label in self._consumers:
                raise ConfigurationError(f"there is a consumer {label!r} already; give it a name=")
            target = destination(source)
            try:
                self._consumers[label] = Consumer(
                    handler=handler,
                    destination=target,
                    name=label,
                    mode=AcknowledgeMode(mode),
                    redelivery=redelivery or self._policy(target),
                    takes_session=takes_session(handler),
                    **settings,
                )
            except TypeError as error:
                raise ConfigurationError(f"consumer {label}: {error}") from error
            return handler

        return register

    def replace_handler(self, name: str, handler: Handler) -> None:
        """Put another handler in the place of the consumer `name`'s; before `start()`, for tests and trials."""
        self.change(name, handler=handler, takes_session=takes_session(handler))

    def change(self, name: str, **settings: Any) -> None:
        """Change settings (fields of `Consumer`) of the consumer `name`; before `start()`."""
        self._check_not_running()
        if name not in self._consumers:
            known = ", ".join(self._consumers)
            raise ConfigurationError(f"no consumer {name!r}; there are {known}")
        try:
            self._consumers[name] = replace(self._consumers[name], **settings)
        except TypeError as error:
            raise ConfigurationError(f"consumer {name}: {error}") from error

    def start(self) -> None:
        """Open all consumers, and then let messages flow; on failure everything is closed again."""
        self._check_not_running()
        self._running = True
        self._stopping.clear()
        self._failure = None
        try:
            for consumer in self._consumers.values():
                connection = self.connect(**_connection_options(consumer, self._options))
                self._connections.append(connection)
                connection.set_exception_listener(self._fail)
                for _ in range(consumer.concurrency):
                    Worker(consumer, connection)
            for connection in self._connections:
                connection.start()
        except BaseException:
            self.abort()
            raise

    def connect(self, **options: Any) -> Connection:
        """A connection with the app's URL, observers and options; those given win."""
        if self.url is None:
            raise ConfigurationError("the app has no broker URL; set app.url or pass one to App()")
        return Connection(self.url, observers=self._observers, **{**self._options, **options})

    def send(
        self,
        to: Destination | str,
        body: Message | Body = None,
        *,
        properties: dict[str, Property] | None = None,
        **options: Any,
    ) -> str:
        """
        Send one message, confirmed by the broker when this returns; from any thread. Returns its key.

        `options` are those of `MessageProducer.send`.
        """
        message = body if isinstance(body, Message) else Message(body, properties=properties)
        return self._sender.send(message, to, options)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the app is told to stop; raises the error that ended a consumer."""
        self._stopping.wait(timeout)
        if self._failure is not None:
            raise self._failure

    def stop(self, drain_timeout: float = 30.0) -> None:
        """
        Drain: take nothing more, let running handlers finish, acknowledge what they did, give back the rest.

        Raises BrokerTimeoutError if a handler still runs after `drain_timeout` seconds; its message then comes again.
        Raises the error that ended a consumer, if one did.
        """
        self._stopping.set()
        if not self._rest(drain_timeout if self._failure is None else 0.0):
            self.abort()
            if self._failure is not None:
                raise self._failure
            raise BrokerTimeoutError(
                f"a handler still ran after {drain_timeout:g} s of draining; its message comes again"
            )
        errors: list[JmsxError] = []
        closes = [connection.close for connection in self._connections]
        for close in (*closes, self._sender.close):
            try:
                close()
            except JmsxError as error:
                errors.append(error)
        self._end()
        failure = self._failure or next(iter(errors), None)
        if failure is not None:
            raise failure

    def abort(self) -> None:
        """Drop everything at once; unfinished messages come again."""
        self._stopping.set()
        for connection in self._connections:
            connection.abort()
        self._sender.abort()
        self._end()

    def run(self, drain_timeout: float = 30.0) -> None:
        """Start, stay until SIGTERM or Ctrl-C, then drain; a second signal aborts. From the main thread."""
        previous = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            self.start()
            self.wait()
            self.stop(drain_timeout)
        except BaseException:
            self.abort()
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.abort()

    def _policy(self, target: Destination) -> Policy:
        """The app's own redelivery policy for `target`."""
        plain = RedeliveryPolicyMap(self._options.get("redelivery_policy", RedeliveryPolicy()))
        policies: RedeliveryPolicyMap = self._options.get("redelivery_policies") or plain
        return policies.policy(target.uri)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt
        _log.info("draining", signal=signal.Signals(number).name)
        self._stopping.set()

    def _fail(self, error: JmsxError) -> None:
        self._failure = self._failure or error
        self._stopping.set()

    def _rest(self, timeout: float) -> bool:
        """Hand out nothing more, anywhere; then wait for what runs. False if something still runs."""
        deadline = time.monotonic() + timeout
        for connection in self._connections:
            with contextlib.suppress(JmsxError):
                connection.stop(0.0)
        return all(
            connection.stop(max(deadline - time.monotonic(), 0.0))
            for connection in self._connections
        )

    def _end(self) -> None:
        if not self._running:
            return
        self._connections.clear()
        self._running = False
        Observers(self._observers).close()

    def _check_not_running(self) -> None:
        if self._running:
            raise IllegalStateError("the app is running")


class _Sender:
    """The app's own session for sending, shared by all threads, opened at first use."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._producer: MessageProducer | None = None

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        with self._lock:
            if self._producer is None:
                connection = self._app.connect(client_id=None)
                self._producer = connection.create_session().create_producer()
                self._connection = connection
            try:
                return self._producer.send(message, destination=to, **options)
            except ConnectionFailedError:
                self.abort()  # the next send opens a new one
                raise

    def close(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.abort()


def _connection_options(consumer: Consumer, given: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "redelivery_policy": consumer.redelivery,
        "redelivery_policies": None,  # the consumer's is the one for its destination already
        "dead_letter": consumer.dead_letter,
        "non_blocking_redelivery": consumer.non_blocking_redelivery,
        "optimize_acknowledge": consumer.optimize_acknowledge,
    }
    if consumer.prefetch is not None:
        options["prefetch_policy"] = PrefetchPolicy.all(consumer.prefetch)
    if consumer.durable is None and "client_id" in given:
        options["client_id"] = None  # only the one that needs it may claim it
    return options
