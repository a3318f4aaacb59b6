"""Which messages are in delivery for nobody, by what the broker's management tells."""

from __future__ import annotations

import pytest

from jmsx_artemis.stranded import inquiry
from tests.unit.jmsx_artemis.inquiring import Broker, queue


def consumer(transit: int, uncommitted: int = 0) -> dict[str, str]:
    """A consumer of `orders` as `listConsumers` tells it."""
    return {
        "queue": "orders",
        "messagesInTransit": str(transit),
        "messagesAcknowledgedAwaitingCommit": str(uncommitted),
    }


@pytest.mark.parametrize(
    ("delivering", "consumers", "expected"),
    [
        (None, [], 0),
        (0, [], 0),
        (3, [consumer(3)], 0),
        (3, [consumer(1), consumer(0, 2)], 0),
        (3, [consumer(1), consumer(1)], 1),
        (2, [], 2),
        (2, [consumer(3)], 0),  # it got one more between the answers
    ],
)
def test_what_no_consumer_has(
    delivering: int | None, consumers: list[dict[str, str]], expected: int
) -> None:
    """What the queue has in delivery less what its consumers have; a queue that is not there has none."""
    there = [] if delivering is None else [queue("orders", deliveringCount=str(delivering))]
    broker = Broker(queues=there, consumers=consumers)
    assert broker.conduct(inquiry("orders")) == expected
