"""
A backlog is paged in by wake-ups, at most 200 messages each: jmsx_classic/BROKER.md C10 to C12.

Where two wake-ups of the real broker may fall together, the fake has the lower of two values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.talk import Talk

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

QUEUE = "/queue/q"


def stalled(broker: FakeBroker, *, backlog: int = 3000, **subscribe: str) -> Talk:
    """A client that has got what it gets of a backlog without an ACK."""
    client = Talk(broker)
    for number in range(backlog):
        client.tell("SEND", {"destination": QUEUE, "persistent": "true"}, str(number))
    client.subscribe(QUEUE, **subscribe)
    return client


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize(
    ("prefetch", "got"), [("100", 100), ("200", 200), ("300", 200), ("1000", 200), ("2500", 200)]
)
def test_one_page_before_any_ack(broker: FakeBroker, mode: str, prefetch: str, got: int) -> None:
    """200, whatever the prefetch."""
    client = stalled(broker, ack=mode, activemq_prefetchSize=prefetch)
    assert len(client.messages) == got


def test_one_page_without_receipt(broker: FakeBroker) -> None:
    """A SUBSCRIBE without a receipt is one wake-up too."""
    client = stalled(broker, id_="other", activemq_prefetchSize="0")
    client.tell("SUBSCRIBE", {"id": "s", "destination": QUEUE, "ack": "client"})
    assert len(client.messages) == 200


def test_auto_does_not_stall(broker: FakeBroker) -> None:
    """The broker's own ACKs wake the queue."""
    assert len(stalled(broker, ack="auto").messages) == 3000


def test_live_production_does_not_stall(broker: FakeBroker) -> None:
    """Each SEND is a wake-up: all come, up to the prefetch."""
    client = Talk(broker)
    client.subscribe(QUEUE)
    for number in range(1500):
        client.tell("SEND", {"destination": QUEUE, "persistent": "true"}, str(number))
    assert len(client.messages) == 1000


@pytest.mark.parametrize("acked", [1, 2, 3, 10, 100, 200])
def test_ack_pages_in_two(broker: FakeBroker, acked: int) -> None:
    """However many messages it names."""
    client = stalled(broker)
    client.ack(str(acked - 1))
    assert len(client.messages) == 200 + 400


def test_ack_in_transaction_pages_in_two(broker: FakeBroker) -> None:
    """A DELIVERED wakes as well."""
    client = stalled(broker)
    client.tell("BEGIN", {"transaction": "t"})
    client.ack("0", transaction="t")
    assert len(client.messages) == 200 + 400


def test_nack_pages_in_two(broker: FakeBroker) -> None:
    """A NACK wakes as well."""
    client = stalled(broker)
    client.ack("0", "NACK")
    assert len(client.messages) == 200 + 400


def test_send_pages_in_one(broker: FakeBroker) -> None:
    """From whichever connection."""
    client = stalled(broker)
    Talk(broker).put(QUEUE, "wake up")
    client.collect()
    assert len(client.messages) == 200 + 200


def test_consumers_page_in(broker: FakeBroker) -> None:
    """One that comes with a receipt pages in two, one that goes pages in one."""
    client, other = stalled(broker), Talk(broker)
    other.subscribe(QUEUE, selector="1 = 0")
    client.collect()
    assert len(client.messages) == 200 + 400
    other.ask("UNSUBSCRIBE", {"id": "s"})
    client.collect()
    assert len(client.messages) == 200 + 400 + 200


def _consume(client: Talk, every: int) -> int:
    """Acknowledge each `every` messages until no more come; returns how many came."""
    acked = 0
    while len(client.messages) - acked >= every:
        acked += every
        client.tell("ACK", {"id": client.messages[acked - 1].headers["ack"]})
    return len(client.messages)


@pytest.mark.parametrize("every", [50, 130, 199, 200])
def test_threshold_within_a_page_runs_through(broker: FakeBroker, every: int) -> None:
    """A cumulative ACK for at most a page keeps dispatch going."""
    assert _consume(stalled(broker, backlog=5000), every) == 5000


@pytest.mark.parametrize(
    ("prefetch", "every"),
    [("1000", 300), ("1000", 400), ("1000", 650), ("310", 201), ("400", 260)],
)
def test_threshold_above_a_page_stalls(broker: FakeBroker, prefetch: str, every: int) -> None:
    """No ACK ever comes, because its messages never do."""
    assert _consume(stalled(broker, activemq_prefetchSize=prefetch), every) == 200


def test_four_consumers_do_not_stall(broker: FakeBroker) -> None:
    """Every SUBSCRIBE and ACK is a wake-up for all."""
    clients = [stalled(broker), *(Talk(broker) for _ in range(3))]
    for client in clients[1:]:
        client.subscribe(QUEUE)
    acked = [0, 0, 0, 0]
    while any(len(c.messages) > a for c, a in zip(clients, acked, strict=True)):
        for number, client in enumerate(clients):
            client.collect()
            if len(client.messages) > acked[number]:
                acked[number] = min(acked[number] + 100, len(client.messages))
                client.tell("ACK", {"id": client.messages[acked[number] - 1].headers["ack"]})
    assert sum(acked) == 3000
    assert len(broker.queue("q")) == 0
