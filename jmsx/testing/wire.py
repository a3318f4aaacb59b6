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

_NO_BEAT: Final = re.compile(rb"[^\r\n]")
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_END_SIZE: Final = 4  #: bytes of the longest end of a head
_CONTENT_LENGTH: Final = re.compile(rb"^content-length:([0-9]+)\r?$", re.MULTILINE)
_NOT_ESCAPED: Final = frozenset({"CONNECT", "STOMP"})


class FrameParser:
    """Cuts a client's bytes into frames, in whatever chunks they arrive; heart-beats between frames are skipped."""

    __slots__ = ("_body_start", "_buffer", "_head", "_looked")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head = b""  #: of the frame whose body is to come
        self._body_start = 0
        self._looked = 0  #: bytes already searched for the end of the head or body

    def feed(self, data: bytes) -> Iterator[Frame]:
        """
        Take more bytes and yield the frames that are now complete.

        Raises ProtocolFault (fatal) on bytes that are not STOMP; nothing can be read after that.
        """
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        end = self._end_of_body() if self._head or self._find_head() else None
        if end is None:
            self._looked = len(self._buffer)
            return None
        head, body = self._head, bytes(self._buffer[self._body_start : end])
        del self._buffer[: end + 1]
        self._head, self._looked = b"", 0
        return _frame(head, body)

    def _find_head(self) -> bool:
        """Return whether a complete head has arrived; if so, remember it and where its body begins."""
        if not self._looked:
            begin = _NO_BEAT.search(self._buffer)
            del self._buffer[: begin.start() if begin else None]
        found = _END_OF_HEAD.search(self._buffer, max(self._looked - _END_SIZE, 0))
        if found is None:
            return False
        self._head, self._body_start = bytes(self._buffer[: found.start()]), found.end()
        self._looked = found.end()
        return True

    def _end_of_body(self) -> int | None:
        """Return where the closing NUL stands; None if it has not come yet."""
        length = _CONTENT_LENGTH.search(self._head)
        if length is None:
            end = self._buffer.find(0, self._looked)
            return None if end < 0 else end
        size = whole(length[1].decode(), most=INT)
        if size is None:
            raise ProtocolFault("Specified content-length is not a valid integer", fatal=True)
        end = self._body_start + size
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
    """Return the bytes of a frame that the broker writes; `end` follows the body."""
    if isinstance(frame, MessageFrame):
        return b"MESSAGE\n" + frame.block + b"\n\n" + frame.body + end
    return frame.encode().removesuffix(b"\0") + end
