"""The application: consumers by decorator, started, supervised and drained together."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from jmsx.app.draining import drain
from jmsx.app.registration import Consumer, takes_session
from jmsx.app.sender import Sender
from jmsx.app.signals import Interrupted, Signals
from jmsx.app.worker import Worker
from jmsx.core.policy import RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.core.values import AcknowledgeMode
from jmsx.errors import ConfigurationError, IllegalStateError, JmsxError
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination, destination
from jmsx.jms.message import Message
from jmsx.log import logger
from jmsx.observe import Observer, Observers
from jmsx.options import FOR_EVER, PrefetchPolicy, ReconnectPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from jmsx.app.registration import Handler
    from jmsx.core.dialect import Body
    from jmsx.core.policy import Policy
    from jmsx.dedupe import IdempotencyStore
    from jmsx.jms.message import Property

H = TypeVar("H", bound="Handler")

#: Seconds that draining may take; Kubernetes kills 30 s after its SIGTERM.
DRAIN_TIMEOUT: Final = 25.0

_log = logger("jmsx.app")


class App:
    """
    Consumers and a sender on one broker.

    Every consumer's worker has a session, a socket and a thread of its own. `options` are those of `Connection`; the
    decorator's win for its consumer. The app owns its observers: they are closed when it stops.

    With `reconnect` (True, or a ReconnectPolicy) it waits for its broker, at the start and whenever it is gone; with
    False the loss of a connection ends the app, unless its URL is a `failover:` one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        observers: Iterable[Observer] = (),
        reconnect: bool | ReconnectPolicy = True,
        **options: Any,
    ) -> None:
        self.url = url
        self.reconnect = reconnect
        self._observers: list[Observer] = list(observers)
        self._options = options
        self._consumers: dict[str, Consumer] = {}
        self._workers: list[Worker] = []
        self._stores: list[IdempotencyStore] = []  #: open
        self._opening: Connection | None = None  #: of the worker that comes next
        self._sender = Sender(lambda: self.connect(client_id=None))
        self._stopping = threading.Event()
        self._wake: Callable[[], None] = lambda: None  #: tells run() that there is something to do
        self._ending = threading.Lock()
        self._closed_observers = False
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
        """
        Open all consumers, and then let messages flow.

        On failure they are closed again; repeat it, or `abort()` to close the observers too. Raises what opening a
        consumer raises, and IllegalStateError if the app runs, or was stopped and with it its observers.
        """
        self._open()
        self._begin()

    def connect(self, **options: Any) -> Connection:
        """A connection with the app's URL, observers and options; those given win."""
        if self.url is None:
            raise ConfigurationError("the app has no broker URL; set app.url or pass one to App()")
        given = {**self._options, **options}
        if self.reconnect:
            given.setdefault("reconnect", self._reconnect_policy())
        return Connection(self.url, observers=self._observers, **given)

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

    def quit(self) -> None:
        """End `wait()` and `run()`, which then drains; from any thread, also from a handler."""
        self._stopping.set()
        self._wake()

    def stop(self, drain_timeout: float = DRAIN_TIMEOUT) -> None:
        """
        Drain: take nothing more, let running handlers finish, confirm what they did, give back the rest.

        Every consumer gives back what it has prefetched as soon as its own handler has returned. Takes `drain_timeout`
        seconds at the most; who is late is aborted, and its message comes again. Raises DrainError that says who was,
        or the error that ended a consumer, if one did; IllegalStateError if a handler calls it: that has `quit()`.
        """
        own = threading.get_ident()
        if any(worker.call and worker.call.thread == own for worker in self._workers):
            raise IllegalStateError("stop() waits for handlers, so a handler calls quit()")
        self._stopping.set()
        failures = (
            self._failure,
            _attempt(drain, tuple(self._workers), drain_timeout),
            _attempt(self._sender.close),
        )
        self._end()
        for failure in failures:
            if failure is not None:
                raise failure

    def abort(self) -> None:
        """Drop everything at once; unfinished messages come again."""
        self._stopping.set()
        self._drop()
        self._end()

    def run(
        self,
        drain_timeout: float = DRAIN_TIMEOUT,
        *,
        announce: Callable[[str], object] = lambda _words: None,
    ) -> None:
        """
        Start, stay until SIGTERM or Ctrl-C, then drain; a second signal aborts. From the main thread.

        `announce` is given words for the operator. Raises what `start` and `stop` raise, and KeyboardInterrupt after a
        second signal.
        """
        with Signals() as signals:
            self._wake = signals.wake
            try:
                with signals.interrupting():
                    self._open()
                self._begin()
                number = signals.wait()
                busy = sum(1 for worker in self._workers if worker.call is not None)
                why = number.name if number is not None else "told to stop"
                _log.info("draining", why=why, running=busy, drain_timeout=drain_timeout)
                announce(f"{why}: {busy} handlers finish, in {drain_timeout:g} s; again aborts")
                self._stop_or_abort(drain_timeout, signals)
            except Interrupted:  # nothing was taken yet
                self.abort()
            except BaseException:
                self.abort()
                raise

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.abort()
            raise
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

    def _open(self) -> None:
        """Open all consumers; nothing flows yet."""
        self._check_not_running()
        if self._closed_observers:
            raise IllegalStateError(
                "the app was stopped and its observers are closed; make a new one"
            )
        self._running = True
        self._stopping.clear()
        self._failure = None
        try:
            self._open_stores()
            for consumer in self._consumers.values():
                for _ in range(consumer.concurrency):
                    self._open_worker(consumer)
        except BaseException:
            self._drop()
            raise

    def _open_stores(self) -> None:
        for store in {id(each.dedupe): each.dedupe for each in self.consumers}.values():
            if store is not None:
                store.open()
                self._stores.append(store)

    def _close_stores(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def _reconnect_policy(self) -> ReconnectPolicy:
        given = self.reconnect
        return given if isinstance(given, ReconnectPolicy) else ReconnectPolicy()

    def _open_worker(self, consumer: Consumer) -> None:
        options = _connection_options(consumer, self._options)
        if self.reconnect:  # as long as it takes, unless the policy says otherwise
            policy = self._reconnect_policy()
            patience = FOR_EVER if policy.startup_timeout is None else policy.startup_timeout
            options["reconnect"] = replace(policy, startup_timeout=patience)
        connection = self.connect(**options)
        connection.set_exception_listener(self._fail)
        self._opening = connection
        try:
            self._workers.append(Worker(consumer, connection))
        except BaseException:
            connection.abort()
            raise
        finally:
            self._opening = None

    def _begin(self) -> None:
        """Let messages flow."""
        try:
            for worker in self._workers:
                worker.begin()
        except BaseException:
            self._drop()
            raise

    def _stop_or_abort(self, drain_timeout: float, signals: Signals) -> None:
        """Drain beside the main thread, which waits for the end of that or for a second signal."""
        outcome: list[BaseException | None] = []

        def stop() -> None:
            try:
                self.stop(drain_timeout)
            except BaseException as error:  # noqa: BLE001 - raised below, on the main thread
                outcome.append(error)
            else:
                outcome.append(None)
            signals.wake()

        threading.Thread(target=stop, name="jmsx-stop", daemon=True).start()
        while not outcome:
            if signals.wait() is not None:
                raise KeyboardInterrupt
        if outcome[0] is not None:
            raise outcome[0]

    def _fail(self, error: JmsxError) -> None:
        self._failure = self._failure or error
        self.quit()

    def _drop(self) -> None:
        """Drop all sockets; the app may be started again."""
        for worker in self._workers:
            worker.abort()
        opening = self._opening
        if opening is not None:
            opening.abort()
        self._sender.abort()
        self._workers.clear()
        self._close_stores()
        self._running = False

    def _end(self) -> None:
        """The app is over: nothing happens any more that observers could be told."""
        with self._ending:
            self._workers.clear()
            self._close_stores()
            self._running = False
            if not self._closed_observers:
                self._closed_observers = bool(self._observers)
                Observers(self._observers).close()

    def _check_not_running(self) -> None:
        if self._running:
            raise IllegalStateError("the app is running")


def _attempt(step: Callable[..., object], *arguments: object) -> JmsxError | None:
    """The error with which a step of stopping ends, so that the next one is taken all the same."""
    try:
        step(*arguments)
    except JmsxError as error:
        return error
    return None


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
