"""jmsx_classic/BROKER.md on the fake broker: transactions and the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.testing.classic.link import ClassicLink
from tests.unit.testing.talk import (
    INDIVIDUAL,
    MODES,
    NO_SUCH_TX,
    ROLLBACK_ONLY,
    TX,
    UNEXPECTED_ACK,
    Talk,
    holding,
    left,
)

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

DEAD_TEMP = "/remote-temp-queue/ID:gone"

# -- NACK in a transaction ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_nack_in_transaction_makes_it_rollback_only(broker: FakeBroker, mode: str) -> None:
    """Without a receipt: COMMIT fails, and the name is gone with it."""
    client = holding(broker, "a", "b", mode=mode)
    client.tell("BEGIN", TX)
    client.tell("NACK", {"id": client.ack_id("a"), **TX})
    assert client.errors()[0].startswith("Poison ack cannot be transacted")
    assert "receipt-id" not in client.answers[-1].headers
    assert client.ask("COMMIT", TX) == ROLLBACK_ONLY
    assert client.ask("ABORT", TX) == NO_SUCH_TX
    assert client.ack("a") == UNEXPECTED_ACK


def test_nack_in_transaction_breaks_the_subscription(broker: FakeBroker) -> None:
    """In client mode no later ACK fits; both messages come back when the socket dies."""
    client = holding(broker, "a", "b")
    client.tell("BEGIN", TX)
    client.tell("NACK", {"id": client.ack_id("a"), **TX})
    client.ask("COMMIT", TX)
    assert client.ack("b").startswith("Unmatched acknowledge: MessageAck")
    client.die()
    assert left(broker, "/queue/q") == ["a R", "b R"]


def test_nack_in_transaction_swaps_the_order_for_a_waiting_consumer(broker: FakeBroker) -> None:
    """`a` is given out only when the transaction rolls back, after `b`."""
    client = holding(broker, "a", "b")
    other = Talk(broker)
    other.subscribe("/queue/q")
    client.tell("BEGIN", TX)
    client.tell("NACK", {"id": client.ack_id("a"), **TX})
    client.ask("COMMIT", TX)
    client.die()
    assert other.bodies() == ["b R", "a R"]


def test_nack_in_transaction_then_abort_is_harmless(broker: FakeBroker) -> None:
    """ABORT makes the ack id valid again."""
    client = holding(broker, "a", "b")
    client.tell("BEGIN", TX)
    client.tell("NACK", {"id": client.ack_id("a"), **TX})
    assert client.ask("ABORT", TX) == "RECEIPT"
    assert client.ack("b") == "RECEIPT"
    client.die()
    assert left(broker, "/queue/q") == []


@pytest.mark.parametrize(
    ("mode", "back"), [("client", ["b R"]), ("client-individual", ["a R", "b R"])]
)
def test_nack_in_transaction_with_receipt(broker: FakeBroker, mode: str, back: list[str]) -> None:
    """COMMIT succeeds; in client mode the message is neither in the queue nor a dead letter: lost."""
    client = holding(broker, "a", "b", mode=mode)
    client.tell("BEGIN", TX)
    assert client.ack("a", "NACK", **TX).startswith("Poison ack cannot be transacted")
    assert client.ask("COMMIT", TX) == "RECEIPT"
    client.die()
    assert left(broker, "/queue/q") == back
    assert len(broker.queue("ActiveMQ.DLQ")) == 0


# -- several transactions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "ends", "back"),
    [
        ("client", ["COMMIT A", "ABORT B"], ["a2 R", "b2 R"]),  # b1 is lost
        ("client", ["ABORT A", "COMMIT B"], ["a1 R", "a2 R", "b1 R", "b2 R"]),  # b1 is not acked
        ("client", ["COMMIT A"], ["a2 R", "b2 R"]),  # b1 is lost
        ("client-individual", ["COMMIT A", "ABORT B"], ["a2 R", "b1 R", "b2 R"]),
        ("client-individual", ["ABORT A", "COMMIT B"], ["a1 R", "a2 R", "b2 R"]),
        ("client-individual", ["COMMIT A"], ["a2 R", "b1 R", "b2 R"]),
    ],
)
def test_two_transactions_with_acks(
    broker: FakeBroker, mode: str, ends: list[str], back: list[str]
) -> None:
    """In client mode they corrupt each other; in client-individual each ACK carries its own."""
    client = Talk(broker)
    for name in "ab":
        client.put(f"/queue/{name}", f"{name}1", f"{name}2")
        client.subscribe(f"/queue/{name}", name, ack=mode)
        client.tell("BEGIN", {"transaction": name.upper()})
    for name in "ab":
        assert client.ack(f"{name}1", transaction=name.upper()) == "RECEIPT"
    for end in ends:
        command, name = end.split()
        assert client.ask(command, {"transaction": name}) == "RECEIPT"
    client.die()
    assert left(broker, "/queue/a") + left(broker, "/queue/b") == back


def test_ack_commit_burst_beside_another_transaction(broker: FakeBroker) -> None:
    """An open transaction of sends only is not touched."""
    client = holding(broker, "a")
    client.tell("BEGIN", {"transaction": "B"})
    client.tell("SEND", {"destination": "/queue/out", "transaction": "B"}, "never")
    client.tell("BEGIN", TX)
    client.tell("ACK", {"id": client.ack_id("a"), **TX})
    assert client.ask("COMMIT", TX) == "RECEIPT"
    assert client.ask("ABORT", {"transaction": "B"}) == "RECEIPT"
    client.die()
    assert left(broker, "/queue/q") == left(broker, "/queue/out") == []


def test_individual_transactions_leak(broker: FakeBroker) -> None:
    """Each leaves an entry until the end of the connection, which a dummy ABORT makes valid ack ids again."""
    client = Talk(broker)
    client.put("/queue/q", *(str(number) for number in range(50)))
    client.ask("SUBSCRIBE", {"id": "s", "destination": "/queue/q", **INDIVIDUAL})
    client.collect()
    for message in client.messages[:50]:
        client.tell("BEGIN", TX)
        client.tell("ACK", {"id": message.headers["ack"], **TX})
        assert client.ask("COMMIT", TX) == "RECEIPT"
    assert isinstance(client.link, ClassicLink)
    assert client.link._pending_acks == {}
    client.tell("BEGIN", TX)
    client.tell("ABORT", TX)
    assert len(client.link._pending_acks) == 50


def test_transaction_stays_open_after_failed_commit(broker: FakeBroker) -> None:
    """The message is with nobody until the socket dies; the name may be used again."""
    client = holding(broker, "a")
    client.tell("BEGIN", TX)
    client.ack("a", **TX)
    client.tell("SEND", {"destination": DEAD_TEMP, **TX})
    assert client.errors() == ["temp-queue://ID:gone"]
    assert client.ask("COMMIT", TX) == ROLLBACK_ONLY
    assert client.ask("ABORT", TX) == NO_SUCH_TX
    assert client.ack("a") == UNEXPECTED_ACK
    assert client.ask("BEGIN", TX) == "RECEIPT"
    assert left(broker, "/queue/q") == []
    client.die()
    assert left(broker, "/queue/q") == ["a R"]


def test_failed_send_with_receipt_does_not_fail_the_commit(broker: FakeBroker) -> None:
    """The input is consumed and the output is missing."""
    client = holding(broker, "a")
    client.tell("BEGIN", TX)
    client.ack("a", **TX)
    assert client.ask("SEND", {"destination": DEAD_TEMP, **TX}) == "temp-queue://ID:gone"
    assert client.ask("COMMIT", TX) == "RECEIPT"
    client.die()
    assert left(broker, "/queue/q") == []


@pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}])
def test_converter_errors_do_not_touch_the_transaction(
    broker: FakeBroker, receipt: dict[str, str]
) -> None:
    """Only what reaches the broker can make it rollback-only."""
    client = Talk(broker)
    client.tell("BEGIN", TX)
    client.tell("SEND", {"destination": "/queue/q", "amq-msg-type": "map", **TX, **receipt}, "x")
    assert client.errors() == ["Unsupported message type 'map'"]
    client.tell("SEND", {"destination": "/queue/q", **TX}, "y")
    assert client.ask("COMMIT", TX) == "RECEIPT"
    assert left(broker, "/queue/q") == ["y"]


def test_next_transaction_begins_anew(broker: FakeBroker) -> None:
    """After a COMMIT with an ACK, one with a SEND only is fine."""
    client = holding(broker, "a")
    client.tell("BEGIN", TX)
    client.ack("a", **TX)
    assert client.ask("COMMIT", TX) == "RECEIPT"
    client.tell("BEGIN", TX)
    client.tell("SEND", {"destination": "/queue/out", **TX}, "o")
    assert client.ask("COMMIT", TX) == "RECEIPT"
    assert client.errors() == []
    assert left(broker, "/queue/out") == ["o"]


# -- the window ---------------------------------------------------------------------------------


def _rounds(client: Talk, end: str, *, cumulative: bool) -> list[int]:
    """Messages seen after each of five ACK(tx) of the last (or always the first) one and `end`."""
    seen = []
    for _ in range(5):
        client.tell("BEGIN", TX)
        message = client.messages[-1 if cumulative else 0]
        client.tell("ACK", {"id": message.headers["ack"], **TX})
        client.tell(end, TX)
        client.collect()
        seen.append(len(client.messages))
    return seen


@pytest.mark.parametrize(
    ("mode", "end", "expected"),
    [
        ("client", "ABORT", [10, 20, 40, 80, 100]),  # doubles, until all are out
        ("client", "COMMIT", [10, 15, 20, 25, 30]),  # five are out at any time
        ("client-individual", "ABORT", [6, 6, 6, 6, 6]),  # opens by one, contracts again
    ],
)
def test_window_after_ack_in_transaction(
    broker: FakeBroker, mode: str, end: str, expected: list[int]
) -> None:
    """Prefetch 5 of 100 messages."""
    client = Talk(broker)
    client.put("/queue/q", *(str(number) for number in range(100)))
    client.subscribe("/queue/q", ack=mode, activemq_prefetchSize="5")
    assert _rounds(client, end, cumulative=mode == "client") == expected


def test_prefetch_zero_gives_nothing(broker: FakeBroker) -> None:
    """RECEIPT, and then nothing, ever."""
    client = Talk(broker)
    client.put("/queue/q", "a")
    assert client.subscribe("/queue/q", activemq_prefetchSize="0") == []
    client.put("/queue/q", "b")
    broker.handle_timer(100.0)
    assert client.bodies() == []
    assert len(broker.queue("q").waiting) == 2
