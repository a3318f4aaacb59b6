"""The app's own session for sending, shared by all threads, opened at first use."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from jmsx.drivers.locks import Alone, reentered
from jmsx.drivers.process import tell_of_forks
from jmsx.errors import ConnectionFailedError, LinkError, SendUnconfirmedError
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message
from jmsx.jms.producer import MessageProducer

if TYPE_CHECKING:
    from collections.abc import Callable


#: What a signal handler must not call in the middle of it.
_WHAT: Final = "app.send()"


class Sender:
    """
    Sends confirmed messages over a connection that `connect` opens; a lost one is replaced at the next send.

    Threads wait side by side, each for its own receipt: a broker that is slow to answer one delays no other.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._alone = Alone(_WHAT)
        self._line: _Line | None = None
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: the next send opens a connection of its own."""
        self._alone = Alone(_WHAT)
        self._line = None

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """
        Send one message and wait for the broker's receipt; returns its key.

        Raises IllegalStateError in a signal handler that interrupts a send which opens the connection.
        """
        line = None
        try:
            line = self._current()
            producer = line.ready()
        except BaseException:
            if line is not None:
                self._drop(line)
            raise
        try:
            return producer.send(message, destination=to, **options)
        except (LinkError, SendUnconfirmedError):
            self._drop(line)  # the next send opens a new one
            raise

    def _current(self) -> _Line:
        with self._alone():
            line = self._line
            if line is None:
                line = self._line = _Line(self._connect())
            elif line.is_opened_here():
                raise reentered(_WHAT)
            return line

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

    def _drop(self, line: _Line) -> None:
        with self._alone.lock:
            if self._line is line:  # not what another thread has put in its place
                self._line = None
        line.drop()

    def _take(self) -> _Line | None:
        with self._alone.lock:
            line, self._line = self._line, None
        return line


class _Line:
    """One connection, and its producer once it is open; who comes while somebody opens it shares the outcome."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._producer: Future[MessageProducer] = Future()
        self._lock = threading.RLock()
        self._opener: int | None = None  #: the thread that opens it

    def is_opened_here(self) -> bool:
        """Whether this thread is at it, and so would wait for itself."""
        return self._opener == threading.get_ident() and not self._producer.done()

    def ready(self) -> MessageProducer:
        """Its producer; who comes first opens it, and others wait for that."""
        with self._lock:
            first = self._opener is None
            if first:
                self._opener = threading.get_ident()
        if first:
            try:
                self._producer.set_result(self.connection.create_session().create_producer())
            except BaseException as error:
                self._fail(error)
                raise
        return self._producer.result()

    def drop(self) -> None:
        """It is of no more use, also if this thread was interrupted before it could open it."""
        if self.is_opened_here():
            self._fail(ConnectionFailedError("opening the connection was interrupted"))
        self.connection.abort()

    def _fail(self, error: BaseException) -> None:
        if not self._producer.done():
            self._producer.set_exception(error)
