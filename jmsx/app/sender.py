"""The app's own session for sending, shared by all threads, opened at first use."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from jmsx.errors import ConnectionFailedError
from jmsx.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.jms.connection import Connection
    from jmsx.jms.destination import Destination
    from jmsx.jms.message import Message
    from jmsx.jms.producer import MessageProducer


class Sender:
    """
    Sends confirmed messages over a connection that `connect` opens; a lost one is replaced at the next send.

    Threads wait side by side, each for its own receipt: a broker that is slow to answer one delays no other.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._line: _Line | None = None
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: the next send opens a connection of its own."""
        self._lock = threading.Lock()
        self._line = None

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """Send one message and wait for the broker's receipt; returns its key."""
        with self._lock:
            line, fresh = self._line, self._line is None
            if line is None:
                line = self._line = _Line(self._connect())
        try:
            if fresh:
                line.open()
            producer = line.producer.result()
        except BaseException:
            self._drop(line)
            raise
        try:
            return producer.send(message, destination=to, **options)
        except ConnectionFailedError:
            self._drop(line)  # the next send opens a new one
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

    def _drop(self, line: _Line) -> None:
        with self._lock:
            if self._line is line:  # not what another thread has put in its place
                self._line = None
        line.connection.abort()

    def _take(self) -> _Line | None:
        with self._lock:
            line, self._line = self._line, None
        return line


class _Line:
    """One connection, and its producer once it is open; who comes while somebody opens it shares the outcome."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.producer: Future[MessageProducer] = Future()

    def open(self) -> None:
        """Open the session."""
        try:
            self.producer.set_result(self.connection.create_session().create_producer())
        except BaseException as error:
            self.producer.set_exception(error)
            raise
