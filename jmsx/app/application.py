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

#: What one of its consumers takes, and it does not.
_OF_CONSUMERS: Final = {name: f"@app.consumer(..., {name}=...)" for name in SETTINGS}

_log = logger("jmsx.app")


class App:
    """
    Consumers and a sender on one broker.

    Every consumer's worker has a session, a socket and a thread of its own. `options` are those of `Connection`; every
    consumer has them, be they given here or in the URL, unless its decorator says otherwise, by the same name. The app
    owns its observers: they are closed when it stops. Raises ConfigurationError for a URL or options that make no
    sense.

    With `reconnect` (True, or a ReconnectPolicy) it waits for its broker and for the database of an idempotency store,
    at the start and whenever they are gone; consumers of other stores, or of none, do not wait for that one. With False
    the loss of a connection ends the app, unless its URL is a `failover:` one, and so does a database that cannot be
    reached at the start.

    Args:
        url: of the broker.
        observers: are told every event of the app's sessions.
        redelivery: when a message comes again after a failure, if its consumer does not say; a connection's
            `redelivery_policy`.
        prefetch: messages that the broker sends ahead, if their consumer does not say; a connection's
            `prefetch_policy`, the same for queues and topics.
        reconnect: whether, and in which steps, it waits for what is away; True: ReconnectPolicy().
        health: HOST:PORT (or PORT, of all addresses) where `/healthz`, `/readyz` and, if an observer has them,
            `/metrics` are served while the app runs; None: nowhere.
        health_limits: when something counts as stuck.
        watch: time without a message after which the broker is asked whether a subscription is still there, where
            brokers drop some in silence: seconds, a timedelta or a text such as "1min"; 0: never.
        broker_stats: time between two looks at the broker's own counts of the queues that the app reads and sends
            to, if an observer keeps them, as an event log does; also at the start and the end. 0: never.
        middleware: around every handler, the first one outside; see `jmsx.app.middleware`.
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
        #: What is up for a block of `with` or `async with`, by the task or thread that has entered that
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

        It is called as `handler(message)`, or `handler(message, session)` if it takes two arguments; or with what the
        annotations of its parameters say: the Message, the Session, the body as `str`, `bytes`, `dict`, a dataclass or
        whatever pydantic can read, `Annotated[str, Property("region")]` and `Annotated[str, Header("type")]`. A message
        that does not fit is a dead letter at once. What it returns, if that is not None, answers a message with a
        `reply_to`. When it returns, the message is settled (with SESSION_TRANSACTED, all that it sent too); when it
        raises, the message is delivered again by `redelivery`; it may raise Retry, Reject or Discard to say more.
        `mode` may be a name, such as "client" or "transacted". With `batch` it takes a list of so many messages, or of
        those that came within `batch_timeout` (seconds, a timedelta or "500ms"); they are settled together when it
        returns, and come again one by one when it raises; it may raise BatchError to name those that failed. It may be
        an `async def` function. Further settings are those of `Consumer`; what is not given is as the app's options
        say. Raises ConfigurationError for settings and parameters that make no sense.
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
        """Put another handler in the place of the consumer `name`'s; before `start()`, for tests and trials."""
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
        Open all consumers, and then let messages flow; those whose store is away follow when that is back.

        On failure they are closed again; repeat it, or `abort()` to close the observers too. Raises what opening a
        consumer raises, and IllegalStateError if the app runs, was stopped and with it its observers, or was told to
        stop before; some JmsxError if it is told to stop meanwhile.
        """
        self._service.start(Start())

    def connect(self, *others: Never, **options: Unpack[ConnectionKeywords]) -> Connection:
        """Return a connection with the app's URL, observers and options; those given win."""
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
        """Report whether messages move, or could: what `/healthz` says."""
        service = self._service
        return live(service.states(), self.health_limits, service.machine.monotonic())

    def ready(self) -> HealthReport:
        """Report whether the app is connected, subscribed and not draining: what `/readyz` says."""
        service, lifecycle = self._service, self._service.lifecycle
        told, now = lifecycle.told.is_set(), service.machine.monotonic()
        return ready(service.states(), running=lifecycle.flows, draining=told, now=now)

    @property
    def endpoint(self) -> Endpoint | None:
        """What serves health, while the app runs."""
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
        Send one message, confirmed by the broker when this returns; from any thread. Returns its key.

        In a SESSION_TRANSACTED handler of this app it is part of the handler's transaction: sent when that commits,
        and never if the handler raises; nothing is confirmed before. Threads that the handler starts are outside of it.

        Args:
            to: a destination, such as `queue://orders`.
            body: text, bytes or None as they are; a dict, list, dataclass, pydantic model or the like in JSON; or a
                Message, which is sent as JMS has it (its dict is a map) with its own properties and the like.
            options: how it is sent, the fields of `Sending`: properties, delay, expires, priority, persistent, group,
                correlation_id, reply_to, dedupe_id, timeout, confirm. Durations are seconds, a timedelta or "2s".

        Raises what `MessageProducer.send` does, such as MessageFormatError for what JSON cannot say,
        ConnectionFailedError if there was no connection within `timeout`: then nothing was sent, ConfigurationError for
        options that make no sense, UnsupportedError for a delay or a dedupe_id where this broker has none, and
        IllegalStateError in a transacted handler with a DatabaseStore.

        """
        return self._service.outgoing.send(to, body, options)

    async def asend(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> str:
        """
        Do as `send` does, while the event loop goes on; in a handler's transaction also in tasks that it awaits.

        Who is cancelled meanwhile does not know whether it was sent; in a transaction the cancellation waits for that.
        """
        return await self._service.outgoing.asend(to, body, options)

    def request(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> Message:
        """
        Send one message and wait for its answer, which this returns; from any thread, also from many at once.

        Whoever reads `to` answers to the message's `reply_to`, with its correlation id; a handler of jmsx does so by
        returning something. It is sent at once, and is no part of a handler's transaction. An answer that nobody waits
        for any more is dropped, with a line in the log.

        Args:
            to: a destination, such as `queue://prices`.
            body: as of `send`.
            options: as of `send`; `timeout` is for all of it, 30 s if it is not given. Without `expires` the request
                is handled also when nobody waits any more.

        Raises what `send` does, such as ConnectionFailedError if there was no connection in time: then nothing was
        sent; UnansweredError if no answer came in time, the connection was lost, or the app was stopped: then nobody
        knows whether the request was handled; IllegalStateError on the app's event loop.

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
        Do as `request` does, while the event loop goes on.

        If it is cancelled before there is a connection, nothing was sent; if later, nobody knows whether it was.
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
        End `wait()`, a `start()` that waits, and `run()`, which drains; from any thread, also from a handler.

        Called while the app does not run, it ends the start that comes next. In a handler it ends the start that the
        handler belongs to, and nothing where that has ended.
        """
        self._service.quit()

    def stop(self, drain_timeout: Duration = DRAIN_TIMEOUT) -> None:
        """
        Drain: take nothing more, let running handlers finish, confirm what they did, give back the rest.

        Every consumer gives back what it has prefetched as soon as its own handler has returned. Takes `drain_timeout`
        (seconds, a timedelta, or a text such as "30s") at the most, and 3 s more where something has to be cut off: a
        consumer that is late is aborted, and its message comes again. Raises DrainError that says which were late, or
        the error that ended a consumer, if one did; IllegalStateError if a handler of this app calls it, which may call
        `quit()`. Where another thread stops the app, it waits for that; in a signal handler that interrupts another
        `stop()` it does nothing. It ends `wait()`, `run()` and `serve()`, too.
        """
        self._service.stop(seconds("drain_timeout", drain_timeout))

    def abort(self) -> None:
        """
        Drop everything at once; unfinished messages come again.

        It ends `wait()`, `run()` and `serve()`, too, and may be called from any thread, also from a handler: there it
        drops the start that the handler belongs to, and nothing of a later one.
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
        Start, stay until SIGTERM or Ctrl-C, then drain; a second signal aborts. From the main thread.

        `until_idle`: drain also when the queues are empty, as far as one can see: no handler has run, no message has
        come, and none has waited here for its redelivery, for that long (seconds, a timedelta, or a text such as "5s").
        A broker that is away is waited for. `announce` is given words for the operator.

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
        """Drain, also if Ctrl-C or an exit ends the block; abort after any other error, and after one more Ctrl-C."""
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
                with contextlib.suppress(ValueError):  # of two who leave at once
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
        Start; handlers that are `async def` run on this event loop, which goes on meanwhile.

        Cancelled meanwhile, it drains what flows already; cancelled again, it aborts.
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
        For FastAPI and Starlette: `FastAPI(lifespan=app.lifespan)` has this app run as long as that one.

        The web server waits for `start`, during which it hears no signal; but some seconds at most: where the broker is
        away, it serves meanwhile, and the consumers begin when the broker is there. Raises what `start` raises; at the
        end, if that comes later.
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
        Run as `run` does, on the event loop that awaits this; signals are taken where that is the main thread's.

        Cancelled, it drains too; cancelled again, or after a second signal, it aborts. Raises what `start` and `stop`
        raise, and asyncio.CancelledError if it was cancelled or aborted.
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
