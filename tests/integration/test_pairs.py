"""Pairs of brokers with one store: one is killed, the other one takes over, and clients go on there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from jmsx import App, Connection, Message, TransactionRolledBackError
from jmsx.config.options import ReconnectPolicy
from tests.integration.broker_support import eventually
from tests.integration.pairs import Pair, artemis_pair, classic_pair
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AT_ONCE,
    TRANSACTED,
    bodies,
    fresh_queue,
    nothing_left,
    settles,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Queue, Session

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

#: As the default, with attempts that are soon enough for a test.
QUICK = ReconnectPolicy(maximum_delay=0.2)


@pytest.fixture(params=[classic_pair, artemis_pair])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Of one kind after the other; each is for one test, which uses it up."""
    with request.param() as made:
        yield made


def send_all(url: str, queue: Queue, total: int) -> None:
    """Send so many messages, each in a transaction, which is made again where it was rolled back."""
    with Connection(url, reconnect=QUICK, commit_markers=True) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        number = 0
        while number < total:
            try:
                producer.send(Message(str(number)))
                session.commit()
            except TransactionRolledBackError:
                continue
            number += 1


def test_nothing_is_lost_or_doubled(pair: Pair, queue: Queue) -> None:
    """The active one is killed under a relay in transactions and its sender: each message goes on exactly once."""
    out, total = fresh_queue(), 200
    seen: set[str] = set()
    url = f"failover:({pair.first.url},{pair.second.url})"
    app = App(
        url,
        reconnect=QUICK,
        redelivery_policy=AT_ONCE,
        commit_markers=True,
        resend_unconfirmed=True,
    )

    @app.consumer(queue, mode=TRANSACTED, concurrency=2, prefetch=20)
    def relay(message: Message, session: Session) -> None:
        seen.add(message.text)
        session.create_producer().send(Message(message.text), destination=out)

    with nothing_left():
        app.start()
        sender = Call(lambda: send_all(url, queue, total))
        assert eventually(lambda: len(seen) > total // 4, 30)
        pair.take_over()
        assert sender.join(60).error is None
        assert eventually(lambda: len(seen) == total, 30)
        assert settles(pair.second, queue, size=0)
        app.wait(0)
        app.stop()
    assert Counter(map(int, bodies(pair.second, out))) == Counter(range(total))


@pytest.mark.parametrize("pair", [artemis_pair], indirect=True)
def test_a_commit_without_an_answer_is_cleared_up_by_the_other_one(
    pair: Pair, queue: Queue
) -> None:
    """Who says that the other one takes over what the first was sent has no doubt there either."""
    out = fresh_queue()
    with Proxy(pair.first.url) as proxy, nothing_left():
        url = f"failover:({proxy.url},{pair.second.url})?randomize=false"
        with Connection(
            url, reconnect=QUICK, commit_markers=True, resend_unconfirmed=True
        ) as connection:
            connection.start()
            plain = connection.create_session()
            plain.create_producer(queue).send(Message("a"))
            session = connection.create_session(TRANSACTED)
            consumer = session.create_consumer(queue)
            assert consumer.receive(5) is not None
            session.create_producer(out).send(Message("b"))
            proxy.cut_beside("COMMIT\n", behind=True)
            with proxy.shut():
                commit = Call(session.commit)
                assert proxy.sprung.wait(10)
                pair.take_over()
                assert commit.join(30).error is None
        assert bodies(pair.second, out) == ["b"]
        assert settles(pair.second, queue, size=0)
