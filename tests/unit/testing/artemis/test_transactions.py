"""Transactions on the fake Artemis: sends, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.artemis.talk import TX, ArtemisTalk, left

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker


@pytest.mark.parametrize(("end", "out"), [("COMMIT", ["a", "b"]), ("ABORT", [])])
def test_sends_are_seen_at_the_commit(broker: FakeBroker, end: str, out: list[str]) -> None:
    """All of them or none; the name is free again."""
    client, reader = ArtemisTalk(broker), ArtemisTalk(broker)
    reader.subscribe("q")
    client.ask("BEGIN", TX)
    client.put("q", "a", "b", **TX)
    assert reader.bodies() == []
    assert client.ask(end, TX) == "RECEIPT"
    assert reader.bodies() == out
    assert client.ask("BEGIN", TX) == "RECEIPT"


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        (["BEGIN", "BEGIN"], "Transaction already started: t"),
        (["COMMIT"], "AMQ339013 Error committing t"),
        (["ABORT"], "No transaction started: t"),
        (["BEGIN", "COMMIT", "COMMIT"], "AMQ339013 Error committing t"),
        (["BEGIN", "ABORT", "ABORT"], "No transaction started: t"),
    ],
)
def test_errors(broker: FakeBroker, commands: list[str], message: str) -> None:
    """Each is the end of the connection."""
    client = ArtemisTalk(broker)
    assert [client.ask(command, TX) for command in commands][-1] == message
    assert client.link.closed


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("BEGIN", "AMQ339032 Need a transaction id to begin"),
        ("COMMIT", "AMQ339030 transaction header is mandatory to COMMIT a transaction"),
        ("ABORT", "AMQ339033 transaction header is mandatory to ABORT a transaction"),
    ],
)
def test_nameless(broker: FakeBroker, command: str, message: str) -> None:
    """In the broker's words."""
    assert ArtemisTalk(broker).ask(command) == message


def test_send_without_begin_waits(broker: FakeBroker) -> None:
    """A RECEIPT, and no COMMIT; but a BEGIN that comes later takes it in."""
    client = ArtemisTalk(broker)
    client.put("q", "a", **TX)
    assert client.ask("COMMIT", TX) == "AMQ339013 Error committing t"
    client = ArtemisTalk(broker)
    client.put("q", "a", **TX)
    client.ask("BEGIN", TX)
    assert client.ask("COMMIT", TX) == "RECEIPT"
    assert left(broker, "q") == ["a"]


def test_connection_ends(broker: FakeBroker) -> None:
    """Nothing was sent."""
    client = ArtemisTalk(broker)
    client.ask("BEGIN", TX)
    client.put("q", "a", **TX)
    client.die()
    assert left(broker, "q") == []


# -- duplicate ids ------------------------------------------------------------------------------


def test_duplicate_is_dropped(broker: FakeBroker) -> None:
    """With a RECEIPT; each address has its own memory."""
    client = ArtemisTalk(broker)
    client.put("q", "a", "b", _AMQ_DUPL_ID="1")
    client.put("p", "c", _AMQ_DUPL_ID="1")
    assert (left(broker, "q"), left(broker, "p")) == (["a"], ["c"])


def test_duplicate_rolls_its_transaction_back(broker: FakeBroker) -> None:
    """SEND says RECEIPT, COMMIT an ERROR without a cause; all is lost."""
    client = ArtemisTalk(broker)
    client.put("q", "a", _AMQ_DUPL_ID="1")
    client.ask("BEGIN", TX)
    client.put("q", "lost", **TX)
    client.put("q", "again", _AMQ_DUPL_ID="1", **TX)
    assert client.ask("COMMIT", TX) == "AMQ339013 Error committing t"
    assert left(broker, "q") == ["a"]


def test_duplicates_of_one_transaction_are_both_sent(broker: FakeBroker) -> None:
    """The id is remembered at the COMMIT only."""
    client = ArtemisTalk(broker)
    client.ask("BEGIN", TX)
    client.put("q", "a", "b", _AMQ_DUPL_ID="1", **TX)
    assert client.ask("COMMIT", TX) == "RECEIPT"
    client.put("q", "c", _AMQ_DUPL_ID="1")
    assert left(broker, "q") == ["a", "b"]


def test_abort_frees_the_id(broker: FakeBroker) -> None:
    """As if it had never been used."""
    client = ArtemisTalk(broker)
    client.ask("BEGIN", TX)
    client.put("q", "aborted", _AMQ_DUPL_ID="1", **TX)
    client.ask("ABORT", TX)
    client.put("q", "sent", _AMQ_DUPL_ID="1")
    assert left(broker, "q") == ["sent"]
