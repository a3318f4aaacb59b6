"""No header can end a session: hostile values in every header that jmsx reads, on both dialects."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsx.core.events import DeliveryEnded
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import GROUP_HEADERS, INT, time_ms
from jmsx.core.modes import AcknowledgeMode
from jmsx.jms.message import Message
from jmsx.jms.translation import ReceivedMessage
from jmsx_artemis.dialect import DIALECT as ARTEMIS
from jmsx_classic.dialect import DIALECT as CLASSIC
from tests.unit.core.harness import WALL, Talk, dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.core.dialect import Dialect

ROOT: Final = Path(__file__).parents[2]

#: Where the headers of a MESSAGE are read.
READERS: Final = (
    "jmsx/core", "jmsx/jms/translation.py", "adapters/jmsx_classic", "adapters/jmsx_artemis",
)  # fmt: skip

#: Which only the broker writes, and what a message is settled by.
OF_THE_BROKER: Final = {"ack", "subscription"}

HOSTILE: Final = (
    "", " ", "\0", "²", "٣", "-", "-5", "+7", "9" * 19, "9" * 20, "9" * 5000, str(INT + 1), "NaN", "inf", "-inf",
    "1e400", "1_000", "0x10", "true", "TRUE", "null", "a" * 900_000, "queue://", "://", "topic://%zz?a=b&c", "/queue/",
    "/temp-queue/", "queue://²", "\r", "line\nfeed", "co:lon", "back\\slash", "\x1b[2J", "\ufffe", "😀" * 3000,
    "text", "map", "bytes", "jms-map-xml",
)  # fmt: skip

BODIES: Final = (
    b"", b"body", b"\xff\xfe", b"\0", b'<?xml version="1.0" encoding="foo"?><map/>', b"<map><entry/></map>",
    b"<map><entry><string>a</string><int>" + b"9" * 5000 + b"</int></entry></map>", b"<map>" * 2000,
    "<map><entry><string>a</string><int>²</int></entry></map>".encode(),
    b"<map><entry><string>a</string><double>1e400</double></entry></map>",
)  # fmt: skip

MODES: Final = (
    AcknowledgeMode.AUTO_ACKNOWLEDGE,
    AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
    AcknowledgeMode.SESSION_TRANSACTED,
)


#: What is in each text in which `looked_up` finds anything; to parse the others takes each worker as long as 200 tests.
MAY_LOOK_UP: Final = re.compile(
    r"\b(headers|given)\s*(\.\s*get\b|\[)|\bin\s+[\w.\s]*\b(headers|given)\b|_HEADER\s*[:=]"
)


def read_headers() -> set[str]:
    """The names of all headers that are looked up, as they stand in the code."""
    names = {*GROUP_HEADERS.values()}
    for place in READERS:
        root = ROOT / place
        for path in [root] if root.is_file() else root.rglob("*.py"):
            text = path.read_text("utf-8")
            names |= set(looked_up(ast.parse(text if MAY_LOOK_UP.search(text) else "")))
    return names


def looked_up(tree: ast.AST) -> Iterator[str]:
    """`headers.get("x")`, `headers["x"]`, `"x" in headers`, and what is called `X_HEADER`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=where, attr="get"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield from [name] * is_headers(where)
            case ast.Subscript(value=where, slice=ast.Constant(value=str(name))):
                yield from [name] * is_headers(where)
            case ast.Compare(
                left=ast.Constant(value=str(name)),
                ops=[ast.In() | ast.NotIn()],
                comparators=[where],
            ):
                yield from [name] * is_headers(where)
            case (
                ast.AnnAssign(target=ast.Name(id=constant), value=ast.Constant(value=str(name)))
                | ast.Assign(targets=[ast.Name(id=constant)], value=ast.Constant(value=str(name)))
            ):
                yield from [name] * constant.endswith("_HEADER")


def is_headers(node: ast.AST) -> bool:
    """Whether it is called as headers are called here."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in {"headers", "given"}
    return False


#: The fields of a message that came in, but for its body.
LOOKED_AT: Final = [
    name
    for name in dir(Message())
    if not name.startswith("_") and name not in ("body", "json", "text")
]

NAMES: Final = sorted(read_headers() - OF_THE_BROKER)


def test_the_headers_are_found() -> None:
    """Those that did harm, at least."""
    assert {
        "jmsx_redelivery_count", "jmsx_group_seq", "expires", "timestamp", "priority", "persistent", "redelivered",
        "message-id", "destination", "reply-to", "original-destination", "jmsx_type", "transformation", "jmsx_key",
        "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_ROUTING_TYPE", "jmsx_original_destination", "correlation-id", "content-length",
    } <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=lambda one: one.name)
@given(
    headers=st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(HOSTILE) | st.text(max_size=40), max_size=6
    ),
    body=st.sampled_from(BODIES),
    mode=st.sampled_from(MODES),
)
def test_no_header_ends_a_session(
    dialect: Dialect, headers: dict[str, str], body: bytes, mode: AcknowledgeMode
) -> None:
    """A message is handed out, or is a dead letter; the next one flows, and one ACK covers it."""
    if dialect is ARTEMIS:
        headers.pop("message-id", None)  # it stands in front of all properties, and is its ack id
    if not is_settled_by_an_expiry(headers):
        check(dialect, {**plain("a"), **headers}, body, mode)


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=lambda one: one.name)
@pytest.mark.parametrize("name", NAMES)
def test_every_hostile_value_in_every_header(dialect: Dialect, name: str) -> None:
    """One after the other, so that none is left to chance."""
    if dialect is ARTEMIS and name == "message-id":
        return
    for value in HOSTILE:
        if not is_settled_by_an_expiry({name: value}):
            check(dialect, {**plain("a"), name: value}, b"body", AcknowledgeMode.SESSION_TRANSACTED)


def check(dialect: Dialect, headers: dict[str, str], body: bytes, mode: AcknowledgeMode) -> None:
    """Take in one hostile message and one that is none."""
    talk = Talk(mode, dialect=dialect)
    talk.subscribe()
    hostile = MessageFrame.of({key: encodable(text) for key, text in headers.items()}, body)
    talk.core.receive([hostile, MessageFrame.of(plain("b"), b"b")], talk.now, WALL)
    bodies: list[int] = []
    lines: list[str] = []
    for _ in range(4):
        message = receive(talk, dialect)
        if message is None and dead_letter_copies(talk, lines):
            talk.answer()
        elif message is not None:
            bodies.append(message.delivery_count)
    if mode is AcknowledgeMode.SESSION_TRANSACTED:
        talk.commit()
        lines += talk.wrote()
        talk.answer()
    lines += talk.wrote()
    acks = [line.split()[1] for line in lines if line.startswith("ACK")]
    dead = [reason for _, _, reason, _, _ in dead_letters(talk)]
    assert dead in ([], ["undecodable"])
    assert len(bodies) == 2 - len(dead)
    assert acks[-1] == "b"
    assert acks in (["b"], ["a", "b"])
    assert len(talk.reported(DeliveryEnded)) == 2
    assert not [line for line in lines if line.startswith(("NACK", "DROP"))]


def receive(talk: Talk, dialect: Dialect) -> Message | None:
    """As `MessageConsumer.receive` does it."""
    delivery = talk.take()
    if delivery is None:
        return None
    try:
        message = ReceivedMessage(delivery, dialect)
        assert repr(message)
        for name in LOOKED_AT:  # what nobody looks at is not worked out
            getattr(message, name)
    except Exception as error:  # noqa: BLE001 - as the engine does
        talk.core.undecodable(delivery, error, talk.now)
        return None
    talk.core.consumed(delivery, talk.now, returning=True)
    talk.core.acknowledge(delivery, talk.now)
    return message


def dead_letter_copies(talk: Talk, lines: list[str]) -> bool:
    """Whether a copy waits for its receipt."""
    fresh = talk.wrote()
    lines += fresh
    return any(line.startswith("SEND") for line in fresh)


def is_settled_by_an_expiry(headers: dict[str, str]) -> bool:
    """What has expired is another rule's affair (test_expiry)."""
    return time_ms(headers.get("expires")) is not None


def encodable(text: str) -> str:
    """Headers are UTF-8, which has no surrogates."""
    return text.encode("utf-8", "replace").decode()


def plain(name: str) -> dict[str, str]:
    """The headers of a MESSAGE that nobody has touched."""
    return {
        "subscription": "1", "ack": name, "message-id": name, "destination": "/queue/q", "persistent": "true",
        "timestamp": "1700000000000",
    }  # fmt: skip
