"""One message in our hands."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from jmsx.core.delivery import Arrival, Delivery
from jmsx.core.frames import MessageFrame

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[3]

#: All parts of a delivery that can be written; the others are values.
SLOTS: Final = frozenset({*Delivery.__slots__, *Arrival.__slots__})

#: What a file says somewhere that writes a slot; most say nothing of the kind.
SLOT: Final = re.compile(rf"\.({'|'.join(SLOTS)})\b")

DELIVERY: Final = "jmsx/core/delivery.py"

#: Who writes each slot: of a delivery its methods, of what has come nobody, but for these.
OWNERS: Final[dict[str, str | None]] = {
    **dict.fromkeys(Arrival.__slots__),
    **dict.fromkeys(Delivery.__slots__, DELIVERY),
    "ended_at": "jmsx/core/consumer.py",
    "identity": "jmsx/core/identity.py",
    "memory_key": "jmsx/core/process_memory.py",
    "order": "jmsx/core/consumer.py",
    "runs_on": "jmsx/core/consumer.py",
    "started_at": "jmsx/core/consumer.py",
    "subscribed": "jmsx/core/subscriptions.py",
}

#: What is written under the same names, and is not in a delivery.
OTHERS: Final = {"self._outbox.ended_at", "message.message_id"}


def delivery(**headers: str) -> Delivery:
    """A delivery that came with these headers, at 5 s."""
    frame = MessageFrame.of(headers)
    return Delivery.of(frame, 1, headers.get("message-id", ""), epoch=2, now=5.0, wall=5.0)


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
    assert (one.arrival.ack_id, one.message_id, one.arrival.epoch) == ("7", "ID:1", 2)
    assert one.headers is one.frame.headers
    assert repr(one) == "<Delivery ID:1 #1 epoch 2>"


def test_without_ids_it_has_empty_ones() -> None:
    """A peer that leaves them out does not stop the session."""
    assert (delivery().arrival.ack_id, delivery().message_id) == ("", "")


def test_it_was_started_when_it_came_until_it_is_handed_out() -> None:
    """So no time in the evidence is ever unset."""
    one = delivery()
    assert (one.arrival.received_at, one.started_at, one.ended_at) == (5.0, 5.0, 5.0)


def test_each_slot_has_one_writer() -> None:
    """So that whoever wonders how a delivery came to a value has one place to look at."""
    writers: dict[str, set[str]] = defaultdict(set)
    for slot, path in _written():
        writers[slot].add(path)
    owners = {slot: set() if owner is None else {owner} for slot, owner in OWNERS.items()}
    assert {slot: writers[slot] for slot in SLOTS} == owners


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
                if not isinstance(node.ctx, ast.Store) or node.attr not in SLOTS:
                    continue
                own = isinstance(node.value, ast.Name) and node.value.id == "self"
                if ast.unparse(node) not in OTHERS and (name == DELIVERY or not own):
                    yield node.attr, name
