"""Commits that the broker refuses, on a real one: the session goes on with a new link, and counts on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    Connection,
    Message,
    Queue,
    RedeliveryPolicy,
)
from jmsx.app import App
from jmsx.core.events import (
    Outcome,
)
from jmsx.drivers.link_state import RESTORING
from jmsx.errors import (
    JmsxError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AT_ONCE,
    QUICK,
    TRANSACTED,
    Diary,
    dead_copies,
    dead_destination,
    nothing_left,
    paused,
    put,
    send_to_the_dead,
    settles,
    text,
    within,
)

if TYPE_CHECKING:
    from jmsx import Session
    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def refused_commit(broker: Broker, session: Session) -> None:
    """Send to nobody, and commit before the session can hear of it: the broker refuses, and the link is dropped."""
    epoch = link_of(session).engine.core.epoch
    with link_of(
        session
    ).engine.changed:  # nothing that comes is looked at before COMMIT is written
        send_to_the_dead(broker, session)
        with pytest.raises(TransactionRolledBackError):
            session.commit()
    assert eventually(lambda: link_of(session).engine.reachable)
    assert link_of(session).engine.core.epoch == epoch + 1


def test_refused_commits_end_in_a_dead_letter(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """A handler whose output nobody takes is tried 1 + maximum_redeliveries times, with the policy's delays."""
    put(classic_broker, queue, "in", case=queue.name)
    app = App(classic_broker.url, observers=[diary])
    seen: list[tuple[float, int]] = []
    with Connection(classic_broker.url) as connection:
        gone = dead_destination(classic_broker, connection.create_session())
    policy = RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=0.3, redelivery_delay=0.6
    )

    @app.consumer(queue, mode=TRANSACTED, redelivery=policy)
    def answer(message: Message, session: Any) -> None:
        seen.append((time.monotonic(), message.delivery_count))
        session.create_producer().send(Message("lost"), destination=gone)

    with app:
        assert settles(classic_broker, queue, size=0)
    assert [count for _, count in seen] == [1, 2, 3]
    moments = [moment for moment, _ in seen]
    assert moments[1] - moments[0] >= 0.3
    assert moments[2] - moments[1] >= 0.6
    assert len(dead_copies(classic_broker, queue.name)) == 1
    assert diary.outcomes()[Outcome.DEAD_LETTERED] == 1
    assert not diary.outcomes()[Outcome.COMMITTED]


def test_refused_commits_of_receive(classic_broker: Broker, queue: Queue) -> None:
    """The same with receive(), for a batch, and the session goes on behind it."""
    put(classic_broker, queue, "a", "b", case=queue.name)
    with Connection(classic_broker.url, redelivery_policy=QUICK) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        for count in (1, 2, 3):
            batch = [consumer.receive(5), consumer.receive(5)]
            told = {(message.text, message.delivery_count) for message in batch if message}
            assert told == {("a", count), ("b", count)}
            refused_commit(classic_broker, session)
        assert consumer.receive(0.5) is None
        put(classic_broker, queue, "behind")
        assert text(consumer.receive(5)) == "behind"
        session.commit()
    assert settles(classic_broker, queue, size=0)
    assert len(dead_copies(classic_broker, queue.name)) == 2


def test_abort_while_a_link_is_restored(mortal: ClassicBroker, queue: Queue) -> None:
    """The link that comes too late is dropped, and no consumer is left that nobody reads."""
    put(mortal, queue, "a")
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=0.5, connect_timeout=8)
        connection.start()
        session = connection.create_session(TRANSACTED)
        assert text(session.create_consumer(queue).receive(5)) == "a"
        with paused(mortal):
            assert isinstance(within(5, session.commit).error, TransactionInDoubtError)
            assert link_of(session).engine.state in RESTORING
            time.sleep(0.3)  # so that it waits for CONNECTED; there is nothing to see of that
            assert link_of(session).engine.state in RESTORING
            assert within(3, connection.abort).error is None
        assert eventually(lambda: mortal.statistics(queue.name).consumer_count == 0)
    connection.close()  # only now: abort() alone must have left nothing


def test_listeners_go_on_after_a_restore_by_another_thread(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """The thread of the listeners waits for the new link, and gets what comes on it."""
    put(classic_broker, queue, "a")
    seen: list[tuple[str, int]] = []
    errors: list[JmsxError] = []
    options: dict[str, Any] = {"redelivery_policy": AT_ONCE, "observers": [diary]}
    with nothing_left(), Connection(classic_broker.url, **options) as connection:
        connection.set_exception_listener(errors.append)
        connection.start()
        session = connection.create_session(TRANSACTED)
        session.create_consumer(queue).set_listener(
            lambda message: seen.append((message.text, message.delivery_count))
        )
        assert eventually(lambda: seen == [("a", 1)])
        refused_commit(classic_broker, session)
        assert eventually(lambda: seen == [("a", 1), ("a", 2)])
        put(classic_broker, queue, "b")
        assert eventually(lambda: seen[2:] == [("b", 1)])
        session.commit()
        assert settles(classic_broker, queue, size=0)
    assert not errors
