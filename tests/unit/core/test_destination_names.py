"""Destinations as people write them."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from jmsx.config.options import dead_letter_place
from jmsx.core.destination_names import split_name
from jmsx.core.policy import RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.errors import ConfigurationError, InvalidDestinationError
from jmsx.jms.destination import Queue, Topic, destination


class Names(str, enum.Enum):  # noqa: UP042 - StrEnum prints as the text that it is, and most programs have this
    """Destinations with names of a program's own."""

    ORDERS = "orders"
    PRICES = "topic://prices"


def test_a_member_of_an_enum_is_the_text_that_it_equals() -> None:
    """However it prints: its messages would go to a queue that nobody reads."""
    assert (Queue(Names.ORDERS).uri, Queue(Names.ORDERS).name) == ("queue://orders", "orders")
    assert (
        f"{destination(Names.ORDERS)} {destination(Names.PRICES)}"
        == "queue://orders topic://prices"
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("orders", ("queue", "orders")),
        ("queue://orders", ("queue", "orders")),
        ("/queue/orders", ("queue", "orders")),
        ("queue:orders", ("queue", "orders")),
        ("topic://a.>", ("topic", "a.>")),
        ("/topic/a.>", ("topic", "a.>")),
        ("topic:a.>", ("topic", "a.>")),
        ("/temp-queue/x", ("temp-queue", "x")),
        ("/queue/a/b", ("queue", "a/b")),
        ("queue://a//b", ("queue", "a//b")),
        ("/queue/a?consumer.priority=1", ("queue", "a?consumer.priority=1")),
        ("queue:///queue/orders", ("queue", "/queue/orders")),
        ("orders:eu", ("queue", "orders:eu")),
        ("ID:host-1:1:1", ("queue", "ID:host-1:1:1")),
        ("queue", ("queue", "queue")),
        ("queue/orders", ("queue", "queue/orders")),
        ("queues", ("queue", "queues")),
        ("topical", ("queue", "topical")),
    ],
)
def test_what_is_meant(text: str, meant: tuple[str, str]) -> None:
    """Three spellings, and a bare name."""
    assert split_name(text) == meant


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("queue//typo", "write queue://typo"),
        ("/queue/", "write queue://NAME"),
        ("/queue", "write queue://NAME"),
        ("queue:", "write queue://NAME"),
        ("queue://", "write queue://NAME"),
        ("queue:/x", "write queue://x"),
        ("/queue//x", "write queue://x"),
        ("/queue:x", "write queue://x"),
        ("/queue://x", "write queue://x"),
        ("/Queue/x", "write queue://x"),
        ("TOPIC://x", "write topic://x"),
        ("/orders", "write queue://orders, or queue:///orders"),
        ("que://x", "'que' is none of queue, topic"),
        ("que://x", "write queue://x"),
        ("Topics://x?a=b", "write topic://x"),
        ("stomp://localhost:61613", "that is the URL of a broker"),
        ("http://x", "is none of queue, topic,"),
        (17, "not an int"),
        (None, "not a NoneType"),
    ],
)
def test_what_nobody_means(text: Any, right: str) -> None:
    """The error has the right spelling."""
    with pytest.raises(InvalidDestinationError) as caught:
        split_name(text)
    assert right in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "queue:// "])
def test_no_name(text: str) -> None:
    """It is said how one is written."""
    with pytest.raises(InvalidDestinationError, match="write queue://NAME"):
        destination(text)


def test_everywhere() -> None:
    """Where a destination is taken as text, it means the same."""
    assert destination("/topic/x") == destination("topic:x") == Topic("x") == Topic("/topic/x")
    assert Queue("/queue/x") == Queue("queue:x") == Queue("x")
    assert dead_letter_place("/queue/dead") == dead_letter_place("queue:dead") == "queue://dead"
    policy = RedeliveryPolicy(maximum_redeliveries=1)
    for key in ("/queue/a.>", "queue:a.>", "queue://a.>", "a.>"):
        assert RedeliveryPolicyMap(entries={key: policy}).policy("queue://a.b") is policy


def test_a_queue_is_no_topic() -> None:
    """What says otherwise is refused."""
    with pytest.raises(InvalidDestinationError, match="is a topic, not a queue"):
        Queue("/topic/x")
    with pytest.raises(InvalidDestinationError, match="is a queue, not a topic"):
        Topic("queue://x")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sfe", "; did you mean 'safe'?"),
        ("Broker", "; did you mean 'broker'?"),
        ("dead", "; did you mean 'queue://dead'?"),
        ("my dead", "NAME"),
        ("", "NAME"),
        (None, "NAME"),
        (3, "NAME"),
    ],
)
def test_a_strategy_that_is_none(given: Any, meant: str) -> None:
    """A bare name may be a misspelt strategy, or a queue."""
    with pytest.raises(ConfigurationError, match="neither one of safe, broker") as caught:
        dead_letter_place(given)
    assert str(caught.value).endswith(meant)
