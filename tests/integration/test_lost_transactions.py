"""Transactions whose link is cut: what is undone, what is in doubt, and how commit markers clear it up on Classic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Message, Queue
from jmsx.errors import (
    IllegalStateError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    TRANSACTED,
    bodies,
    connect,
    fresh_queue,
    nothing_left,
    outage,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from jmsx import MessageConsumer, Session
    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def take_and_send(session: Session, consumer: MessageConsumer, out: Queue) -> None:
    """The work of a transaction."""
    message = consumer.receive(5)
    assert message is not None
    session.create_producer(out).send(Message(message.text.upper()))


def test_a_transaction_that_loses_its_link(
    proxy: Proxy, classic_broker: Broker, queue: Queue
) -> None:
    """It can only be rolled back: sending says so, commit says so once, and then all is as before."""
    out = fresh_queue()
    put(classic_broker, queue, "a")
    with nothing_left(), connect(proxy) as connection:
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        take_and_send(session, consumer, out)
        proxy.cut()
        assert eventually(lambda: link_of(session).engine.core.epoch == 2)
        with pytest.raises(IllegalStateError, match="can only be rolled back: the connection was"):
            session.create_producer(out).send(Message("more"))
        with pytest.raises(TransactionRolledBackError, match="the connection was lost"):
            session.commit()
        assert bodies(classic_broker, out) == []
        take_and_send(session, consumer, out)
        session.commit()
    assert bodies(classic_broker, out) == ["A"]
    assert settles(classic_broker, queue, size=0)


#: Where a link can end under a commit, and what the broker has made of it.
CUTS = [
    pytest.param(True, b"COMMIT", False, False, id="before COMMIT"),
    pytest.param(True, b"COMMIT", True, True, id="after COMMIT"),
    pytest.param(False, b"RECEIPT", False, True, id="before RECEIPT"),
    pytest.param(False, b"RECEIPT", True, True, id="after RECEIPT"),
]


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize(("to_broker", "word", "passed", "committed"), CUTS)
def test_a_commit_that_loses_its_link(
    proxy: Proxy,
    classic_broker: Broker,
    queue: Queue,
    word: bytes,
    *,
    to_broker: bool,
    passed: bool,
    committed: bool,
    markers: bool,
) -> None:
    """
    All of it is there or nothing, and it is never repeated.

    It is in doubt until its receipt is here, and so says the error; with markers there is no doubt, on either side.
    """
    out = fresh_queue()
    put(classic_broker, queue, "a")
    with nothing_left(), connect(proxy, commit_markers=markers) as connection:
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        session.create_producer(fresh_queue()).send(Message("first"))
        session.commit()
        take_and_send(session, consumer, out)
        if markers:
            assert eventually(
                lambda: link_of(session).engine.call(lambda core, _now: core.may_commit())
            )
        proxy.cut_at(word, to_broker=to_broker, passed=passed)
        call = within(10, session.commit)
        answered = not to_broker and passed
        if answered or (markers and committed):
            assert call.error is None
        elif markers:
            assert isinstance(call.error, TransactionRolledBackError), call.error
        else:
            assert isinstance(call.error, TransactionInDoubtError), call.error
        assert eventually(
            lambda: link_of(session).engine.reachable and link_of(session).engine.core.epoch == 2
        )
        again = consumer.receive(2)
        assert (again is None) is committed
        session.rollback()
        session.create_producer(fresh_queue()).send(Message("last"))
        session.commit()
    assert bodies(classic_broker, out) == (["A"] if committed else [])
    assert bodies(classic_broker, queue) == ([] if committed else ["a"])
    assert bodies(classic_broker, "jmsx.commits") == []


def test_markers_wait_for_a_broker_that_is_still_at_it(mortal: ClassicBroker, queue: Queue) -> None:
    """A paused broker has the COMMIT in a dead socket: nobody knows, until it has come to it."""
    out = fresh_queue()
    put(mortal, queue, "a")
    with Proxy(mortal.url) as way, nothing_left():
        connection = connect(way, commit_markers=True, connect_timeout=1.0)
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        session.create_producer(fresh_queue()).send(Message("first"))
        session.commit()
        take_and_send(session, consumer, out)
        assert eventually(
            lambda: link_of(session).engine.call(lambda core, _now: core.may_commit())
        )
        mortal.pause()
        try:
            commit = Call(session.commit)
            assert eventually(
                lambda: link_of(session).engine.call(lambda core, _now: core.committing)
            )
            time.sleep(0.3)  # so that COMMIT is through the proxy
            way.hang_up()
            assert eventually(lambda: outage(session))
            time.sleep(0.3)  # so that it tries
            assert commit.waiting
        finally:
            mortal.resume()
        assert commit.join(20).error is None
        connection.close()
    assert bodies(mortal, out) == ["A"]
    assert bodies(mortal, "jmsx.commits") == []
