"""
Cuts the bytes from a broker into frames, and trusts nothing in them.

Nothing is allocated before its bytes have come, every byte is looked at twice at most, and what is kept is bounded:
a head of HEAD_LIMIT, a body of the limit that the connection sets. Measured: 4 microseconds a message of 600 bytes, two
of them for the mark, against 33 through stomp.py's own parser.

The end of a body may be uncertain: Classic writes a text with a NUL in it as it is, and the property `content-length`
of a Java program into the head. It also writes the names of Java properties as they are, so that a name may contain
header lines, or end the head. Then what a sender wrote stands where a frame is expected. So each link has a mark that
no sender knows (epoch.py), and that the broker repeats once in every MESSAGE and RECEIPT. What lacks the mark is no
frame; a body with the mark in it has ended earlier. A message whose end is uncertain is truncated: all up to the next
frame with the mark belongs to it. This is done only if the broker writes a line feed behind each NUL. Artemis escapes
names and counts bodies itself: its frames are taken without a mark.

A message that looks whole is settled by the header `ack` in it if three conditions hold. First, it begins behind the
end of the frame before it: its head has the mark, and no border between frames. Second, its `ack` is the broker's: in
the order of a HashMap of up to 49,152 headers, `ack`, `priority` or `timestamp` stands in front of the mark, so that a
single `ack` in front of it, without the other two, is no sender's. A message with more line feeds than half that number
is not believed. Third, it does not take in the beginning of the next message: no border is in its body, which only a
stated length could cause. If one does not hold, the message waits for the next mark, and is searched up to there. (Its
body may still be shorter than it was: that shows when what comes next is no frame. With more headers than that it may
show too late: if the sender ends the message in front of most of them, and the bytes arrive in two pieces just there,
his `ack` is believed.)

Which `ack` settles a truncated message, or one with more headers, is not certain: its sender may have written those of
other messages into it. Classic numbers what it dispatches, so the broker's own `ack` is the lowest above that of the
message before: a lower one means nothing on this link, and those of later messages are higher. Before the first message
of a link that number is not known. If the text of the first message has more than one `ack`, the link is given up; on
the next one the broker numbers the message anew, so that its own `ack` is the one that did not stand there before, or
not so often. If that does not decide, no more than LINKS links are given up: then the lowest `ack` is taken.

An ERROR that answers no frame has no mark. A sender who writes one into a body exactly as the broker would is believed:
his own message is cut short, and the session is told of an error that did not happen.

Source: STOMP 1.2 specification, "Augmented BNF" and "Size Limits"; `StompWireFormat.marshal`,
`FrameTranslator.copyStandardHeadersFromMessageToFrame` and `StompSubscription.onMessageDispatch` (Classic): the headers
are a HashMap, so that those of the sender stand between the broker's own in an order that he can choose.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame, MessageFrame, parse_headers
from jmsx.core.headers import whole
from jmsx.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes of a message's body that are accepted: a little above the 100 MiB that both brokers take by default, for a body
#: may grow when the broker translates it.
BODY_LIMIT: Final = 128 * 1024 * 1024

#: Bytes of one header block at most, and of the body of any other frame: an ERROR's is a stack trace.
HEAD_LIMIT: Final = 1024 * 1024

#: Links that are given up in a row because nobody knows what settles their first message.
LINKS: Final = 3

_COMMANDS: Final = ("MESSAGE", "RECEIPT", "ERROR", "CONNECTED")
_FIRST_LINE: Final = re.compile(rf"({'|'.join(_COMMANDS)})\r?\n".encode())
_FIRST_LINES: Final = tuple(f"{command}\r\n".encode() for command in _COMMANDS)
_LONGEST_FIRST_LINE: Final = max(len(line) for line in _FIRST_LINES)
_TELLING: Final = 16  #: bytes that tell who answers instead of a broker
_MESSAGE: Final = b"MESSAGE"
_RECEIPT: Final = b"RECEIPT"
_ERROR: Final = b"ERROR"
_CONNECTED: Final = b"CONNECTED"
_SHOWN: Final = 4096  #: bytes of an incomplete frame that are looked at to tell which it is
_TELLTALES: Final = ("subscription", "destination", "message-id", "content-length")
_EMPTY_LINE: Final = re.compile(rb"\n(?:\n|\r\n)")
_LENGTH: Final = b"\ncontent-length:"
#: The border where a frame ends and the next one begins: any frame, a message, any frame again, an answer.
_BORDER: Final = re.compile(rb"\0\n+(?=(?:MESSAGE|RECEIPT|ERROR)\r?\n)")
_BEFORE_MESSAGE: Final = re.compile(rb"\0\n+(?=MESSAGE\r?\n)")
_FRAME_BEHIND: Final = re.compile(rb"\0\n+(?:MESSAGE|RECEIPT|ERROR)\r?\n")
_BEFORE_ANSWER: Final = re.compile(rb"\0\n+(?=(?:RECEIPT|ERROR)\r?\n)")
#: The header that settles a message, where the broker numbers what it dispatches.
_ACK: Final = re.compile(rb"\nack:([^\n]*?)([0-9]{1,19})\r?(?=\n)")

#: Bytes that a header takes at least.
_HEADER: Final = 3

#: Headers of each MESSAGE, by STOMP.
_ALWAYS: Final = (b"subscription", b"destination", b"message-id")

#: How other protocols begin. What came is not shown: a malicious peer could repeat our password.
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


@dataclass(frozen=True, kw_only=True)
class RawHeads:
    """
    How a broker writes heads that does not escape the names of properties, so that a name may look like header lines.

    It numbers what it dispatches on a link, and each `ack` ends in that number.
    """

    message: tuple[bytes, ...] = ()  #: headers of each MESSAGE, beyond STOMP's
    error: tuple[bytes, ...] = ()  #: beginnings of lines that each ERROR has
    #: Header, with its value, of the MESSAGE that ends what a queue browser is shown; it lacks those of `message`
    browser_end: tuple[bytes, bytes] | None = None
    #: In a head of not too many headers one of these stands in front of `subscription`, or `ack` does
    tell_order: tuple[bytes, ...] = ()
    ordered: int = 0  #: `tell_order` holds up to so many headers in each of two parts of a message
    #: Returns how each `ack` begins, given CONNECTED's `session`; empty: unknown
    origin: Callable[[str], str] = lambda _session: ""

    @cached_property
    def order(self) -> re.Pattern[bytes]:
        """Finds one of `tell_order`, or nothing if there is none."""
        names = b"|".join(map(re.escape, self.tell_order)) or rb"(?!)"
        return re.compile(rb"\n(?:%s):" % names)


#: For a broker of which nothing is known.
_NO_HEADS: Final = RawHeads()


class _Oddity(Enum):
    """What the kept bytes begin with, if not with an incomplete frame."""

    TRUNCATED = auto()  #: a message of which nobody knows the end
    PASSED = auto()  #: the rest of a message that was handed on before
    UNCLEAR = auto()  #: TRUNCATED or PASSED: which of them cannot be told before more has come


class EarlierLinks:
    """What earlier links of a session have found out about the message for which they were given up."""

    def __init__(self) -> None:
        #: How often each `ack` stands in the text of that message, by how it begins and its number
        self.acks = Counter[tuple[bytes, int]]()
        self.links = 0  #: links given up since the last such message whose `ack` was certain


class Splitter:
    """
    Cuts bytes into frames, and keeps an incomplete one until the rest arrives.

    `fault` says why no more frames come: the peer does not speak STOMP, or sends more than the limits allow.
    """

    def __init__(self, body_limit: int = BODY_LIMIT, heads: RawHeads = _NO_HEADS) -> None:
        self.fault: ProtocolError | None = None
        self._body_limit = body_limit
        self._kept = bytearray()  #: an incomplete frame
        self._limit = body_limit  #: bytes of the incomplete frame's body at most
        self._missing = 0  #: bytes until a frame with a known length is complete
        self._in_text = False  #: the incomplete frame ends at the next NUL
        self._odd: _Oddity | None = None
        self._odd_from = 0  #: where the odd bytes begin in the chunk
        self._headless = False  #: the next mark has come, and not the rest of its head
        self._whole = 0  #: frames that were complete
        #: What every MESSAGE and RECEIPT has in its head; empty: the broker says truly where each frame ends.
        self.mark = b""
        self.origin = b""  #: how every `ack` of the broker begins, as far as it is known
        self.heads = heads  #: how the broker writes heads with a mark
        #: Lines of subscriptions that acknowledge nothing: the broker writes no `ack` into their messages.
        self.unnumbered: set[bytes] = set()
        self._spaced = False  #: the broker writes a line feed behind each frame
        #: Of each frame of this chunk: where it begins there, and `_known` and `_dubious` before it.
        self._begun: list[tuple[int, bytes, bool]] = []
        #: The head of the last message before this chunk, unless an answer came behind it
        self._last = MessageFrame(b"", b"")
        #: The head of the last message that was not truncated, or the `ack` of one that was.
        self._known = b""
        #: The next message may begin earlier, so that a part of its head was taken for the body before it.
        self._dubious = False
        self._why = ""  #: what is wrong with a truncated message
        self.share(EarlierLinks())

    def share(self, told: EarlierLinks) -> None:
        """
        Use what earlier links of the session have found, which `told` has, and pass on by it what this one finds.

        This link does not use what it has found itself: it may have looked at a message before all of that was here.
        """
        self._told = told
        self._told_acks, self._told_links = told.acks, told.links

    @property
    def incomplete(self) -> tuple[int, int] | None:
        """Which frame is incomplete, by number, and how many bytes of it have come; None: none is."""
        size = len(self._kept)
        return (self._whole, size) if size else None

    @property
    def unclear(self) -> int | None:
        """Which frame, by number, shows its end only when the broker's next one comes; None: none does."""
        return None if self._odd is None else self._whole

    def describe(self) -> str:
        """Return what is known of the incomplete frame, for a person."""
        kept = self._bared(bytes(self._kept[:_SHOWN]))
        command = kept.partition(b"\n")[0].decode("utf-8", "replace").strip()
        return f"{command}{_told(kept)}, of which {len(self._kept)} bytes have come"

    def feed(self, data: bytes) -> list[Frame | MessageFrame]:
        """Return the frames that `data` completes, in order; see `fault` after them."""
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
        except ProtocolError as error:
            self.fault = error
        self._note_last(frames)
        return frames

    def _note_last(self, frames: list[Frame | MessageFrame]) -> None:
        """Note which message was not whole if what comes next is no frame."""
        for frame in reversed(frames):
            if isinstance(frame, MessageFrame):
                self._last = MessageFrame(frame.block, b"", frame.size)
                self._last.broken = frame.broken
                return
            if frame.command != "ERROR":
                self._last = MessageFrame(b"", b"")
                return

    def _may_go_on(self, data: bytes) -> bool:
        """Return whether `data`, kept already, completes a part of the frame, so that it is worth looking at."""
        if self._odd is not None:
            headed = self._headless and self._ends_head(len(data))
            return headed or self._holds_mark(len(data))
        if self._missing:
            self._missing -= min(self._missing, len(data))
            return not self._missing or self._holds_mark(len(data))
        if self._in_text:
            return b"\0" in data
        return len(self._kept) < 2 * _LONGEST_FIRST_LINE or self._ends_head(len(data))

    def _bound(self) -> None:
        """Raise ProtocolError if an incomplete frame without a stated length has grown too large."""
        if self._odd is not None:
            _check_body(len(self._kept) - HEAD_LIMIT, self._body_limit)
        elif self._in_text:
            _check_body(len(self._kept) - HEAD_LIMIT, self._limit)
        elif not self._missing:
            _check_head(len(self._kept))

    def _ends_head(self, fresh: int) -> bool:
        """Return whether an empty line has come with the last `fresh` bytes."""
        return _EMPTY_LINE.search(self._kept, max(0, len(self._kept) - fresh - 2)) is not None

    def _holds_mark(self, fresh: int) -> bool:
        """Return whether the mark has come with the last `fresh` bytes, so that another frame is inside this body."""
        start = max(0, len(self._kept) - fresh - len(self.mark) + 1)
        return self._guarded and self._kept.find(self.mark, start) >= 0

    @property
    def _guarded(self) -> bool:
        """Whether frames can be told from what looks like frames."""
        return self._spaced and bool(self.mark)

    def _split(self, data: bytes, frames: list[Frame | MessageFrame]) -> None:
        """Add the complete frames of `data`; the rest is kept."""
        position, size = 0, len(data)
        odd, self._odd, self._headless = self._odd, None, False
        self._missing, self._in_text, self._begun = 0, False, []
        after: int | None = 0
        if odd is _Oddity.TRUNCATED:
            after = self._mend(data, 0, frames)
        elif odd is _Oddity.PASSED:
            after = self._pass_over(data, 0)
        while after is not None:
            position = after
            while position < size and data[position] in (_LF, _CR):  # a beat, or padding
                position += 1
            if position == size:
                return
            try:
                after = self._step(data, position, frames)
            except _SuspectError as error:
                after = self._judge(data, position, frames, error)
        self._kept += data[position if self._odd is None else self._odd_from :]

    def _judge(
        self,
        data: bytes,
        position: int,
        frames: list[Frame | MessageFrame],
        error: _SuspectError,
    ) -> int | None:
        """Deal with what `_step` raised at `position`; return where to go on, or None if more has to come first."""
        if isinstance(error, _OddError):
            return self._look_through(data, position, frames, error)
        if isinstance(error, _StrayError):
            return self._blame(data, position, frames, error)
        if not self._guarded:
            raise error
        self._why = str(error)
        return self._mend(data, position, frames)

    def _step(self, data: bytes, position: int, frames: list[Frame | MessageFrame]) -> int | None:
        """
        Add the frame that begins at `position`; where to go on, or None if it is incomplete.

        Raises _StrayError if no frame of the broker's begins here, _OddError if one may begin here that a sender has
        written into, and _TornError if it is not known where its body ends.
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
        guarded = self._guarded
        if guarded:
            self._check_mark(command, block)
        try:
            body_end = self._body_end(data, first.end(), head_end, body_start)
        except _TornError as error:
            if command != _MESSAGE:
                raise _StrayError(str(error)) from error
            raise
        if body_end is None:
            return None
        body = data[body_start:body_end]
        before = (position, self._known, self._dubious)
        if command == _MESSAGE:
            unsure = self._note_ack(data, block, body, body_end) if guarded else False
            if unsure is None:
                return self._wait(_Oddity.UNCLEAR, position)
            frames.append(self._message(block, body, unsure=unsure))
        else:
            frames.append(self._answer(command, block, body))
            if command == _CONNECTED:
                self._spaced = data[body_end + 1 : body_end + 2] == b"\n"
        self._begun.append(before)
        self._whole += 1
        return body_end + 1

    def _check_mark(self, command: bytes, block: bytes) -> None:
        """Raise unless this is the head of one frame of the broker's, and no words of a sender's."""
        swallows = b"\0" in block and _BORDER.search(block) is not None
        if command == _MESSAGE:
            if not self._is_sealed(block, b"subscription:"):
                raise _OddError("the broker sent a frame that is not of this connection")
            if swallows:
                raise _OddError("the broker sent a frame inside the head of another")
            return
        answers = command == _RECEIPT or b"receipt-id:" in block
        unsealed = answers and not self._is_sealed(block, b"receipt-id:")
        unsealed = unsealed or _lines(block, b"receipt-id:") > 1
        unlike = (command == _ERROR and not answers) and (
            self._is_sealed(block, b"subscription:")  # the rest of a MESSAGE's head
            or not all(_lines(block, one) for one in self.heads.error)
        )
        if command == _CONNECTED or unsealed or swallows or unlike:
            raise _StrayError("the broker sent a frame that is not of this connection")

    def _is_sealed(self, block: bytes, name: bytes) -> bool:
        """
        Return whether the mark is where the broker repeats it: at the end of the header `name`.

        It may stand elsewhere, too: an ERROR may repeat the headers of what it answers.
        """
        at = block.find(self.mark)
        while at >= 0:
            end = at + len(self.mark)
            ends = end == len(block) or block[end] in (_LF, _CR)
            if ends and block.startswith(name, block.rfind(b"\n", 0, at) + 1):
                return True
            at = block.find(self.mark, end)
        return False

    def _note_ack(self, data: bytes, block: bytes, body: bytes, body_end: int) -> bool | None:
        """
        Note a message's `ack`; return whether it is unsure, None if that shows only when the next mark has come.

        Raises _TornError if the sender may have written that `ack` or cut the broker's off the head, or if he may have
        stated a length that takes in the beginning of the next frame, and with it the `ack` of that.
        """
        if _lines(block, b"subscription:") > 1:
            raise _TornError(_TWO_SUBSCRIPTIONS)
        numbered = not self._is_unnumbered(block)
        if numbered and (in_head := _lines(block, b"ack:")) != 1:
            raise _TornError(_TWO_ACKS if in_head else _NO_ACK)
        head = b"\n" + block
        looks_through = numbered and (
            self._dubious or self._may_stand_behind(head, head.find(self.mark), body)
        )
        border = _BEFORE_MESSAGE.search(body) if b"\0" in body else None
        unsure = False
        if looks_through or border is not None:
            following = self._next_mark(data, body_end)
            if following < 0:
                return None
            behind = data[body_end:following]
            whole = _is_head_behind(behind)
            last = block if numbered else self._known
            if border is not None and (not whole or _has_later(last, body[border.end() - 1 :])):
                raise _TornError(_OTHERS_INSIDE)
            if looks_through:
                text = b"\n".join((head, b"", body)) + (b"" if whole else behind)
                found = self._acks(text)
                if not found or _lowest(found)[1] > len(block):
                    raise _TornError(_TWO_ACKS)
                unsure = self._is_unsure(text, found, len(block))
        self._dubious = border is not None and self._tells_order(body[border.end() - 1 :])
        if numbered:
            self._known = block
        return unsure

    def _front(self, text: bytes) -> bytes:
        """
        Return the part of a message, from its beginning on, in which the broker has written its `ack`: up to its mark,
        or all.

        What stands in it is no sender's if it is the only one; see `RawHeads.tell_order`.
        """
        at = text.find(self.mark)
        return text if self._may_stand_behind(text, at) else text[:at]

    def _may_stand_behind(self, text: bytes, at: int, body: bytes = b"") -> bool:
        """Return whether the broker's `ack` need not stand in front of the mark, which is `at`; see `RawHeads`."""
        tells = self.heads.order.search(text, 0, at) is not None or self._are_many(text, body)
        return tells or _ACK.search(text, 0, at) is None

    def _tells_order(self, text: bytes) -> bool:
        """Return whether the rest of the message that `text` was cut off leaves open where its `ack` stands."""
        return self.heads.order.search(text) is not None or self._are_many(text)

    def _are_many(self, *parts: bytes) -> bool:
        """
        Return whether a message with these parts may have so many headers that none tells their order.

        A name may end the head, so that any line may be a header.
        """
        if sum(map(len, parts)) <= _HEADER * self.heads.ordered:
            return False
        return sum(part.count(b"\n") for part in parts) > self.heads.ordered

    def _is_unnumbered(self, text: bytes) -> bool:
        """Return whether the message that begins `text` has no `ack`, because its subscription acknowledges none."""
        at = text.find(self.mark) if self.unnumbered else 0
        return text[text.rfind(b"\n", 0, at) + 1 : at] in self.unnumbered

    def _is_unsure(self, text: bytes, found: list[tuple[int, int]], head_end: int) -> bool:
        """
        Return whether it is not certain that the lowest `ack`, in the head of a link's first message, is the broker's.

        The sender may have ended the head above the broker's. Raises _TornError if he did.
        """
        prefix, least = self._floor(text)
        if least >= 0:
            return False
        if not any(at > head_end and _EMPTY_LINE.search(text, at) for _, at in found):
            self._told.links = 0
            return False
        number, unsure = self._first(text, prefix)
        if not unsure and number != _lowest(found)[0]:
            raise _TornError(_TWO_ACKS)
        return unsure

    def _message(self, block: bytes, body: bytes, *, unsure: bool) -> MessageFrame:
        """Return the message as the broker would have written it without the mark, and as large as it was with it."""
        frame = MessageFrame(self._bared(block), body)
        frame.size += len(block) - len(frame.block)
        frame.unsure = unsure
        return frame

    def _answer(self, command: bytes, block: bytes, body: bytes) -> Frame:
        """Parse another frame; raises _StrayError if a message of this link is in its body: it is a sender's then."""
        if self._guarded and (
            self._is_sealed(body, b"subscription:")
            or (b"\0" in body and _BEFORE_MESSAGE.search(body) is not None)
        ):
            raise _StrayError("the broker sent a message inside the body of another frame")
        return _control(command, self._bared(block), self._bared(body))

    def _bared(self, text: bytes) -> bytes:
        """Return `text` as the broker would have written it without the mark."""
        return text.replace(self.mark, b"") if self.mark else text

    # Truncated messages ----------------------------------------------------------------------------------------------

    def _wait(self, odd: _Oddity, position: int) -> int | None:
        """Return None, for nothing can be told of what begins at `position` before the mark has come once more."""
        self._odd, self._odd_from = odd, position
        return None

    def _next_mark(self, data: bytes, position: int) -> int:
        """Return where the mark is next, with the rest of its head behind it; -1: not here yet."""
        at = data.find(self.mark, position)
        self._headless = at >= 0 and _EMPTY_LINE.search(data, at) is None
        return -1 if self._headless else at

    def _look_through(
        self, data: bytes, position: int, frames: list[Frame | MessageFrame], error: _OddError
    ) -> int | None:
        """
        Deal with what begins here like a MESSAGE, but is none as it stands; returns as `_judge`.

        The sender of the message in front may have written it into his body, or the sender of this one into its head,
        so that what looks like the next frame lacks something.
        """
        place = self._suspect(frames)
        accused = place is not None or (
            bool(self._last.block) and all(frame.command == "ERROR" for frame in frames)
        )
        own = self._next_mark(data, position)
        if own < 0:
            if place is not None and not _is_torn(frames[place]):
                position = self._take_back(frames, place)
            return self._wait(_Oddity.UNCLEAR, position)
        inside = _borders(data, position, own)
        written_in_front = inside and self._begins_at(data, position, inside) > position
        if accused and written_in_front:
            return self._blame(data, position, frames, error)
        self._why = str(error)
        return self._mend(data, position, frames)

    def _suspect(self, frames: list[Frame | MessageFrame]) -> int | None:
        """Return which frame of this chunk came before: the last message, unless a RECEIPT shows that it was whole."""
        for place in range(len(frames) - 1, -1, -1):
            if isinstance(frames[place], MessageFrame):
                return place
            if frames[place].command != "ERROR":
                break
        return None

    def _blame(
        self, data: bytes, position: int, frames: list[Frame | MessageFrame], error: _StrayError
    ) -> int | None:
        """
        Deal with what is no frame: the message before it was not whole, and goes on; returns as `_judge`.

        ERRORs in between may be a part of it. Raises `error` if there is none to blame.
        """
        if not self._guarded:
            raise error
        place = self._suspect(frames)
        self._why = _INSIDE
        if place is None:
            only_errors = all(frame.command == "ERROR" for frame in frames)
            if not (self._last.block and only_errors):
                raise error
            if not self._last.broken:
                late = self._last.truncated(_INSIDE)
                late.late = True
                frames.append(late)
                self._begun.append((position, self._known, self._dubious))
            return self._pass_over(data, position)
        if _is_torn(frames[place]):
            del frames[place + 1 :], self._begun[place + 1 :]
            return self._pass_over(data, position)
        return self._mend(data, self._take_back(frames, place), frames)

    def _take_back(self, frames: list[Frame | MessageFrame], place: int) -> int:
        """Take back that frame and all behind it, to be read once more; return where it begins."""
        start, self._known, self._dubious = self._begun[place]
        self._whole -= len(frames) - place
        del frames[place:], self._begun[place:]
        return start

    def _mend(self, data: bytes, position: int, frames: list[Frame | MessageFrame]) -> int | None:
        """Add the truncated message that begins at `position`; see `_judge`."""
        own = data.find(self.mark, position)
        following = -1 if own < 0 else self._next_mark(data, own + len(self.mark))
        if following < 0:
            return self._wait(_Oddity.TRUNCATED, position)
        self._begun.append((position, self._known, self._dubious))
        dubious = self._dubious
        end = self._next_start(data, position, own, following)
        frames.append(self._torn(data[position:end], dubious=dubious))
        self._whole += 1
        return end

    def _pass_over(self, data: bytes, position: int) -> int | None:
        """Return where the next frame begins, behind what a sender wrote."""
        following = self._next_mark(data, position)
        if following < 0:
            return self._wait(_Oddity.PASSED, position)
        return self._next_start(data, position, position, following)

    def _next_start(self, data: bytes, position: int, own: int, following: int) -> int:
        """
        Return where the frame begins whose mark is at `following`, behind one that begins at `position` and has its at
        `own`.

        It is the last place where a frame may begin, but none that would cut off its `ack`, for its sender can write
        such places, too; and none that would cut off the `ack` of the frame before.
        """
        borders = _borders(data, own, following)
        if not borders:
            raise ProtocolError("the broker sent a frame inside the head of another")
        if _is_of_receipt(data, following):
            return borders[-1]
        found = self._acks(data, position, following)
        settled = own > position and not self._is_unnumbered(data[position : own + len(self.mark)])
        lowest, at = min(found) if found and settled else (-1, own)
        borders = [one for one in borders if one > at] or borders
        others = [one for one in found if one[0] > lowest and one[1] > borders[0]]
        number, at = _lowest(others) if others else (None, following)
        fitting = [one for one in borders if one <= at] or borders
        full = self._full(data, fitting, number)
        start = full[-1] if full else fitting[0]
        self._dubious = self._tells_order(data[borders[0] : start])
        return start

    def _begins_at(self, data: bytes, position: int, borders: list[int]) -> int:
        """Return where the frame begins whose mark is the next: at `position`, or at one of `borders` behind it."""
        own = data.find(self.mark, position)
        if _is_of_receipt(data, own):
            return borders[-1]
        following = data.find(self.mark, own + len(self.mark))
        found = self._acks(data, position, len(data) if following < 0 else following)
        number, at = _lowest(found) if found else (None, own)
        full = self._full(data, [one for one in borders if one <= at], number)
        return full[-1] if full else position

    def _full(self, data: bytes, starts: list[int], number: int | None) -> list[int]:
        """
        Return those of `starts` at which a MESSAGE begins that is as the broker writes it, and whose `ack` is `number`.

        A sender can write very many of them, so those whose heads end at the same empty line are looked at together.
        """
        found: list[int] = []
        at = 0
        while at < len(starts):
            first = starts[at]
            empty_line = _EMPTY_LINE.search(data, first)
            end = len(data) if empty_line is None else empty_line.end()
            behind = bisect.bisect_left(starts, end)
            heads = [start - first for start in starts[at:behind]]
            found += [first + start for start in self._full_in(data[first:end], heads, number)]
            at = behind
        return found

    def _full_in(self, text: bytes, starts: list[int], number: int | None) -> list[int]:
        """Do as `_full` does, for heads that all go on to the end of `text`."""
        message, end, browsed = _with_one_each(text, (*_ALWAYS, *self.heads.message)), range(0), -1
        if self.heads.browser_end is not None:
            name, value = self.heads.browser_end
            browsed = text.rfind(b"\n%s:%s" % (name, value))
            end = _with_one_each(text, (*_ALWAYS, name))
        if number is not None and not self._is_unnumbered(text):
            starts = self._settled_in(text, starts, number)
        return [start for start in starts if start in (end if start <= browsed else message)]

    def _settled_in(self, text: bytes, starts: list[int], number: int) -> list[int]:
        """
        Return those of `starts` of a head up to the end of `text` in which the broker's `ack` has this number.

        It stands behind the mark only where no `ack` is in front of that, or what tells the order; see `RawHeads`.
        """
        mark_at = text.find(self.mark)
        acks = [(one.start(), int(one[2])) for one in _ACK.finditer(text)]
        last = max((at for at, one in acks if one == number), default=-1)
        in_front = [(at, one) for at, one in acks if at < mark_at]
        last_in_front = max((at for at, one in in_front if one == number), default=-1)
        any_in_front = max((at for at, _ in in_front), default=-1)
        order = [one.start() for one in self.heads.order.finditer(text, 0, max(mark_at, 0))]
        told = len(text) if self._are_many(text) else max(order, default=-1)
        return [
            start
            for start in starts
            if start <= last_in_front or (start <= last and (start <= told or start > any_in_front))
        ]

    def _torn(self, text: bytes, *, dubious: bool) -> MessageFrame:
        """
        Return the truncated message of which `text` came; the headers that settle it and name its subscription are
        first.

        `dubious`: it may begin earlier.
        """
        at = text.find(self.mark)
        start = text.rfind(b"\n", 0, at) + 1
        lines = [text[start:at]]
        numbered = text if dubious else self._front(text)
        found = [] if self._is_unnumbered(text) else self._acks(numbered)
        unsure = False
        if found:
            (prefix, least), (number, _) = self._floor(numbered), _lowest(found)
            if least < 0:
                number, unsure = self._first(numbered, prefix)
            self._known = b"ack:%s%d" % (prefix, number)
            lines.append(self._known)
        head = text[text.index(b"\n") + 1 :]
        if self._is_sealed(head.partition(b"\n\n")[0], b"subscription:"):
            head = head.partition(b"\n\n")[0]
        lines += self._bared(head[:HEAD_LIMIT]).split(b"\n")
        whole = MessageFrame(b"\n".join(lines), b"", len(text))
        torn = whole.truncated(self._why or _INSIDE, self._bared(text))
        torn.unsure = unsure
        return torn

    def _first(self, text: bytes, prefix: bytes) -> tuple[int, bool]:
        """Return the number that settles the first message of a link, and whether the link is given up for it."""
        acks = _all_acks(text)
        for candidates in (self._fresh(acks), acks):
            near = [one for one in candidates if one[0].startswith(self.origin)]
            ours = [number for one, number in candidates if one == prefix]
            if len(ours) == 1:
                if len(near) == 1:  # else its prefix may be a guess
                    self._told.links = 0
                return ours[0], False
        lowest = min(number for one, number in acks if one == prefix)
        return lowest, self._give_up_for(acks)

    def _give_up_for(self, acks: Counter[tuple[bytes, int]]) -> bool:
        """Tell the next link the `acks` of a first message; return whether this link is given up for that."""
        self._told.acks = acks
        self._told.links = self._told_links + 1
        return self._told.links <= LINKS

    def _fresh(self, acks: Counter[tuple[bytes, int]]) -> Counter[tuple[bytes, int]]:
        """
        Return those of `acks` of a link's first message that did not stand in it before.

        What earlier links told is of this message only if all but one of their `acks` stand here again: two messages of
        one sender could hide the broker's own `ack`.
        """
        told = self._told_acks
        return acks - told if (told - acks).total() <= 1 else acks

    def _acks(self, text: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
        """
        Return the numbers of the `acks` that may settle a message that is not understood, and where they stand.

        Raises ProtocolError where nobody can tell how the broker's own begin.
        """
        stop = len(text) if end is None else end
        prefix, least = self._floor(text)
        found = [
            (int(one[2]), one.start())
            for one in _ACK.finditer(text, start, stop)
            if one[1] == prefix and int(one[2]) > least
        ]
        if least >= 0:
            return found
        fresh = self._fresh(_all_acks(text))
        return [one for one in found if (prefix, one[0]) in fresh] or found

    def _floor(self, text: bytes) -> tuple[bytes, int]:
        """Return how each `ack` of this link begins, and the last one's number; -1 if `text` is the first message."""
        found = _ACK.search(b"\n" + self._known + b"\n")
        if found is not None:
            return found[1], int(found[2])
        acks = _all_acks(text)
        told = {prefix for prefix, _ in self._fresh(acks) or acks}
        origins = {one for one in told if one.startswith(self.origin)} or told
        if len(origins) > 1 and self._give_up_for(acks):
            raise ProtocolError(f"{_TWO_ACKS}{_told(text)}")
        return min(origins, default=self.origin), -1

    def _head(self, data: bytes, block_start: int) -> tuple[int, int] | None:
        """
        Return where the head ends and the body starts; None if that is not here yet.

        Raises _OddError for a NUL: the broker writes none into a head, so this may be a part of the body before it.
        """
        start = block_start - 1  # the end of the first line may be half of the empty one
        empty_line = _EMPTY_LINE.search(data, start)
        if empty_line is None:
            if self._guarded and data.find(b"\0", start) >= 0:
                raise _OddError("the broker sent a frame inside the head of another")
            return None
        _check_head(empty_line.start() - start)
        return empty_line.span()

    def _body_end(
        self, data: bytes, block_start: int, head_end: int, body_start: int
    ) -> int | None:
        """Return where the closing NUL stands; None if it is to come. Raises _TornError if the body ends elsewhere."""
        length_at = data.find(_LENGTH, block_start - 1, head_end)
        if length_at < 0:
            body_end = data.find(b"\0", body_start)
            self._in_text = body_end < 0
            _check_body((body_end if body_end >= 0 else len(data)) - body_start, self._limit)
        else:
            try:
                size = _length(data, length_at + len(_LENGTH), head_end, self._limit)
            except ProtocolError as error:
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
        if self._guarded:  # a line feed belongs to the frame, too
            if body_end + 1 == len(data):
                self._missing = 1
                return None
            if data[body_end + 1] != _LF:
                raise _TornError(_INSIDE)
        return body_end


#: What is wrong with a body whose end is not known.
_INSIDE: Final = "the broker sent a body with a NUL in it, and not its true length"
_OTHERS_INSIDE: Final = "the broker sent a content-length greater than the body is"
_TWO_SUBSCRIPTIONS: Final = "the broker sent a message with two subscription headers"
_NO_ACK: Final = "the broker sent a message without an ack header"
_TWO_ACKS: Final = "the broker sent a message with two ack headers"


class _SuspectError(ProtocolError):
    """What has come is not as the broker writes it."""


class _TornError(_SuspectError):
    """It is not known where the body of this frame ends."""


class _StrayError(_SuspectError):
    """Where a frame of the broker's should begin, there is none."""


class _OddError(_StrayError):
    """Where a MESSAGE begins, there is none as it stands."""


def _is_head_behind(text: bytes) -> bool:
    """Return whether a frame ends with the first byte of `text`, and the rest begins one more frame's head."""
    first = _FRAME_BEHIND.match(text)
    return bool(first and b"\0" not in text[1:] and not _EMPTY_LINE.search(text, first.end() - 1))


def _has_later(block: bytes, text: bytes) -> bool:
    """Return whether `text` names an `ack` that the broker may have given after that of the head `block`, if any."""
    own = _ACK.search(b"\n" + block + b"\n")
    return any(
        own is None or (one[1] == own[1] and int(one[2]) > int(own[2]))
        for one in _ACK.finditer(text)
    )


def _all_acks(text: bytes) -> Counter[tuple[bytes, int]]:
    """Return how often each `ack` stands in `text`, whoever wrote it: how it begins, and its number."""
    return Counter((one[1], int(one[2])) for one in _ACK.finditer(text))


def _lowest(acks: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the `ack` with the lowest number; of equal ones the last: a sender has guessed those before it."""
    return min(acks, key=lambda one: (one[0], -one[1]))


def _with_one_each(text: bytes, names: tuple[bytes, ...]) -> range:
    """Return where in `text` a head may begin that goes on to its end, and has one header of each of these names."""
    lines = [b"\n%s:" % name for name in names]
    last = [text.rfind(line) for line in lines]
    before = [text.rfind(line, 0, max(at, 0)) for line, at in zip(lines, last, strict=True)]
    return range(max(before) + 1, min(last) + 1)


def _is_of_receipt(data: bytes, mark_at: int) -> bool:
    """Return whether the mark that is there is a RECEIPT's, into which no sender writes."""
    return data.startswith(b"receipt-id:", data.rfind(b"\n", 0, mark_at) + 1)


def _is_torn(frame: Frame | MessageFrame) -> bool:
    return isinstance(frame, MessageFrame) and bool(frame.broken)


def _lines(block: bytes, name: bytes) -> int:
    """Return how many lines of a head begin with `name`."""
    return block.count(b"\n" + name) + block.startswith(name)


def _borders(data: bytes, start: int, mark_at: int) -> list[int]:
    """Return where behind `start` the frame may begin whose mark is at `mark_at`, which tells if it is an answer."""
    border = _BEFORE_ANSWER if _is_of_receipt(data, mark_at) else _BEFORE_MESSAGE
    return [one.end() for one in border.finditer(data, start, mark_at)]


def _told(head: bytes) -> str:
    """Return, for errors, which message a frame with this `head` is."""
    lines = head.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
    told = [line for line in lines if line.partition(":")[0] in _TELLTALES]
    return f" ({', '.join(told)})" if told else ""


def _control(command: bytes, block: bytes, body: bytes) -> Frame:
    """Parse a CONNECTED, RECEIPT or ERROR; the headers of CONNECTED are never escaped."""
    try:
        headers = parse_headers(block, escaped=command != _CONNECTED)
    except ProtocolError as error:
        raise _StrayError(str(error)) from error
    if command == b"RECEIPT" and "receipt-id" not in headers:
        raise _StrayError("the broker sent a RECEIPT without receipt-id")
    return Frame(command.decode(), headers, body)


def _check_beginning(text: bytes) -> None:
    """Raise _StrayError unless `text` may become the first line of a frame when more of it has come."""
    if not any(line.startswith(text) for line in _FIRST_LINES):
        looks = next((f": it looks like {word}" for mark, word in _OTHERS if mark in text), "")
        raise _StrayError(f"what answers does not speak STOMP{looks}")


def _check_head(size: int) -> None:
    if size > HEAD_LIMIT:
        raise ProtocolError(f"the broker sent a header block of more than {HEAD_LIMIT} bytes")


def _check_body(size: int, limit: int) -> None:
    if size > limit:
        raise ProtocolError(
            f"the broker sent a body of {size} bytes or more, and the limit is {limit}"
            " (max_body_size, for messages)"
        )


def _length(data: bytes, start: int, end: int, limit: int) -> int:
    """Return the number of a content-length header, whose value starts at `start`."""
    digits = data[start:end].partition(b"\n")[0].strip()
    size = whole(digits.decode("latin-1"))
    if size is None:
        raise ProtocolError("the broker sent a content-length that is no number")
    _check_body(size, limit)
    return size
