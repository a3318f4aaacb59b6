"""
STOMP 1.2 frames: values, their bytes on the wire, and the outbox from which the driver writes them.

Frames that we send are `Frame`. Frames that come in are `Frame` too, save MESSAGE, which is a `MessageFrame`: its
header block is kept as bytes and parsed when someone looks, because a session that only counts and acknowledges
needs two of a dozen headers.

What the core asks its driver to do is an ordered list, in which frames to write stand among events to report: wire and
evidence show one order. Nobody changes such an action, as nobody changes a frame or an event; to make frozen ones would
take Python three times as long.

Source: STOMP 1.2 specification, "STOMP Frames", "Value Encoding" and "Repeated Header Entries".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from jmsx.core.events import Event
from jmsx.core.headers import UNREADABLE_HEADER
from jmsx.core.ledger import Entry, HandOutEnd
from jmsx.errors import JmsxError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNESCAPES: Final = {"\\\\": "\\", "\\r": "\r", "\\n": "\n", "\\c": ":"}
_ESCAPED: Final = re.compile(r"\\.?", re.DOTALL)

#: Bytes of a MESSAGE on the wire besides header block and body: "MESSAGE\n", two line ends, NUL and LF.
_FRAMING: Final = 12

#: Frames whose headers are not escaped, for the sake of STOMP 1.0 peers.
_UNESCAPED_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})


def escape(text: str) -> str:
    """Return `text` as it is written in a header line."""
    text = text.replace("\\", "\\\\").replace(":", "\\c")
    return text.replace("\n", "\\n").replace("\r", "\\r")


def unescape(text: str) -> str:
    """Return the text that a header line stands for; raises ProtocolError on an undefined escape."""
    if "\\" not in text:
        return text
    if text.count("\\") == text.count("\\c"):  # nearly always: the colons of ids
        return text.replace("\\c", ":")

    def replace(match: re.Match[str]) -> str:
        if match[0] not in _UNESCAPES:
            raise ProtocolError(f"undefined escape {match[0]!r} in a STOMP header")
        return _UNESCAPES[match[0]]

    return _ESCAPED.sub(replace, text)


def parse_headers(block: bytes, *, escaped: bool = True) -> dict[str, str]:
    """
    Return the headers of a header block (lines after the command, without the empty line).

    The first of repeated headers wins. Raises ProtocolError on a line without a colon, an undefined escape, or
    bytes that are no UTF-8.
    """
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"STOMP headers that are no UTF-8: {error.reason}") from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
    headers: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if not colon:
            if line:  # what it holds may be secret
                raise ProtocolError("a STOMP header line without a colon")
            continue
        if "\\" in line and escaped:
            value = unescape(value)
            if "\\" in name:
                name = unescape(name)
        if name not in headers:
            headers[name] = value
    return headers


_escaped_name = lru_cache(maxsize=1024)(escape)  #: names are the same ones again and again


@dataclass(slots=True)
class Frame:
    """One STOMP frame, with headers as the application means them (not escaped); nobody changes it."""

    command: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes of this frame, with its closing NUL."""
        headers = self.headers.items()
        if self.command in _UNESCAPED_COMMANDS:
            lines = [name + ":" + value + "\n" for name, value in headers]
        else:
            # Joined by +, for an f-string asks a member of an enum for its name.
            lines = [
                _escaped_name(name) + ":" + (value if value.isalnum() else escape(value)) + "\n"
                for name, value in headers
            ]
        head = f"{self.command}\n{''.join(lines)}\n"
        return head.encode("utf-8", "replace") + self.body + b"\0"


#: The headers of a message that could not be understood, as they came.
UNDECODABLE_HEADER: Final = "jmsx_undecodable_headers"

#: Headers that are read of such a message: texts that are compared or repeated to the broker, and no numbers. Whether
#: the length stands in front of `message-id` tells Artemis' texts from its bytes.
_BARE: Final = frozenset(
    {
        "subscription", "ack", "message-id", "destination", "destination-type", "content-length", "persistent",
        "redelivered",
    }
)  # fmt: skip

#: Characters of `UNDECODABLE_HEADER`: with every one escaped it fits a line of Classic's.
_BARE_LIMIT: Final = 2_000


class MessageFrame:
    """A MESSAGE as it came in: the raw header block, and the body."""

    __slots__ = ("_headers", "block", "body", "broken", "late", "raw", "size", "unsure")

    command: Final = "MESSAGE"

    def __init__(self, block: bytes, body: bytes, size: int | None = None) -> None:
        self.block = block  #: header lines, without the command line and the empty line
        self.body = body
        #: Bytes of the frame on the wire, with its command line, its NUL and the LF after that: what a broker counts.
        self.size = len(block) + len(body) + _FRAMING if size is None else size
        self.broken = ""  #: why nobody knows where its head or its body ends, so that it has none
        self.late = False  #: it was handed on before, as if it were whole
        self.unsure = False  #: nobody knows what settles it
        self.raw = b""  #: all that came of a broken one, as it came
        self._headers: dict[str, str] | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes = b"") -> MessageFrame:
        """Return a MESSAGE made from parsed headers, for tests and fakes."""
        lines = "".join(f"{escape(name)}:{escape(value)}\n" for name, value in headers.items())
        return cls(lines.removesuffix("\n").encode(), body)

    @property
    def headers(self) -> dict[str, str]:
        """All headers, unescaped; parsed at the first look."""
        if self._headers is None:
            self._headers = parse_headers(self.block)
        return self._headers

    def truncated(self, why: str, raw: bytes = b"") -> MessageFrame:
        """
        Return the same message as a truncated one: only its header block is certain;
        `raw` is all that came of it.
        """
        lines = self.block.split(b"\n")
        kept = [line for line in lines if not line.startswith(b"content-length:")]
        frame = MessageFrame(b"\n".join(kept), b"", self.size)
        frame.broken, frame.raw = why, raw
        return frame

    def without_body(self) -> MessageFrame:
        """Return the same message as one whose body did not come."""
        frame = MessageFrame(self.block + f"\n{UNREADABLE_HEADER}:true".encode(), b"", self.size)
        frame.broken, frame.raw = self.broken, self.raw
        frame.late, frame.unsure = self.late, self.unsure
        return frame

    def bare(self) -> MessageFrame:
        """
        Return the message with only those headers that name and settle it, for one that cannot be decoded.

        All the others are one text in `jmsx_undecodable_headers`, cut to what fits a header of every broker.
        """
        headers: dict[str, str] = {}
        text = self.block.decode("utf-8", "replace")
        for line in text.split("\n"):
            name, _, value = line.removesuffix("\r").partition(":")
            if name in _BARE:
                headers.setdefault(
                    name, _ESCAPED.sub(lambda one: _UNESCAPES.get(one[0], one[0]), value)
                )
        bare = self.of({**headers, UNDECODABLE_HEADER: text[:_BARE_LIMIT]}, self.body)
        bare.size, bare.broken, bare.raw = self.size, self.broken, self.raw
        bare.late, bare.unsure = self.late, self.unsure
        return bare

    def __repr__(self) -> str:
        return f"<MESSAGE {self.headers.get('message-id', '?')} [{len(self.body)} B]>"


@dataclass(slots=True)
class Transmit:
    """Write these frames to the broker, in order, as one burst."""

    frames: tuple[Frame, ...]
    waits: bool = False  #: they may wait a moment, to go with what is written next


@dataclass(slots=True)
class Record:
    """Tell the ledger how these hand-outs ended."""

    entries: tuple[Entry, ...]
    end: HandOutEnd

    @property
    def holds_unwritten(self) -> bool:
        """Whether this is true even if the frames beside it are not written: so it is of all but SETTLED."""
        return self.end is not HandOutEnd.SETTLED


@dataclass(slots=True)
class Disconnect:
    """Drop the link, because what it holds cannot be saved; `reason` is a sentence for errors and the log."""

    reason: str


@dataclass(slots=True)
class Refused:
    """Tell the exception listener that the broker has refused what nobody waits for, as the Java client does."""

    error: JmsxError
    #: Key of the message whose SEND it was; None: it is not known which frame was refused. Then `ErrorReceived` tells
    #: as much, unless this is `late`
    message_key: str | None = None
    late: bool = False  #: its caller has stopped waiting for the answer


#: What is asked for besides writing frames. An event stands for itself: the observers are to be told of it.
Effect = Event | Record | Disconnect | Refused

Action = Transmit | Effect


class Outbox:
    """Collects actions until the driver takes them, oldest first."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        #: Whether somebody wants the events of single messages; if not, they are not made
        self.detailed = True
        #: Whether somebody wants the events that tell how each message was acknowledged and ended
        self.ends = True
        self.ended_at = -math.inf  #: when a delivery ended last, told or not (seconds, monotonic)
        #: SENDs on this link; None: the broker may have counted another number
        self.sends: int | None = 0

    def transmit(self, *frames: Frame, waits: bool = False) -> None:
        """Ask for `frames` to be written as one burst; `waits`: they may wait a moment, to go with what follows."""
        self._actions.append(Transmit(frames, waits))
        if self.sends is not None:
            for frame in frames:
                self.sends += frame.command == "SEND"

    def report(self, event: Event) -> None:
        """Ask for `event` to be reported."""
        self._actions.append(event)

    def finish(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger note that these hand-outs did not fail, once for each; a None is left out."""
        self._record(entries, HandOutEnd.FINISHED)

    def settle(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger forget these hand-outs, whose messages the broker has no more; a None is left out."""
        self._record(entries, HandOutEnd.SETTLED)

    def fail(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger note that these hand-outs have failed; a None is left out."""
        self._record(entries, HandOutEnd.FAILED)

    def unseen(self, entries: Iterable[Entry | None]) -> None:
        """Have the ledger note that the application did not get these hand-outs; a None is left out."""
        self._record(entries, HandOutEnd.UNSEEN)

    def _record(self, entries: Iterable[Entry | None], end: HandOutEnd) -> None:
        known = [entry for entry in entries if entry is not None]
        if known:
            self._actions.append(Record(tuple(known), end))

    def refused(
        self, error: JmsxError, message_key: str | None = None, *, late: bool = False
    ) -> None:
        """Ask for the exception listener to be told `error`, which nobody waits for."""
        self._actions.append(Refused(error, message_key, late))

    def disconnect(self, reason: str) -> None:
        """Ask for the link to be dropped."""
        self._actions.append(Disconnect(reason))

    def take(self) -> list[Action]:
        """Hand over what was collected, and forget it. Carry the actions out in their order."""
        actions, self._actions = self._actions, []
        return actions
