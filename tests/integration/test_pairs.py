"""Pairs of brokers, with one store or two: one is killed, the other one takes over, and clients go on there."""

from __future__ import annotations

import itertools
from collections import Counter
from threading import Event
from typing import TYPE_CHECKING

import pytest

from jmsx import App, Connection, Message, TransactionRolledBackError
from jmsx.config.options import ReconnectPolicy
from tests.integration.broker_support import eventually
from tests.integration.pairs import Pair, artemis_pair, artemis_replicas, classic_pair
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
    from collections.abc import Iterable, Iterator

    from jmsx import Queue, Session

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

#: As the default, with attempts that are soon enough for a test.
QUICK = ReconnectPolicy(maximum_delay=0.2)


@pytest.fixture(params=[classic_pair, artemis_pair])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Of one kind after the other; each is for one test, which uses it up."""
    with request.param() as made:
        yield made


def send_all(url: str, queue: Queue, numbers: Iterable[int]) -> None:
    """Send these, each in a transaction, which is made again where it was rolled back."""
    with Connection(url, reconnect=QUICK, commit_markers=True) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        for number in numbers:
            while True:
                try:
                    producer.send(Message(str(number)))
                    session.commit()
                except TransactionRolledBackError:
                    continue
                break


def relaying(url: str, queue: Queue, out: Queue, seen: set[str], sessions: int = 2) -> App:
    """An app that sends on what it gets, in transactions, and notes that."""
    app = App(
        url,
        reconnect=QUICK,
        redelivery_policy=AT_ONCE,
        commit_markers=True,
        resend_unconfirmed=True,
    )

    @app.consumer(queue, mode=TRANSACTED, concurrency=sessions, prefetch=20)
    def relay(message: Message, session: Session) -> None:
        seen.add(message.text)
        session.create_producer().send(Message(message.text), destination=out)

    return app


def test_nothing_is_lost_or_doubled(pair: Pair, queue: Queue) -> None:
    """The active one is killed under a relay in transactions and its sender: each message goes on exactly once."""
    out, total = fresh_queue(), 200
    seen: set[str] = set()
    url = f"failover:({pair.first.url},{pair.second.url})"
    app = relaying(url, queue, out, seen)
    with nothing_left():
        app.start()
        sender = Call(lambda: send_all(url, queue, range(total)))
        assert eventually(lambda: len(seen) > total // 4, 30)
        pair.take_over()
        assert sender.join(60).error is None
        assert eventually(lambda: len(seen) == total, 30)
        assert settles(pair.second, queue, size=0)
        app.wait(0)
        app.stop()
    assert Counter(map(int, bodies(pair.second, out))) == Counter(range(total))


@pytest.mark.parametrize("pair", [artemis_replicas], indirect=True)
def test_work_goes_on_while_the_first_one_comes_back(pair: Pair, queue: Queue) -> None:
    """A relay and its sender go on with the copy, and then with the first again: each message exactly once."""
    out, enough = fresh_queue(), Event()
    seen: set[str] = set()
    sent: list[int] = []
    url = f"failover:({pair.first.url},{pair.second.url})"

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            if enough.wait(0.02):
                return
            sent.append(number)
            yield number

    # Of two, one would wait 12 s for what the other one is given, if a commit is in doubt.
    app = relaying(url, queue, out, seen, sessions=1)
    with nothing_left():
        app.start()
        sender = Call(lambda: send_all(url, queue, numbers()))
        for change in (lambda: None, pair.take_over, pair.give_back):
            change()
            there = len(seen)
            assert eventually(lambda: len(seen) > there + 10, 30)  # noqa: B023 - before the next turn
        enough.set()
        assert sender.join(60).error is None
        assert eventually(lambda: len(seen) == len(sent), 30)
        assert settles(pair.first, queue, size=0)
        app.wait(0)
        app.stop()
    assert Counter(map(int, bodies(pair.first, out))) == Counter(sent)


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
