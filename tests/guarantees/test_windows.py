"""What the guide promises of prefetch, backlogs and groups: row by row and broker by broker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import jmsx
from jmsx import AcknowledgeMode as Mode
from tests.guarantees.parts import (
    HOLDING,
    MODES,
    left,
    put,
    settle,
    take,
    texts,
)
from tests.integration.broker_support import changed_classic, eventually
from tests.integration.support import fresh_queue

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker


def test_prefetch_limits_what_waits_at_a_consumer(
    kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Prefetch 1 is exact on both; prefetch 5 is on Classic, and about that on Artemis."""
    for prefetch, least, most in ((1, 1, 1), (5, 5, 5) if kind == "classic" else (5, 2, 10)):
        name = fresh_queue().name
        put(connection, jmsx.Queue(name), *map(str, range(30)))
        session = connection.create_session(Mode.CLIENT_ACKNOWLEDGE)
        session.create_consumer(jmsx.Queue(f"{name}?consumer.prefetchSize={prefetch}"))

        def held(name: str = name) -> int:
            return broker.statistics(name).inflight_count or 0

        assert eventually(lambda: held() >= least, 5)  # noqa: B023 - run before the next turn
        assert least <= held() <= most
        session.close()
    assert left(connection, queue) == []


@pytest.mark.parametrize("mode", HOLDING, ids=lambda mode: mode.label)
def test_who_holds_more_has_a_wider_window(
    mode: Mode, kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """After 20 were held at prefetch 5 about 20 wait; on Classic 5 after `acknowledge()`, fewer with each commit."""
    put(connection, queue, *map(str, range(100)))
    session = connection.create_session(mode)
    consumer = session.create_consumer(jmsx.Queue(f"{queue.name}?consumer.prefetchSize=5"))
    last = [consumer.receive(5.0) for _ in range(20)][-1]
    assert last is not None
    settle(session, last)
    narrow = kind == "classic" and mode is Mode.CLIENT_ACKNOWLEDGE
    least, most = (5, 5) if narrow else (20, 30)

    def held() -> int:
        return broker.statistics(queue.name).inflight_count

    assert eventually(lambda: least <= held() <= most, 5)
    assert last.text == "19"
    if kind == "classic":
        for _ in range(10):
            one = consumer.receive(5.0)
            assert one is not None
            settle(session, one)
        assert eventually(lambda: 5 <= held() <= 15, 5)


@pytest.mark.parametrize("mode", HOLDING, ids=lambda mode: mode.label)
def test_a_group_larger_than_the_window(
    mode: Mode, kind: str, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Artemis binds a group to one subscription and its window: more of it comes once that is settled."""
    session = connection.create_session(Mode.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    for number in range(40):
        producer.send(jmsx.Message(str(number), group_id="g"))
    session.commit()
    session = connection.create_session(mode)
    consumer = session.create_consumer(jmsx.Queue(f"{queue.name}?consumer.prefetchSize=5"))
    got = texts(held := take(consumer))
    if kind == "artemis":
        assert 2 <= len(got) <= 10
    while held:
        settle(session, held[-1])
        got += texts(held := take(consumer))
        assert kind == "artemis" or not held
    assert got == [str(number) for number in range(40)]


def test_pull_parks_one_message_at_most(
    queue: jmsx.Queue, broker: Broker, connection: jmsx.Connection
) -> None:
    """Prefetch 0: at most one message waits at the consumer, and comes again when that is closed."""
    put(connection, queue, *"abc")
    session = connection.create_session(Mode.CLIENT_ACKNOWLEDGE)
    session.create_consumer(jmsx.Queue(f"{queue.name}?consumer.prefetchSize=0"))
    other = connection.create_session()
    rest = take(other.create_consumer(queue))
    assert len(rest) >= 2
    other.close()
    session.close()
    assert sorted(texts(rest + left(connection, queue))) == list("abc")
    assert eventually(lambda: broker.statistics(queue.name).size == 0, 5)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.label)
def test_no_session_stalls(mode: Mode, queue: jmsx.Queue, connection: jmsx.Connection) -> None:
    """A session gets more than its prefetch without acknowledging, from a backlog, in order."""
    session = connection.create_session(Mode.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    for number in range(700):
        producer.send(jmsx.Message(f"{number} " + "x" * (number % 97)))
    session.commit()
    consumer = connection.create_session(mode).create_consumer(
        jmsx.Queue(f"{queue.name}?consumer.prefetchSize=20")
    )
    got = [message.text.split()[0] for message in itertools.islice(take(consumer, 2.0), 700)]
    assert got == [str(number) for number in range(700)]


@pytest.mark.parametrize(
    "mode", [*HOLDING, Mode.INDIVIDUAL_ACKNOWLEDGE], ids=lambda mode: mode.label
)
def test_what_the_broker_s_policy_gives_instead(mode: Mode, queue: jmsx.Queue) -> None:
    """Classic puts its own prefetch in the place of 1000: whoever holds more, and acknowledges singly, waits."""
    policy = """
    <destinationPolicy><policyMap><policyEntries><policyEntry queue=">" queuePrefetch="2"/></policyEntries></policyMap>
    </destinationPolicy>
    """
    place = "<persistenceAdapter>"
    with (
        changed_classic((place, policy + place)) as broker,
        jmsx.Connection(broker.url) as connection,
    ):
        connection.start()
        put(connection, queue, *"abcdefgh")
        consumer = connection.create_session(mode).create_consumer(queue)
        got = texts(take(consumer, 3.0))
        asked = connection.create_session(mode).create_consumer(
            jmsx.Queue(f"{queue.name}2?consumer.prefetchSize=2")
        )
        put(connection, jmsx.Queue(f"{queue.name}2"), *"abcdefgh")
        assert texts(take(asked, 3.0)) == list("abcdefgh")
    if mode is Mode.INDIVIDUAL_ACKNOWLEDGE:
        assert 2 <= len(got) < 8
    else:
        assert got == list("abcdefgh")
