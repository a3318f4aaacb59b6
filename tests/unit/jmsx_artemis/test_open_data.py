"""Messages as the management's `browse` tells them; `browsed.json` is what a broker answered for one."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from jmsx_artemis.open_data import messages
from tests.depth import some

NAME: Final = "javax.management.openmbean.CompositeData"


def told() -> dict[str, Any]:
    """The broker's answer."""
    answer: dict[str, Any] = json.loads(Path(__file__).with_name("browsed.json").read_text("utf-8"))
    return answer


def test_a_message_is_told_as_in_the_other_list() -> None:
    """Properties as they were sent, cut as there; what the broker says wins over a property of that name."""
    message = dict(messages(told())[0])
    assert message.pop("big") == "x" * 256 + ", + 44 more"
    assert message == {
        "_AMQ_ROUTING_TYPE": 1,
        "jmsx_key": "01a205787eda33e354877321062aab79",
        "destination-type": "ANYCAST",
        "jmsx_types": "i=n",
        "jmsx_digest": "c63ad8ef25b6e9a9020336f245b0b797",
        "destination": "q",
        "jmsx_type": "text",
        "n": "0",
        "transaction": "jmsx",
        "messageID": "26",
        "address": "q",
        "durable": True,
        "expiration": 0,
        "priority": 4,
        "timestamp": 1795388112608,
        "type": 3,
    }


def test_what_was_read_of_one_message_holds_for_the_next() -> None:
    """Its types; not its values."""
    [first] = told()[NAME]
    whole = base64.b64decode(first)
    second = base64.b64encode(whole.replace(b"01a205787eda33e3", b"01a205787eda33e4")).decode()
    found = messages({NAME: [first, second, first]})
    assert found[0] == found[2] == messages(told())[0]
    assert found[1] == {**found[0], "jmsx_key": "01a205787eda33e454877321062aab79"}


def test_what_is_cut_off_is_refused() -> None:
    """At any byte, by an error that says that it cannot be read."""
    whole = base64.b64decode(told()[NAME][0])
    for size in some(range(0, len(whole), 7)):
        with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
            messages({NAME: [base64.b64encode(whole[:size]).decode()]})


@pytest.mark.parametrize(
    ("written", "text"),
    [("grüße".encode(), "grüße"), (b"a\xc0\x80", "a\0"), (b"\xed\xa0\xbd\xed\xb8\x80", "😀")],
)
def test_texts_are_java_s(written: bytes, text: str) -> None:
    """Not quite UTF-8."""
    whole = base64.b64decode(told()[NAME][0])
    key = b"\x00\x20" + b"01a205787eda33e354877321062aab79"
    assert whole.count(key) == 1
    changed = whole.replace(key, len(written).to_bytes(2, "big") + written)
    assert messages({NAME: [base64.b64encode(changed).decode()]})[0]["jmsx_key"] == text


def test_the_array_of_a_bytes_message_is_read() -> None:
    """`browsed_bytes.json` is what a broker answered for two with three bytes each: 0, 0, 255 and 7, 0, 255."""
    answer = json.loads(Path(__file__).with_name("browsed_bytes.json").read_text("utf-8"))
    first, second = messages(answer)
    assert (first["n"], second["n"]) == ("0", "7")
    assert (first["jmsx_type"], first["type"], first["durable"]) == ("bytes", 4, True)
    assert messages({NAME: [told()[NAME][0], *answer[NAME]]})[1:] == [first, second]


def test_what_java_can_write_and_a_list_has_not_is_refused() -> None:
    """An enum, say."""
    with pytest.raises(ValueError, match="0x7e"):
        messages({NAME: [base64.b64encode(b"\xac\xed\x00\x05\x7e").decode()]})
    with pytest.raises(ValueError, match="no serialized"):
        messages({NAME: [base64.b64encode(b"hello").decode()]})


def test_a_stream_without_an_end_is_refused() -> None:
    """A class above itself, directly or by another one, and lists in lists: an answer may be anything."""

    def described(name: bytes) -> bytes:  # a class without fields, up to what is above it
        return b"\x72" + len(name).to_bytes(2, "big") + name + bytes(8) + b"\x02\0\0\x78"

    first = b"\x71\x00\x7e\x00\x00"  # what was described first
    streams = {
        "itself as a superclass": [
            b"\x73" + described(b"A") + first,
            b"\x73" + described(b"A") + described(b"B") + first,
        ],
        "too deep": [(b"\x75" + described(b"[L") + b"\x70\0\0\0\x01") * 10_000],
    }
    for why, several in streams.items():
        for stream in several:
            with pytest.raises(ValueError, match=why):
                messages({NAME: [base64.b64encode(b"\xac\xed\x00\x05" + stream).decode()]})
