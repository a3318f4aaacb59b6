"""
JMS's other duties on a real broker, where the scenario format has no words: options of destinations, and sharing.

Source: jmsx_classic/BROKER.md C17 (exclusive consumers, priority of consumers) and C62.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, Queue, Topic
from jmsx.errors import ConfigurationError, UnsupportedError
from jmsx.testing import FakeBrokerServer
from tests.integration.support import (
    AUTO,
    TRANSACTED,
    Diary,
    dead_copies,
    put,
    settles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import MessageConsumer
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def connection(classic_broker: Broker) -> Iterator[Connection]:
    """A started connection with prefetch 1, so that consumers compete message by message."""
    with Connection(f"{classic_broker.url}?jms.prefetchPolicy.all=1") as connection:
        connection.start()
        yield connection


def taken(consumer: MessageConsumer, count: int) -> list[str]:
    """The texts of the next `count` messages; fewer if they do not come."""
    came = [consumer.receive(5.0) for _ in range(count)]
    return [message.text for message in came if message is not None]


def test_an_exclusive_consumer_gets_all(
    connection: Connection, classic_broker: Broker, queue: Queue
) -> None:
    """`consumer.exclusive=true`: the first gets every message in order; when it goes the next one does."""
    exclusive = Queue(f"{queue.name}?consumer.exclusive=true")
    first, second = (connection.create_session().create_consumer(exclusive) for _ in range(2))
    put(classic_broker, queue, *"abcdef")

    assert taken(first, 4) == [*"abcd"]
    assert second.receive(0.3) is None
    first.close()
    assert taken(second, 2) == [*"ef"]
    assert settles(classic_broker, queue, size=0)


def test_an_exclusive_consumer_that_rolls_back_keeps_its_turn(
    connection: Connection, classic_broker: Broker, queue: Queue
) -> None:
    """What it rolls back comes to it again, in order, and to nobody else."""
    exclusive = Queue(f"{queue.name}?consumer.exclusive=true")
    session = connection.create_session(TRANSACTED)
    first = session.create_consumer(exclusive)
    second = connection.create_session(AUTO).create_consumer(exclusive)
    put(classic_broker, queue, *"abc")

    assert taken(first, 2) == [*"ab"]
    session.rollback()
    assert second.receive(0.3) is None
    assert taken(first, 3) == [*"abc"]
    session.commit()
    assert settles(classic_broker, queue, size=0)


def test_consumers_of_higher_priority_come_first(
    connection: Connection, classic_broker: Broker, queue: Queue
) -> None:
    """`consumer.priority`: the lower one gets what does not fit into the window of the higher one."""

    def consumer(priority: int) -> MessageConsumer:
        name = f"{queue.name}?consumer.priority={priority}&consumer.prefetchSize=3"
        return connection.create_session(TRANSACTED).create_consumer(Queue(name))

    low, high = consumer(1), consumer(7)
    put(classic_broker, queue, *"abcde")

    assert taken(low, 2) == [*"de"]
    assert taken(high, 3) == [*"abc"]


def test_a_prefetch_in_the_destination_wins(
    connection: Connection, classic_broker: Broker, queue: Queue
) -> None:
    """`consumer.prefetchSize=10` against the connection's 1: the broker's own count says so."""
    session = connection.create_session(TRANSACTED)
    consumer = session.create_consumer(Queue(f"{queue.name}?consumer.prefetchSize=10"))
    put(classic_broker, queue, *map(str, range(15)))

    assert settles(classic_broker, queue, size=15, inflight=10)
    assert taken(consumer, 15) == [*map(str, range(15))]


def test_options_as_java_users_write_them(classic_broker: Broker, queue: Queue) -> None:
    """A failover URI with `jms.*` options in milliseconds: two redeliveries, the second 100 ms late, then the DLQ."""
    url = (
        f"failover:({classic_broker.url})?jms.redeliveryPolicy.maximumRedeliveries=2"
        "&jms.redeliveryPolicy.initialRedeliveryDelay=0&jms.redeliveryPolicy.redeliveryDelay=100"
        "&jms.optimizeAcknowledge=true&jms.prefetchPolicy.queuePrefetch=5"
    )
    diary, came = Diary(), []
    with Connection(url, observers=[diary]) as connection:
        connection.start()

        def listen(message: Message) -> None:
            if message.text == "poison":
                came.append(time.monotonic())
                raise ValueError(message.text)

        connection.create_session().create_consumer(queue).set_listener(listen)
        put(classic_broker, queue, "fine", "poison", "last", case=queue.name)
        assert settles(classic_broker, queue, size=0)
    failed = [attempt for _, attempt, outcome in diary.attempts() if outcome != "acknowledged"]
    assert failed == [1, 2, 3]
    assert came[2] - came[1] >= 0.1
    assert len(dead_copies(classic_broker, queue.name)) == 1


def test_shared_subscriptions_are_refused_and_virtual_topics_do_it(
    connection: Connection, queue: Queue
) -> None:
    """Classic has none, nor has its Java client; what the error recommends works: two consumers share what comes."""
    session = connection.create_session()
    with pytest.raises(UnsupportedError, match=r"queue://Consumer.NAME.VirtualTopic.X"):
        session.create_shared_consumer(Topic("prices"), "desk")
    with pytest.raises(
        UnsupportedError,
        match=r"^no shared subscription 'desk' of topic://prices: ActiveMQ Classic",
    ):
        session.create_shared_durable_consumer(Topic("prices"), "desk")

    topic, desk = f"VirtualTopic.{queue.name}", Queue(f"Consumer.desk.VirtualTopic.{queue.name}")
    one, two = (connection.create_session(TRANSACTED).create_consumer(desk) for _ in range(2))
    producer = session.create_producer(Topic(topic))
    for text in "abcd":
        producer.send(Message(text))
    assert sorted(taken(one, 2) + taken(two, 2)) == [*"abcd"]


def test_artemis_is_named_where_it_shares_nothing() -> None:
    """Its error does not speak of another broker."""
    with FakeBrokerServer("artemis") as server, Connection(server.url) as connection:
        session = connection.create_session()
        with pytest.raises(UnsupportedError, match=r": Artemis .* divert"):
            session.create_shared_consumer(Topic("prices"), "desk")


def test_transactions_are_chosen_by_the_mode_alone(connection: Connection) -> None:
    """There is no second flag that could contradict it (JMS 1.1's `createSession(transacted, mode)`)."""
    assert connection.create_session(TRANSACTED).transacted
    assert not connection.create_session(AUTO).transacted
    for flag in (True, False, "SESSION_TRANSACTED", None):
        with pytest.raises(ConfigurationError, match=f"one AcknowledgeMode.* not {flag!r}"):
            connection.create_session(flag)  # type: ignore[arg-type]  # the refusal is what is tested
