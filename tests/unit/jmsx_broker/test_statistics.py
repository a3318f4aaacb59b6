"""Names of queues, and the broker's map messages."""

from __future__ import annotations

import pytest

from jmsx.errors import ConfigurationError
from jmsx_broker.classic_witness import parse_map
from jmsx_broker.statistics import queue_name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("orders", "orders"),
        ("queue://orders.eu", "orders.eu"),
        ("/queue/orders", "orders"),
        ("ActiveMQ.DLQ", "ActiveMQ.DLQ"),
    ],
)
def test_queue_name(given: str, expected: str) -> None:
    """A queue may be named as people name it."""
    assert expected == queue_name(given)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "queue://",
        "topic://t",
        "/topic/t",
        "/temp-queue/t",
        "orders.*",
        "orders.>",
        "a,b",
        "a?b=1",
    ],
)
def test_what_is_not_one_queue_is_refused(given: str) -> None:
    """The statistics plugin answers a pattern with several maps, and a topic is no queue."""
    with pytest.raises(ConfigurationError, match="does not name one queue"):
        queue_name(given)


def test_parse_map() -> None:
    """Both shapes of an entry are read: text in a list with its key, numbers beside it."""
    body = b"""{"map":{"entry":[{"string":"size","long":5},{"string":["brokerName","jmsx"]},
        {"string":"averageEnqueueTime","double":0.5},{"string":"memoryPercentUsage","int":0}]}}"""
    assert parse_map(body) == {
        "size": 5,
        "brokerName": "jmsx",
        "averageEnqueueTime": 0.5,
        "memoryPercentUsage": 0,
    }
