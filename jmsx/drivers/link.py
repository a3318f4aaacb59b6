"""One socket to one broker: opened with a deadline, read by stomp.py's thread, which only passes frames on."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from stomp.listener import ConnectionListener

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.frames import Frame, MessageFrame, escape
from jmsx.core.heartbeat import header
from jmsx.core.wire import EarlierLinks, RawHeads
from jmsx.drivers.changed import Event
from jmsx.drivers.connect import connect
from jmsx.drivers.threads import no_thread
from jmsx.drivers.transport import DriverConnection, DriverTransport, Stream
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    InvalidClientIdError,
    JmsxError,
    ProtocolError,
    SecurityError,
    TlsError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Characters kept of each header and of the body of an ERROR: it goes into errors, logs and events.
_ERROR_LIMIT: Final = 16 * 1024

#: Seconds that a broker which has said ERROR is given to close the socket before we do.
_YIELD: Final = 1.0

#: Seconds that a broker is given at least to close the socket, where it is given any.
_SOON: Final = 0.01

#: Characters of a password from which on it is hidden in the broker's texts; a shorter one would be found in any word.
_SECRET: Final = 4


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The socket is gone; `detail` is the cause as far as it is known."""

    detail: str
    reason: str = "io"  #: or `protocol`: what came was no STOMP, or beyond the limits


#: What a link hands over: a chunk's frames, or its end.
Arrival = list[Frame | MessageFrame] | LinkLost


#: How a user gives credentials.
_CREDENTIALS: Final = "username=... and password=..., or stomp://USER:PASSWORD@HOST"


class StompLink(ConnectionListener):  # type: ignore[misc]  # stomp.py ships no types
    """
    One STOMP connection; a lost one is never used again.

    Its listener methods run on stomp.py's thread: they put into a queue, and nothing else.
    """

    in_memory = False  #: True: the broker is in this process, and there are neither heart-beats nor half frames

    def __init__(
        self,
        address: BrokerAddress,
        options: ConnectionOptions,
        inbox: Inbox,
    ) -> None:
        self.address = address
        self.heard_at = 0.0  #: seconds, monotonic, of the last bytes that came in
        self.silence = math.inf  #: seconds without any after which the broker is as good as dead
        self.awaited: Callable[[], bool] = lambda: False  #: whether the broker has yet to answer
        self._options = options
        self._login: tuple[str | None, str | None] = (None, None)  #: user and password
        self._inbox = inbox
        self._answered = Event()
        #: When the broker must have answered CONNECT (seconds, monotonic).
        self._let_in_by = math.inf
        self._asked = False  #: CONNECT may have been written
        self._connected: Frame | None = None
        self._refusal: str | None = None
        self.condemned = False  #: the broker has said ERROR
        self._dropped = False
        self._transport = DriverTransport(
            (address.host, address.port),
            self._connect,
            self._hand_over,
            options.max_body_size,
        )
        self._transport.touched = self._touch

    def open(self, client_id: str | None) -> Frame:
        """
        Connect; returns CONNECTED. TCP, TLS and CONNECT together may take `connect_timeout`.

        Raises ConnectionFailedError, TlsError, BrokerTimeoutError, SecurityError, InvalidClientIdError or
        ConfigurationError, with the socket closed.
        """
        self._login = self._log_in()
        try:
            self._say_connect(client_id)
            return self._await_connected(client_id)
        except BaseException:
            self.drop()
            raise

    @property
    def unheard(self) -> bool:
        """Whether CONNECT may have been written, and was neither accepted nor refused as far as we know."""
        return self._asked and self._connected is None and self._refusal is None

    def send(self, data: bytes) -> None:
        """Write bytes; raises OSError if the socket is gone. One caller at a time."""
        self._transport.send(data)

    @property
    def came_in(self) -> tuple[int, int]:
        """Frames and bytes that the broker has sent, heart-beats among the bytes."""
        return self._transport.frames_in, self._transport.bytes_in

    def writer(self) -> Callable[[bytes], None]:
        """Return a function that does as `send` on the present connection; it raises OSError once that is gone."""
        stream: Stream | None = self._transport.socket
        return self.send if stream is None else stream.send

    @contextlib.contextmanager
    def hurried(self, seconds: float) -> Iterator[None]:
        """
        In the block, end a write, and with it the link, when the broker takes no byte of it for `seconds`.

        The limit that every write has still holds, if it is shorter.
        """
        stream: Stream | None = self._transport.socket
        try:
            if stream is not None:
                stream.patience = seconds
            yield
        finally:
            if stream is not None:
                stream.patience = math.inf

    def written(self, data: bytes) -> int:
        """Return how many bytes of `data` the last `send`, perhaps interrupted, wrote."""
        return self._transport.written(data)

    @property
    def unread(self) -> bool:
        """Whether bytes have come that are not handed over yet."""
        return self._transport.unread

    def expect(self, mark: bytes, heads: RawHeads, *, origin: str) -> None:
        """
        Expect `mark` in the head of every MESSAGE and RECEIPT, from the next frame on, and remove it.

        `heads`: how the broker writes heads. `origin`: how the ids begin by which it numbers messages.
        """
        self._transport.splitter.heads = heads
        self._transport.splitter.mark = mark
        self._transport.splitter.origin = escape(origin).encode()

    def settle_nothing(self, subscription_id: str) -> None:
        """Expect no `ack` header in the messages of this subscription: the broker acknowledges them by itself."""
        self._transport.splitter.unnumbered.add(f"subscription:{escape(subscription_id)}".encode())

    def share(self, told: EarlierLinks) -> None:
        """Share `told` with the session's other links: what one learns of its broker, the next ones go by."""
        self._transport.splitter.share(told)

    @property
    def incomplete(self) -> tuple[int, int] | None:
        """Which frame has begun to come in, by number, and how many bytes of it have come; None: none has."""
        return self._transport.splitter.incomplete

    @property
    def unclear(self) -> int | None:
        """Which frame, by number, shows its end only when the broker says something more; None: none does."""
        return self._transport.splitter.unclear

    def describe_incomplete(self) -> str:
        """Say in words which frame has begun to come in, for a log line or an error."""
        return self._told(self._transport.splitter.describe())

    def drop(self, *, at_once: bool = False) -> None:
        """
        Close the socket without DISCONNECT; ends a waiting `open` too.

        A broker that has said ERROR, and so closes the connection, is left to do so first, unless `at_once`. Source:
        two threads of Artemis 2.44.0 lock each other out for ever, and with them all who come later, if a client closes
        while `StompFrameHandlerV11.replySent` does (thread dump: `StompConnection.destroy` against `.fail`).
        """
        self._dropped = True
        self.hang_up(at_once=at_once)
        self._transport.forget()
        self._answered.set()

    def end_within(self, seconds: float) -> None:
        """Close the link as `hang_up` does if the broker has not in so many seconds; a write that waits then ends."""
        self._transport.drop(after=max(seconds, _SOON))

    def hang_up(self, *, at_once: bool = False) -> None:
        """Close the link as `drop` does, but hand over what has come, and then the end."""
        self._transport.drop(after=_YIELD if self.condemned and not at_once else 0.0)

    def _log_in(self) -> tuple[str | None, str | None]:
        try:
            return self._options.login()
        except ConfigurationError as error:
            raise ConfigurationError(f"cannot connect to {self.address}: {error}") from error
        except Exception as error:
            raise ConnectionFailedError(
                f"cannot connect to {self.address}: credentials raised {type(error).__name__}: {error}"
            ) from error

    def _say_connect(self, client_id: str | None) -> None:
        connection = DriverConnection(self._transport)
        connection.set_listener("jmsx", self)
        headers = {"heart-beat": header(self._options.heartbeat)}
        if client_id is not None:
            headers["client-id"] = client_id
        try:
            connection.connect(
                *self._login,
                wait=False,
                headers=headers,
                with_connect_command=True,
            )
        except RuntimeError as error:  # the reader did not start, and nothing was written
            self._asked = False
            self._transport.close()
            raise no_thread(str(self.address), error) from error
        except OSError:  # CONNECT could not be written
            pass  # the reader finds out why

    def _await_connected(self, client_id: str | None) -> Frame:
        if not self._answered.wait(self._let_in_by - time.monotonic()):
            other = "" if self.address.tls else ", or one of TLS, which is written stomp+ssl://"
            raise BrokerTimeoutError(
                f"{self.address} accepted the connection but did not answer CONNECT"
                f" in {self._options.connect_timeout:g} s; is it a STOMP port{other}?"
            )
        if self._connected is None:
            raise self._refused(client_id)
        return self._connected

    def _connect(self) -> Stream:
        try:
            stream = connect(
                self.address, self._options, self._silent, self._awaits, lambda: self._dropped
            )
        except (TlsError, ConfigurationError) as error:  # a file may have gone since it was checked
            raise TlsError(f"cannot connect to {self.address}: {error}") from error
        except ConnectionRefusedError as error:
            usual = 61614 if self.address.tls else 61613
            raise ConnectionFailedError(
                f"cannot connect to {self.address}: {error}; is the broker up, and is that its STOMP port,"
                f" usually {usual}?"
            ) from error
        except OSError as error:
            if self._dropped:
                raise given_up(self.address) from error
            raise ConnectionFailedError(f"cannot connect to {self.address}: {error}") from error
        self._let_in_by = stream.let_in_by
        self._asked = True
        return stream

    # On stomp.py's thread --------------------------------------------------------------------------------------------

    def on_disconnected(self) -> None:
        """Note that the socket is gone; stomp.py may tell it twice, or before CONNECTED."""
        reason = "protocol" if isinstance(self._transport.cause, ProtocolError) else "io"
        self._inbox.put((self, LinkLost(self._end(), reason)))
        self._answered.set()

    def _hand_over(self, frames: list[Frame | MessageFrame]) -> None:
        """Pass a chunk's frames on; raises ProtocolError on one that has no place here."""
        if self._dropped:
            return
        if self._connected is None:
            if self._refusal is not None:
                return
            self._take_answer(frames.pop(0))
        for position, frame in enumerate(frames):
            if isinstance(frame, Frame) and frame.command != "RECEIPT":
                if frame.command == "CONNECTED":
                    self._inbox.put((self, frames[:position]))  # those before it are valid
                    raise ProtocolError("the broker said CONNECTED a second time")
                frames[position] = self._legible(frame)
        if frames:
            self._inbox.put((self, frames))
        elif self.unclear is not None:
            self._inbox.put(None)

    def _take_answer(self, frame: Frame | MessageFrame) -> None:
        """Take the first frame: CONNECTED, or an ERROR that says why not."""
        if isinstance(frame, MessageFrame) or frame.command == "RECEIPT":
            raise ProtocolError(f"the broker said {frame.command} before CONNECTED")
        if frame.command == "CONNECTED":
            _check_version(frame.headers.get("version", "1.0"))
            self._connected = frame
        else:
            error = self._legible(frame)
            told = error.headers.get("message") or error.body.decode("utf-8", "replace")
            self._refusal = told or "no reason given"
        self._answered.set()

    def _touch(self) -> None:
        self.heard_at = time.monotonic()

    def _silent(self) -> bool:
        return time.monotonic() - self.heard_at > self.silence

    def _awaits(self) -> bool:
        return self.awaited()

    # Texts -----------------------------------------------------------------------------------------------------------

    def _legible(self, error: Frame) -> Frame:
        """Return an ERROR with its texts cut to a limit, and without our password, should the broker repeat it."""
        self.condemned = True
        headers = {name: self._told(value) for name, value in error.headers.items()}
        body = self._told(error.body[:_ERROR_LIMIT].decode("utf-8", "replace"))
        return Frame("ERROR", headers, body.encode())

    def _told(self, text: str) -> str:
        password = self._login[1] or ""
        hidden = text.replace(password, "***") if len(password) >= _SECRET else text
        return hidden[:_ERROR_LIMIT]

    def _end(self) -> str:
        cause = self._transport.cause
        if cause is not None:
            return self._told(str(cause)) or type(cause).__name__
        return "the broker closed the connection"

    def _refused(self, client_id: str | None) -> JmsxError:
        text = self._refusal
        if text is None:
            return self._unanswered(self._transport.cause)
        if "already connected" in text or "InvalidClientID" in text:
            return InvalidClientIdError(
                f"{self.address} refused client id {client_id!r}: {text}. Another connection uses it."
            )
        if "User name" in text or "SecurityException" in text or "credentials" in text.lower():
            missing = "" if self._login[0] else f"; none were given: {_CREDENTIALS}"
            return SecurityError(f"{self.address} refused the credentials: {text}{missing}")
        return ConnectionFailedError(f"{self.address} refused the connection: {text}")

    def _unanswered(self, cause: Exception | None) -> JmsxError:
        if isinstance(cause, TlsError):
            return TlsError(f"cannot connect to {self.address}: {cause}")
        if self._dropped:
            return given_up(self.address)
        if isinstance(cause, ProtocolError):
            return ConnectionFailedError(
                f"{self.address} did not answer CONNECT as STOMP 1.2 says: {self._end()}"
            )
        hint = ""
        if cause is None or isinstance(cause, OSError):
            hint = (
                "; does the broker want a client certificate (certificate_file)?"
                if self.address.tls
                else "; is it a port of TLS, which is written stomp+ssl://, or did it refuse the credentials"
                " or the client id without a word, which its log tells?"
            )
        return ConnectionFailedError(f"{self.address} did not answer CONNECT: {self._end()}{hint}")


def given_up(address: BrokerAddress) -> ConnectionFailedError:
    """Return the error of an attempt to connect that was given up."""
    return ConnectionFailedError(
        f"connecting to {address} was given up, because the session is being closed"
    )


def _check_version(version: str) -> None:
    if version != "1.2":
        raise ProtocolError(f"the broker speaks STOMP {version[:10]!r}, and jmsx needs 1.2")


#: The queue into which links put what has come; None only wakes the reader.
Inbox = SimpleQueue[tuple[StompLink, Arrival] | None]
