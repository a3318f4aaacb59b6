"""STOMP frames and their bytes."""

from __future__ import annotations

import pytest

from jmsx.core.frames import Frame, MessageFrame, escape, parse_headers, unescape
from jmsx.errors import ProtocolError


@pytest.mark.parametrize(
    ("plain", "wire"),
    [
        ("", ""),
        ("a b", "a b"),
        ("a:b", "a\\cb"),
        ("a\nb", "a\\nb"),
        ("a\rb", "a\\rb"),
        ("a\\b", "a\\\\b"),
        ("\\n", "\\\\n"),
        ("\\\n:", "\\\\\\n\\c"),
        ("ä€😀", "ä€😀"),
    ],
)
def test_escaping_goes_both_ways(plain: str, wire: str) -> None:
    """Source: STOMP 1.2, "Value Encoding"."""
    assert escape(plain) == wire
    assert unescape(wire) == plain


@pytest.mark.parametrize("wire", ["\\t", "a\\xb", "\\\\\\0", "half\\"])
def test_undefined_escape_is_refused(wire: str) -> None:
    """STOMP 1.2: undefined ones "MUST be treated as a fatal protocol error"."""
    with pytest.raises(ProtocolError, match="undefined escape"):
        unescape(wire)


@pytest.mark.parametrize(
    ("block", "headers"),
    [
        pytest.param(b"", {}, id="none"),
        pytest.param(b"a:1\nb:2", {"a": "1", "b": "2"}, id="two"),
        pytest.param(b"a:1\nb:2\n", {"a": "1", "b": "2"}, id="closed"),
        pytest.param(b"a:1\r\nb:2\r", {"a": "1", "b": "2"}, id="CRLF"),
        pytest.param(b"a:first\na:second", {"a": "first"}, id="the first of repeated ones wins"),
        pytest.param(b"a:", {"a": ""}, id="empty value"),
        pytest.param(b"a: 1 ", {"a": " 1 "}, id="no trimming"),
        pytest.param(b"a:b:c", {"a": "b:c"}, id="a stray colon stays"),
        pytest.param(b"a\\cb:c\\nd", {"a:b": "c\nd"}, id="escapes in name and value"),
        pytest.param("a:ä€".encode(), {"a": "ä€"}, id="UTF-8"),
    ],
)
def test_headers_are_read(block: bytes, headers: dict[str, str]) -> None:
    """Source: STOMP 1.2, "Value Encoding" and "Repeated Header Entries"."""
    assert parse_headers(block) == headers


def test_headers_that_are_no_utf_8_are_refused() -> None:
    """An id that is only nearly the broker's own acknowledges nothing, or the wrong thing."""
    with pytest.raises(ProtocolError, match="no UTF-8"):
        parse_headers(b"ack:\xff")


def test_headers_of_connected_are_not_escaped() -> None:
    """For the sake of STOMP 1.0 peers a backslash in them is a backslash."""
    assert parse_headers(b"server:a\\tb", escaped=False) == {"server": "a\\tb"}


def test_line_without_colon_is_refused() -> None:
    """The error does not show the line: nobody knows what it holds."""
    with pytest.raises(ProtocolError, match=r"without a colon$"):
        parse_headers(b"a:1\n" + b"x" * 500)


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (Frame("BEGIN", {"transaction": "t"}), b"BEGIN\ntransaction:t\n\n\0"),
        (Frame("ACK", {"id": "ID:h-1:2"}), b"ACK\nid:ID\\ch-1\\c2\n\n\0"),
        (Frame("SEND", {"a": "x\ny"}, b"body\0!"), b"SEND\na:x\\ny\n\nbody\0!\0"),
        (Frame("CONNECT", {"login": "a:b"}), b"CONNECT\nlogin:a:b\n\n\0"),
        (Frame("STOMP", {"login": "a:b"}), b"STOMP\nlogin:a:b\n\n\0"),
        (Frame("CONNECTED", {"session": "a:b"}), b"CONNECTED\nsession:a:b\n\n\0"),
        (Frame("SEND", {"x": "ä"}), "SEND\nx:ä\n\n\0".encode()),
    ],
)
def test_frames_are_written(frame: Frame, wire: bytes) -> None:
    """Source: STOMP 1.2, "STOMP Frames"; only CONNECT and CONNECTED are not escaped."""
    assert frame.encode() == wire


def test_message_keeps_its_block_and_reads_it_once() -> None:
    """Headers are parsed at the first look, and the same ones are given again."""
    frame = MessageFrame(b"message-id:ID\\c1\nack:7", b"body")
    assert frame.command == "MESSAGE"
    assert frame.headers == {"message-id": "ID:1", "ack": "7"}
    assert frame.headers is frame.headers
    assert frame.body == b"body"


def test_message_made_from_headers_reads_as_them() -> None:
    """Tests and fakes make MESSAGEs from what they mean."""
    headers = {"message-id": "ID:1", "a:b": "c\nd\\"}
    assert MessageFrame(MessageFrame.of(headers).block, b"").headers == headers


def test_message_shows_its_id_and_size_and_no_content() -> None:
    """What is in a message is nobody's business in a log."""
    assert repr(MessageFrame(b"message-id:7\nsecret:x", b"body")) == "<MESSAGE 7 [4 B]>"
    assert repr(MessageFrame(b"", b"")) == "<MESSAGE ? [0 B]>"
