"""What `jmsx check` tells of an Artemis, from what its management answers."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.errors import BrokerError
from jmsx_artemis import inspection
from tests.unit.jmsx_artemis.inquiring import Broker, queue

SETTINGS = {"orders": {"deadLetterAddress": "DLQ"}, "DLQ": {}}


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The inquiries that were made: each has a link of its own."""
    made: list[object] = []

    def ask(broker: Broker, inquiry: Any) -> Any:
        made.append(inquiry)
        return broker.conduct(inquiry)

    monkeypatch.setattr(inspection, "ask", ask)
    monkeypatch.setattr(inspection, "may_ask", lambda _: True)
    return made


def told(broker: Any, *names: str) -> list[tuple[str, str, str]]:
    """Each finding: what, how much it matters, and the beginning of its words."""
    return [
        (one.check, one.level, one.told.partition(";")[0])
        for one in inspection.inspect(broker, names)
    ]


@pytest.mark.parametrize(("waiting", "level"), [("0", "note"), ("3", "warning")])
def test_dead_letter_queues_are_told_once(links: list[object], waiting: str, level: str) -> None:
    """However many there are: to ask for each on a link of its own would cost as many."""
    dead = [queue(name, "DLQ", messageCount=waiting) for name in ("DLQ", "mine", "asked")]
    named = queue("orders.dead", messageCount=waiting)
    broker = Broker([queue("orders", messageCount="7"), *dead, named], settings=SETTINGS)
    assert told(broker, "orders", "asked") == [
        ("management", "ok", "it answers"),
        ("queue orders", "note", "7 messages, 0 consumers"),
        ("queue asked", "note", f"{waiting} messages, 0 consumers"),
        ("queue DLQ", level, f"{waiting} dead letters"),
        ("queue mine", level, f"{waiting} dead letters"),
        ("queue orders.dead", level, f"{waiting} dead letters"),
    ]
    assert len(links) == 2


def test_what_can_be_seen_is_told(links: list[object]) -> None:
    """Who may look at these queues, and not list all, is told of these."""
    broker = Broker(
        [queue("orders", messageCount="1", consumerCount="1", ringSize="1")],
        refusals={"getQueueNames": BrokerError("not you")},
    )
    assert told(broker, "orders") == [
        ("management", "ok", "it answers"),
        ("queue orders", "note", "1 message, 1 consumer"),
        (
            "queue orders",
            "warning",
            "it keeps 1 message only (ring-size): for a newer one the oldest is deleted",
        ),
        ("dead letter queues", "warning", "not visible: not you"),
    ]
    assert len(links) == 2


@pytest.mark.parametrize(
    ("told_of_it", "words"),
    [
        ({}, []),
        ({"ringSize": "2"}, ["it keeps 2 messages only (ring-size)"]),
        ({"lastValue": "true"}, ["it keeps the newest message of each key only (last-value)"]),
        ({"purgeOnNoConsumers": "true"}, ["it is emptied when its last consumer ends"]),
        ({"ringSize": "2", "lastValue": "true"}, ["(ring-size)", "(last-value)"]),
    ],
)
def test_a_queue_that_deletes_is_told(
    links: list[object], told_of_it: dict[str, str], words: list[str]
) -> None:
    """Whatever the address-setting says: it may have been made so by itself."""
    broker = Broker([queue("orders", messageCount="1", **told_of_it)], settings=SETTINGS)
    warned = [words for _, level, words in told(broker, "orders") if level == "warning"]
    assert len(warned) == len(words)
    assert all(one in each for one, each in zip(words, warned, strict=True))
    assert links
