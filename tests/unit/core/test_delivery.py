"""One message in our hands."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import MessageFrame

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[3]

#: What a file says somewhere that writes a slot; most say nothing of the kind.
SLOT: Final = re.compile(rf"\.({'|'.join(Delivery.__slots__)})\b")

#: What came with the message, and never changes.
ARRIVED: Final = {
    "ack_id",
    "arrival",
    "epoch",
    "message_id",
    "received_at",
    "subscription_id",
    "wire_subscription",
}

#: Slots that another module writes; all others are written by methods of Delivery alone.
OWNERS: Final = {
    "ended_at": "jmsx/core/consumer.py",
    "identity": "jmsx/core/identity.py",
    "is_last": "jmsx/core/handing_out.py",
    "memory_key": "jmsx/core/process_memory.py",
    "order": "jmsx/core/consumer.py",
    "runs_on": "jmsx/core/consumer.py",
    "started_at": "jmsx/core/consumer.py",
    "subscribed": "jmsx/core/subscriptions.py",
    "was_handed_out": "jmsx/core/process_memory.py",
}

#: Found at the first look, by their owner; a method of Delivery forgets them when the body turns out to be another one.
FORGOTTEN: Final = {"identity", "memory_key"}

#: What is written under the same names, and is not in a delivery.
OTHERS: Final = {"self._outbox.ended_at", "row.unseen", "message.message_id"}

DELIVERY: Final = "jmsx/core/delivery.py"


def delivery(**headers: str) -> Delivery:
    """A delivery that came with these headers, at 5 s."""
    return Delivery(
        MessageFrame.of(headers),
        arrival=1,
        message_id=headers.get("message-id", ""),
        epoch=2,
        received_at=5.0,
        expires_at=None,
    )


@pytest.mark.parametrize(
    ("headers", "count"),
    [({}, 1), ({"redelivered": "true"}, 2), ({"redelivered": "false"}, 1)],
)
def test_flag_means_at_least_one_redelivery(headers: dict[str, str], count: int) -> None:
    """STOMP carries the flag and not the count, so the second delivery is the least it can be."""
    assert delivery(**headers).delivery_count == count
    assert delivery(**headers).redelivery_count == count - 1


def test_its_ids_are_the_brokers() -> None:
    """`ack` settles it, `message-id` names it."""
    one = delivery(ack="7", **{"message-id": "ID:1"})
    assert (one.ack_id, one.message_id, one.epoch) == ("7", "ID:1", 2)
    assert one.headers is one.frame.headers
    assert repr(one) == "<Delivery ID:1 #1 epoch 2>"


def test_without_ids_it_has_empty_ones() -> None:
    """A peer that leaves them out does not stop the session."""
    assert (delivery().ack_id, delivery().message_id) == ("", "")


def test_it_was_started_when_it_came_until_it_is_handed_out() -> None:
    """So no time in the evidence is ever unset."""
    one = delivery()
    assert (one.received_at, one.started_at, one.ended_at) == (5.0, 5.0, 5.0)


def test_each_slot_has_one_writer() -> None:
    """So that whoever wonders how a delivery came to a value has one place to look at."""
    writers: dict[str, set[str]] = defaultdict(set)
    for slot, path in _written():
        writers[slot].add(path)
    expected = {slot: {OWNERS.get(slot, DELIVERY)} for slot in Delivery.__slots__}
    expected |= {slot: {OWNERS[slot], DELIVERY} for slot in FORGOTTEN}
    expected |= {slot: set() for slot in ARRIVED}
    assert {
        slot: (writers[slot], mine) for slot, mine in expected.items() if writers[slot] != mine
    } == {}


def _written() -> Iterator[tuple[str, str]]:
    """Each slot that is written, but for its beginning, and where."""
    for folder in ("jmsx", "adapters"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text("utf-8")
            tree = ast.parse(text if SLOT.search(text) else "")
            begins = set()
            if name == DELIVERY:
                begins = {
                    inner
                    for node in ast.walk(tree)
                    if isinstance(node, ast.FunctionDef) and node.name == "__init__"
                    for inner in ast.walk(node)
                }
            for node in ast.walk(tree):
                if not isinstance(node, ast.Attribute) or node in begins:
                    continue
                if not isinstance(node.ctx, ast.Store) or node.attr not in Delivery.__slots__:
                    continue
                own = isinstance(node.value, ast.Name) and node.value.id == "self"
                if ast.unparse(node) not in OTHERS and (name == DELIVERY or not own):
                    yield node.attr, name
