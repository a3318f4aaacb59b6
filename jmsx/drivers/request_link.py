"""
A link beside the session's, whose caller waits for each answer.

What the broker refuses there costs that link alone (STOMP 1.2: ERROR closes the connection), and no thread waits for it
but the caller's.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.requests import barrier
from jmsx.core.wire import EarlierLinks
from jmsx.drivers.epoch import Seal
from jmsx.drivers.link import Arrival, LinkLost
from jmsx.drivers.machine import Machine
from jmsx.drivers.tcp import HELD_BACK
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, JmsxError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Came = TypeVar("Came", Frame, MessageFrame)

#: Seconds that an answer is waited for: a broker whose management has another address is silent.
PATIENCE: Final = 5.0

#: Seconds that connecting may take at most: to know nothing is better than to wait for ever.
LIMIT: Final = 10.0


def bounded(options: ConnectionOptions) -> ConnectionOptions:
    """Return `options` for a link beside the session's: connecting takes no longer than `LIMIT`."""
    return replace(options, connect_timeout=min(options.connect_timeout or LIMIT, LIMIT))


class MisreadError(ConnectionFailedError):
    """It is not certain what a message on this link is, or what settles it; the next link may tell (core/wire.py)."""


class RequestLink:
    """
    Frames and their answers on a link of its own, whose caller waits for each.

    `told` is shared by links that read the same queue one after the other. `patience`: seconds to wait for an answer;
    None: PATIENCE.
    """

    def __init__(
        self,
        address: BrokerAddress,
        options: ConnectionOptions,
        dialect: Dialect,
        machine: Machine,
        told: EarlierLinks | None = None,
        *,
        patience: float | None = None,
    ) -> None:
        self._patience = patience
        self._inbox = machine.inbox(awaited=True)
        #: What has come and was not asked for yet: to wait for a receipt must not lose the messages before it
        self._frames: deque[Frame | MessageFrame] = deque()
        self._messages: deque[Frame | MessageFrame] = deque()
        self._corrects = False  #: the caller takes back the last message if it was not whole
        self._link = machine.link(address, options, self._inbox)
        if told is not None:
            self._link.share(told)
        self._seal = Seal()
        #: The frame, by number, behind which a receipt was asked for last
        self._asked_behind: int | None = None
        self._requests = 0  #: receipts that were asked for
        self._dialect = dialect
        self._machine = machine

    @property
    def broker(self) -> str:
        """The broker's address, as text."""
        return str(self._link.address)

    @property
    def has_messages(self) -> bool:
        """Whether a message has come that nobody has asked for yet."""
        return bool(self._messages)

    def connect(self) -> None:
        """Open the link; raises what `StompLink.open` does."""
        connected = self._link.open(None)
        self._seal.impress(self._link, self._dialect, connected.headers)

    def drop(self) -> None:
        """Close the socket."""
        self._link.drop()

    def request(self, frame: Frame, subject: str) -> None:
        """Send a frame, and wait for its receipt; raises as `shown`."""
        self.request_all([frame], subject)

    def request_all(self, frames: Sequence[Frame], subject: str) -> None:
        """Send frames at once, and wait for the receipts of all; raises as `shown` for the first that has none."""
        asked = []
        for frame in frames:
            self._requests += 1
            headers = {**frame.headers, "receipt": str(self._requests)}
            asked.append(Frame(frame.command, headers, frame.body))
        self.send(*asked)
        for frame in asked:
            self._next(Frame, ("receipt-id", frame.headers["receipt"]), frame.command, subject)

    def end(self) -> None:
        """Say DISCONNECT, so that the broker does not log a lost connection."""
        with contextlib.suppress(JmsxError):  # we have what we wanted
            self.request(Frame("DISCONNECT", {}), self.broker)

    def send(self, *frames: Frame) -> None:
        """Write frames; raises ConnectionFailedError."""
        try:
            self._link.send(b"".join(self._seal.put_on(frame).encode() for frame in frames))
        except OSError as error:
            raise ConnectionFailedError(
                f"the connection to {self._link.address} is gone: {error}"
            ) from error

    def shown(self, subscription_id: str, command: str, subject: str) -> MessageFrame:
        """
        Return the next message of a subscription, the answer to `command`.

        Raises BrokerTimeoutError, ConnectionFailedError or the broker's error.
        """
        return self._next(MessageFrame, ("subscription", subscription_id), command, subject)

    def message(self, subject: str, *, settles: bool = False) -> MessageFrame:
        """
        Return the next message of any subscription to `subject`; `settles`: the caller acknowledges it.

        Raises as `shown`, and, if it `settles`, MisreadError where it is not certain which `ack` is the message's.
        """
        frame = self._next(MessageFrame, None, "SUBSCRIBE", subject)
        if settles and frame.unsure:
            raise MisreadError(f"nobody knows yet what settles the first message of {subject}")
        return frame

    def messages(
        self, subject: str, ends: Callable[[Mapping[str, str]], bool]
    ) -> Iterator[MessageFrame]:
        """
        Yield the messages of any subscription to `subject` up to the one whose headers end them; raises as `shown`.

        Each is yielded when the next one has come, which shows that it was whole: a sender can write into a body what
        looks like its end. If it was not whole, it is yielded as broken.
        """
        self._corrects = True
        last: MessageFrame | None = None
        while True:
            frame = self._next(MessageFrame, None, "SUBSCRIBE", subject)
            if last is not None and not frame.late:
                yield last
            if ends(frame.headers):
                return
            last = frame

    def _next(
        self, kind: type[Came], header: tuple[str, str] | None, command: str, subject: str
    ) -> Came:
        """Return the next frame of the kind that has the header; those of the kind before it are dropped."""
        broker = self.broker
        patience = PATIENCE if self._patience is None else self._patience
        deadline = self._machine.monotonic() + patience
        came = self._messages if kind is MessageFrame else self._frames
        while True:
            while came:
                frame = came.popleft()
                self._check(frame, command, subject)
                if isinstance(frame, kind):
                    legible = _legible(frame)
                    if header is None or header in legible.headers.items():
                        return legible
            for frame in self._frames:  # behind the messages that came before it
                self._check(frame, command, subject)
            try:
                arrived = self._inbox.get(timeout=max(deadline - self._machine.monotonic(), 0))
            except queue.Empty:
                break
            self._take([] if arrived is None else arrived[1], f"at {command} {subject}")
            self._ask_behind(self._link.unclear)
        why = f"; {HELD_BACK}" if command == "SEND" else ""
        raise BrokerTimeoutError(
            f"{broker} did not answer {command} {subject} in {patience:g} s{why}"
        )

    def _ask_behind(self, frame: int | None) -> None:
        """Ask for an answer behind the frame of this number, if there is one, for only that shows where it ends."""
        if frame is not None and frame != self._asked_behind:
            self._asked_behind = frame
            self.send(*barrier("whole"))

    def _take(self, arrival: Arrival, when: str) -> None:
        """Keep what has come; raises an error at the link's end, and if a message was not whole (core/wire.py)."""
        if isinstance(arrival, LinkLost):
            kind = MisreadError if arrival.reason == "protocol" else ConnectionFailedError
            raise kind(f"{self.broker} closed the connection {when}: {arrival.detail}")
        for one in arrival:
            if isinstance(one, Frame):
                self._frames.append(one)
            elif one.late and self._messages:  # the last of them, which nobody has got
                self._messages[-1] = one
                one.late = False
            elif one.late and not self._corrects:
                raise MisreadError(f"{when}: a message that seemed whole is not")
            else:
                self._messages.append(one)

    def _check(self, frame: Frame | MessageFrame, command: str, subject: str) -> None:
        """Raise what the broker says, if it is an ERROR."""
        if isinstance(frame, Frame) and frame.command == "ERROR":
            raise self._dialect.reading.error(command, subject, frame, self.broker)


def _legible(frame: Came) -> Came:
    """Return the bare frame of a message that cannot be understood: its sender must not keep others from an answer."""
    if isinstance(frame, Frame):
        return frame
    try:
        if not frame.broken and frame.headers:
            return frame
    except ProtocolError:
        pass
    return frame.bare()
