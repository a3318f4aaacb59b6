"""Frames: what was meant is what is read, whatever it is made of."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from jmsx.core.frames import Frame, MessageFrame, escape, parse_headers, unescape
from jmsx.testing.wire import FrameParser

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(bool)
HEADERS = st.dictionaries(NAME, TEXT, max_size=5)


@given(TEXT)
@example("\\n")
@example("\\\\c:\r\n")
def test_unescape_undoes_escape(text: str) -> None:
    """And what is escaped fits on one header line."""
    assert unescape(escape(text)) == text
    assert not set("\r\n:") & set(escape(text))


@given(HEADERS)
def test_header_block_reads_as_what_it_was_made_of(headers: dict[str, str]) -> None:
    """Dump and parse are the identity."""
    assert parse_headers(MessageFrame.of(headers).block) == headers


@given(st.sampled_from(["SEND", "ACK", "ERROR"]), HEADERS, st.binary(max_size=40))
def test_frame_reads_as_what_it_was_made_of(
    command: str, headers: dict[str, str], body: bytes
) -> None:
    """By another parser than that of the driver."""
    headers = {**headers, "content-length": str(len(body))}
    (frame,) = FrameParser().feed(Frame(command, headers, body).encode())
    assert (frame.command, frame.headers, frame.body) == (command, headers, body)
