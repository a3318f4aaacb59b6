"""
What an application sends: how each message is sent, and the session for it that all threads share.

That is opened at first use. In a transacted handler of the app the handler's session sends instead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

from jmsx.app.bodies import Data, written
from jmsx.core.destination_names import is_swapped
from jmsx.core.durations import Duration, bounded
from jmsx.core.option_checks import check_flag, check_properties, check_text, unknown
from jmsx.drivers.locks import NonReentrantLock, mutex, reentered
from jmsx.drivers.machine import Machine
from jmsx.drivers.process import tell_of_forks
from jmsx.drivers.threads import start_serving
from jmsx.errors import ConfigurationError, ConnectionFailedError, JmsxError, afresh
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message, PropertyValue
from jmsx.jms.producer import MessageProducer, check_priority
from jmsx.jms.session import Session, link_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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

    Args:
        properties: the application's, by name; None: there are none.
        delay: in which the broker keeps it back; None: it does not.
        expires: after which nobody wants it any more, from now on; None: never.
        priority: from 0 to 9, the highest; 4.
        persistent: whether it outlives the broker's process; True.
        group: JMSXGroupID: what has the same goes to the same consumer, in order; None: it is in none.
        correlation_id: what it belongs to, or answers; None: nothing.
        reply_to: the destination where an answer is awaited; None: nowhere.
        dedupe_id: the broker drops a second message with it; on Artemis; None: it drops none.
        timeout: for the connection and the broker's confirmation; None: `request_timeout` for that.
        confirm: whether the broker's confirmation is awaited; without, a lost link loses it, and so does a program that
            ends without `app.stop()`, and a refusal is told in the log alone; True.

    """

    properties: Mapping[str, PropertyValue] | None = None
    delay: Duration | None = None
    expires: Duration | None = None
    priority: int = 4
    persistent: bool = True
    group: str | None = None
    correlation_id: str | None = None
    reply_to: Destination | str | None = None
    dedupe_id: str | None = None
    timeout: Duration | None = None
    confirm: bool = True

    def __post_init__(self) -> None:
        check_priority(self.priority)
        if self.properties is not None:
            check_properties(self.properties)
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
        """Read keywords; raises ConfigurationError for an unknown one, naming the nearest."""
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
        Return the message with that body, or `body` itself, if it is one.

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
        """What is not in the message itself, as keywords of `MessageProducer.send`."""
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
    Something on a session, made by `open_on`, that all threads share; one that is lost is replaced at its next use.

    The session is on a connection of its own, from `connect`. A thread of its own opens it at the first use, so that
    each caller waits only as long as he wants to. `what` names the call that a signal handler must not make while it is
    going on.
    """

    def __init__(
        self,
        what: str,
        connect: Callable[[], Connection],
        open_on: Callable[[Session], T],
        machine: Machine,
    ) -> None:
        self._what = what
        self._connect = connect
        self._open_on = open_on
        self._machine = machine
        self._guard = NonReentrantLock(what)
        self._shared: _SharedConnection[T] | None = None
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Have the next use open a connection of its own, in the child of a fork."""
        self._guard = NonReentrantLock(self._what)
        self._shared = None

    def opened(self, deadline: float | None = None) -> T:
        """
        Return what `open_on` has made, which is open; raises what opening it raises, in all who wait for that.

        Raises ConnectionFailedError if it is not open at the deadline (seconds, monotonic; None: it has none), and
        IllegalStateError in a signal handler or an observer that interrupts who opens it.
        """
        return self._current().ready(deadline)

    def take(self, ended: list[Connection]) -> None:
        """Leave the connection to whoever ends those, if there is one, also while it is being opened."""
        with self._guard.lock:
            if self._shared is not None:
                ended.append(self._shared.connection)  # first, so that an interrupt loses none
                self._shared = None

    def _current(self) -> _SharedConnection[T]:
        with self._guard():
            shared, lost = self._shared, None
            if shared is None or shared.is_lost:
                lost = shared
                shared = self._shared = _SharedConnection(
                    self._connect(), self._open_on, self._machine
                )
            elif shared.is_opened_here:
                raise reentered(self._what)
            shared.begin()
        if lost is not None:
            lost.connection.abort()
        return shared


class Sender(Shared[MessageProducer]):
    """
    Sends confirmed messages over a connection that `connect` opens; a lost one is replaced at the next send.

    Threads wait side by side, each for its own receipt: a broker that is slow to answer one delays no other.
    """

    def __init__(self, connect: Callable[[], Connection], machine: Machine) -> None:
        super().__init__(_WHAT, connect, lambda session: session.create_producer(), machine)

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """Send one message and wait for the broker's receipt; returns its key. `timeout` is for all of it."""
        timeout: float | None = options.get("timeout")
        if timeout is None:
            return self.opened().send(message, destination=to, **options)
        deadline = self._machine.monotonic() + timeout
        producer = self.opened(deadline)
        # whoever asks how long it was is told what was asked for, if nothing had to be opened
        left = round(deadline - self._machine.monotonic(), 3)
        if left <= 0:
            raise ConnectionFailedError(
                f"the connection was opened too late for a timeout of {timeout:g} s; nothing was sent to {to}"
            )
        return producer.send(message, destination=to, **{**options, "timeout": left})


class _SharedConnection(Generic[T]):
    """One connection, and what is opened on it by a thread of its own; all who wait for that share the outcome."""

    def __init__(
        self, connection: Connection, open_on: Callable[[Session], T], machine: Machine
    ) -> None:
        self.connection = connection
        self._open_on = open_on
        self._machine = machine
        self._lock = mutex()
        self._thread = machine.thread(self._run, "jmsx-open")
        self._done = machine.event()
        self._session: Session | None = None
        self._opener: int | None = None  #: the thread that opens it
        self._opened: T | None = None
        self._error: BaseException | None = None

    @property
    def is_lost(self) -> bool:
        """Whether this connection is of no more use: it could not be opened, or its link is gone for good."""
        return self._error is not None or (
            self._opened is not None
            and self._session is not None
            and link_of(self._session).lost_for_good
        )

    @property
    def is_opened_here(self) -> bool:
        """Whether this thread is opening the connection, and so would wait for itself."""
        return self._opener == threading.get_ident() and not self._done.is_set()

    def begin(self) -> None:
        """
        Start the thread that opens the connection, unless it runs; also where an earlier caller was interrupted.

        Raises ConnectionFailedError where the process gets no thread; the next caller tries again.
        """
        if self._thread.ident is None:
            start_serving(self._thread, repr(self.connection))

    def ready(self, deadline: float | None) -> T:
        """Do as `Shared.opened` does."""
        left = None if deadline is None else max(deadline - self._machine.monotonic(), 0.0)
        if not self._done.wait(left):
            raise ConnectionFailedError(
                f"{self.connection!r} reached no broker in the {round(left or 0.0, 3):g} s of the caller's timeout;"
                " nothing was sent"
            )
        if isinstance(self._error, JmsxError):
            raise afresh(self._error)  # several callers may wait
        if self._error is not None:
            raise self._error
        return self._opened  # type: ignore[return-value]  # without an error it has been set

    def _run(self) -> None:
        with self._lock:
            if self._opener is not None:
                return
            self._opener = threading.get_ident()
        try:
            self._session = self.connection.create_session()
            self._opened = self._open_on(self._session)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self._error = error
            self.connection.abort()
        finally:
            self._done.set()
