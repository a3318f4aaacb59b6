"""The app's own session for sending, shared by all threads, opened at first use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from jmsx.errors import ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.jms.connection import Connection
    from jmsx.jms.destination import Destination
    from jmsx.jms.message import Message
    from jmsx.jms.producer import MessageProducer


class Sender:
    """Sends confirmed messages over a connection that `connect` opens; a lost one is replaced at the next send."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._producer: MessageProducer | None = None

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """Send one message and wait for the broker's receipt; returns its key."""
        with self._lock:
            try:
                producer = self._producer or self._open()
                return producer.send(message, destination=to, **options)
            except ConnectionFailedError:
                self.abort()  # the next send opens a new one
                raise

    def close(self) -> None:
        """Close the connection in good order, if there is one."""
        connection = self._take()
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """Drop the connection, if there is one."""
        connection = self._take()
        if connection is not None:
            connection.abort()

    def _open(self) -> MessageProducer:
        connection = self._connection = self._connect()  # known at once, so that it can be aborted
        try:
            self._producer = connection.create_session().create_producer()
        except BaseException:
            self.abort()
            raise
        return self._producer

    def _take(self) -> Connection | None:
        connection, self._connection, self._producer = self._connection, None, None
        return connection
