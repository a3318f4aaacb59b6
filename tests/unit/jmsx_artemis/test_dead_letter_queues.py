"""Where a copy of a dead letter is safe: one queue, which keeps it."""

from __future__ import annotations

import json

import pytest

from jmsx.core.management import DeadLetterQueue
from jmsx_artemis.dead_letter_queues import OWN, choose_dead_letter_queue
from jmsx_artemis.settings import AddressSettings
from tests.unit.jmsx_artemis.inquiring import Broker, queue

MULTICAST = {"routingType": "MULTICAST"}
FILTER = {"filter": "_AMQ_ORIG_ADDRESS = 'orders'"}


def chosen(
    *queues: dict[str, str],
    dead_letter_address: str | None = "DLA",
    auto: bool = False,
    broker: Broker | None = None,
    address: str = "orders",
) -> DeadLetterQueue:
    """The dlq for the address `orders` when these are the queues of its dead letter address."""
    settings = AddressSettings(
        address=address,
        dead_letter_address=dead_letter_address,
        auto_create_dead_letter_resources=auto,
    )
    broker = broker or Broker()
    broker.queues += queues
    return broker.conduct(choose_dead_letter_queue(settings, queues))


@pytest.mark.parametrize("address", [None, ""])
def test_without_dead_letter_address_it_is_our_own(address: str | None) -> None:
    """The broker would delete."""
    assert chosen(dead_letter_address=address) == OWN == DeadLetterQueue("queue://jmsx.DLQ")


def test_without_queue_on_it_too() -> None:
    """A copy would be RECEIPTed, and gone (BROKER.md A7)."""
    assert chosen() == OWN


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([queue("DLA")], "queue://DLA"),
        ([queue("morgue", "DLA")], "queue://DLA::morgue"),
        ([queue("DLA"), queue("audit", "DLA", **MULTICAST)], "queue://DLA"),
        ([queue("a", "DLA"), queue("DLA")], "queue://DLA::DLA"),
        ([queue("b", "DLA"), queue("a", "DLA")], "queue://DLA::a"),
        ([queue("m", "DLA", **MULTICAST)], "topic://DLA::m"),
        ([queue("m", "DLA", **MULTICAST), queue("z", "DLA")], "queue://DLA::z"),
        ([queue("DLA"), queue("m", "DLA", **MULTICAST, **FILTER)], "topic://DLA::m"),
        ([queue("DLA", autoDelete="true")], "queue://DLA"),
    ],
    ids=["own name", "other name", "and a topic", "several", "alphabet", "topic", "queue first", "filter", "vanishes"],
)  # fmt: skip
def test_queue_that_keeps_copies_is_taken(queues: list[dict[str, str]], expected: str) -> None:
    """By its full name where the address has others: a copy goes to one queue."""
    assert chosen(*queues) == DeadLetterQueue(expected)


@pytest.mark.parametrize(
    "told",
    [
        {"durable": "false"},
        {"temporary": "true"},
        {"internalQueue": "true"},
        {"enabled": "false"},
        {"purgeOnNoConsumers": "true"},
        {"lastValue": "true"},
        {"ringSize": "100"},
        {"filter": "colour = 'red'"},
        {"filter": "_AMQ_ORIG_ADDRESS = 'other'"},
        {"routingType": "MULTICAST", "autoDelete": "true"},
    ],
    ids=str,
)
def test_queue_that_may_lose_copies_is_not_taken(told: dict[str, str]) -> None:
    """Also not when it is the only one."""
    assert chosen(queue("DLA", **told)) == OWN


def test_queue_that_the_broker_makes_is_made_before_each_copy() -> None:
    """As the broker makes it itself, filter and all (`QueueImpl.java:3741-3764`)."""
    dead_letter_queue = chosen(queue("DLA"), auto=True)
    assert dead_letter_queue.destination == "topic://DLA::DLQ.orders"
    (frame,) = dead_letter_queue.before
    assert frame.command == "SEND"
    assert dict(frame.headers) == {
        "destination": "activemq.management",
        "_AMQ_ResourceName": "broker",
        "_AMQ_OperationName": "createQueue",
    }
    configuration, ignore_if_exists = json.loads(frame.body)
    assert ignore_if_exists is True
    assert json.loads(configuration) == {
        "name": "DLQ.orders",
        "address": "DLA",
        "routing-type": "MULTICAST",
        "filter-string": "_AMQ_ORIG_ADDRESS = 'orders'",
        "auto-created": True,
        "auto-create-address": True,
    }


def test_queue_that_the_broker_has_made_is_taken_as_it_is() -> None:
    """Also where queues of the dead letter address are anycast by default."""
    dead_letter_queue = chosen(queue("DLQ.orders", "DLA", **FILTER, autoDelete="true"), auto=True)
    assert dead_letter_queue.destination == "queue://DLA::DLQ.orders"
    assert json.loads(json.loads(dead_letter_queue.before[0].body)[0])["routing-type"] == "ANYCAST"


def test_default_of_the_dead_letter_address_says_what_it_would_be() -> None:
    """`default-queue-routing-type`."""
    broker = Broker(settings={"DLA": {"defaultQueueRoutingType": "ANYCAST"}})
    assert chosen(auto=True, broker=broker).destination == "queue://DLA::DLQ.orders"


@pytest.mark.parametrize(
    "broker",
    [
        Broker([queue("DLQ.orders", "elsewhere")]),
        Broker([queue("DLQ.orders", "DLA", filter="colour = 'red'")]),
        Broker([queue("DLQ.orders", "DLA", ringSize="1")]),
    ],
    ids=["of another address", "filters", "forgets"],
)
def test_queue_of_that_name_that_is_no_good_is_left_alone(broker: Broker) -> None:
    """Then another one of the address has to do."""
    lying = [one for one in broker.queues if one["address"] == "DLA"]
    settings = AddressSettings(
        address="orders", dead_letter_address="DLA", auto_create_dead_letter_resources=True
    )
    assert broker.conduct(choose_dead_letter_queue(settings, lying)) == OWN
    assert broker.conduct(
        choose_dead_letter_queue(settings, [*lying, queue("DLA")])
    ) == DeadLetterQueue(
        "queue://DLA" if not lying or lying[0]["routingType"] != "ANYCAST" else "queue://DLA::DLA"
    )


@pytest.mark.parametrize("address", ["o'brien", "DLA"])
def test_broker_makes_none_for_these(address: str) -> None:
    """A quote spoils the filter; the dead letter address has none of its own."""
    assert chosen(queue("DLA"), auto=True, address=address) == DeadLetterQueue("queue://DLA")
