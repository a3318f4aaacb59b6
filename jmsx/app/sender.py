"""
What an application sends: how each message is sent, and the session for it that all threads share.

That is opened at first use. In a transacted handler of the app the handler's session sends instead.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

from jmsx.app.bodies import Data, written
from jmsx.core.destination_names import is_swapped
from jmsx.core.durations import Duration, bounded
from jmsx.core.option_checks import check_flag, check_text, unknown
from jmsx.drivers.locks import Alone, reentered
from jmsx.drivers.process import tell_of_forks
from jmsx.errors import (
    ConfigurationError,
    ConnectionFailedError,
    LinkError,
    SendUnconfirmedError,
)
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message, PropertyValue
from jmsx.jms.producer import MessageProducer, check_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

#: What a signal handler must not call in the middle of it.
_WHAT: Final = "app.send()"


class SendKeywords(TypedDict, total=False):
    """The fields of `Sending` as keywords of `app.send(...)` and its like, for type checkers."""

    properties: Mapping[str, PropertyValue] | None
    delay: Duration | None
    expires: Duration | None
    priority: int
    persistent: bool
    group: str | None
    correlation_id: str | None
    reply_to: Destination | str | None
    dedupe_id: str | None
    timeout: Duration | None
    confirm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """
    How one message is sent; durations are seconds, a timedelta, or a text such as "2s".

    Raises ConfigurationError for what makes no sense.
    """

    properties: Mapping[str, PropertyValue] | None = None  #: the application's, by name
    delay: Duration | None = None  #: in which the broker keeps it back
    expires: Duration | None = (
        None  #: after which nobody wants it any more, from now on; None: never
    )
    priority: int = 4  #: from 0 to 9, the highest
    persistent: bool = True  #: it outlives the broker's process
    group: str | None = None  #: JMSXGroupID: what has the same goes to the same consumer, in order
    correlation_id: str | None = None  #: what it belongs to, or answers
    reply_to: Destination | str | None = None  #: where an answer is awaited
    dedupe_id: str | None = None  #: the broker drops a second message with it; on Artemis
    timeout: Duration | None = None  #: for the broker's confirmation; None: `request_timeout`
    confirm: bool = True  #: wait for the broker's confirmation; without, a lost link loses it

    def __post_init__(self) -> None:
        check_priority(self.priority)
        for name in ("persistent", "confirm"):
            check_flag(name, getattr(self, name))
        for name in ("group", "correlation_id", "dedupe_id"):
            check_text(name, getattr(self, name))
            if getattr(self, name) == "":
                raise ConfigurationError(f"{name} is empty, which says nothing; leave it out")
        for name, zero in (("delay", True), ("expires", False), ("timeout", False)):
            if getattr(self, name) is not None:
                bounded(name, getattr(self, name), zero=zero)
        if self.expires is not None and self._delay >= bounded("expires", self.expires):
            raise ConfigurationError(
                f"with delay={self.delay!r} and expires={self.expires!r} it expires before it is delivered: both count"
                " from now on"
            )

    @classmethod
    def of(cls, options: SendKeywords) -> Sending:
        """What keywords say; raises ConfigurationError, naming the nearest for one that there is not."""
        known = [each.name for each in fields(cls)]
        for name in options:
            if name not in known:
                raise unknown("option of send()", name, known)
        return cls(**options)

    @property
    def _delay(self) -> float:
        return 0.0 if self.delay is None else bounded("delay", self.delay)

    def message(self, to: Destination | str, body: Message | Data) -> Message:
        """
        The message with that body, or `body` itself, if it is one.

        Raises MessageFormatError for what JSON cannot say, ConfigurationError where destination and body are in the
        wrong order, and where a Message is given what it has itself.
        """
        if is_swapped(to, body):
            raise ConfigurationError(
                f"send() takes the destination first, then the body: send({body!r}, ...); if the body is meant to be"
                " that text, name the kind of the destination too, as in queue://NAME"
            )
        if not isinstance(body, Message):
            plain, content = written(body)
            return Message(
                plain,
                properties={**content, **self.properties} if self.properties else content,
                correlation_id=self.correlation_id,
                reply_to=self.reply_to,
                group_id=self.group,
            )
        for name in ("properties", "correlation_id", "reply_to", "group"):
            if getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{name}= is for a body; a Message has its own, so write Message(body,"
                    f" {'group_id' if name == 'group' else name}=...)"
                )
        return body

    @property
    def of_producer(self) -> dict[str, Any]:
        """The rest, as a MessageProducer takes it."""
        return {
            "persistent": self.persistent,
            "priority": self.priority,
            "time_to_live": 0.0 if self.expires is None else bounded("expires", self.expires),
            "delivery_delay": self._delay,
            "dedupe_id": self.dedupe_id,
            "timeout": None if self.timeout is None else bounded("timeout", self.timeout),
            "confirm": self.confirm,
        }


class Shared(Generic[T]):
    """
    What `open_on` makes of a connection that `connect` opens at its first use, for all threads; a lost one is replaced.

    `what`: the call that a signal handler must not make in the middle of it.
    """

    def __init__(
        self, what: str, connect: Callable[[], Connection], open_on: Callable[[Connection], T]
    ) -> None:
        self._what = what
        self._connect = connect
        self._open_on = open_on
        self._alone = Alone(what)
        self._line: _Line[T] | None = None
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: the next use opens a connection of its own."""
        self._alone = Alone(self._what)
        self._line = None

    @contextlib.contextmanager
    def using(self) -> Iterator[T]:
        """
        It, open; after an error that ends the connection the next use opens a new one.

        Raises IllegalStateError in a signal handler that interrupts who opens it.
        """
        line = None
        try:
            line = self._current()
            opened = line.ready()
        except BaseException:
            if line is not None:
                self._drop(line)
            raise
        try:
            yield opened
        except (LinkError, SendUnconfirmedError):
            self._drop(line)
            raise

    def close(self) -> None:
        """Close the connection in good order, if there is one."""
        line = self._take()
        if line is not None:
            line.connection.close()

    def abort(self) -> None:
        """Drop the connection, if there is one, also while it is being opened."""
        line = self._take()
        if line is not None:
            line.connection.abort()

    def _current(self) -> _Line[T]:
        with self._alone():
            line = self._line
            if line is None:
                line = self._line = _Line(self._connect(), self._open_on)
            elif line.is_opened_here():
                raise reentered(self._what)
            return line

    def _drop(self, line: _Line[T]) -> None:
        with self._alone.lock:
            if self._line is line:  # not what another thread has put in its place
                self._line = None
        line.drop()

    def _take(self) -> _Line[T] | None:
        with self._alone.lock:
            line, self._line = self._line, None
        return line


class Sender(Shared[MessageProducer]):
    """
    Sends confirmed messages over a connection that `connect` opens; a lost one is replaced at the next send.

    Threads wait side by side, each for its own receipt: a broker that is slow to answer one delays no other.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        super().__init__(_WHAT, connect, lambda one: one.create_session().create_producer())

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """Send one message and wait for the broker's receipt; returns its key."""
        with self.using() as producer:
            return producer.send(message, destination=to, **options)


class _Line(Generic[T]):
    """One connection, and what is opened on it; who comes while somebody opens it shares the outcome."""

    def __init__(self, connection: Connection, open_on: Callable[[Connection], T]) -> None:
        self.connection = connection
        self._open_on = open_on
        self._opened: Future[T] = Future()
        self._lock = threading.RLock()
        self._opener: int | None = None  #: the thread that opens it

    def is_opened_here(self) -> bool:
        """Whether this thread is at it, and so would wait for itself."""
        return self._opener == threading.get_ident() and not self._opened.done()

    def ready(self) -> T:
        """What is opened on it; who comes first opens it, and others wait for that."""
        with self._lock:
            first = self._opener is None
            if first:
                self._opener = threading.get_ident()
        if first:
            try:
                self._opened.set_result(self._open_on(self.connection))
            except BaseException as error:
                self._fail(error)
                raise
        return self._opened.result()

    def drop(self) -> None:
        """It is of no more use, also if this thread was interrupted before it could open it."""
        if self.is_opened_here():
            self._fail(ConnectionFailedError("opening the connection was interrupted"))
        self.connection.abort()

    def _fail(self, error: BaseException) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
