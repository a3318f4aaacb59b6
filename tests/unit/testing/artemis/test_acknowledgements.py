"""ACK and NACK on the fake Artemis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.artemis.talk import TX, UNLIMITED, ArtemisTalk, left

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

MODES = ["client", "client-individual"]


def holding(broker: FakeBroker, mode: str = "client") -> ArtemisTalk:
    """A client that was given a, b and c, none of them settled."""
    client = ArtemisTalk(broker)
    client.put("q", "a", "b", "c")
    assert client.subscribe("q", ack=mode, **UNLIMITED) == ["a", "b", "c"]
    return client


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize(
    ("mode", "rest"),
    [("client", ["c"]), ("client-individual", ["a", "c"]), ("anything else", ["c"])],
)
def test_what_is_settled(broker: FakeBroker, mode: str, command: str, rest: list[str]) -> None:
    """NACK is ACK: there is no dead letter, and the message is gone."""
    client = holding(broker, mode)
    assert client.ack("b", command) == "RECEIPT"
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert left(broker, "q") == rest
    assert len(broker.queue("DLQ")) == 0


@pytest.mark.parametrize("mode", MODES)
def test_twice_is_an_error(broker: FakeBroker, mode: str) -> None:
    """And the end of the connection."""
    client = holding(broker, mode)
    client.ack("a")
    message_id = client.message_id("a")
    assert client.ack("a") == f"AMQ339025 failed to ack because no message with id {message_id}"
    assert client.link.closed


def test_what_was_covered_is_settled(broker: FakeBroker) -> None:
    """An older one after a cumulative ACK is an ERROR."""
    client = holding(broker)
    client.ack("c")
    assert client.ack("a").startswith("AMQ339025")


def test_after_unsubscribe(broker: FakeBroker) -> None:
    """An ERROR of another kind; nothing is settled."""
    client = holding(broker)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    message_id = client.message_id("a")
    assert client.ack("a") == f"AMQ339018 Error acknowledging message {message_id}"
    assert left(broker, "q") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "AMQ339039 No id header in ACK/NACK frame."),
        ({"id": "x"}, "AMQ339018 Error acknowledging message x"),
        ({"id": "a,b"}, "AMQ339018 Error acknowledging message a,b"),
        ({"id": "1,1"}, "AMQ339025 failed to ack because no message with id 1,1"),
    ],
)
def test_ids_that_are_none(broker: FakeBroker, headers: dict[str, str], message: str) -> None:
    """In the broker's words."""
    assert ArtemisTalk(broker).ask("ACK", headers) == message


def test_ids_are_new_for_every_subscription(broker: FakeBroker) -> None:
    """The message's own number stays."""
    client = holding(broker)
    before = client.message_id("a")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.subscribe("q")
    after = client.message_id("a")
    assert before != after
    assert before.partition(",")[2] == after.partition(",")[2]


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_transactions_do_not_hold_them_back(broker: FakeBroker, command: str, end: str) -> None:
    """They settle at once, also for a transaction that nobody began."""
    client = holding(broker, "client-individual")
    client.ask("BEGIN", TX)
    assert client.ack("a", command, **TX) == "RECEIPT"
    assert client.ack("b", command, transaction="never begun") == "RECEIPT"
    assert len(broker.queue("q")) == 1
    assert client.ask(end, TX) == "RECEIPT"
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert left(broker, "q") == ["c"]


def test_auto_is_settled_before_it_is_read(broker: FakeBroker) -> None:
    """And it has no ack id."""
    client = holding(broker, "auto")
    assert len(broker.queue("q")) == 0
    assert client.ask("ACK", {"id": client.message_id("a")}).startswith("AMQ339025")
