"""One socket to one broker: opened with a deadline, read by stomp.py's thread, which only hands over."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from stomp.listener import ConnectionListener

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.heartbeat import header
from jmsx.drivers.transport import DriverConnection, DriverTransport
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    InvalidClientIdError,
    JmsxError,
    SecurityError,
)

if TYPE_CHECKING:
    from jmsx.options import ConnectionOptions
    from jmsx.uri import BrokerAddress


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The socket is gone; `detail` is the cause as far as it is known."""

    detail: str


#: What a link hands over: a chunk's messages, one other frame, or its end.
Arrival = list[MessageFrame] | Frame | LinkLost


class StompLink(ConnectionListener):  # type: ignore[misc]  # stomp.py ships no types
    """
    One STOMP connection; a lost one is never used again.

    Its listener methods run on stomp.py's thread and must not raise: they put into a queue, and nothing else.
    """

    def __init__(
        self,
        address: BrokerAddress,
        options: ConnectionOptions,
        inbox: Inbox,
    ) -> None:
        self.address = address
        self.heard_at = 0.0  #: seconds, monotonic, of the last bytes that came in
        self._options = options
        self._inbox = inbox
        self._answered = threading.Event()
        self._connected: Frame | None = None
        self._refusal = ""
        self._transport = DriverTransport(
            (address.host, address.port),
            timeout=options.connect_timeout,
            write_timeout=options.request_timeout,
            sink=self._hand_over,
        )
        self._transport.touched = self._touch

    def open(self, client_id: str | None) -> Frame:
        """
        Connect; returns CONNECTED.

        Raises ConnectionFailedError, BrokerTimeoutError, SecurityError or InvalidClientIdError, with the socket closed.
        """
        options = self._options
        connection = DriverConnection(self._transport)
        connection.set_listener("jmsx", self)
        headers = {"heart-beat": header(options.heartbeat)}
        if client_id is not None:
            headers["client-id"] = client_id
        try:
            connection.connect(
                options.username,
                options.password,
                wait=False,
                headers=headers,
                with_connect_command=True,
            )
        except OSError as error:
            raise ConnectionFailedError(f"cannot connect to {self.address}: {error}") from error
        if not self._answered.wait(options.connect_timeout):
            self.drop()
            raise BrokerTimeoutError(
                f"{self.address} accepted the connection but did not answer CONNECT"
                f" in {options.connect_timeout:g} s; is it a STOMP port?"
            )
        if self._connected is None:
            self.drop()
            raise self._refused(client_id)
        return self._connected

    def send(self, data: bytes) -> None:
        """Write bytes; raises OSError if the socket is gone. One caller at a time."""
        self._transport.send(data)

    def drop(self) -> None:
        """Close the socket without farewell."""
        self._transport.drop()

    # stomp.py's listener ---------------------------------------------------------------------------------------------

    def on_connected(self, frame: Any) -> None:
        """CONNECTED has come."""
        self._connected = Frame("CONNECTED", dict(frame.headers))
        self._answered.set()

    def on_receipt(self, frame: Any) -> None:
        """RECEIPT has come."""
        self._inbox.put((self, Frame("RECEIPT", dict(frame.headers))))

    def on_error(self, frame: Any) -> None:
        """ERROR has come: as an answer to CONNECT, or to something later."""
        error = Frame("ERROR", dict(frame.headers), _bytes(frame.body))
        if self._connected is None:
            self._refusal = error.headers.get("message") or error.body.decode("utf-8", "replace")
            self._answered.set()
        else:
            self._inbox.put((self, error))

    def on_disconnected(self) -> None:
        """The socket is gone; this may be told twice, or before CONNECTED."""
        self._inbox.put((self, LinkLost(self._transport.failure or "connection closed")))
        self._answered.set()

    def _hand_over(self, messages: list[MessageFrame]) -> None:
        self._inbox.put((self, messages))

    def _touch(self) -> None:
        self.heard_at = time.monotonic()

    def _refused(self, client_id: str | None) -> JmsxError:
        text = self._refusal or self._transport.failure or "no reason given"
        if "already connected" in text or "InvalidClientID" in text:
            return InvalidClientIdError(
                f"{self.address} refused client id {client_id!r}: {text}. Another connection uses it."
            )
        if "User name" in text or "SecurityException" in text or "credentials" in text.lower():
            return SecurityError(f"{self.address} refused the credentials: {text}")
        return ConnectionFailedError(f"{self.address} refused the connection: {text}")


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body or "").encode()


#: Where links hand over; None only wakes the reader.
Inbox = SimpleQueue[tuple[StompLink, Arrival] | None]
