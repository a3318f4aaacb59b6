"""A session on a broker of which nothing is known but that it speaks STOMP 1.2; all other tests here run on it, too."""

from __future__ import annotations

import pytest

from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import StompAck
from jmsx.errors import BrokerError, UnsupportedError
from tests.unit.core.harness import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    dead_letters,
    outcome,
)
from tests.unit.core.plain import DIALECT


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED], ids=str)
def test_what_is_received_is_acknowledged(mode: AcknowledgeMode) -> None:
    """In every mode."""
    talk = Talk(mode, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.core.consumed(delivery, talk.now, returning=True)
    if mode in (CLIENT, INDIVIDUAL):
        talk.core.acknowledge(delivery, talk.now)
    elif mode is TRANSACTED:
        request = talk.commit()
        talk.answer()
        assert outcome(request) == "done"
    assert "ACK a" in " ".join(talk.wrote())


def test_what_is_sent_and_received_is_one_transaction() -> None:
    """As STOMP 1.2 has it of SEND and ACK."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    talk.commit()
    assert talk.wrote() == [
        "BEGIN in jmsx",
        "SEND queue:x 'out' in jmsx",
        "ACK a in jmsx",
        "COMMIT in jmsx ?",
    ]


def test_a_dead_letter_is_copied() -> None:
    """Nobody knows what the broker makes of a NACK."""
    talk = Talk(AUTO, dialect=DIALECT)
    talk.subscribe(dead_letter_queue=DIALECT.dead_letter_queue)
    talk.comes("a")
    talk.listen(REJECTED)
    assert talk.wrote() == ["BEGIN in jmsx-dead-1", "SEND queue:dead 'a' in jmsx-dead-1 ?"]
    talk.answer()
    assert talk.wrote() == ["ACK a in jmsx-dead-1", "COMMIT in jmsx-dead-1 ?"]
    talk.answer()
    assert dead_letters(talk) == [("a", 1, "rejected", "queue://dead", True)]


def test_an_error_ends_the_connection() -> None:
    """STOMP 1.2: the server closes it behind an ERROR."""
    talk = Talk(AUTO, dialect=DIALECT)
    request = talk.send()
    talk.refuse("no room")
    assert request is not None
    assert isinstance(request.error, BrokerError)
    assert talk.wrote() == ["SEND queue:x 'out' ?", "DROP"]


def test_what_stomp_has_not_is_refused() -> None:
    """Selectors, for one; with them would come messages that nobody asked for."""
    with pytest.raises(UnsupportedError, match="queue://q"):
        DIALECT.writing.subscribe_headers(
            destination="queue://q",
            ack=StompAck.CLIENT,
            selector="a = 1",
            durable_name=None,
            no_local=False,
            options={},
        )


def test_nothing_is_delivered_later() -> None:
    """STOMP has no delays, so no copy may go back for one."""
    talk = Talk(AUTO, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a")
    settings = talk.settings(destination="queue://q")
    with pytest.raises(UnsupportedError, match="delivers nothing later"):
        DIALECT.copying.scheduled_copy(talk.held(), settings, "k", 1.0)


def test_a_destination_is_named_as_in_stomps_examples() -> None:
    """Where it goes, and where an answer goes."""
    writing = DIALECT.writing
    assert writing.send_headers("topic://a.b?consumer.priority=1") == {"destination": "/topic/a.b"}
    assert writing.reply_to("temp-queue://x") == "/temp-queue/x"
    came = {"destination": "/queue/a", "reply-to": "/temp-queue/x"}
    assert DIALECT.reading.addresses(came) == ("queue://a", None, "temp-queue://x")
