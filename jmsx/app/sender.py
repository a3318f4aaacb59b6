"""
Sending for an application: the options of one message, and the session by which all threads send.

The session is opened at its first use. In a transacted handler of the app, the handler's session sends instead.
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

#: The call that a signal handler must not make while it interrupts another one; for the error.
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
    The options for sending one message; durations are seconds, a timedelta, or a text such as "2s".

    Raises ConfigurationError for options that make no sense.

    Args:
        properties: the application's properties, by name; None: none.
        delay: how long the broker waits before it delivers the message; None: not at all.
        expires: the time to live, counted from now; None: it never expires.
        priority: from 0 to 9 (the highest); 4.
        persistent: whether the message survives a restart of the broker; True.
        group: JMSXGroupID: messages with the same id go to the same consumer, in order; None: it is in no group.
        correlation_id: JMSCorrelationID, the id of a related message, such as the request it answers; None: none.
        reply_to: JMSReplyTo, the destination where an answer is expected; None: none is expected.
        dedupe_id: the broker drops a second message with this id (Artemis only); None: no duplicate detection.
        timeout: how long to wait for the connection and the broker's confirmation; None: `request_timeout` for that.
        confirm: whether to wait for the broker's confirmation; True. Without it the message may be lost with the link,
            or if the program ends without `app.stop()`, and a refusal is only logged.

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
        """Return a Sending with these keywords; raises ConfigurationError for an unknown one, naming the nearest."""
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
        Return a message with that body, or `body` itself if it is a Message.

        Raises MessageFormatError for a body that JSON cannot express; ConfigurationError if destination and body are in
        the wrong order, or if an option is given that the Message has a field for.
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
        """The options that are not fields of the message, as keywords of `MessageProducer.send`."""
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
    An object on a session, such as a producer, that all threads share; after a lost link the next use makes a new one.

    `open_on` makes the object on a session of a connection of its own, from `connect`. A separate thread opens them at
    the first use, so that each caller waits only as long as its own deadline allows. `what` names the call that a
    signal handler must not make while it interrupts another one.
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
        """In the child of a fork, let the next use open a new connection, for the present one is the parent's."""
        self._guard = NonReentrantLock(self._what)
        self._shared = None

    def opened(self, deadline: float | None = None) -> T:
        """
        Return the open object that `open_on` made; raises what opening it raises, in every thread that waits for it.

        Raises ConnectionFailedError if it is not open at the deadline (seconds, monotonic; None: no deadline), and
        IllegalStateError if a signal handler or an observer calls this inside another call of it.
        """
        return self._current().ready(deadline)

    def take(self, ended: list[Connection]) -> None:
        """Move the connection, if there is one, to `ended`, whose owner closes it; even while it is being opened."""
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
    Sends confirmed messages over a connection that `connect` opens; a lost connection is replaced at the next send.

    Each thread waits for its own receipt: if the broker is slow to confirm one message, others are not delayed.
    """

    def __init__(self, connect: Callable[[], Connection], machine: Machine) -> None:
        super().__init__(_WHAT, connect, lambda session: session.create_producer(), machine)

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """Send one message, wait for the broker's receipt, and return its key; `timeout` covers all of that."""
        timeout: float | None = options.get("timeout")
        if timeout is None:
            return self.opened().send(message, destination=to, **options)
        deadline = self._machine.monotonic() + timeout
        producer = self.opened(deadline)
        # rounded, so that errors show the timeout as it was given, if nothing had to be opened
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
