"""Where Classic would delete a dead letter jmsx keeps a copy, confirmed before the original is acknowledged."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    Connection,
    Message,
    Queue,
    Reject,
)
from tests.integration.broker_support import eventually
from tests.integration.support import (
    DEAD_LETTERS,
    dead_copies,
    fresh_queue,
    put,
    settles,
)

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def reject_one(connection: Connection, queue: Queue, message: str) -> None:
    """Let a listener reject the next message of `queue`, and wait until it is gone."""
    seen = threading.Event()

    def refuse(_message: Message) -> None:
        seen.set()
        raise Reject from ValueError(message)

    connection.start()
    connection.create_session().create_consumer(queue).set_listener(refuse)
    assert seen.wait(5)


def test_a_non_persistent_dead_letter_is_copied(classic_broker: Broker, queue: Queue) -> None:
    """Trap: NACK of a non-persistent message is answered, and the message is gone."""
    put(classic_broker, queue, queue.name, persistent="false", colour="red")
    with Connection(classic_broker.url) as connection:
        reject_one(connection, queue, "no such colour")
        assert eventually(lambda: len(dead_copies(classic_broker, queue.name)) == 1)
        assert settles(classic_broker, queue, size=0)
    (headers,) = dead_copies(classic_broker, queue.name)
    assert headers["persistent"] == "true"
    assert headers["colour"] == "red"
    assert headers["jmsx_death_reason"] == "rejected"
    assert headers["jmsx_original_destination"] == queue.uri
    assert headers["jmsx_delivery_count"] == "1"
    assert headers["jmsx_exception"] == "ValueError"
    assert headers["jmsx_exception_message"] == "no such colour"
    assert "ValueError: no such colour" in headers["jmsx_stack"]
    assert headers["originalDeliveryMode"] == "NON_PERSISTENT"


def test_a_dead_letter_of_a_dead_letter_queue_is_copied(classic_broker: Broker) -> None:
    """Trap: NACK of a message that was read from a DLQ is answered, and the message is gone."""
    dlq = Queue(f"{DEAD_LETTERS}.{fresh_queue().name}")
    put(classic_broker, dlq, dlq.name)
    with Connection(classic_broker.url) as connection:
        reject_one(connection, dlq, "again")
        assert eventually(lambda: len(dead_copies(classic_broker, dlq.name)) == 1)
        assert settles(classic_broker, dlq, size=0)
    (headers,) = dead_copies(classic_broker, dlq.name)
    assert headers["jmsx_original_destination"] == dlq.uri
    assert headers["jmsx_exception_message"] == "again"


def test_the_strategy_broker_does_as_java(classic_broker: Broker, queue: Queue) -> None:
    """`dead_letter="broker"`: NACK for all; the persistent one is in the DLQ with its id, the other one is gone."""
    put(classic_broker, queue, queue.name, case=queue.name)
    (before,) = classic_broker.browse(queue.name)
    with Connection(classic_broker.url, dead_letter="broker") as connection:
        reject_one(connection, queue, "no")
        assert settles(classic_broker, queue, size=0)
    (headers,) = dead_copies(classic_broker, queue.name)
    assert headers["message-id"] == before.headers["message-id"]
    assert headers["original-destination"] == f"/queue/{queue.name}"
    assert "jmsx_death_reason" not in headers
    volatile = fresh_queue()
    put(classic_broker, volatile, volatile.name, persistent="false")
    with Connection(classic_broker.url, dead_letter="broker") as connection:
        reject_one(connection, volatile, "no")
        assert settles(classic_broker, volatile, size=0)
    assert dead_copies(classic_broker, volatile.name) == []
