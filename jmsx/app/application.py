"""The application: consumers by decorator, started, supervised and drained together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, Never, Self, Unpack, overload

from jmsx.app import foreground
from jmsx.app.bodies import Data
from jmsx.app.draining import DRAIN_TIMEOUT
from jmsx.app.endpoint import Endpoint, application, parse_address
from jmsx.app.foreground import IN_GOOD_ORDER
from jmsx.app.health import HealthLimits, HealthReport, live, ready
from jmsx.app.loops import beside_a_server
from jmsx.app.middleware import Middleware, check_middleware
from jmsx.app.registration import Consumer, ConsumerKeywords, Handler
from jmsx.app.registry import (
    SETTINGS,
    BatchConnectionDecorator,
    BatchDecorator,
    ConnectionDecorator,
    Decorator,
    H,
    Registry,
)
from jmsx.app.sender import SendKeywords
from jmsx.app.service import Service
from jmsx.app.start import Start
from jmsx.config.options import (
    AppKeywords,
    ConnectionKeywords,
    ConnectionOptions,
    PrefetchPolicy,
    ReconnectPolicy,
)
from jmsx.config.uri import BrokerUri, parse_broker_uri
from jmsx.core.durations import Duration, as_number, seconds, timeout_of
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.option_checks import (
    LARGEST_INT,
    check_names,
    check_position,
    check_seconds,
    check_text,
    check_whole,
    wrong_type,
)
from jmsx.core.policy import Policy, check_policy
from jmsx.drivers.machine import Machine
from jmsx.errors import (
    ConfigurationError,
    IllegalStateError,
    JmsxError,
)
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message
from jmsx.log import logger
from jmsx.observe import Observer, checked
from jmsx.stores import IdempotencyStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import TracebackType
    from wsgiref.types import WSGIApplication

#: What `App()` takes by keyword.
_OPTIONS: Final = [
    *("observers", "redelivery", "prefetch", "health", "health_limits", "watch", "broker_stats"),
    "middleware",
    *(each.name for each in fields(ConnectionOptions)),  # `reconnect` among them
]

#: Settings of a consumer, which `App()` does not take; the error says where to give them.
_OF_CONSUMERS: Final = {name: f"@app.consumer(..., {name}=...)" for name in SETTINGS}

_log = logger("jmsx.app")


class App:
    """
    Consumers and a sender on one broker.

    Every consumer has one or more workers, each with a session, a socket and a thread of its own. `options` are those
    of `Connection`; given here or in the URL, they apply to every consumer whose decorator does not set the same
    option. The app owns its observers: they are closed when it stops. Raises ConfigurationError for a URL or options
    that make no sense.

    With `reconnect` (True, or a ReconnectPolicy) the app waits for its broker and for the database of an idempotency
    store, at the start and whenever one of them cannot be reached; a consumer waits only for its own store. With False
    the app ends when a connection is lost, unless its URL is a `failover:` one, or when a database cannot be reached at
    the start.

    Args:
        url: the broker's URL.
        observers: objects that are told every event of the app's sessions.
        redelivery: the redelivery policy of consumers that set none; a connection's `redelivery_policy`.
        prefetch: the prefetch, in messages, of consumers that set none; a connection's `prefetch_policy`, the same for
            queues and topics.
        reconnect: whether, and at which intervals, to try again to reach a broker or store; True: ReconnectPolicy().
        health: HOST:PORT (or PORT, of all addresses) where `/healthz`, `/readyz` and, if an observer has them,
            `/metrics` are served while the app runs; None: nowhere.
        health_limits: after how long a handler or consumer counts as stuck.
        watch: time without a message after which the broker is asked whether it still has a subscription, for some
            brokers drop one without a word: seconds, a timedelta or a text such as "1min"; 0: never.
        broker_stats: time between two requests for the broker's own counts of the queues from which the app consumes
            and to which it sends, if an observer records them, as an event log does; also at the start and the end. 0:
            never.
        middleware: functions around every handler, the first one outermost; see `jmsx.app.middleware`.
        options: the fields of `ConnectionOptions`.

    """

    def __init__(
        self,
        url: str | None = None,
        *others: Never,
        observers: Iterable[Observer] = (),
        redelivery: Policy | None = None,
        prefetch: int | None = None,
        reconnect: bool | ReconnectPolicy = True,
        health: str | None = None,
        health_limits: HealthLimits | None = None,
        watch: Duration = 60.0,
        broker_stats: Duration = 60.0,
        middleware: Sequence[Middleware] = (),
        **options: Unpack[AppKeywords],
    ) -> None:
        check_position("App", others)
        check_names("option of App", options, _OPTIONS, _OF_CONSUMERS)
        if redelivery is not None:
            check_policy("redelivery", redelivery)
            _check_not_said(options, "redelivery", "redelivery_policy")
            options["redelivery_policy"] = redelivery
        if prefetch is not None:
            check_whole("prefetch", prefetch, 1, LARGEST_INT)
            _check_not_said(options, "prefetch", "prefetch_policy")
            options["prefetch_policy"] = PrefetchPolicy.all(prefetch)
        own = ConnectionOptions.of(**options)
        if url is not None:
            parse_broker_uri(url, own)
        if not isinstance(reconnect, bool | ReconnectPolicy):
            raise wrong_type("reconnect", "True, False or a ReconnectPolicy", reconnect)
        if not isinstance(health_limits, HealthLimits | None):
            raise wrong_type("health_limits", "HealthLimits(...)", health_limits)
        check_text("health", health)
        if health is not None:
            parse_address(health)
        self.watch: float = as_number("watch", watch)
        self.broker_stats: float = as_number("broker_stats", broker_stats)
        check_seconds("watch", self.watch)
        check_seconds("broker_stats", self.broker_stats)
        self._options = options
        self.middleware = check_middleware(middleware)
        self.url = url
        self.reconnect = reconnect
        self.health = health
        self.health_limits = health_limits or HealthLimits()
        self._registry = Registry(self._check_not_running, self.middleware)
        self._service = Service(self, list(checked(observers)), Machine())
        #: The starts of running `with` and `async with` blocks, each with the task or thread that entered the block
        self._blocks: list[tuple[object, Start]] = []

    def __reduce__(self) -> Any:
        raise TypeError(
            "an App is not copied, nor passed to another process: make another one, or give that process a function"
            " which imports, or makes, its own"
        )

    @property
    def options(self) -> AppKeywords:
        """The options that the app's connections get, as they were given."""
        return self._options.copy()

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers that `@app.consumer` has registered, in that order."""
        return self._registry.consumers

    @overload
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = ...,
        redelivery: Policy | None = ...,
        name: str | None = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> Decorator: ...
    @overload
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = ...,
        redelivery: Policy | None = ...,
        name: str | None = ...,
        dedupe: IdempotencyStore | None,
        **settings: Unpack[ConsumerKeywords],
    ) -> ConnectionDecorator: ...
    @overload
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = ...,
        redelivery: Policy | None = ...,
        name: str | None = ...,
        batch: int,
        **settings: Unpack[ConsumerKeywords],
    ) -> BatchDecorator: ...
    @overload
    def consumer(
        self,
        source: Destination | str,
        *,
        mode: AcknowledgeMode | str = ...,
        redelivery: Policy | None = ...,
        name: str | None = ...,
        dedupe: IdempotencyStore | None,
        batch: int,
        **settings: Unpack[ConsumerKeywords],
    ) -> BatchConnectionDecorator: ...
    def consumer(
        self,
        source: Destination | str = "",
        *more: object,
        mode: AcknowledgeMode | str = AcknowledgeMode.AUTO_ACKNOWLEDGE,
        redelivery: Policy | None = None,
        name: str | None = None,
        dedupe: IdempotencyStore | None = None,
        batch: int | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> Callable[[H], H]:
        """
        Make the decorated function the handler of `source`, such as `queue://orders`.

        The handler is called as `handler(message)`, or as `handler(message, session)` if it takes two arguments; or
        with what its annotated parameters ask for: the Message, the Session, the body as `str`, `bytes`, `dict`, a
        dataclass or whatever pydantic can read, `Annotated[str, Property("region")]`, `Annotated[str, Header("type")]`.
        A message that does not fit them becomes a dead letter at once. The handler may be an `async def` function.

        When the handler returns, the message is acknowledged; with SESSION_TRANSACTED this also commits what it sent.
        If the message has a `reply_to`, a result other than None is sent there as the answer. When the handler raises,
        the message is delivered again by the policy `redelivery`; it may raise Retry, Reject or Discard to say more.

        With `batch` the handler takes a list of that many messages, or of fewer if no more came within `batch_timeout`
        (seconds, a timedelta or "500ms"). They are settled together when it returns, and delivered again one by one
        when it raises; it may raise BatchError to name those that failed.

        `mode` may be a name, such as "client" or "transacted". Further settings are those of `Consumer`; a setting that
        is not given is taken from the app's options. Raises ConfigurationError for settings and parameters that make no
        sense.
        """
        return self._registry.decorator(
            source,
            *more,
            mode=mode,
            redelivery=redelivery,
            name=name,
            dedupe=dedupe,
            batch=batch,
            settings=settings,
        )

    def replace_handler(self, name: str, handler: Handler) -> None:
        """Replace the handler of the consumer `name`; only before `start()`, for tests and trials."""
        self._registry.replace_handler(name, handler)

    def change(self, name: str, **settings: Any) -> None:
        """Change settings of the consumer `name`, as `@app.consumer` takes them, or `destination`; before `start()`."""
        self._registry.change(name, settings)

    def observe(self, *observers: Observer) -> None:
        """Add observers; before `start()`."""
        self._check_not_running()
        self._service.observers.extend(checked(observers))

    def start(self) -> None:
        """
        Open all consumers, then let messages flow; a consumer whose store is unreachable is opened when it can be.

        If this fails, the consumers are closed again; call it once more, or call `abort()` to close the observers, too.
        Raises what opening a consumer raises; IllegalStateError if the app is running, was stopped (which closed its
        observers), or was told to stop before it started; and some JmsxError if it is told to stop while it starts.
        """
        self._service.start(Start())

    def connect(self, *others: Never, **options: Unpack[ConnectionKeywords]) -> Connection:
        """Return a connection with the app's URL, observers and options; `options` override the app's."""
        check_position("connect()", others)
        check_names("connection option", options, [each.name for each in fields(ConnectionOptions)])
        return self._service.connection(**options)

    def connection_uri(self) -> BrokerUri:
        """Return the app's brokers and options, those of the URL included; raises ConfigurationError."""
        if self.url is None:
            raise ConfigurationError("the app has no broker URL; set app.url or pass one to App()")
        own = ConnectionOptions.of(**self._options)
        if self.reconnect:
            own = replace(own, reconnect=self._reconnect_policy())
        return parse_broker_uri(self.url, own)

    def live(self) -> HealthReport:
        """Report whether messages move, or would if there were any: the answer of `/healthz`."""
        service = self._service
        return live(service.states(), self.health_limits, service.machine.monotonic())

    def ready(self) -> HealthReport:
        """Report whether the app is connected, subscribed and not draining: the answer of `/readyz`."""
        service, lifecycle = self._service, self._service.lifecycle
        told, now = lifecycle.told.is_set(), service.machine.monotonic()
        return ready(service.states(), running=lifecycle.flows, draining=told, now=now)

    @property
    def endpoint(self) -> Endpoint | None:
        """The server of the health probes, while the app runs; None: there is none."""
        return self._service.current.endpoint

    @property
    def wsgi(self) -> WSGIApplication:
        """A WSGI application with `/healthz`, `/readyz` and `/metrics`, for a web server of your own."""
        metrics = next((one.wsgi for one in self._service.observers if hasattr(one, "wsgi")), None)
        return application({"/healthz": self.live, "/readyz": self.ready}, metrics)

    def send(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> str:
        """
        Send one message, and wait for the broker's confirmation; from any thread. Returns the message's key.

        In a SESSION_TRANSACTED handler of this app the message is part of the handler's transaction: it is sent when
        the transaction commits, is never sent if the handler raises, and is not confirmed before. Threads that the
        handler starts send outside of the transaction.

        Args:
            to: a destination, such as `queue://orders`.
            body: text, bytes or None, which are sent as they are; a dict, list, dataclass, pydantic model or the like,
                which is sent as JSON; or a Message, which is sent as it is (a dict in it makes a MapMessage).
            options: the fields of `Sending`: properties, delay, expires, priority, persistent, group, correlation_id,
                reply_to, dedupe_id, timeout, confirm. Durations are seconds, a timedelta or "2s".

        Raises what `MessageProducer.send` raises: MessageFormatError for a body that JSON cannot express;
        ConnectionFailedError if there was no connection within `timeout` and nothing was sent; ConfigurationError for
        options that make no sense; UnsupportedError for a delay or a dedupe_id that the broker does not support; and
        so on. Also IllegalStateError in a transacted handler with a DatabaseStore.

        """
        return self._service.outgoing.send(to, body, options)

    async def asend(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> str:
        """
        Do as `send` does, without blocking the event loop; a handler's transaction includes tasks that it awaits.

        If this is cancelled, the message may or may not be sent; in a transaction, cancelling waits until it is.
        """
        return await self._service.outgoing.asend(to, body, options)

    def request(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> Message:
        """
        Send one message, wait for its answer, and return that; from any thread, also from many at once.

        The program that consumes the message sends its answer to the message's `reply_to`, with its correlation id; a
        jmsx handler does so by returning a result. The request is sent at once, outside of a handler's transaction. If
        an answer comes after the caller has stopped waiting, it is dropped and logged.

        Args:
            to: a destination, such as `queue://prices`.
            body: as for `send`.
            options: as for `send`; `timeout` covers sending and waiting, 30 s by default. Without `expires` the request
                may be handled after the caller has stopped waiting.

        Raises what `send` raises, such as ConnectionFailedError if there was no connection in time and nothing was
        sent; UnansweredError if no answer came in time, the connection was lost, or the app was stopped, so that it is
        unknown whether the request was handled; and IllegalStateError on the app's event loop.

        """
        if (loop := self._service.current.loop) is not None and loop.here:
            raise IllegalStateError(
                "request() would hold up the event loop that handlers run on: await app.arequest() there"
            )
        return self._service.outgoing.request(to, body, options)

    async def arequest(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> Message:
        """
        Do as `request` does, without blocking the event loop.

        If this is cancelled before there is a connection, nothing was sent; after that, the request may have been sent.
        """
        return await self._service.outgoing.arequest(to, body, options)

    def wait(self, timeout: Duration | None = None) -> None:
        """
        Wait until the app is told to stop, or for `timeout`: seconds, a timedelta, or a text such as "2s".

        Raises the error that ended a consumer.
        """
        self._service.wait(timeout_of("timeout", timeout))

    def quit(self) -> None:
        """
        Tell the app to stop: `wait()` returns, a waiting `start()` ends, `run()` drains; from any thread or handler.

        If the app is not running, its next `start()` ends at once. In a handler this stops only the start of the app to
        which the handler belongs, and does nothing if that has ended.
        """
        self._service.quit()

    def stop(self, drain_timeout: Duration = DRAIN_TIMEOUT) -> None:
        """
        Drain: begin no new message, let running handlers finish, acknowledge their messages, and release the others.

        Every consumer releases its prefetched messages to the broker as soon as its own handler has returned. This
        takes at most `drain_timeout` (seconds, a timedelta, or a text such as "30s"), and up to 3 s more if a consumer
        is late: that one is aborted, and its message is delivered again. If another thread is already stopping the app,
        this waits for it; in a signal handler that interrupts another `stop()` it does nothing. It also ends `wait()`,
        `run()` and `serve()`.

        Raises DrainError, which names the late consumers; or the error that ended a consumer, if one did; or
        IllegalStateError if a handler of this app calls it: a handler may call `quit()` instead.
        """
        self._service.stop(seconds("drain_timeout", drain_timeout))

    def abort(self) -> None:
        """
        Drop all connections at once; unacknowledged messages are delivered again.

        It also ends `wait()`, `run()` and `serve()`, and may be called from any thread or handler. In a handler it
        aborts only the start of the app to which the handler belongs, not a later one.
        """
        self._service.abort()

    def run(
        self,
        drain_timeout: Duration = DRAIN_TIMEOUT,
        *,
        until_idle: Duration | None = None,
        announce: Callable[[str], object] = lambda _words: None,
    ) -> None:
        """
        Start, wait for SIGTERM or Ctrl-C, then drain; a second signal aborts. Call it on the main thread.

        `until_idle`: drain also when the queues seem to be empty, that is when no handler has run, no message has come,
        and none has waited for its redelivery for that long (seconds, a timedelta, or a text such as "5s"). While the
        broker cannot be reached, the app does not count as idle. `announce` is called with texts for the operator.

        Raises what `start` and `stop` raise, KeyboardInterrupt after a second signal, and IllegalStateError in another
        thread than the main one.
        """
        if threading.current_thread() is not threading.main_thread():
            raise IllegalStateError(
                "run() waits for signals, which only the main thread gets; in another one use start() and stop()"
            )
        limit = seconds("drain_timeout", drain_timeout)
        patience = None if until_idle is None else seconds("until_idle", until_idle)
        foreground.run(self._service, limit, patience, announce)

    def __enter__(self) -> Self:
        self._check_not_running()
        start = Start()
        try:
            self._service.start(start)
            self._blocks.append((_whose(), start))
        except BaseException:
            self._service.abort(start)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Drain, also if Ctrl-C or SystemExit ends the block; abort after another error, or a further Ctrl-C."""
        start: Start | None = None
        try:
            start = self._start_of_block()
            if error is None or isinstance(error, IN_GOOD_ORDER):
                self._service.stop(DRAIN_TIMEOUT, start)
            else:
                self._service.abort(start)
        except JmsxError:
            raise
        except BaseException:  # a second signal
            start = start or self._start_of_block()
            self._service.abort(start)
            raise
        finally:
            self._leave_block(start)

    def _start_of_block(self) -> Start:
        """Return what the block that ends has started; what runs, if not this task or thread has entered it."""
        who, current = _whose(), self._service.current
        blocks = tuple(reversed(self._blocks))
        own = [one for one in blocks if one[0] is who] or [
            one for one in blocks if one[1] is current
        ]
        return own[0][1] if own else current

    def _leave_block(self, start: Start | None) -> None:
        """Forget the block with this start, and say so if another one runs on behind it."""
        for one in tuple(self._blocks):
            if one[1] is start:
                with contextlib.suppress(ValueError):  # two may leave at once
                    self._blocks.remove(one)
        if self._service.lifecycle.runs and self._service.current is not start:
            _log.warning(
                "app runs on after its block: it was started anew meanwhile, and the block ends only its own start"
            )

    def _move_to(self, machine: Machine) -> None:
        """Run on another machine from now on, as if it had never run; while it does not run."""
        self._service = Service(self, self._service.observers, machine)

    async def __aenter__(self) -> Self:
        """
        Start without blocking the event loop, on which `async def` handlers will run.

        If this is cancelled, it drains the consumers that have started; if it is cancelled again, it aborts.
        """
        block = foreground.Block(
            self._service, Start(loop=asyncio.get_running_loop()), DRAIN_TIMEOUT
        )
        self._blocks.append((_whose(), await block.__aenter__()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain the app if the block ended well or was cancelled, else abort it, as the end of `with app:` does."""
        start = self._start_of_block()
        try:
            await foreground.Block(self._service, start, DRAIN_TIMEOUT).__aexit__(
                kind, error, trace
            )
        finally:
            self._leave_block(start)

    @contextlib.asynccontextmanager
    async def lifespan(self, _application: object = None) -> AsyncIterator[None]:
        """
        For FastAPI and Starlette: with `FastAPI(lifespan=app.lifespan)`, this app runs as long as the web application.

        The web server waits some seconds at most for `start`, for it hears no signal until then. If the broker cannot
        be reached by that time, the server begins to serve, and the consumers begin when the broker is there. Raises
        what `start` raises; if `start` fails after the server has begun, this is raised at the end.
        """
        start = Start(loop=asyncio.get_running_loop())
        block = foreground.Block(self._service, start, DRAIN_TIMEOUT)
        async with beside_a_server(block, block.leave):
            yield

    async def serve(
        self,
        drain_timeout: Duration = DRAIN_TIMEOUT,
        *,
        announce: Callable[[str], object] = lambda _words: None,
    ) -> None:
        """
        Run as `run` does, on the event loop that awaits this; signals are handled if the loop runs on the main thread.

        If this is cancelled, it drains; if it is cancelled again, or after a second signal, it aborts. Raises what
        `start` and `stop` raise, and asyncio.CancelledError if it was cancelled or aborted.
        """
        limit = seconds("drain_timeout", drain_timeout)
        await foreground.serve(self._service, limit, announce)

    def _check_not_running(self) -> None:
        self._service.lifecycle.check_not_running()

    def _reconnect_policy(self) -> ReconnectPolicy:
        given = self.reconnect
        return given if isinstance(given, ReconnectPolicy) else ReconnectPolicy()


def _whose() -> object:
    """Return the task or thread that asks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # there is no event loop
        task = None
    return task or threading.current_thread()


def _check_not_said(options: AppKeywords, name: str, connection_name: str) -> None:
    """Raise ConfigurationError if what is given as `name` is given as a connection calls it, too."""
    if connection_name in options:
        raise ConfigurationError(f"{name}= and {connection_name}= say the same; give one of them")
