"""The splitter: the same frames, however the bytes of a stream arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.wire import HEAD_LIMIT, Splitter
from jmsx.errors import ProtocolError
from tests.depth import rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
HEADERS = st.dictionaries(
    TEXT.filter(lambda name: name not in ("", "content-length")), TEXT, max_size=4
)
NASTY = st.sampled_from(
    [
        b"\n\n",
        b"\r\n\r\n",
        b"\n\r\n",
        b"\0\n",
        b"MESSAGE\n\nx",
        b"\ncontent-length:9\n\n",
        b"\r",
        b"\0\0",
    ]
)
LIES = [
    b"MESSAGE\n",
    b"CONNECTED\n",
    b"RECEIPT\nreceipt-id:1\n\n\0",
    b"ERROR\nmessage:\\x\n\n\0",
    b"content-length:-1\n",
    b"content-length:" + b"9" * 5000 + b"\n",
    b"content-length:3\n\n",
    b"ack:1\nack:2\n",
    b"\xff\xfe:\x00",
    b"x" * 600,
]
BODY = st.lists(st.one_of(st.binary(max_size=8), NASTY), max_size=4).map(b"".join)
BEATS = st.sampled_from([b"", b"\n", b"\r\n", b"\n\n\r\n"])


@st.composite
def frames(draw: st.DrawFn) -> Frame | MessageFrame:
    """A MESSAGE, RECEIPT or ERROR; with a content-length, or with a body that needs none."""
    headers, body = draw(HEADERS), draw(BODY)
    if draw(st.booleans()):
        position = draw(st.integers(0, len(headers)))
        items = list(headers.items())
        items.insert(position, ("content-length", str(len(body))))
        headers = dict(items)
    else:
        body = body.replace(b"\0", b"")
    if draw(st.booleans()):
        return MessageFrame.of(headers, body)
    if draw(st.booleans()):
        return Frame("RECEIPT", {"receipt-id": "1", **headers}, body)
    return Frame("ERROR", headers, body)


def seen(frames: Sequence[Frame | MessageFrame]) -> list[tuple[str, dict[str, str], bytes]]:
    """The frames, to be compared."""
    return [(frame.command, dict(frame.headers), frame.body) for frame in frames]


def wire(frame: Frame | MessageFrame, *, crlf: bool = False) -> bytes:
    """The bytes of a frame, its lines ended by LF or CRLF."""
    data = Frame(frame.command, frame.headers, frame.body).encode()
    if not crlf:
        return data
    head, _, body = data.partition(b"\n\n")
    return head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body


@given(st.lists(st.tuples(frames(), BEATS, st.booleans()), max_size=6), st.data())
def test_any_chunks_give_the_same_frames(
    stream: list[tuple[Frame | MessageFrame, bytes, bool]], data: st.DataObject
) -> None:
    """Cut anywhere, as often as one likes: all frames, in order, unchanged; heart-beats are let go."""
    written = [(frame, wire(frame, crlf=crlf), beat) for frame, beat, crlf in stream]
    everything = b"".join(text + beat for _, text, beat in written)
    cuts = data.draw(st.lists(st.integers(0, len(everything)), max_size=12).map(sorted))
    splitter = Splitter()
    found = [
        frame
        for start, end in zip([0, *cuts], [*cuts, len(everything)], strict=True)
        for frame in splitter.feed(everything[start:end])
    ]
    assert seen(found) == seen([frame for frame, _, _ in stream])
    assert splitter.fault is None


@given(st.lists(frames(), min_size=1, max_size=4))
def test_byte_by_byte(stream: list[Frame | MessageFrame]) -> None:
    """Each frame comes with its last byte, and none before."""
    splitter = Splitter()
    for frame in stream:
        data = wire(frame)
        for position in range(len(data) - 1):
            assert splitter.feed(data[position : position + 1]) == []
        assert seen(splitter.feed(data[-1:])) == seen([frame])


@given(st.lists(st.one_of(NASTY, st.binary(max_size=20), st.sampled_from(LIES)), max_size=20))
@settings(max_examples=rounds(300))
def test_anything_ends_in_frames_or_a_fault(stream: list[bytes]) -> None:
    """Whatever comes: no error of another kind, and what is kept is what has come."""
    splitter, sent = Splitter(1000), 0
    for data in stream:
        for frame in splitter.feed(data):
            assert frame.command in ("MESSAGE", "RECEIPT", "ERROR", "CONNECTED")
            assert len(frame.body) <= HEAD_LIMIT
        sent += len(data)
        assert len(splitter._kept) <= sent
    assert splitter.fault is None or isinstance(splitter.fault, ProtocolError)


@given(st.lists(frames(), min_size=1, max_size=4), st.data())
def test_a_flipped_byte_ends_in_frames_or_a_fault(
    stream: list[Frame | MessageFrame], data: st.DataObject
) -> None:
    """However it is cut, the same frames come out of a damaged stream, and the same fault."""
    damaged = bytearray(b"".join(wire(frame) for frame in stream))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] = data.draw(st.integers(0, 255))
    whole, dripped = Splitter(1000), Splitter(1000)
    at_once = _read(whole, [bytes(damaged)])
    assert _read(dripped, [bytes([byte]) for byte in damaged]) == at_once
    assert (whole.fault is None) == (dripped.fault is None)


def _read(splitter: Splitter, chunks: list[bytes]) -> list[tuple[str, bytes, bytes]]:
    """Command, header block (of a MESSAGE, not looked into) and body of all frames."""
    return [
        (frame.command, frame.block if isinstance(frame, MessageFrame) else b"", frame.body)
        for chunk in chunks
        for frame in splitter.feed(chunk)
    ]
