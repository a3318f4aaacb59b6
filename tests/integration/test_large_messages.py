"""Messages of megabytes: in every mode that holds several, each comes once, in order, and the link lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import App, Connection, Message, PrefetchPolicy, Session
from jmsx.jms.session import link_of
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually
from tests.integration.support import AT_ONCE, CLIENT, TRANSACTED, fresh_queue, settles

if TYPE_CHECKING:
    from jmsx import Queue
    from jmsx.jms.consumer import MessageConsumer
    from jmsx_broker import ArtemisBroker, Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

#: Around the size of which a thousand are more bytes than a Java int counts, and well beyond.
SIZES = (2_300_000, 5_000_000)

MESSAGES = 5


def numbers(consumer: MessageConsumer, count: int) -> list[int]:
    """The next messages, by what they begin with."""
    got = [consumer.receive(20) for _ in range(count)]
    return [-1 if one is None else number(one) for one in got]


def number(message: Message) -> int:
    """What a message begins with."""
    return int(message.text[:10])


def filled(session: Session, size: int) -> MessageConsumer:
    """A consumer of a queue with MESSAGES messages in it."""
    queue = fresh_queue()
    producer = session.create_producer(queue)
    for position in range(MESSAGES):
        producer.send(Message(f"{position:10}" + "x" * size))
    if session.transacted:
        session.commit()
    return session.create_consumer(queue)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("prefetch", [1, 3, 1000])
def test_in_transactions_that_are_rolled_back(broker: Broker, size: int, prefetch: int) -> None:
    """Two are taken and rolled back, then taken again and committed, until the queue is empty."""
    with Connection(
        broker.url, prefetch_policy=PrefetchPolicy.all(prefetch), redelivery_policy=AT_ONCE
    ) as connection:
        session = connection.create_session(TRANSACTED)
        consumer = filled(session, size)
        connection.start()
        epoch = link_of(session).engine.core.epoch
        assert numbers(consumer, 2) == [0, 1]
        session.rollback()
        assert numbers(consumer, 2) == [0, 1]
        session.commit()
        assert numbers(consumer, 3) == [2, 3, 4]
        session.rollback()
        assert numbers(consumer, 3) == [2, 3, 4]
        session.commit()
        assert consumer.receive(0.3) is None
        assert link_of(session).engine.core.epoch == epoch  # on one and the same link


@pytest.mark.parametrize("size", SIZES)
def test_acknowledged_at_the_end(broker: Broker, size: int) -> None:
    """CLIENT: all are in the application's hands before the first is acknowledged, after a recover()."""
    with Connection(broker.url, redelivery_policy=AT_ONCE) as connection:
        session = connection.create_session(CLIENT)
        consumer = filled(session, size)
        connection.start()
        epoch = link_of(session).engine.core.epoch
        assert numbers(consumer, 3) == [0, 1, 2]
        session.recover()
        assert numbers(consumer, MESSAGES - 1) == [0, 1, 2, 3]
        last = consumer.receive(20)
        assert last is not None
        assert number(last) == MESSAGES - 1
        last.acknowledge()
        assert consumer.receive(0.3) is None
        assert link_of(session).engine.core.epoch == epoch


def test_a_batch_of_a_queue_that_takes_no_further_consumer(
    artemis_broker: ArtemisBroker, queue: Queue
) -> None:
    """Its window of bytes holds half of the batch, and the queue refuses to open another one, with the link."""
    with Console(artemis_broker) as console:
        console.create_queue(queue.name, queue.name, routing_type="ANYCAST", max_consumers=1)
    app = App(artemis_broker.url)
    got: list[int] = []

    @app.consumer(queue, batch=100, batch_timeout=0.5, mode=TRANSACTED)
    def handle(messages: list[Message]) -> None:
        got.append(len(messages))

    with Connection(artemis_broker.url) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        for _ in range(300):
            producer.send(Message("x" * 10_000))
        session.commit()
    with app:
        assert eventually(lambda: sum(got) >= 300, 20)
    assert got == [100, 100, 100]
    assert settles(artemis_broker, queue, size=0)


def test_who_holds_two_large_messages_is_not_sent_all_the_others(
    artemis_broker: ArtemisBroker, queue: Queue
) -> None:
    """A thousand as large as those would be gigabytes, which a process with little memory does not survive."""
    with Connection(artemis_broker.url) as connection:
        connection.start()
        producer = connection.create_session().create_producer(queue)
        for _ in range(20):
            producer.send(Message(b"x" * 1_000_000))
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        assert [consumer.receive(5) is None for _ in range(2)] == [False, False]

        def sent() -> int | None:
            return artemis_broker.statistics(queue.name).inflight_count

        assert not eventually(lambda: sent() == 20, 2)
        session.commit()
        assert [consumer.receive(5) is None for _ in range(18)] == [False] * 18
        session.commit()
    assert settles(artemis_broker, queue, size=0)
