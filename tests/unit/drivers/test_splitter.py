"""The bytes from a broker, cut into frames: the same ones however they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.drivers.splitter import FRAME_LIMIT, HEAD_LIMIT, Splitter
from jmsx.errors import MessageFormatError

if TYPE_CHECKING:
    from jmsx.core.frames import MessageFrame

RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0"
ERROR = b"ERROR\nmessage:no\ncontent-length:3\n\na\0b\0"

#: A stream, the MESSAGEs in it (headers, body), and the bytes of everything else.
STREAMS = [
    pytest.param(b"", [], b"", id="nothing"),
    pytest.param(b"MESSAGE\na:1\n\nbody\0", [({"a": "1"}, b"body")], b"", id="one message"),
    pytest.param(b"MESSAGE\na:1\n\n\0", [({"a": "1"}, b"")], b"", id="empty body"),
    pytest.param(b"MESSAGE\n\nbody\0", [({}, b"body")], b"", id="no headers"),
    pytest.param(
        b"MESSAGE\na:1\n\nx\0MESSAGE\na:2\n\ny\0",
        [({"a": "1"}, b"x"), ({"a": "2"}, b"y")],
        b"",
        id="two, back to back",
    ),
    pytest.param(
        b"MESSAGE\ncontent-length:3\na:1\n\n\0\0\0\0",
        [({"content-length": "3", "a": "1"}, b"\0\0\0")],
        b"",
        id="NULs in a body of known length",
    ),
    pytest.param(
        b"MESSAGE\na:1\ncontent-length:0\n\n\0",
        [({"a": "1", "content-length": "0"}, b"")],
        b"",
        id="known length of 0",
    ),
    pytest.param(
        b"MESSAGE\na:1\ncontent-length:20\n\nMESSAGE\nb:2\n\nfake\0!!\0",
        [({"a": "1", "content-length": "20"}, b"MESSAGE\nb:2\n\nfake\0!!")],
        b"",
        id="a frame in a body",
    ),
    pytest.param(
        b"MESSAGE\na:1\n\ncontent-length:99\n\n\r\n\r\n\0",
        [({"a": "1"}, b"content-length:99\n\n\r\n\r\n")],
        b"",
        id="a body that looks like a head",
    ),
    pytest.param(
        b"MESSAGE\r\na:1\r\ncontent-length:2\r\n\r\n\0\0\0",
        [({"a": "1", "content-length": "2"}, b"\0\0")],
        b"",
        id="CRLF",
    ),
    pytest.param(
        b"MESSAGE\r\na:1\r\n\r\nx\n\ny\0",
        [({"a": "1"}, b"x\n\ny")],
        b"",
        id="CRLF and LF in the body",
    ),
    pytest.param(
        b"MESSAGE\na:1\n\nx\r\n\r\n\0",
        [({"a": "1"}, b"x\r\n\r\n")],
        b"",
        id="LF and CRLF in the body",
    ),
    pytest.param(
        b"MESSAGE\ncontent-length: 2 \na:1\n\nab\0",
        [({"content-length": " 2 ", "a": "1"}, b"ab")],
        b"",
        id="padded length",
    ),
    pytest.param(
        b"MESSAGE\nx-content-length:9\na:1\n\nab\0",
        [({"x-content-length": "9", "a": "1"}, b"ab")],
        b"",
        id="a header that only ends so",
    ),
    pytest.param(
        b"MESSAGE\ncontent-length:2\ncontent-length:9\n\nab\0",
        [({"content-length": "2"}, b"ab")],
        b"",
        id="the first of repeated lengths wins",
    ),
    pytest.param(
        b"\n\nMESSAGE\na:1\n\nx\0\n\r\n\nMESSAGE\na:2\n\ny\0\n",
        [({"a": "1"}, b"x"), ({"a": "2"}, b"y")],
        b"",
        id="heart-beats between",
    ),
    pytest.param(RECEIPT + b"\n" + ERROR, [], RECEIPT + ERROR, id="others, as they came"),
    pytest.param(
        RECEIPT + b"MESSAGE\na:1\n\nx\0" + ERROR + b"\nMESSAGE\na:2\n\ny\0",
        [({"a": "1"}, b"x"), ({"a": "2"}, b"y")],
        RECEIPT + ERROR,
        id="mixed",
    ),
    pytest.param(
        b"MESSAGE\nk:a\\cb\\n\n\n\xff\xfe\0",
        [({"k": "a:b\n"}, b"\xff\xfe")],
        b"",
        id="escapes, no text",
    ),
    pytest.param(b"MESSAGE\na:1\n\nnot yet over", [], b"", id="incomplete body"),
    pytest.param(b"MESSAGE\na:1\n", [], b"", id="incomplete head"),
    pytest.param(b"MESSAGE\ncontent-length:3\n\nab\0", [], b"", id="incomplete known length"),
]


def fed(*chunks: bytes) -> tuple[list[tuple[dict[str, str], bytes]], bytes]:
    """What comes out of all chunks together."""
    splitter = Splitter()
    messages, other = [], b""
    for chunk in chunks:
        found, rest = splitter.feed(chunk)
        messages += [(frame.headers, frame.body) for frame in found]
        other += rest
    return messages, other


@pytest.mark.parametrize(("stream", "messages", "other"), STREAMS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10**6])
def test_stream_in_chunks(
    stream: bytes, messages: list[tuple[dict[str, str], bytes]], other: bytes, size: int
) -> None:
    """Whole, byte by byte, and in between."""
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert fed(*chunks) == (messages, other)


@pytest.mark.parametrize(("stream", "messages", "other"), STREAMS)
def test_stream_cut_once_anywhere(
    stream: bytes, messages: list[tuple[dict[str, str], bytes]], other: bytes
) -> None:
    """Every place where a chunk may end."""
    for at in range(len(stream) + 1):
        assert fed(stream[:at], stream[at:]) == (messages, other)


def test_frames_come_as_soon_as_they_are_whole() -> None:
    """Not a byte later."""
    splitter = Splitter()
    assert splitter.feed(b"MESSAGE\na:1\n\nx") == ([], b"")
    (message,), other = splitter.feed(b"\0RECEIPT\nreceipt-id:1\n\n")
    assert (message.body, other) == (b"x", b"")
    assert splitter.feed(b"\0") == ([], RECEIPT)


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        pytest.param(b"MESSAGE\ncontent-length:x\n\n\0", "frame of b'x' bytes", id="no number"),
        pytest.param(b"MESSAGE\ncontent-length:-1\n\n\0", "frame of b'-1' bytes", id="negative"),
        pytest.param(b"MESSAGE\ncontent-length:\n\n\0", "frame of b'' bytes", id="empty"),
        pytest.param(
            b"MESSAGE\ncontent-length:%d\n\n" % (FRAME_LIMIT + 1),
            f"frame of b'{FRAME_LIMIT + 1}' bytes",
            id="beyond the limit",
        ),
        pytest.param(
            b"MESSAGE\ncontent-length:1\n\nab\0", "longer than its content-length", id="too long"
        ),
        pytest.param(
            b"MESSAGE\na:" + b"x" * HEAD_LIMIT, f"header block of more than {HEAD_LIMIT}", id="head"
        ),
    ],
)
def test_what_is_no_stomp_is_refused(stream: bytes, complaint: str) -> None:
    """Rather than read on for ever, or wrongly."""
    with pytest.raises(MessageFormatError, match=complaint):
        Splitter().feed(stream)


def test_claimed_length_at_the_limit_is_awaited() -> None:
    """The limit is the most that is allowed, and waiting for it costs nothing."""
    splitter = Splitter()
    assert splitter.feed(b"MESSAGE\ncontent-length:%d\n\n" % FRAME_LIMIT) == ([], b"")


def test_endless_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that claims no length."""
    monkeypatch.setattr("jmsx.drivers.splitter.FRAME_LIMIT", 1000)
    splitter = Splitter()
    assert splitter.feed(b"MESSAGE\n\n" + b"x" * 991) == ([], b"")
    with pytest.raises(MessageFormatError, match="frame of more than 1000 bytes"):
        splitter.feed(b"x")


class Counting(Splitter):
    """Counts the bytes that are looked at."""

    looked_at = 0

    def _split(self, data: bytes) -> tuple[list[MessageFrame], bytes, int]:
        self.looked_at += len(data)
        return super()._split(data)


@pytest.mark.parametrize("length", ["", "content-length:%d\n"])
@pytest.mark.parametrize("chunk", [1024, 64 * 1024])
def test_big_body_is_looked_at_twice_at_most(chunk: int, length: str) -> None:
    """When it begins and when it is whole: the work grows with the bytes, not with their square."""
    size = 8_000_000
    head = f"MESSAGE\na:1\n{length % size if length else length}\n"
    stream = head.encode() + b"x" * size + b"\0" + RECEIPT
    splitter = Counting()
    messages, other = [], b""
    for at in range(0, len(stream), chunk):
        found, rest = splitter.feed(stream[at : at + chunk])
        messages += found
        other += rest
    (message,) = messages
    assert (len(message.body), other) == (size, RECEIPT)
    assert splitter.looked_at <= len(stream) + 2 * chunk


def test_big_bodies_one_after_the_other() -> None:
    """The end of one and the beginning of the next are in one chunk."""
    body = b"y" * 100_000
    stream = (b"MESSAGE\na:1\n\n" + body + b"\0") * 5
    chunks = [stream[at : at + 7001] for at in range(0, len(stream), 7001)]
    assert fed(*chunks) == ([({"a": "1"}, body)] * 5, b"")


def test_endless_body_in_small_chunks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is counted, however it came."""
    monkeypatch.setattr("jmsx.drivers.splitter.FRAME_LIMIT", 1000)
    splitter = Splitter()
    splitter.feed(b"MESSAGE\n\n")
    for _ in range(99):
        splitter.feed(b"x" * 10)
    with pytest.raises(MessageFormatError, match="frame of more than 1000 bytes"):
        splitter.feed(b"x" * 10)
