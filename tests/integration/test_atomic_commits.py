"""A broker that is killed in the middle of a commit has committed all of it or nothing."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

import jmsx
from jmsx.errors import JmsxError
from jmsx_broker import ClassicBroker
from tests.integration.support import fresh_queue

MESSAGES = 900


@pytest.mark.broker
def test_a_commit_of_receives_is_whole_when_classic_is_killed() -> None:
    """One cumulative ACK instead of a transaction left 805 to 888 of 900 (measured on 6.1.8)."""
    queue = fresh_queue()
    with ClassicBroker() as broker:
        with jmsx.Connection(broker.url) as connection:
            session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            producer = session.create_producer(queue)
            for number in range(MESSAGES):
                producer.send(jmsx.Message(str(number)))
            session.commit()
        connection = jmsx.Connection(broker.url)
        connection.start()
        session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        for _ in range(MESSAGES):
            assert consumer.receive(10) is not None

        def commit() -> None:
            with contextlib.suppress(JmsxError):
                session.commit()

        committing = threading.Thread(target=commit)
        committing.start()
        time.sleep(0.02)
        broker.kill()
        committing.join(60)
        connection.abort()
        broker.start()
        assert broker.statistics(queue.name).size in (0, MESSAGES)
