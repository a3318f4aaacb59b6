"""Messages of megabytes: in every mode that holds several, each comes once, in order, and the link lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, PrefetchPolicy, Session
from jmsx.jms.session import link_of
from tests.integration.support import AT_ONCE, CLIENT, TRANSACTED, fresh_queue

if TYPE_CHECKING:
    from jmsx.jms.consumer import MessageConsumer
    from jmsx_broker import Broker

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
