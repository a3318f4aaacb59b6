"""Brokers that pass messages on to each other: what stays the same on the way, and what does not."""

from __future__ import annotations

import pytest

from jmsx import Connection, Message, Queue, Session, TransactionInDoubtError
from jmsx.jms.translation import identity_of
from tests.integration.broker_support import eventually
from tests.integration.pairs import artemis_cluster, classic_network
from tests.integration.proxy import Proxy
from tests.integration.support import AUTO, TRANSACTED, bodies, fresh_queue, nothing_left
from tests.integration.support import Outcome as Call

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

MARKERS = "jmsx.commits"

EXCLUDED = f'<excludedDestinations><queue physicalName="{MARKERS}"/></excludedDestinations>'


def commit(session: Session, queue: Queue, text: str) -> None:
    """Send it in a transaction."""
    session.create_producer(queue).send(Message(text))
    session.commit()


@pytest.mark.parametrize(
    ("options", "body", "readers"),
    [("", "", 2), ("", EXCLUDED, 1), ('conduitSubscriptions="false"', "", 2)],
    ids=["as ever", "excluded", "with selectors"],
)
def test_commit_markers_in_a_network(queue: Queue, options: str, body: str, readers: int) -> None:
    """A bridge moves those of a session without a link to where others read theirs, unless it is told not to."""
    one, other = classic_network(options, body)
    moves = not (options or body)
    with other, one, Proxy(one.url) as proxy, nothing_left():
        url = f"failover:({proxy.url})?initialReconnectDelay=500"
        with (
            Connection(url, commit_markers=True, request_timeout=4) as connection,
            Connection(other.url, commit_markers=True) as elsewhere,
        ):
            session, there = (each.create_session(TRANSACTED) for each in (connection, elsewhere))
            commit(there, queue, "there")
            commit(session, queue, "here")
            assert eventually(lambda: one.statistics(MARKERS).consumer_count == readers, 10)
            proxy.cut_beside("COMMIT\n", behind=True)
            # whoever comes back sooner than the bridge has moved the marker finds it
            with proxy.shut():
                call = Call(lambda: commit(session, queue, "cut"))
                assert eventually(lambda: other.statistics(MARKERS).size == 1 + moves)
            call.join(20)
            assert isinstance(call.error, TransactionInDoubtError if moves else type(None))
            assert not moves or "bridges leave queue://jmsx.commits alone" in str(call.error)
            assert eventually(lambda: other.statistics(MARKERS).size == 1 + moves)


def test_what_moves_in_a_network_is_the_same(queue: Queue) -> None:
    """It has its id, time and key, and its deliveries are counted where it has come to."""
    one, other = classic_network()
    with other, one, nothing_left(), Connection(one.url) as here, Connection(other.url) as there:
        there.start()
        session = there.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        assert eventually(lambda: one.statistics(queue.name).consumer_count == 1, 20)
        message = Message("a")
        here.create_session(AUTO).create_producer(queue).send(message)
        for count in (1, 2):
            moved = consumer.receive(10)
            assert moved is not None
            assert (moved.message_id, moved.timestamp) == (message.message_id, message.timestamp)
            assert (moved.delivery_count, moved.destination) == (count, queue)
            session.rollback()


def test_what_moves_in_a_cluster_is_new() -> None:
    """It has another id, and nobody knows of its deliveries; its key and time stay. Each broker has duplicate ids."""
    source, target = fresh_queue(), fresh_queue()
    one, other = artemis_cluster()
    with other, one, nothing_left(), Connection(one.url) as here, Connection(other.url) as there:
        here.start()
        there.start()
        session = here.create_session(TRANSACTED)
        consumer = session.create_consumer(source)
        session.create_producer(source).send(Message("a"))
        session.commit()
        failed = consumer.receive(10)
        assert failed is not None
        before = identity_of(failed)
        session.rollback()
        moved = there.create_session(AUTO).create_consumer(source)
        session.close()
        again = moved.receive(20)
        assert again is not None
        after = identity_of(again)
        assert before is not None
        assert after is not None
        assert (after.key, after.name) == (before.key, before.name)
        assert after.copy != before.copy
        assert again.message_id != failed.message_id
        assert (again.timestamp, again.redelivered) == (failed.timestamp, False)
        for connection in (here, here, there):
            producer = connection.create_session(AUTO).create_producer(target)
            producer.send(Message("b"), dedupe_id="1")
        assert eventually(lambda: len(bodies(one, target) + bodies(other, target)) == 2)
