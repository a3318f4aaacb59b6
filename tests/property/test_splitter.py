"""The splitter: the same frames, however the bytes of a stream arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jmsx.core.frames import Frame, MessageFrame
from jmsx.drivers.splitter import Splitter

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
    return Frame(draw(st.sampled_from(["RECEIPT", "ERROR"])), headers, body)


def wire(frame: Frame | MessageFrame, *, crlf: bool = False) -> bytes:
    """The bytes of a frame, its lines ended by LF or CRLF."""
    data = Frame(frame.command, frame.headers, frame.body).encode()
    if not crlf or frame.body.startswith(b"\n"):
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
    splitter, messages, other = Splitter(), [], b""
    for start, end in zip([0, *cuts], [*cuts, len(everything)], strict=True):
        found, rest = splitter.feed(everything[start:end])
        messages += found
        other += rest
    expected = [frame for frame, _, _ in written if isinstance(frame, MessageFrame)]
    assert [(one.headers, one.body) for one in messages] == [
        (one.headers, one.body) for one in expected
    ]
    assert other == b"".join(text for frame, text, _ in written if isinstance(frame, Frame))


@given(st.lists(frames(), min_size=1, max_size=4))
def test_byte_by_byte(stream: list[Frame | MessageFrame]) -> None:
    """Each frame comes with its last byte, and none before."""
    splitter = Splitter()
    for frame in stream:
        data = wire(frame)
        for position in range(len(data) - 1):
            assert splitter.feed(data[position : position + 1]) == ([], b"")
        messages, other = splitter.feed(data[-1:])
        if isinstance(frame, MessageFrame):
            assert [(one.headers, one.body) for one in messages] == [(frame.headers, frame.body)]
            assert other == b""
        else:
            assert (messages, other) == ([], data)
