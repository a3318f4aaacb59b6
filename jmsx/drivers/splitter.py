"""
Cut the bytes from a broker into frames, believing nothing.

Nothing is allocated before its bytes have come, every byte is looked at twice at most, and what is kept is bounded:
a head of HEAD_LIMIT, a body of the limit that the connection sets. Measured: 6-8 microseconds a message, against 33
through stomp.py's own parser (reference/probes-artemis-stomppy.md C).

A broker may not tell where a body ends: Classic writes a text with a NUL in it as it is, and a Java program's property
`content-length` into the head. Then what a sender wrote stands where frames are expected. So each link has a mark that
no sender knows (seal.py); the broker repeats it in every MESSAGE and RECEIPT. What has it not is no frame, and what has
it inside a body ended before. The message whose body has no certain end is handed on without it, and the stream is
taken up again at the next frame with the mark. That is done where the broker writes a line feed behind each NUL.

Source: STOMP 1.2 specification, "Augmented BNF" and "Size Limits"; `StompWireFormat.marshal` (Classic).
"""

from __future__ import annotations

import re
from typing import Final

from jmsx.core.frames import Frame, MessageFrame, parse_headers
from jmsx.core.headers import whole
from jmsx.errors import MessageFormatError
from jmsx.options import BODY_LIMIT

#: Bytes of one header block at most, and of the body of any other frame: an ERROR's is a stack trace.
HEAD_LIMIT: Final = 1024 * 1024


_COMMANDS: Final = ("MESSAGE", "RECEIPT", "ERROR", "CONNECTED")
_FIRST_LINE: Final = re.compile(rf"({'|'.join(_COMMANDS)})\r?\n".encode())
_FIRST_LINES: Final = tuple(f"{command}\r\n".encode() for command in _COMMANDS)
_LONGEST_FIRST_LINE: Final = max(len(line) for line in _FIRST_LINES)
_TELLING: Final = 16  #: bytes that tell who answers instead of a broker
_MESSAGE: Final = b"MESSAGE"
_ERROR: Final = b"ERROR"
_CONNECTED: Final = b"CONNECTED"
_SHOWN: Final = 4096  #: bytes of an incomplete frame that are looked at to tell which it is
_TELLTALES: Final = ("subscription", "destination", "message-id", "content-length")
_EMPTY_LINE: Final = re.compile(rb"\n(?:\n|\r\n)")
_LENGTH: Final = b"\ncontent-length:"
#: Where a frame ends and another begins.
_BORDER: Final = re.compile(rb"\0\n+(?=(?:MESSAGE|RECEIPT|ERROR)\r?\n)")
#: What may become one when more has come.
_VERGE: Final = re.compile(rb"\0\n*[A-Z]{0,7}\r?\Z")

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
        self.mark = b""  #: what every MESSAGE and RECEIPT has in its head; empty: none needs it
        #: The broker writes the names of properties as they are, so that they may hold whole header lines.
        self.raw_names = True
        self._spaced = False  #: the broker writes a line feed behind each frame
        self._lost = False  #: nobody knows where the next frame begins

    @property
    def incomplete(self) -> tuple[int, int] | None:
        """Which frame is incomplete, by number, and how many bytes of it have come; None: none is."""
        size = len(self._kept)
        return (self._whole, size) if size and not self._lost else None

    def describe(self) -> str:
        """What is known of the incomplete frame, for a person."""
        kept = self._bared(bytes(self._kept[:_SHOWN]))
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
            self._split(data, frames)
            self._bound()
        except MessageFormatError as error:
            self.fault = error
        return frames

    def _may_go_on(self, data: bytes) -> bool:
        """Whether `data`, kept already, completes a part of the frame, so that looking at it is of use."""
        if self._lost:
            return True
        if self._missing:
            self._missing -= min(self._missing, len(data))
            return not self._missing or self._holds_mark(len(data))
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

    def _holds_mark(self, fresh: int) -> bool:
        """Whether the mark has come with the last `fresh` bytes, so that other frames are inside this one's body."""
        window = self._kept[-(fresh + len(self.mark) - 1) :]
        return self._guarded and self.mark in window

    @property
    def _guarded(self) -> bool:
        """Whether frames can be told from what looks like frames."""
        return self._spaced and bool(self.mark)

    def _split(self, data: bytes, frames: list[Frame | MessageFrame]) -> None:
        """Add the complete frames of `data`; the rest is kept."""
        position, size = 0, len(data)
        self._missing, self._in_text = 0, False
        while position < size:
            if self._lost:
                position = self._regained(data, position)
            elif data[position] in (_LF, _CR):  # a heart-beat, or padding between frames
                position += 1
            else:
                try:
                    after = self._step(data, position, frames)
                except _StrayError:
                    if self._is_odd_head(data, position) or not self._blame(frames):
                        raise
                    continue
                if after is None:
                    break
                position = after
        self._kept += data[position:]

    def _step(self, data: bytes, position: int, frames: list[Frame | MessageFrame]) -> int | None:
        """
        Add the frame that begins at `position`; where to go on, or None if it is incomplete.

        Raises _StrayError if no frame of the broker's begins here.
        """
        first = _FIRST_LINE.match(data, position)
        if first is None:
            _check_beginning(data[position : position + _TELLING])
            return None
        command = first[1]
        self._limit = self._body_limit if command == _MESSAGE else HEAD_LIMIT
        head = self._head(data, first.end())
        if head is None:
            return None
        head_end, body_start = head
        block = data[first.end() : head_end]
        if self._guarded:
            self._check_mark(command, block)
        try:
            body_end = self._body_end(data, first.end(), head_end, body_start)
        except _TornError as error:
            if command != _MESSAGE:
                raise _StrayError(str(error)) from error
            if not self._guarded:
                raise
            frames.append(self._message(block, b"").torn(str(error)))
            self._whole, self._lost = self._whole + 1, True
            return body_start - 1
        if body_end is None:
            return None
        body = data[body_start:body_end]
        if command == _MESSAGE:
            frames.append(self._message(block, body))
        else:
            frames.append(_control(command, self._bared(block), self._bared(body)))
            if command == _CONNECTED:
                self._spaced = data[body_end + 1 : body_end + 2] == b"\n"
        self._whole += 1
        return body_end + 1

    def _check_mark(self, command: bytes, block: bytes) -> None:
        """Raise _StrayError unless this is the head of one frame of the broker's, and no words of a sender's."""
        if command != _ERROR and self.mark not in block:
            raise _StrayError("the broker sent a frame that is not of this connection")
        if b"\0" in block and _BORDER.search(block):
            raise _StrayError("the broker sent a frame inside the head of another")
        if self.raw_names and _acks(block) > 1:
            raise MessageFormatError(
                f"the broker sent a message with two ack headers{_told(block)}"
            )

    def _message(self, block: bytes, body: bytes) -> MessageFrame:
        """The message as the broker would have written it without the mark, and as large as it was with it."""
        frame = MessageFrame(self._bared(block), body)
        frame.size += len(block) - len(frame.block)
        return frame

    def _bared(self, text: bytes) -> bytes:
        """`text` as the broker would have written it without the mark."""
        return text.replace(self.mark, b"") if self.mark else text

    def _is_odd_head(self, data: bytes, position: int) -> bool:
        """
        Whether the broker's next head is not one: it begins here, or has been made to look like another frame's.

        Classic writes the names of Java's properties as they are. Then the message in front is not to blame, and how
        this one is settled is not certain.
        """
        for border in _BORDER.finditer(data, position):
            block = data[border.end() :].partition(b"\n\n")[0]
            if self.mark in block and not _BORDER.search(block):
                return (self.raw_names and _acks(block) > 1) or self.mark in data[
                    position : border.start()
                ]
        return self._guarded and self.mark in data[position:]

    def _blame(self, frames: list[Frame | MessageFrame]) -> bool:
        """
        What comes now is no frame: the last message, if it came just before, was not whole, and goes on.

        An ERROR in between may be a part of it; a RECEIPT has the mark, so that all was well until then. False if there
        is none to blame.
        """
        if not self._guarded:
            return False
        for place in range(len(frames) - 1, -1, -1):
            frame = frames[place]
            if isinstance(frame, MessageFrame):
                frames[place:] = [frame if frame.broken else frame.torn(_INSIDE)]
                self._lost = True
                return True
            if frame.command != "ERROR":
                break
        return False

    def _regained(self, data: bytes, position: int) -> int:
        """Where the next frame begins, behind `position`; what is passed over was written by a sender, or is a beat."""
        while (border := _BORDER.search(data, position)) is not None:
            start = data.index(b"\n", border.end()) + 1
            empty_line = _EMPTY_LINE.search(data, start - 1)
            block = data[start : len(data) if empty_line is None else empty_line.start()]
            if empty_line is None and len(block) <= HEAD_LIMIT and not _BORDER.search(block):
                self._kept = bytearray(data[border.start() :])
                return len(data)
            if empty_line is not None and self.mark in block and not _BORDER.search(block):
                self._lost = False
                return border.end()
            position = border.end()
        verge = _VERGE.search(data, position)
        if verge is not None:
            self._kept = bytearray(b"\0\n" + verge[0].strip(b"\0\n"))
        return len(data)

    def _head(self, data: bytes, block_start: int) -> tuple[int, int] | None:
        """Where the head ends and the body starts; None if that is not here yet."""
        start = block_start - 1  # the end of the first line may be half of the empty one
        empty_line = _EMPTY_LINE.search(data, start)
        if empty_line is None:
            return None
        _check_head(empty_line.start() - start)
        return empty_line.span()

    def _body_end(
        self, data: bytes, block_start: int, head_end: int, body_start: int
    ) -> int | None:
        """Where the closing NUL stands; None if that is not here yet, and _TornError if the body ends elsewhere."""
        length_at = data.find(_LENGTH, block_start - 1, head_end)
        if length_at < 0:
            body_end = data.find(b"\0", body_start)
            self._in_text = body_end < 0
            _check_body((body_end if body_end >= 0 else len(data)) - body_start, self._limit)
        else:
            try:
                size = _length(data, length_at + len(_LENGTH), head_end, self._limit)
            except MessageFormatError as error:
                raise _TornError(str(error)) from error
            body_end = body_start + size
            self._missing = max(0, body_end + 1 - len(data))
            if self._guarded and data.find(self.mark, body_start, body_end) >= 0:
                self._missing = 0
                raise _TornError(_OTHERS_INSIDE)
            if not self._missing and data[body_end] != 0:
                told = _told(self._bared(data[block_start:body_start][:_SHOWN]))
                raise _TornError(f"the broker sent a frame longer than its content-length{told}")
        if self._in_text or self._missing:
            return None
        if self._guarded:  # the line feed that belongs to the frame
            if body_end + 1 == len(data):
                self._missing = 1
                return None
            if data[body_end + 1] != _LF:
                raise _TornError(_INSIDE)
        return body_end


#: What is wrong with a body whose end is not known.
_INSIDE: Final = "the broker sent a body with a NUL in it, and not its true length"
_OTHERS_INSIDE: Final = "the broker sent a content-length greater than the body is"


class _TornError(MessageFormatError):
    """The body of this frame ends nobody knows where."""


class _StrayError(MessageFormatError):
    """Where a frame of the broker's should begin, there is none."""


def _acks(block: bytes) -> int:
    """How many headers of this head say by what the message is settled."""
    return block.count(b"\nack:") + block.startswith(b"ack:")


def _told(head: bytes) -> str:
    """Of which message a frame is that begins with `head`."""
    lines = head.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
    told = [line for line in lines if line.partition(":")[0] in _TELLTALES]
    return f" ({', '.join(told)})" if told else ""


def _control(command: bytes, block: bytes, body: bytes) -> Frame:
    """CONNECTED, RECEIPT or ERROR; the headers of CONNECTED are never escaped."""
    try:
        headers = parse_headers(block, escaped=command != _CONNECTED)
    except MessageFormatError as error:
        raise _StrayError(str(error)) from error
    if command == b"RECEIPT" and "receipt-id" not in headers:
        raise _StrayError("the broker sent a RECEIPT without receipt-id")
    return Frame(command.decode(), headers, body)


def _check_beginning(text: bytes) -> None:
    """Whether `text` may become the first line of a frame when more of it has come."""
    if not any(line.startswith(text) for line in _FIRST_LINES):
        looks = next((f": it looks like {word}" for mark, word in _OTHERS if mark in text), "")
        raise _StrayError(f"what answers does not speak STOMP{looks}")


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
