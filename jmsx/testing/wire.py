"""
STOMP bytes as a broker reads and writes them.

Source: STOMP 1.2 specification, "STOMP Frames" and "Augmented BNF"; jmsx_classic/BROKER.md C53.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from jmsx.core.frames import Frame, MessageFrame, parse_headers
from jmsx.core.headers import INT, whole
from jmsx.errors import ProtocolError
from jmsx.testing.faults import ProtocolFault

_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_CONTENT_LENGTH: Final = re.compile(rb"^content-length:([0-9]+)\r?$", re.MULTILINE)
_NOT_ESCAPED: Final = frozenset({"CONNECT", "STOMP"})


class FrameParser:
    """Cuts what a client writes into frames, whatever chunks it comes in; heart-beats between frames are skipped."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """
        Take more bytes and yield the frames that are whole now.

        Raises ProtocolFault (fatal) on bytes that are no STOMP; nothing can be read after that.
        """
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        skipped = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        del self._buffer[:skipped]
        end_of_head = _END_OF_HEAD.search(self._buffer)
        if end_of_head is None:
            return None
        head = bytes(self._buffer[: end_of_head.start()])
        end = self._end_of_body(head, end_of_head.end())
        if end is None:
            return None
        body = bytes(self._buffer[end_of_head.end() : end])
        del self._buffer[: end + 1]
        return _frame(head, body)

    def _end_of_body(self, head: bytes, start: int) -> int | None:
        """Return where the closing NUL stands; None if it has not come yet."""
        length = _CONTENT_LENGTH.search(head)
        if length is None:
            end = self._buffer.find(0, start)
            return None if end < 0 else end
        size = whole(length[1].decode(), most=INT)
        if size is None:
            raise ProtocolFault("Specified content-length is not a valid integer", fatal=True)
        end = start + size
        if end >= len(self._buffer):
            return None
        if self._buffer[end] != 0:
            raise ProtocolFault(
                f"{size} bytes were read and there was no trailing null byte", fatal=True
            )
        return end


def _frame(head: bytes, body: bytes) -> Frame:
    line, _, block = head.partition(b"\n")
    command = line.decode("utf-8", "replace").strip()
    try:
        return Frame(command, parse_headers(block, escaped=command not in _NOT_ESCAPED), body)
    except ProtocolError as error:
        raise ProtocolFault(f"Unable to parse header: {error}", fatal=True) from error


def encode(frame: Frame | MessageFrame, end: bytes = b"\0") -> bytes:
    """Return the bytes of a frame that the broker writes; `end` stands behind the body."""
    if isinstance(frame, MessageFrame):
        return b"MESSAGE\n" + frame.block + b"\n\n" + frame.body + end
    return frame.encode().removesuffix(b"\0") + end
