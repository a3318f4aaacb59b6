"""
jmsx falls into none of the loss traps of ActiveMQ Classic's STOMP (jmsx_classic/BROKER.md C27 to C35).

Each test says what a plain client loses or doubles there. The broker's own counts and a browse are the witnesses.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    PrefetchPolicy,
    Queue,
    Reject,
)
from jmsx.core.events import Outcome
from jmsx.core.frames import Frame
from jmsx.errors import ConnectionFailedError, TransactionRolledBackError
from jmsx.jms.session import link_of
from jmsx_broker import ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AT_ONCE,
    AUTO,
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    dead_copies,
    fresh_queue,
    put,
    rest,
    send_to_the_dead,
    settles,
    take,
    told,
    within,
)

if TYPE_CHECKING:
    from jmsx import Session
    from jmsx.core.session import SessionCore
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


# NACK in a transaction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["commit", "rollback"])
@pytest.mark.parametrize("individual", [False, True])
def test_nack_in_a_transaction(
    classic_broker: Broker, queue: Queue, *, after: str, individual: bool
) -> None:
    """
    Trap: NACK(tx) with a receipt, then COMMIT consumes the message: it is neither in the queue nor in the DLQ.

    A rejected batch of a transaction that has sent something is in the DLQ, each message once; the subscription lives.
    """
    put(classic_broker, queue, "a", "b", case=queue.name)
    out = fresh_queue()
    with Connection(classic_broker.url, transacted_individual_ack=individual) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(queue), session.create_producer(out)
        take(consumer, 2)
        producer.send(Message("undone"))
        session.rollback(Reject("never"))
        put(classic_broker, queue, "c")
        assert told(take(consumer, 1)) == [("c", 1)]
        producer.send(Message("done"))
        getattr(session, after)()
    dead = dead_copies(classic_broker, queue.name)
    assert len({headers["message-id"] for headers in dead}) == len(dead) == 2
    assert bodies(classic_broker, out) == (["done"] if after == "commit" else [])
    assert bodies(classic_broker, queue) == ([] if after == "commit" else ["c"])


# ACKs behind a NACK ---------------------------------------------------------------------------------------------------


def miscount(session: Session) -> None:
    """Have the broker's STOMP lose the message that waits first from its count, as a NACK may do (BROKER.md C75)."""

    def spoil(core: SessionCore, _now: float) -> None:
        (consumer,) = core._consumers
        wire = {"transaction": "spoils"}
        nack = Frame("NACK", {"id": consumer.waiting[0].arrival.ack_id, **wire})
        core._outbox.transmit(Frame("BEGIN", wire), nack, Frame("COMMIT", wire))

    link_of(session).engine.call(spoil)


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK, CLIENT], ids=lambda mode: mode.label)
def test_acks_behind_a_nack(classic_broker: Broker, queue: Queue, mode: AcknowledgeMode) -> None:
    """
    Trap: behind a NACK the broker may miscount, and refuses every plain ACK: all that was acknowledged comes again.

    A message that has expired in the prefetch is a dead letter, and what is acknowledged behind it is gone.
    """
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        (core,) = link_of(session).engine.core._consumers
        soon = str(int((time.time() + 0.5) * 1000))
        put(classic_broker, queue, "x", case=queue.name, key="x", expires=soon)
        assert eventually(lambda: len(core.waiting) == 1)
        time.sleep(0.6)
        assert consumer.receive(0.1) is None
        put(classic_broker, queue, "a", "b", "c")
        assert eventually(lambda: len(core.waiting) == 3)
        miscount(session)
        *_, last = take(consumer, 3)
        last.acknowledge()
        assert settles(classic_broker, queue, size=0)
    assert len(dead_copies(classic_broker, queue.name)) == 1
    assert rest(classic_broker, queue) == []


# A receipt on a SEND in a transaction --------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0.0, 0.3], ids=["at-once", "after-the-error-came"])
def test_a_refused_send_fails_the_commit(
    classic_broker: Broker, queue: Queue, pause: float
) -> None:
    """
    Trap: a SEND that fails with a receipt does not spoil its transaction: input consumed, output missing.

    One that is refused makes commit fail, whether its ERROR came before the COMMIT or not; the input is
    back, the other output is not there, and the session goes on with its consumer.
    """
    put(classic_broker, queue, "in")
    out = fresh_queue()
    with Connection(classic_broker.url, redelivery_policy=AT_ONCE) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(queue), session.create_producer()
        assert told(take(consumer, 1)) == [("in", 1)]
        producer.send(Message("out"), destination=out)
        send_to_the_dead(classic_broker, session)
        time.sleep(pause)  # the one case sleeps so that the ERROR is here, the other must not
        with pytest.raises(TransactionRolledBackError):
            session.commit()
        assert bodies(classic_broker, out) == []
        assert bodies(classic_broker, queue) == ["in"]
        (again,) = take(consumer, 1)
        assert again.text == "in"
        assert again.redelivered
        producer.send(Message("second"), destination=out)
        session.commit()
    assert bodies(classic_broker, out) == ["second"]
    assert settles(classic_broker, queue, size=0)


def test_a_refused_commit_gives_everything_back(classic_broker: Broker, queue: Queue) -> None:
    """
    Trap: after a failed COMMIT the broker can neither abort nor give back: its messages are locked for ever.

    All that was received, on every consumer, comes again in order and flagged; nobody else lost anything.
    """
    other = fresh_queue()
    put(classic_broker, queue, "a", "b", "c")
    put(classic_broker, other, "x", "y")
    diary = Diary()
    with Connection(classic_broker.url, redelivery_policy=AT_ONCE, observers=[diary]) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        first, second = session.create_consumer(queue), session.create_consumer(other)
        take(first, 2), take(second, 1)
        send_to_the_dead(classic_broker, session)
        with pytest.raises(TransactionRolledBackError):
            session.commit()
        assert [(m.text, m.redelivered) for m in take(first, 2)] == [("a", True), ("b", True)]
        assert [(m.text, m.redelivered) for m in take(second, 1)] == [("x", True)]
        take(first, 1), take(second, 1)
        session.commit()
    assert settles(classic_broker, queue, size=0)
    assert settles(classic_broker, other, size=0)
    assert diary.outcomes()[Outcome.COMMITTED] == 5


# UNSUBSCRIBE in an open transaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("individual", [False, True])
def test_closing_a_consumer_before_commit(
    classic_broker: Broker, queue: Queue, *, sends: bool, individual: bool
) -> None:
    """Trap: UNSUBSCRIBE before COMMIT loses the ACK: COMMIT is answered, and what it settled comes again."""
    put(classic_broker, queue, "a", "b", "c")
    out = fresh_queue()
    with Connection(classic_broker.url, transacted_individual_ack=individual) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        take(consumer, 2)
        if sends:
            session.create_producer(out).send(Message("out"))
        consumer.close()
        session.commit()
        assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 0)
        assert rest(classic_broker, queue) == ["c"]
    assert bodies(classic_broker, out) == (["out"] if sends else [])


def test_closing_a_consumer_before_rollback(classic_broker: Broker, queue: Queue) -> None:
    """The same with a rollback: nothing is consumed, and the order is kept."""
    put(classic_broker, queue, "a", "b", "c")
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        take(consumer, 2)
        consumer.close()
        session.rollback()
        assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 0)
        assert rest(classic_broker, queue) == ["a", "b", "c"]


# Two transactions on a link ------------------------------------------------------------------------------------------


def test_transactions_side_by_side(classic_broker: Broker, queue: Queue) -> None:
    """Trap: with two transactions on one socket, COMMIT of one settles the messages of the other."""
    other = fresh_queue()
    put(classic_broker, queue, "a1", "a2")
    put(classic_broker, other, "b1", "b2")
    out = fresh_queue()
    with Connection(classic_broker.url, redelivery_policy=AT_ONCE) as connection:
        connection.start()
        one, two = connection.create_session(TRANSACTED), connection.create_session(TRANSACTED)
        first, second = one.create_consumer(queue), two.create_consumer(other)
        take(first, 1), take(second, 1)
        one.create_producer(out).send(Message("one"))
        two.create_producer(out).send(Message("two"))
        one.commit()
        two.rollback()
        assert bodies(classic_broker, queue) == ["a2"]
        assert bodies(classic_broker, other) == ["b1", "b2"]
        assert bodies(classic_broker, out) == ["one"]
        assert told(take(second, 1)) == [("b1", 2)]
        take(first, 1)
        one.rollback()
        two.commit()
    assert bodies(classic_broker, queue) == ["a2"]
    assert bodies(classic_broker, other) == ["b2"]


def test_a_commit_of_sends_beside_what_holds_the_window_open(
    classic_broker: Broker, queue: Queue
) -> None:
    """Trap: COMMIT forgets the ids that ACKs of another open transaction named, or settles their messages."""
    put(classic_broker, queue, "a", "b")
    out = fresh_queue()
    policy = replace(AT_ONCE, initial_redelivery_delay=2.0)
    with Connection(
        classic_broker.url,
        redelivery_policy=policy,
        non_blocking_redelivery=True,
        prefetch_policy=PrefetchPolicy(queue=1),
    ) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        assert told(take(consumer, 1)) == [("a", 1)]
        session.rollback()
        assert told(take(consumer, 1)) == [("b", 1)]  # the window is opened for it
        session.commit()
        assert consumer.receive(0.5) is None
        session.create_producer(out).send(Message("out"))
        session.commit()
        assert told(take(consumer, 1)) == [("a", 2)]
        session.commit()
    assert bodies(classic_broker, queue) == []
    assert bodies(classic_broker, out) == ["out"]


# The doubling window -------------------------------------------------------------------------------------------------


def test_the_window_does_not_double(classic_broker: Broker, queue: Queue) -> None:
    """
    Trap: ACK(tx) and ABORT double the number of messages at the client, each time: 5, 10, 20, 40, 80, all.

    200 transactions that take what the window holds, wait on a dry buffer and roll back keep it where it is.
    """
    put(classic_broker, queue, *(f"{number}" for number in range(300)))
    most = 0
    with Connection(
        classic_broker.url,
        prefetch_policy=PrefetchPolicy.all(5),
        redelivery_policy=AT_ONCE,
    ) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        for turn in range(200):
            assert [message.text for message in take(consumer, 6)] == [str(n) for n in range(6)]
            session.rollback()
            if turn % 20 == 0:
                most = max(most, classic_broker.statistics(queue.name).inflight_count)
        most = max(most, classic_broker.statistics(queue.name).inflight_count)
        take(consumer, 6)
        session.commit()
    assert 6 <= most <= 20
    assert classic_broker.statistics(queue.name).size == 294


def test_an_interim_ack_settles_nothing(classic_broker: Broker, queue: Queue) -> None:
    """
    The ACK that keeps messages coming is undone at once: a crash after it loses none, in any mode.

    In which order the broker puts back what a crash returns is its affair: on a busy machine the last came first, once.
    """
    everything = [str(number) for number in range(40)]
    put(classic_broker, queue, *everything)
    for mode in (CLIENT, INDIVIDUAL, TRANSACTED):
        connection = Connection(classic_broker.url, prefetch_policy=PrefetchPolicy.all(5))
        connection.start()
        consumer = connection.create_session(mode).create_consumer(queue)
        taken = [message.text for message in take(consumer, 30)]
        assert len(set(taken)) == 30
        connection.abort()
        assert settles(classic_broker, queue, size=40)
    assert sorted(bodies(classic_broker, queue), key=int) == everything


# Acknowledgements that come too late ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledging_after_the_link_is_gone(
    classic_broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """Trap: an ACK after the subscription is gone is answered and ignored. Here it is an error, and nothing is lost."""
    put(classic_broker, queue, "a", "b")
    connection = Connection(classic_broker.url)
    connection.start()
    consumer = connection.create_session(mode).create_consumer(queue)
    (first, _) = take(consumer, 2)
    connection.abort()
    with pytest.raises(ConnectionFailedError):
        first.acknowledge()
    assert settles(classic_broker, queue, size=2)
    with Connection(classic_broker.url) as again:
        again.start()
        session = again.create_session(CLIENT)
        assert told(take(session.create_consumer(queue), 2)) == [("a", 2), ("b", 2)]


def test_a_crash_of_the_broker_loses_no_transaction() -> None:
    """What was committed stays done, what was not comes again, after SIGKILL of the broker."""
    with ClassicBroker() as broker:
        queue, out = fresh_queue(), fresh_queue()
        put(broker, queue, "a", "b", "c")
        connection = Connection(broker.url)
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(queue), session.create_producer(out)
        take(consumer, 1)
        producer.send(Message("A"))
        session.commit()
        take(consumer, 1)
        producer.send(Message("B"))
        broker.kill()
        failed = within(20, session.commit)
        assert isinstance(failed.error, Exception)
        within(20, connection.close)
        broker.start()
        assert rest(broker, out) == ["A"]
        assert rest(broker, queue) == ["b", "c"]
