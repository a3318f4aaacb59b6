"""
An application under test: its own workers and sessions, against a broker in memory, in virtual time.

::

    with harness(app, "artemis") as mq:
        mq.send("queue://orders", "42")
        mq.advance("1h")
        assert mq.handler(ship).calls[-1].error is None
        assert mq.dead_letters("queue://orders") == []

When a step returns, all its consequences have happened. Only the test moves time. What depends on the broker's machine
needs a real broker: a full disk, the network, speed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, Unpack

from jmsx import plugins
from jmsx.app.application import App
from jmsx.app.bodies import Data
from jmsx.app.parameters import Parameter, Part
from jmsx.app.sender import SendKeywords
from jmsx.app.start import Start
from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import is_pattern
from jmsx.core.dialect import Dialect
from jmsx.core.durations import Duration, seconds
from jmsx.core.events import Event, MessageDeadLettered, Source
from jmsx.core.frames import MessageFrame
from jmsx.core.option_checks import unknown
from jmsx.drivers.machine import Machine
from jmsx.errors import ConfigurationError, IllegalStateError
from jmsx.jms.destination import Destination, destination
from jmsx.jms.handlers import is_async, name_of
from jmsx.jms.message import Message
from jmsx.jms.translation import ReceivedMessage
from jmsx.observe import Observer
from jmsx.testing.artemis.message import CoreMessage
from jmsx.testing.artemis.message import to_message_frame as artemis_frame
from jmsx.testing.classic.message import Destination as ClassicDestination
from jmsx.testing.classic.message import StoredMessage
from jmsx.testing.classic.message import to_message_frame as classic_frame
from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.profiles import ClassicProfile, Profile
from jmsx.testing.world import START, World

#: Real seconds that a call of a handler may take before the test fails with BlockedError.
PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of a handler."""

    messages: tuple[Message, ...]  #: the message that it was given, or all those of a batch
    arguments: tuple[Any, ...]
    at: float  #: virtual seconds since the harness began
    error: BaseException | None = None  #: what it raised
    returned: object = None

    @property
    def message(self) -> Message:
        """The message that the handler was given; of a batch, the first."""
        return self.messages[0]

    @property
    def attempt(self) -> int:
        """Which delivery of the message this call was, counted from 1 (JMSXDeliveryCount)."""
        return self.message.delivery_count


@dataclass(slots=True)
class HandlerRecord:
    """The calls of one consumer's handler."""

    name: str
    calls: list[HandlerCall] = field(default_factory=list)  #: in their order

    @property
    def messages(self) -> list[Message]:
        """The messages that the handler was given, in order; a redelivered message appears once for each delivery."""
        return [message for call in self.calls for message in call.messages]


class DeadLetter(NamedTuple):
    """A dead letter: a message that is not delivered again, and why."""

    message: Message | None  #: as it is in `queue`; None: it was taken from there
    queue: str  #: the dead letter queue, such as `queue://ActiveMQ.DLQ`
    reason: str  #: `max_redeliveries`, `rejected`, `expired` or `undecodable`
    attempts: int
    error_type: str | None  #: class of the exception that the handler raised last
    error_message: str | None


class Harness:
    """Runs an app in a test, which sends the messages and advances virtual time; made by `harness`."""

    def __init__(self, app: App, broker: Profile | str, patience: float) -> None:
        if not isinstance(app, App):
            raise ConfigurationError(f"harness() takes an App, not {app!r}")
        self._app = app
        self._origin = time.time()
        try:
            self.broker = FakeBroker(broker, origin=self._origin - START)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        self._world = World(self.broker, self._origin - START, patience)
        kind = "classic" if isinstance(self.broker.profile, ClassicProfile) else "artemis"
        self._dialect: Dialect = plugins.load("jmsx.dialects", kind)
        self._records: dict[str, HandlerRecord] = {}
        self._deaths: list[MessageDeadLettered] = []
        self._restore: Callable[[], None] = lambda: None
        #: The test's event loop, on which async handlers run
        self._loop: asyncio.AbstractEventLoop | None = None

    # A test's steps --------------------------------------------------------------------------------------------------

    def send(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> str:
        """Do what `app.send` does, then `settle()`; returns the key of the message."""
        self._check("send")
        key = self._app.send(to, body, **options)
        self._world.settle()
        return key

    def advance(self, duration: Duration) -> None:
        """
        Advance virtual time by seconds, a timedelta, or a text such as "90s" or "1h30m"; what is due meanwhile runs.

        Raises BlockedError if a handler does not return.
        """
        self._check("advance")
        self._world.advance_to(self._world.monotonic() + seconds("duration", duration))

    def settle(self) -> None:
        """Wait until all that can happen without time passing has happened; the other steps do so themselves."""
        self._check("settle")
        self._world.settle()

    def drop_connections(self) -> None:
        """Let all sockets die, as if the broker had been restarted; the application connects again."""
        self._check("drop_connections")
        self._world.cut()
        self._world.settle()

    async def asend(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> str:
        """Do what `send` does, while the caller's event loop goes on."""
        return await asyncio.to_thread(functools.partial(self.send, to, body, **options))

    async def aadvance(self, duration: Duration) -> None:
        """Do what `advance` does, while the caller's event loop goes on."""
        await asyncio.to_thread(self.advance, duration)

    async def asettle(self) -> None:
        """Do what `settle` does, while the caller's event loop goes on."""
        await asyncio.to_thread(self.settle)

    async def adrop_connections(self) -> None:
        """Do what `drop_connections` does, while the caller's event loop goes on."""
        await asyncio.to_thread(self.drop_connections)

    # What a test looks at --------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the harness began."""
        return self._world.monotonic() - START

    def handler(self, handler: Callable[..., object] | str) -> HandlerRecord:
        """
        Return the calls of a handler, given as the function or by its consumer's name; raises ConfigurationError if the
        app has no such consumer.
        """
        name = handler if isinstance(handler, str) else self._name_of(handler)
        if name not in self._records:
            known = ", ".join(self._records)
            raise ConfigurationError(f"no consumer {name!r} in this app; there are {known}")
        return self._records[name]

    def messages(self, queue: Destination | str) -> list[Message]:
        """
        Return the messages in a queue, in flight or not, oldest first; none is removed.

        Raises ConfigurationError for a topic, which keeps no messages.
        """
        place = destination(queue)
        if place.is_topic:
            raise ConfigurationError(f"{place} keeps no messages: each goes to its subscribers")
        return [self._message(view) for view in self.broker.queue(place.address.name).browse()]

    def dead_letters(self, source: Destination | str | None = None) -> list[DeadLetter]:
        """
        Return the messages read from `source` that are dead letters now; all dead letters if `source` is None.

        Raises ConfigurationError for a `source` that no consumer of the app reads.
        """
        wanted = None if source is None else destination(source).uri
        deaths = [one for one in self._deaths if wanted in (None, one.destination)]
        read = [one.destination.uri for one in self._app.consumers]
        if not (wanted is None or deaths or wanted in read or any(map(is_pattern, read))):
            raise unknown("source of dead letters", wanted, read)
        return [self._dead_letter(death) for death in deaths]

    # Its life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._restore = _borrow(self._app, self._world, self._records, self._deaths)
        try:
            self._app._service.start(Start(loop=self._loop))  # noqa: SLF001 - only a harness gives an app its loop
            self._world.settle()
        except BaseException as error:
            self._leave(self._app.abort)
            if self._world.failures:
                raise self._world.failures[0] from error
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self._leave(self._app.abort)
            return
        self._leave(self._app.stop)
        self._world.check()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _leave(self, end: Callable[[], None]) -> None:
        restore, self._restore = self._restore, lambda: None
        try:
            try:
                end()
            except BaseException:
                self._app.abort()
                raise
        finally:
            self._world.end()
            restore()

    def _check(self, step: str) -> None:
        if self._app._service.machine is not self._world:  # noqa: SLF001 - only a harness puts an app on another machine
            raise IllegalStateError(
                "the harness is over, or has not begun: use it in its with block"
            )
        if self._holds_up():
            raise IllegalStateError(
                f"mq.{step}() would hold up the event loop, on which the handlers run: await mq.a{step}(...)"
            )

    def _holds_up(self) -> bool:
        """Return whether the caller blocks the event loop that an `async def` handler needs."""
        if self._loop is None or not any(is_async(one.handler) for one in self._app.consumers):
            return False
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _name_of(self, handler: Callable[..., object]) -> str:
        for consumer in self._app.consumers:
            if inspect.unwrap(consumer.handler) is inspect.unwrap(handler):
                return consumer.name
        return name_of(handler)

    def _message(self, view: Any) -> Message:
        frame = _frame_of(view)
        headers = frame.headers
        delivery = Delivery.of(frame, 0, headers.get("message-id", ""), epoch=0, now=0.0, wall=0.0)
        return ReceivedMessage(delivery, self._dialect)

    def _dead_letter(self, death: MessageDeadLettered) -> DeadLetter:
        place = death.dead_letter_destination or self._dialect.dead_letter_queue
        found = (
            message
            for message in self.messages(place)
            if death.message_key == message.key or death.message_id == message.message_id
        )
        return DeadLetter(
            next(found, None),
            place,
            death.reason,
            death.attempts,
            death.error_type,
            death.error_message,
        )


def harness(
    app: App, broker: Profile | str = "classic", *, patience: Duration = PATIENCE
) -> Harness:
    """
    Return a context manager, for `with` or `async with`, that runs `app` on a broker in memory, in virtual time.

    Args:
        app: the app as in production; its URL is not used. After the block it is as before, and can be used again.
        broker: "classic", "artemis", or a profile of `jmsx.testing.profiles`.
        patience: the real time (seconds, a timedelta, or "5s") after which a handler that does not return raises
            BlockedError in the test.

    """
    return Harness(app, broker, seconds("patience", patience))


def _borrow(
    app: App,
    world: World,
    records: dict[str, HandlerRecord],
    deaths: list[MessageDeadLettered],
) -> Callable[[], None]:
    """Have `app` run in `world`; returns a function that restores `app` as it was."""
    app._check_not_running()  # noqa: SLF001 - what a harness needs of an app, nobody else does
    kept = dict(vars(app))
    consumers = app.consumers
    put_handler = app._registry.put_handler  # noqa: SLF001 - what a harness needs of an app, nobody else does
    app._move_to(world)  # noqa: SLF001 - what a harness needs of an app, nobody else does
    app.url = app.url or "stomp://harness"
    app.health, app.watch, app.broker_stats = None, 0.0, 0.0
    service = app._service  # noqa: SLF001 - what a harness needs of an app, nobody else does
    service.observers = [*(_Kept(one) for one in service.observers), _Deaths(deaths)]
    for consumer in consumers:
        record = records.setdefault(consumer.name, HandlerRecord(consumer.name))
        parameters = consumer.parameters
        put_handler(
            consumer.name,
            _recording(consumer.handler, record, world),
            replace(parameters, of=(_TAKEN, *parameters.of)),
        )

    def restore() -> None:
        vars(app).update(kept)
        for consumer in consumers:
            put_handler(consumer.name, consumer.handler, consumer.parameters)

    return restore


class _Kept:
    """One of the app's own observers, which must survive the harness: its `close` is not passed on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def observe(self, event: Event, source: Source) -> None:
        """Pass the event on."""
        self._observer.observe(event, source)

    def note_paused(self, destination: str, consumer: str, *, paused: bool) -> None:
        """Pass the note on, if the observer takes such notes."""
        note = getattr(self._observer, "note_paused", None)
        if note is not None:
            note(destination, consumer, paused=paused)

    def close(self) -> None:
        """Do nothing: the observer belongs to the app, which goes on using it."""


class _Deaths:
    """An observer that collects dead letters."""

    def __init__(self, deaths: list[MessageDeadLettered]) -> None:
        self._deaths = deaths

    def observe(self, event: Event, _source: Source) -> None:
        """Keep `event` if it tells of a dead letter."""
        if isinstance(event, MessageDeadLettered):
            self._deaths.append(event)

    def close(self) -> None:
        """Do nothing: every observer needs `close()`, and this one holds no resources."""


#: The extra first parameter of a recording handler: the message or batch.
_TAKEN: Final = Parameter("taken", Part.MESSAGE)


def _recording(
    handler: Callable[..., Any], record: HandlerRecord, machine: Machine
) -> Callable[..., Any]:
    """Return a handler that records its calls of `handler`; its extra first argument is the message or batch."""

    def note(
        taken: Message | list[Message],
        arguments: tuple[Any, ...],
        error: BaseException | None = None,
        returned: object = None,
    ) -> None:
        messages = tuple(taken) if isinstance(taken, list) else (taken,)
        if not messages:
            return  # a middleware passed on no message
        at = machine.monotonic() - START
        record.calls.append(HandlerCall(messages, arguments, at, error, returned))

    if inspect.iscoroutinefunction(inspect.unwrap(handler)):

        @functools.wraps(handler)
        async def arun(taken: Message | list[Message], *arguments: Any, **named: Any) -> Any:
            try:
                returned = await handler(*arguments, **named)
            except BaseException as error:
                note(taken, arguments, error)
                raise
            note(taken, arguments, None, returned)
            return returned

        return arun

    @functools.wraps(handler)
    def run(taken: Message | list[Message], *arguments: Any, **named: Any) -> Any:
        try:
            returned = handler(*arguments, **named)
        except BaseException as error:
            note(taken, arguments, error)
            raise
        note(taken, arguments, None, returned)
        return returned

    return run


def _frame_of(view: object) -> MessageFrame:
    """Return the MESSAGE frame with which the broker would deliver the message behind `view`."""
    if isinstance(view, StoredMessage):
        return classic_frame(
            view,
            name_of=_classic_name,
            subscription=None,
            ack_id=None,
            transformation=view.properties.get("transformation"),
        )
    if isinstance(view, CoreMessage):
        return artemis_frame(
            view, subscription="", handle="", redelivered=False, acknowledged=False
        )
    raise TypeError(f"{view!r} is no message of a fake broker")


def _classic_name(named: ClassicDestination) -> str:
    return named.stomp_name
