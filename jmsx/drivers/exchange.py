"""
Questions to a broker's management, on a link of their own.

Not on the session's: whatever the broker refuses there costs the link, and with it all that the session has in hand
(STOMP 1.2: ERROR closes the connection). The link lives as long as the inquiry, and no thread waits for it but the
caller's.
"""

from __future__ import annotations

import contextlib
import queue
import uuid
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.management import Inquiry, Management, Question
from jmsx.core.requests import silent
from jmsx.core.wire import Told
from jmsx.drivers.epoch import Seal
from jmsx.drivers.link import Arrival, LinkLost
from jmsx.drivers.machine import Machine
from jmsx.errors import (
    BrokerError,
    BrokerTimeoutError,
    ConnectionFailedError,
    JmsxError,
    LinkError,
    ProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")
Came = TypeVar("Came", Frame, MessageFrame)

#: Seconds that an answer is waited for: a broker whose management has another address is silent.
PATIENCE: Final = 5.0

#: Seconds that connecting may take at most: it is no worse to know nothing than to wait for ever.
LIMIT: Final = 10.0


def bounded(options: ConnectionOptions) -> ConnectionOptions:
    """Return `options` for a link beside the session's: connecting takes no longer than `LIMIT`."""
    return replace(options, connect_timeout=min(options.connect_timeout or LIMIT, LIMIT))


class CannotAskError(Exception):
    """
    The broker cannot, or may not, be asked; `cause` says why.

    `reached`: it is there. `cut`: the link was lost under a question, which says nothing of what it would answer.
    """

    def __init__(self, cause: JmsxError, *, reached: bool = True) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.cut = reached and isinstance(cause, LinkError)
        self.reached = reached and not self.cut


class Exchange:
    """Asks one broker questions of management, each inquiry on a STOMP link of its own."""

    def __init__(
        self, address: BrokerAddress, options: ConnectionOptions, machine: Machine
    ) -> None:
        self._address = address
        self._options = bounded(options)
        self._machine = machine

    def conduct(self, dialect: Dialect, management: Management, inquiry: Inquiry[T]) -> T:
        """
        What the inquiry comes to; raises what it raises, and CannotAskError if the broker cannot be asked.

        Takes at most `connect_timeout` or LIMIT, and PATIENCE for each answer.
        """
        conversation = _Conversation(
            self._address, self._options, dialect, management, self._machine
        )
        try:
            self._begin(conversation)
            result = _conduct(inquiry, conversation)
            conversation.end()
            return result
        finally:
            conversation.drop()

    def _begin(self, conversation: _Conversation) -> None:
        try:
            conversation.connect()
        except (LinkError, BrokerTimeoutError) as error:
            raise CannotAskError(error, reached=False) from error
        except JmsxError as error:
            raise CannotAskError(error) from error
        try:
            conversation.listen()
        except JmsxError as error:
            raise CannotAskError(error) from error


class MisreadError(ConnectionFailedError):
    """Nobody knows what a message on this link is, or what settles it; the next link may tell (core/wire.py)."""


class Talk:
    """
    Frames and their answers on a link of its own, whose caller waits for each.

    `told` is shared by the links on which one after the other reads the same queue.
    """

    def __init__(
        self,
        address: BrokerAddress,
        options: ConnectionOptions,
        dialect: Dialect,
        machine: Machine,
        told: Told | None = None,
    ) -> None:
        self._inbox = machine.inbox(awaited=True)
        #: What nobody has asked for yet; a receipt that is awaited must not cost the messages before it
        self._frames: deque[Frame | MessageFrame] = deque()
        self._messages: deque[Frame | MessageFrame] = deque()
        self._corrects = False  #: the caller takes back the last message if it was not whole
        self._link = machine.link(address, options, self._inbox)
        if told is not None:
            self._link.share(told)
        self._seal = Seal()
        self._requests = 0  #: receipts that were asked for
        self._dialect = dialect
        self._machine = machine

    @property
    def broker(self) -> str:
        """The broker's address, as text."""
        return str(self._link.address)

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
        The next message of a subscription, which `command` is answered with.

        Raises BrokerTimeoutError, ConnectionFailedError or the broker's error.
        """
        return self._next(MessageFrame, ("subscription", subscription_id), command, subject)

    def message(self, subject: str, *, settles: bool = False) -> MessageFrame:
        """
        The next message of any subscription to `subject`, which the caller acknowledges if he `settles`.

        Raises as `shown`, and MisreadError where it is not known by what.
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

        Each is told when the next one has come, which shows that it was whole: a sender can write into a body what
        looks like its end. If it was not, it is told as broken.
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
        """The next frame of the kind that has the header; those of the kind before it answer nobody any more."""
        broker = self.broker
        deadline = self._machine.monotonic() + PATIENCE
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
        raise BrokerTimeoutError(f"{broker} did not answer {command} {subject} in {PATIENCE:g} s")

    def _take(self, arrival: Arrival, when: str) -> None:
        """Keep what has come; raises what the end of the link means, or a message that goes on (core/wire.py)."""
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


class _Conversation(Talk):
    """One question after the other on one link."""

    def __init__(
        self,
        address: BrokerAddress,
        options: ConnectionOptions,
        dialect: Dialect,
        management: Management,
        machine: Machine,
    ) -> None:
        super().__init__(address, options, dialect, machine)
        self._management = management
        self._answers = f"jmsx.answers.{uuid.uuid4().hex}"

    def listen(self) -> None:
        """Make a place for the answers."""
        self.request(self._management.listen(self._answers), self._answers)

    def ask(self, question: Question | Frame) -> Any:
        """What the broker told to it; nothing, where it was to take a frame."""
        if isinstance(question, Frame):
            return self.request(question, self._answers)
        self.send(self._management.ask(question, self._answers))
        answer = self.shown(self._answers, "SEND", question.operation)
        return self._management.told(question, answer)


def _legible(frame: Came) -> Came:
    """The bare frame of a message that cannot be understood: whoever sent it must not keep others from an answer."""
    if isinstance(frame, Frame):
        return frame
    try:
        if not frame.broken and frame.headers:
            return frame
    except ProtocolError:
        pass
    return frame.bare()


def _conduct(inquiry: Inquiry[T], conversation: _Conversation) -> T:
    """
    Ask what the inquiry wants to know; an error that it does not take for an answer ends it.

    So does an answer that it cannot read: other versions of a broker tell other things, and a broker may lie. And one
    that did not come: if it came later, it would be taken for that to the next question.
    """
    try:
        return _converse(inquiry, conversation)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        odd = f"{conversation.broker} told what cannot be read ({type(error).__name__}: {error})"
        raise CannotAskError(BrokerError(odd)) from error


def _converse(inquiry: Inquiry[T], conversation: _Conversation) -> T:
    try:
        question = next(inquiry)
        while True:
            try:
                told = conversation.ask(question)
            except JmsxError as error:
                if silent(error):
                    raise CannotAskError(error) from error
                question = _refuse(inquiry, error)
            else:
                question = inquiry.send(told)
    except StopIteration as end:
        result: T = end.value
        return result


def _refuse(inquiry: Inquiry[T], error: JmsxError) -> Question | Frame:
    """The next question after one that was not answered."""
    try:
        return inquiry.throw(error)
    except JmsxError as raised:
        if raised is error:
            raise CannotAskError(error) from error
        raise
