"""Poison is delivered as often as its policy says, and what is given back keeps its order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    Queue,
    RedeliveryPolicy,
)
from tests.integration.support import (
    AT_ONCE,
    AUTO,
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    dead_copies,
    put,
    settles,
    take,
    told,
)

if TYPE_CHECKING:
    from jmsx import Session
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: Three deliveries in all.
THREE = RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0, redelivery_delay=0)


@pytest.mark.parametrize("limit", [0, 1, 6])
@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_poison_is_delivered_one_plus_maximum_redeliveries_times(
    classic_broker: Broker, queue: Queue, mode: AcknowledgeMode, limit: int
) -> None:
    """Exactly 1 + maximum_redeliveries deliveries, then it is in the DLQ once, and the next message comes."""
    put(classic_broker, queue, queue.name, "good")
    counts: list[int] = []
    done = threading.Event()
    policy = RedeliveryPolicy(
        maximum_redeliveries=limit, initial_redelivery_delay=0.01, redelivery_delay=0.01
    )
    with Connection(classic_broker.url, redelivery_policy=policy) as connection:
        session = connection.create_session(mode)

        def listen(message: Message) -> None:
            if message.text == "good":
                done.set()
            else:
                counts.append(message.delivery_count)
            if mode is TRANSACTED and message.text == "good":
                session.commit()
            elif mode is TRANSACTED:
                session.rollback()
            elif message.text != "good":
                raise ValueError(message.text)

        session.create_consumer(queue).set_listener(listen)
        connection.start()
        assert done.wait(10)
        assert settles(classic_broker, queue, size=0)
    assert counts == list(range(1, limit + 2))
    assert len(dead_copies(classic_broker, queue.name)) == 1


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED])
def test_the_order_after_giving_back(
    classic_broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """Rolled back or recovered messages come first, in their order, and then the others."""
    put(classic_broker, queue, *"abcde")
    with Connection(classic_broker.url, redelivery_policy=AT_ONCE) as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        take(consumer, 3)
        give_back(session)
        assert told(take(consumer, 2)) == [("a", 2), ("b", 2)]
        give_back(session)
        again = take(consumer, 5)
        assert told(again) == [("a", 3), ("b", 3), ("c", 2), ("d", 1), ("e", 1)]
        for message in again:
            message.acknowledge()
        if mode is TRANSACTED:
            session.commit()
    assert settles(classic_broker, queue, size=0)


def give_back(session: Session) -> None:
    """Roll back, or recover, as the mode has it."""
    if session.transacted:
        session.rollback()
    else:
        session.recover()


def test_a_mixed_batch_over_the_limit(classic_broker: Broker, queue: Queue) -> None:
    """A batch over its limit becomes dead letters whole, each message once, by NACK or by copy as it needs it."""
    put(classic_broker, queue, "p1", case=queue.name, key="1")
    put(classic_broker, queue, "n1", case=queue.name, persistent="false", key="2")
    put(classic_broker, queue, "p2", case=queue.name, key="3")
    diary = Diary()
    with Connection(classic_broker.url, redelivery_policy=THREE, observers=[diary]) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        for count in (1, 2, 3):
            batch = take(consumer, 3)
            assert {message.delivery_count for message in batch} == {count}
            session.rollback()
        put(classic_broker, queue, "last")
        assert told(take(consumer, 1)) == [("last", 1)]
        session.commit()
        assert settles(classic_broker, queue, size=0)
    assert len(dead_copies(classic_broker, queue.name)) == 3
    assert sorted(one.by_copy for one in diary.dead()) == [False, False, True]
    assert [one.attempts for one in diary.dead()] == [3, 3, 3]
