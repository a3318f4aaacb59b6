"""Client bytes to frames."""

from __future__ import annotations

import time

import pytest

from jmsx.core.frames import Frame, MessageFrame
from jmsx.testing.faults import ProtocolFault
from jmsx.testing.wire import FrameParser, encode

STREAM = (
    b"\n\nCONNECT\naccept-version:1.2\nlogin:a\\b\n\n\0\r\n"
    b"SEND\r\ndestination:/queue/a\r\nkey\\c:x\\ny\r\n\r\nplain\0\n"
    b"SEND\ndestination:/queue/a\ncontent-length:5\n\na\0b\n\n\0"
    b"ACK\nid:1\nid:2\n\n\0"
)
FRAMES = [
    Frame("CONNECT", {"accept-version": "1.2", "login": "a\\b"}),
    Frame("SEND", {"destination": "/queue/a", "key:": "x\ny"}, b"plain"),
    Frame("SEND", {"destination": "/queue/a", "content-length": "5"}, b"a\0b\n\n"),
    Frame("ACK", {"id": "1"}),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_chunks_do_not_matter(size: int) -> None:
    """The same frames come out, however the bytes are cut."""
    parser = FrameParser()
    found = [
        frame
        for start in range(0, len(STREAM), size)
        for frame in parser.feed(STREAM[start : start + size])
    ]
    assert found == FRAMES


@pytest.mark.parametrize("end_of_head", [b"", b"\n"], ids=["head", "body"])
def test_what_has_come_is_looked_at_once(end_of_head: bytes) -> None:
    """A frame of a megabyte in pieces takes a moment."""
    data = b"SEND\n" + end_of_head + b"key:value\n" * 100_000
    parser = FrameParser()
    started = time.process_time()
    for start in range(0, len(data), 256):
        assert not list(parser.feed(data[start : start + 256]))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "data",
    [b"SEND\nno colon\n\n\0", b"SEND\na:\\t\n\n\0", b"SEND\ncontent-length:1\n\nab\0"],
    ids=["header", "escape", "length"],
)
def test_garbage_is_fatal(data: bytes) -> None:
    """Bytes that are no STOMP end the connection."""
    with pytest.raises(ProtocolFault) as caught:
        list(FrameParser().feed(data))
    assert caught.value.fatal


@pytest.mark.parametrize(
    "frame", [MessageFrame.of({"a:b": "c\nd"}, b"x\0y"), Frame("RECEIPT", {"receipt-id": "1"})]
)
def test_encode_is_what_the_parser_reads(frame: Frame | MessageFrame) -> None:
    """Command, headers and body survive the wire."""
    data = encode(frame).replace(b"MESSAGE\n", b"MESSAGE\ncontent-length:3\n")
    (found,) = FrameParser().feed(data)
    assert found.command == frame.command
    assert found.body == frame.body
    assert frame.headers.items() <= found.headers.items()
