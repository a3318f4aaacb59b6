"""
An application under test: its own workers and sessions, against a broker in memory, in virtual time.

::

    with harness(app, "artemis") as mq:
        mq.send("queue://orders", "42")
        mq.advance("1h")
        assert mq.handler(ship).calls[-1].error is None
        assert mq.dead_letters("queue://orders") == []

What follows from a step is done when the step returns. Only the test moves time. A real broker is needed for what is
the broker's: a disk that is full, the network, how fast it is.
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

#: Real seconds that a handler may take.
PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of a handler."""

    messages: tuple[Message, ...]  #: what it was given: one, or those of a batch
    arguments: tuple[Any, ...]
    at: float  #: seconds, virtual, since the harness began
    error: BaseException | None = None  #: what it raised
    returned: object = None

    @property
    def message(self) -> Message:
        """The message that the handler was given; of a batch, the first."""
        return self.messages[0]

    @property
    def attempt(self) -> int:
        """Which delivery of the message it was, from 1."""
        return self.message.delivery_count


@dataclass(slots=True)
class HandlerRecord:
    """What a consumer's handler was called with."""

    name: str
    calls: list[HandlerCall] = field(default_factory=list)  #: in their order

    @property
    def messages(self) -> list[Message]:
        """The messages that it was given, in this order; one that was redelivered is there more than once."""
        return [message for call in self.calls for message in call.messages]


class DeadLetter(NamedTuple):
    """A message that is not delivered again, and why."""

    message: Message | None  #: as it lies in `queue`; None: somebody has taken it from there
    queue: str  #: where it is, such as `queue://ActiveMQ.DLQ`
    reason: str  #: `max_redeliveries`, `rejected`, `expired` or `undecodable`
    attempts: int
    error_type: str | None  #: class of what the handler raised last
    error_message: str | None


class Harness:
    """Runs an app for a test, which says what comes and when time passes; made by `harness`; in virtual seconds."""

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
        self._loop: asyncio.AbstractEventLoop | None = None  #: of the test, where handlers run

    # A test's steps --------------------------------------------------------------------------------------------------

    def send(
        self,
        to: Destination | str,
        body: Message | Data = None,
        **options: Unpack[SendKeywords],
    ) -> str:
        """Do as `app.send` does, then `settle()`; returns the key of the message."""
        self._check("send")
        key = self._app.send(to, body, **options)
        self._world.settle()
        return key

    def advance(self, duration: Duration) -> None:
        """
        Let time go on by seconds, a timedelta, or a text such as "90s", "1h" or "1h30m", with all that is due then.

        Raises BlockedError if a handler does not return.
        """
        self._check("advance")
        self._world.advance_to(self._world.monotonic() + seconds("duration", duration))

    def settle(self) -> None:
        """Let all happen that can happen now; other steps have done so when they return."""
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
        """Do as `send` does, while the loop goes on."""
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
        Return what a handler, or the consumer of that name, was called with; raises ConfigurationError if there is
        none.
        """
        name = handler if isinstance(handler, str) else self._name_of(handler)
        if name not in self._records:
            known = ", ".join(self._records)
            raise ConfigurationError(f"no consumer {name!r} in this app; there are {known}")
        return self._records[name]

    def messages(self, queue: Destination | str) -> list[Message]:
        """
        Return what lies in a queue, in the order in which it will be given out; nothing is taken.

        Raises ConfigurationError for a topic, in which nothing lies.
        """
        place = destination(queue)
        if place.is_topic:
            raise ConfigurationError(f"{place} keeps no messages: each goes to its subscribers")
        return [self._message(view) for view in self.broker.queue(place.address.name).browse()]

    def dead_letters(self, source: Destination | str | None = None) -> list[DeadLetter]:
        """
        Return the messages read from `source` that are dead letters now; None: all.

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
        """Return whether the caller is on the loop that an `async def` handler needs."""
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
    For `with`, or `async with`: run `app` against a broker in memory, in virtual time.

    Args:
        app: as in production; its URL need not exist. Afterwards it is as before, and can be used again.
        broker: "classic", "artemis", or a profile of `jmsx.testing.profiles`.
        patience: real time (seconds, a timedelta, or "5s") after which a handler that does not return is an error
            (BlockedError).

    """
    return Harness(app, broker, seconds("patience", patience))


def _borrow(
    app: App,
    world: World,
    records: dict[str, HandlerRecord],
    deaths: list[MessageDeadLettered],
) -> Callable[[], None]:
    """Have `app` run in `world`; what is returned makes it what it was."""
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
    """An observer of the app's that goes on afterwards."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def observe(self, event: Event, source: Source) -> None:
        """Pass it on."""
        self._observer.observe(event, source)

    def note_paused(self, destination: str, consumer: str, *, paused: bool) -> None:
        """Pass it on, if it is for that."""
        note = getattr(self._observer, "note_paused", None)
        if note is not None:
            note(destination, consumer, paused=paused)

    def close(self) -> None:
        """Do nothing: the observer is the app's, and goes on afterwards."""


class _Deaths:
    """An observer that keeps the dead letters."""

    def __init__(self, deaths: list[MessageDeadLettered]) -> None:
        self._deaths = deaths

    def observe(self, event: Event, _source: Source) -> None:
        """Keep a dead letter."""
        if isinstance(event, MessageDeadLettered):
            self._deaths.append(event)

    def close(self) -> None:
        """Do nothing: an observer's `close()`, and nothing is held."""


#: What a handler that records is given besides, in front of all else.
_TAKEN: Final = Parameter("taken", Part.MESSAGE)


def _recording(
    handler: Callable[..., Any], record: HandlerRecord, machine: Machine
) -> Callable[..., Any]:
    """Return a handler that records its calls of `handler`; it takes the message or batch as one argument more."""

    def note(
        taken: Message | list[Message],
        arguments: tuple[Any, ...],
        error: BaseException | None = None,
        returned: object = None,
    ) -> None:
        messages = tuple(taken) if isinstance(taken, list) else (taken,)
        if not messages:
            return  # a middleware gave none, and the handler was called for no message
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
    """Return the MESSAGE that would show what the broker has."""
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
