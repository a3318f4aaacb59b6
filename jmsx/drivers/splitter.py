"""
Cut the bytes from a broker into frames, believing nothing.

Nothing is allocated before its bytes have come, every byte is looked at twice at most, and what is kept is bounded:
a head of HEAD_LIMIT, a body of the limit that the connection sets. Measured: 6-8 microseconds a message, against 33
through stomp.py's own parser (reference/probes-artemis-stomppy.md C).

Source: STOMP 1.2 specification, "Augmented BNF" and "Size Limits".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame, MessageFrame, parse_headers
from jmsx.core.headers import whole
from jmsx.errors import MessageFormatError
from jmsx.options import BODY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of one header block at most, and of the body of any other frame: an ERROR's is a stack trace.
HEAD_LIMIT: Final = 1024 * 1024


_COMMANDS: Final = ("MESSAGE", "RECEIPT", "ERROR", "CONNECTED")
_FIRST_LINE: Final = re.compile(rf"({'|'.join(_COMMANDS)})\r?\n".encode())
_FIRST_LINES: Final = tuple(f"{command}\r\n".encode() for command in _COMMANDS)
_LONGEST_FIRST_LINE: Final = max(len(line) for line in _FIRST_LINES)
_TELLING: Final = 16  #: bytes that tell who answers instead of a broker
_MESSAGE: Final = b"MESSAGE"
_SHOWN: Final = 4096  #: bytes of an incomplete frame that are looked at to tell which it is
_TELLTALES: Final = ("subscription", "destination", "message-id", "content-length")
_EMPTY_LINE: Final = re.compile(rb"\n(?:\n|\r\n)")
_LENGTH: Final = b"\ncontent-length:"

#: How others begin. What they said is not shown: a broker that lies could say our password.
_OTHERS: Final = (
    (b"\x15\x03", "TLS; write stomp+ssl://"),
    (b"\x16\x03", "TLS; write stomp+ssl://"),
    (b"HTTP/", "a web server"),
    (b"SSH-", "SSH"),
    (b"AMQP", "AMQP"),
    (b"ActiveMQ", "OpenWire, the port for Java clients"),
)
_LF: Final = 10
_CR: Final = 13


class Splitter:
    """
    Keeps what is incomplete until the rest arrives.

    `fault` says why no more frames come: the peer does not speak STOMP, or sends more than the limits allow.
    """

    def __init__(self, body_limit: int = BODY_LIMIT) -> None:
        self.fault: MessageFormatError | None = None
        self._body_limit = body_limit
        self._kept = bytearray()  #: an incomplete frame
        self._limit = body_limit  #: of the incomplete frame's body
        self._missing = 0  #: bytes until a frame with a known length is complete
        self._in_text = False  #: the incomplete frame ends at the next NUL
        self._whole = 0  #: frames that were complete

    @property
    def incomplete(self) -> tuple[int, int] | None:
        """Which frame is incomplete, by number, and how many bytes of it have come; None: none is."""
        size = len(self._kept)
        return (self._whole, size) if size else None

    def describe(self) -> str:
        """What is known of the incomplete frame, for a person."""
        kept = bytes(self._kept[:_SHOWN])
        command = kept.partition(b"\n")[0].decode("utf-8", "replace").strip()
        return f"{command}{_told(kept)}, of which {len(self._kept)} bytes have come"

    def feed(self, data: bytes) -> list[Frame | MessageFrame]:
        """The frames that `data` completes, in order; see `fault` after them."""
        frames: list[Frame | MessageFrame] = []
        if self.fault is not None:
            return frames
        try:
            if self._kept:
                self._kept += data
                if not self._may_go_on(data):
                    self._bound()
                    return frames
                data, self._kept = bytes(self._kept), bytearray()
            for frame in self._split(data):
                frames.append(frame)  # noqa: PERF402 - those before a fault count
            self._bound()
        except MessageFormatError as error:
            self.fault = error
        return frames

    def _may_go_on(self, data: bytes) -> bool:
        """Whether `data`, kept already, completes a part of the frame, so that looking at it is of use."""
        if self._missing:
            self._missing -= min(self._missing, len(data))
            return not self._missing
        if self._in_text:
            return b"\0" in data
        seam = self._kept[-len(data) - 2 :]
        return len(self._kept) < 2 * _LONGEST_FIRST_LINE or _EMPTY_LINE.search(seam) is not None

    def _bound(self) -> None:
        """What is incomplete and claims no length is measured while it grows."""
        if self._in_text:
            _check_body(len(self._kept) - HEAD_LIMIT, self._limit)
        elif not self._missing:
            _check_head(len(self._kept))

    def _split(self, data: bytes) -> Iterator[Frame | MessageFrame]:
        """The complete frames of `data`; the rest is kept."""
        position, size = 0, len(data)
        self._missing, self._in_text = 0, False
        while position < size:
            if data[position] in (_LF, _CR):  # a heart-beat, or padding between frames
                position += 1
                continue
            first = _FIRST_LINE.match(data, position)
            if first is None:
                _check_beginning(data[position : position + _TELLING])
                break
            self._limit = self._body_limit if first[1] == _MESSAGE else HEAD_LIMIT
            span = self._span(data, first.end())
            if span is None:
                break
            head_end, body_start, body_end = span
            block, body = data[first.end() : head_end], data[body_start:body_end]
            yield (
                MessageFrame(block, body)
                if first[1] == _MESSAGE
                else _control(first[1], block, body)
            )
            self._whole += 1
            position = body_end + 1
        self._kept += data[position:]

    def _span(self, data: bytes, block_start: int) -> tuple[int, int, int] | None:
        """Where the head ends, the body starts and the closing NUL stands; None if that is not here yet."""
        start = block_start - 1  # the end of the first line may be half of the empty one
        empty_line = _EMPTY_LINE.search(data, start)
        if empty_line is None:
            return None
        head_end, body_start = empty_line.span()
        _check_head(head_end - start)
        length_at = data.find(_LENGTH, start, head_end)
        if length_at < 0:
            body_end = data.find(b"\0", body_start)
            self._in_text = body_end < 0
            _check_body((body_end if body_end >= 0 else len(data)) - body_start, self._limit)
        else:
            body_end = body_start + _length(data, length_at + len(_LENGTH), head_end, self._limit)
            self._missing = max(0, body_end + 1 - len(data))
            if not self._missing and data[body_end] != 0:
                told = _told(data[block_start:body_start][:_SHOWN])
                raise MessageFormatError(
                    f"the broker sent a frame longer than its content-length{told}"
                )
        return None if self._in_text or self._missing else (head_end, body_start, body_end)


def _told(head: bytes) -> str:
    """Of which message a frame is that begins with `head`."""
    lines = head.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
    told = [line for line in lines if line.partition(":")[0] in _TELLTALES]
    return f" ({', '.join(told)})" if told else ""


def _control(command: bytes, block: bytes, body: bytes) -> Frame:
    """CONNECTED, RECEIPT or ERROR; the headers of CONNECTED are never escaped."""
    headers = parse_headers(block, escaped=command != b"CONNECTED")
    if command == b"RECEIPT" and "receipt-id" not in headers:
        raise MessageFormatError("the broker sent a RECEIPT without receipt-id")
    return Frame(command.decode(), headers, body)


def _check_beginning(text: bytes) -> None:
    """Whether `text` may become the first line of a frame when more of it has come."""
    if not any(line.startswith(text) for line in _FIRST_LINES):
        looks = next((f": it looks like {word}" for mark, word in _OTHERS if mark in text), "")
        raise MessageFormatError(f"what answers does not speak STOMP{looks}")


def _check_head(size: int) -> None:
    if size > HEAD_LIMIT:
        raise MessageFormatError(f"the broker sent a header block of more than {HEAD_LIMIT} bytes")


def _check_body(size: int, limit: int) -> None:
    if size > limit:
        raise MessageFormatError(
            f"the broker sent a body of {size} bytes or more, and the limit is {limit}"
            " (max_body_size, for messages)"
        )


def _length(data: bytes, start: int, end: int, limit: int) -> int:
    """The number of a content-length header, whose value starts at `start`."""
    digits = data[start:end].partition(b"\n")[0].strip()
    size = whole(digits.decode("latin-1"))
    if size is None:
        raise MessageFormatError("the broker sent a content-length that is no number")
    _check_body(size, limit)
    return size
