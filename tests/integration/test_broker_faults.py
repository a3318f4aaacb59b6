"""An ERROR that is no refusal, on the wire: whether the broker has done it is not known, and jmsx says so."""

from __future__ import annotations

import pytest

from jmsx import Connection, Message
from jmsx.errors import (
    BrokerError,
    SendUnconfirmedError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.testing import FakeBrokerServer
from tests.integration.support import TRANSACTED, fresh_queue, nothing_left, text

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

FAULT = "java.util.ConcurrentModificationException"


@pytest.mark.parametrize("words", [FAULT, "null", "java.io.IOException: No space left"])
def test_a_send_that_is_answered_with_a_fault(words: str) -> None:
    """It is unconfirmed, and the session goes on."""
    queue = fresh_queue()
    with nothing_left(), FakeBrokerServer() as server, Connection(server.url) as connection:
        producer = connection.create_session().create_producer(queue)
        with server.broker() as broker:
            broker.refuse_next("SEND", words)
        with pytest.raises(SendUnconfirmedError, match=r"may be there twice"):
            producer.send(Message("a"))
        producer.send(Message("b"))
        with server.broker() as broker:
            broker.refuse_next("SEND")
        with pytest.raises(BrokerError, match=r"refused by the test"):
            producer.send(Message("c"))


def test_a_commit_that_is_answered_with_a_fault() -> None:
    """It is in doubt; what was received comes again on another link if it was not committed."""
    queue, out = fresh_queue(), fresh_queue()
    with (
        nothing_left(),
        FakeBrokerServer() as server,
        Connection(f"failover:({server.url})") as connection,
    ):
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(queue), session.create_producer(out)
        with Connection(server.url) as sender:
            sender.create_session().create_producer(queue).send(Message("a"))
        for words, kind in ((FAULT, TransactionInDoubtError), ("", TransactionRolledBackError)):
            assert text(consumer.receive(5)) == "a"
            producer.send(Message("out"))
            with server.broker() as broker:
                broker.refuse_next("COMMIT", *filter(None, [words]))
            with pytest.raises(kind):
                session.commit()
        assert text(consumer.receive(5)) == "a"
        producer.send(Message("out"))
        session.commit()
        with server.broker() as broker:
            assert [message.body for message in broker.queue(out.name).browse()] == [b"out"]
            assert broker.queue(queue.name).browse() == []
