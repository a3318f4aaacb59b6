"""The bytes from a broker, cut into frames: the same ones however they arrive, and an end to what is no STOMP."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from jmsx.core import wire
from jmsx.core.wire import BODY_LIMIT, HEAD_LIMIT, Splitter
from tests.depth import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.core.frames import Frame, MessageFrame

#: Command, headers and body.
Seen = tuple[str, dict[str, str], bytes]

RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0"
ERROR = b"ERROR\nmessage:no\ncontent-length:3\n\na\0b\0"
RECEIPT_SEEN: Seen = ("RECEIPT", {"receipt-id": "1"}, b"")
ERROR_SEEN: Seen = ("ERROR", {"message": "no", "content-length": "3"}, b"a\0b")


def message(body: bytes, **headers: str) -> Seen:
    """A MESSAGE; `length` is its content-length."""
    return "MESSAGE", {name.replace("_", "-"): value for name, value in headers.items()}, body


#: A stream, and the frames in it.
STREAMS = {
    "nothing": (b"", []),
    "one message": (b"MESSAGE\na:1\n\nbody\0", [message(b"body", a="1")]),
    "empty body": (b"MESSAGE\na:1\n\n\0", [message(b"", a="1")]),
    "no headers": (b"MESSAGE\n\nbody\0", [message(b"body")]),
    "no headers, CRLF": (b"MESSAGE\r\n\r\nbody\0", [message(b"body")]),
    "two, back to back": (
        b"MESSAGE\na:1\n\nx\0MESSAGE\na:2\n\ny\0",
        [message(b"x", a="1"), message(b"y", a="2")],
    ),
    "NULs in a body of known length": (
        b"MESSAGE\ncontent-length:3\na:1\n\n\0\0\0\0",
        [message(b"\0\0\0", content_length="3", a="1")],
    ),
    "known length of 0": (
        b"MESSAGE\na:1\ncontent-length:0\n\n\0",
        [message(b"", a="1", content_length="0")],
    ),
    "a frame in a body": (
        b"MESSAGE\na:1\ncontent-length:20\n\nMESSAGE\nb:2\n\nfake\0!!\0",
        [message(b"MESSAGE\nb:2\n\nfake\0!!", a="1", content_length="20")],
    ),
    "a body that looks like a head": (
        b"MESSAGE\na:1\n\ncontent-length:99\n\n\r\n\r\n\0",
        [message(b"content-length:99\n\n\r\n\r\n", a="1")],
    ),
    "CRLF": (
        b"MESSAGE\r\na:1\r\ncontent-length:2\r\n\r\n\0\0\0",
        [message(b"\0\0", a="1", content_length="2")],
    ),
    "CRLF, and a body that begins with LF": (
        b"MESSAGE\r\na:1\r\ncontent-length:2\r\n\r\n\nx\0",
        [message(b"\nx", a="1", content_length="2")],
    ),
    "CRLF and LF in the body": (b"MESSAGE\r\na:1\r\n\r\nx\n\ny\0", [message(b"x\n\ny", a="1")]),
    "LF and CRLF in the body": (b"MESSAGE\na:1\n\nx\r\n\r\n\0", [message(b"x\r\n\r\n", a="1")]),
    "padded length": (
        b"MESSAGE\ncontent-length: 2 \na:1\n\nab\0",
        [message(b"ab", content_length=" 2 ", a="1")],
    ),
    "a header that only ends so": (
        b"MESSAGE\nx-content-length:9\na:1\n\nab\0",
        [message(b"ab", x_content_length="9", a="1")],
    ),
    "the first of repeated lengths wins": (
        b"MESSAGE\ncontent-length:2\ncontent-length:9\n\nab\0",
        [message(b"ab", content_length="2")],
    ),
    "heart-beats between": (
        b"\n\nMESSAGE\na:1\n\nx\0\n\r\n\nMESSAGE\na:2\n\ny\0\n",
        [message(b"x", a="1"), message(b"y", a="2")],
    ),
    "others": (RECEIPT + b"\n" + ERROR, [RECEIPT_SEEN, ERROR_SEEN]),
    "mixed, in order": (
        RECEIPT + b"MESSAGE\na:1\n\nx\0" + ERROR + b"\nMESSAGE\na:2\n\ny\0",
        [RECEIPT_SEEN, message(b"x", a="1"), ERROR_SEEN, message(b"y", a="2")],
    ),
    "escapes, no text": (b"MESSAGE\nk:a\\cb\\n\n\n\xff\xfe\0", [message(b"\xff\xfe", k="a:b\n")]),
    "CONNECTED is not escaped": (
        b"CONNECTED\nsession:a\\cb\\x\n\n\0",
        [("CONNECTED", {"session": r"a\cb\x"}, b"")],
    ),
    "incomplete body": (b"MESSAGE\na:1\n\nnot yet over", []),
    "incomplete head": (b"MESSAGE\na:1\n", []),
    "incomplete command": (b"\nCONNECT", []),
    "incomplete known length": (b"MESSAGE\ncontent-length:3\n\nab\0", []),
}


def seen(frames: list[Frame | MessageFrame]) -> list[Seen]:
    """The frames, to be compared."""
    return [(frame.command, dict(frame.headers), frame.body) for frame in frames]


def fed(splitter: Splitter, chunks: Iterator[bytes] | list[bytes]) -> list[Seen]:
    """What comes out of all chunks together."""
    return [one for chunk in chunks for one in seen(splitter.feed(chunk))]


def cut(stream: bytes, size: int) -> Iterator[bytes]:
    """The stream in chunks of this size."""
    return (stream[at : at + size] for at in range(0, len(stream), size))


@pytest.mark.parametrize(("stream", "frames"), STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10**6])
def test_stream_in_chunks(stream: bytes, frames: list[Seen], size: int) -> None:
    """Whole, byte by byte, and in between."""
    splitter = Splitter()
    assert fed(splitter, cut(stream, size)) == frames
    assert splitter.fault is None


@pytest.mark.parametrize(("stream", "frames"), STREAMS.values(), ids=STREAMS)
def test_stream_cut_once_anywhere(stream: bytes, frames: list[Seen]) -> None:
    """Every place where a chunk may end."""
    for at in some(range(len(stream) + 1)):
        assert fed(Splitter(), [stream[:at], stream[at:]]) == frames


def test_frames_come_as_soon_as_they_are_whole() -> None:
    """Not a byte later."""
    splitter = Splitter()
    assert splitter.feed(b"MESSAGE\na:1\n\nx") == []
    assert seen(splitter.feed(b"\0RECEIPT\nreceipt-id:1\n\n")) == [message(b"x", a="1")]
    assert seen(splitter.feed(b"\0")) == [RECEIPT_SEEN]


NO_STOMP = {
    "no number": (b"MESSAGE\ncontent-length:x\n\n\0", "content-length that is no number"),
    "negative": (b"MESSAGE\ncontent-length:-1\n\n\0", "content-length that is no"),
    "empty length": (b"MESSAGE\ncontent-length:\n\n\0", "content-length that is no"),
    "a number without end": (
        b"MESSAGE\ncontent-length:" + b"9" * 5000 + b"\n\n",
        "content-length that is no",
    ),
    "a gigabyte": (b"MESSAGE\ncontent-length:1000000000\n\n", "body of 1000000000 bytes"),
    "just beyond the limit": (
        b"MESSAGE\ncontent-length:%d\n\n" % (BODY_LIMIT + 1),
        f"the limit is {BODY_LIMIT}",
    ),
    "an ERROR beyond its own limit": (
        b"ERROR\ncontent-length:%d\n\n" % (HEAD_LIMIT + 1),
        f"the limit is {HEAD_LIMIT}",
    ),
    "too long": (b"MESSAGE\ncontent-length:1\n\nab\0", "longer than its content-length"),
    "a head without end": (b"MESSAGE\na:" + b"x" * HEAD_LIMIT, "header block of more than"),
    "a long head with an end": (
        b"MESSAGE\n" + b"a:\n" * HEAD_LIMIT + b"\n\0",
        "header block of more than",
    ),
    "a web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak STOMP"),
    "one wrong letter": (b"MESSAGX", "does not speak STOMP"),
    "a command of clients": (b"SEND\n\n\0", "does not speak STOMP"),
    "lower case": (b"message\n\n\0", "does not speak STOMP"),
    "NUL between frames": (b"\0", "does not speak STOMP"),
    "a TLS alert": (b"\x15\x03\x03\x00\x02\x02\x50", "looks like TLS; write stomp+ssl://"),
    "header without colon": (b"RECEIPT\nreceipt-id\n\n\0", "header line without a colon"),
    "undefined escape": (b"ERROR\nmessage:\\t\n\n\0", "undefined escape"),
    "half an escape": (b"ERROR\nmessage:x\\\n\n\0", "undefined escape"),
    "no UTF-8": (b"ERROR\nmessage:\xff\n\n\0", "no UTF-8"),
    "a receipt for nothing": (b"RECEIPT\na:1\n\n\0", "RECEIPT without receipt-id"),
}


@pytest.mark.parametrize(("stream", "complaint"), NO_STOMP.values(), ids=NO_STOMP)
@pytest.mark.parametrize("size", [7, 64 * 1024, 10**8])
def test_what_is_no_stomp_ends_it(stream: bytes, complaint: str, size: int) -> None:
    """Rather than read on for ever, or wrongly; what came before counts, what comes after does not."""
    splitter = Splitter()
    assert fed(splitter, cut(RECEIPT + stream, size)) == [RECEIPT_SEEN]
    assert complaint in str(splitter.fault)
    assert splitter.feed(RECEIPT) == []


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "a web server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"AMQP\0\1\0\0", "AMQP"),
        (b"\0\0\1\x79\1ActiveMQ", "OpenWire"),
        (b"\x15\x03\x03\0\2\2P", "stomp+ssl://"),
        (b"geheim", None),
    ],
)
def test_who_answers_instead(text: bytes, guess: str | None) -> None:
    """Well-known ones are told by name; what was said is not shown, for it may be a secret."""
    splitter = Splitter()
    splitter.feed(text)
    assert (guess or "") in str(splitter.fault)
    assert ("looks like" in str(splitter.fault)) == (guess is not None)
    assert "geheim" not in str(splitter.fault)


def test_claimed_length_at_the_limit_is_awaited_and_costs_nothing() -> None:
    """The limit is the most that is allowed; memory is taken for bytes that have come, and not for a claim."""
    splitter = Splitter()
    tracemalloc.start()
    try:
        assert splitter.feed(b"MESSAGE\ncontent-length:%d\n\n" % BODY_LIMIT) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert splitter.fault is None
    assert peak < 10_000


@pytest.mark.parametrize("size", [10, 999, 10**6])
@pytest.mark.parametrize(
    ("command", "limit"), [(b"MESSAGE", 3 * HEAD_LIMIT), (b"ERROR", HEAD_LIMIT)]
)
def test_endless_body_is_refused(command: bytes, limit: int, size: int) -> None:
    """Also one that claims no length, in whatever chunks; what is kept is bounded."""
    splitter, sent = Splitter(3 * HEAD_LIMIT), 0
    splitter.feed(command + b"\n\n")
    while splitter.fault is None:
        splitter.feed(b"x" * size)
        sent += size
        assert sent <= HEAD_LIMIT + limit + size
    assert f"the limit is {limit}" in str(splitter.fault)


def test_body_of_the_limit_is_taken() -> None:
    """With and without a length; one byte more is not."""
    for length in (b"", b"content-length:1000\n"):
        (frame,) = Splitter(1000).feed(b"MESSAGE\n" + length + b"\n" + b"x" * 1000 + b"\0")
        assert len(frame.body) == 1000
    splitter = Splitter(1000)
    assert splitter.feed(b"MESSAGE\n\n" + b"x" * 1001 + b"\0") == []
    assert "body of 1001 bytes" in str(splitter.fault)


class Counting(Splitter):
    """Counts the bytes that are looked at."""

    looked_at = 0

    def _split(self, data: bytes, frames: list[Frame | MessageFrame]) -> None:
        self.looked_at += len(data)
        super()._split(data, frames)


@pytest.mark.parametrize("length", ["", "content-length:%d\n"])
@pytest.mark.parametrize("chunk", [1024, 64 * 1024])
def test_big_body_is_looked_at_twice_at_most(chunk: int, length: str) -> None:
    """When it begins and when it is whole: the work grows with the bytes, not with their square."""
    size = 8_000_000
    head = f"MESSAGE\na:1\n{length % size if length else length}\n"
    stream = head.encode() + b"x" * size + b"\0" + RECEIPT
    splitter = Counting()
    first, second = fed(splitter, cut(stream, chunk))
    assert (len(first[2]), second) == (size, RECEIPT_SEEN)
    assert splitter.looked_at <= len(stream) + 2 * chunk


def test_slow_head_is_looked_at_once() -> None:
    """Byte by byte, line by line: a peer that drips its header lines does not keep us busy."""
    stream = b"MESSAGE\n" + b"a:1\n" * 20_000 + b"\nbody\0"
    splitter = Counting()
    ((_, headers, body),) = fed(splitter, cut(stream, 1))
    assert (headers, body) == ({"a": "1"}, b"body")
    assert splitter.looked_at <= 2 * len(stream) + 1000


def test_slow_body_takes_no_more_memory_than_its_bytes() -> None:
    """In chunks of two bytes, each of which is a Python object of its own until it is joined."""
    splitter = Splitter()
    splitter.feed(b"MESSAGE\n\n")
    tracemalloc.start()
    try:
        for number in range(50_000):
            splitter.feed(b"%02d" % (number % 100))
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # what threads of other tests allocate meanwhile is not the splitter's
    ours = [
        tracemalloc.Filter(inclusive=True, filename_pattern=one)
        for one in (__file__, wire.__file__)
    ]
    assert 100_000 <= sum(each.size for each in taken.filter_traces(ours).traces) < 250_000


def test_big_bodies_one_after_the_other() -> None:
    """The end of one and the beginning of the next are in one chunk."""
    body = b"y" * 100_000
    stream = (b"MESSAGE\na:1\n\n" + body + b"\0") * 5
    assert fed(Splitter(), cut(stream, 7001)) == [message(body, a="1")] * 5
