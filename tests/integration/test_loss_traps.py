"""
jmsx falls into none of the loss traps of ActiveMQ Classic's STOMP (reference/probes-classic.md part 2).

Each test says what a plain client loses or doubles there. The broker's own counts and a browse are the witnesses.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    PrefetchPolicy,
    Queue,
    RedeliveryPolicy,
    Reject,
)
from jmsx.core.events import Outcome
from jmsx.errors import ConnectionFailedError, TransactionRolledBackError
from jmsx_broker import ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AT_ONCE,
    AUTO,
    CLIENT,
    DEAD_LETTERS,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    dead_copies,
    dead_destination,
    fresh_queue,
    put,
    settles,
    within,
)

if TYPE_CHECKING:
    from jmsx import Session
    from jmsx.jms.consumer import MessageConsumer
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: The first failure is the last.
NO_RETRY = RedeliveryPolicy(maximum_redeliveries=0)

#: Three deliveries in all.
THREE = RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0, redelivery_delay=0)


def take(consumer: MessageConsumer, count: int) -> list[Message]:
    """The next `count` messages, all of which must come."""
    messages = [consumer.receive(5) for _ in range(count)]
    assert None not in messages
    return [message for message in messages if message is not None]


def told(messages: list[Message]) -> list[tuple[str, int]]:
    """What the application sees of them."""
    return [(message.text, message.delivery_count) for message in messages]


def rest(broker: Broker, queue: Queue) -> list[str]:
    """What a new consumer gets, until nothing is left."""
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        found = []
        while (message := consumer.receive(0.5)) is not None:
            found.append(message.text)
        return found


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


# A receipt on a SEND in a transaction --------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0.0, 0.3], ids=["at-once", "after-the-error-came"])
def test_a_refused_send_fails_the_commit(
    classic_broker: Broker, queue: Queue, pause: float
) -> None:
    """
    Trap: a SEND that fails with a receipt does not spoil its transaction: input consumed, output missing.

    A SEND to a dead temporary queue makes commit fail, whether its ERROR came before the COMMIT or not; the input is
    back, the other output is not there, and the session goes on with its consumer.
    """
    put(classic_broker, queue, "in")
    out = fresh_queue()
    with Connection(classic_broker.url, redelivery_policy=AT_ONCE) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        gone = dead_destination(classic_broker, session)
        consumer, producer = session.create_consumer(queue), session.create_producer()
        assert told(take(consumer, 1)) == [("in", 1)]
        producer.send(Message("out"), destination=out)
        producer.send(Message("lost"), destination=gone)
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
        gone = dead_destination(classic_broker, session)
        first, second = session.create_consumer(queue), session.create_consumer(other)
        take(first, 2), take(second, 1)
        session.create_producer().send(Message("lost"), destination=gone)
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
    """The ACK that keeps messages coming is undone at once: a crash after it loses none, in any mode."""
    put(classic_broker, queue, *(f"{number}" for number in range(40)))
    for mode in (CLIENT, INDIVIDUAL, TRANSACTED):
        connection = Connection(classic_broker.url, prefetch_policy=PrefetchPolicy.all(5))
        connection.start()
        consumer = connection.create_session(mode).create_consumer(queue)
        assert [message.text for message in take(consumer, 30)] == [str(n) for n in range(30)]
        connection.abort()
        assert settles(classic_broker, queue, size=40)
    assert bodies(classic_broker, queue) == [str(number) for number in range(40)]


# NACK where the broker deletes ---------------------------------------------------------------------------------------


def reject_one(connection: Connection, queue: Queue, message: str) -> None:
    """Let a listener reject the next message of `queue`, and wait until it is gone."""
    seen = threading.Event()

    def refuse(_message: Message) -> None:
        seen.set()
        raise Reject from ValueError(message)

    connection.start()
    connection.create_session().create_consumer(queue).set_listener(refuse)
    assert seen.wait(5)


def test_a_non_persistent_dead_letter_is_copied(classic_broker: Broker, queue: Queue) -> None:
    """Trap: NACK of a non-persistent message is answered, and the message is gone."""
    put(classic_broker, queue, queue.name, persistent="false", colour="red")
    with Connection(classic_broker.url) as connection:
        reject_one(connection, queue, "no such colour")
        assert eventually(lambda: len(dead_copies(classic_broker, queue.name)) == 1)
        assert settles(classic_broker, queue, size=0)
    (headers,) = dead_copies(classic_broker, queue.name)
    assert headers["persistent"] == "true"
    assert headers["colour"] == "red"
    assert headers["jmsx_death_reason"] == "rejected"
    assert headers["jmsx_original_destination"] == queue.uri
    assert headers["jmsx_delivery_count"] == "1"
    assert headers["jmsx_exception"] == "ValueError"
    assert headers["jmsx_exception_message"] == "no such colour"
    assert "ValueError: no such colour" in headers["jmsx_stack"]
    assert headers["originalDeliveryMode"] == "NON_PERSISTENT"


def test_a_dead_letter_of_a_dead_letter_queue_is_copied(classic_broker: Broker) -> None:
    """Trap: NACK of a message that was read from a DLQ is answered, and the message is gone."""
    grave = Queue(f"{DEAD_LETTERS}.{fresh_queue().name}")
    put(classic_broker, grave, grave.name)
    with Connection(classic_broker.url) as connection:
        reject_one(connection, grave, "again")
        assert eventually(lambda: len(dead_copies(classic_broker, grave.name)) == 1)
        assert settles(classic_broker, grave, size=0)
    (headers,) = dead_copies(classic_broker, grave.name)
    assert headers["jmsx_original_destination"] == grave.uri
    assert headers["jmsx_exception_message"] == "again"


def test_the_strategy_broker_does_as_java(classic_broker: Broker, queue: Queue) -> None:
    """`dead_letter="broker"`: NACK for all; the persistent one is in the DLQ with its id, the other one is gone."""
    put(classic_broker, queue, queue.name, case=queue.name)
    (before,) = classic_broker.browse(queue.name)
    with Connection(classic_broker.url, dead_letter="broker") as connection:
        reject_one(connection, queue, "no")
        assert settles(classic_broker, queue, size=0)
    (headers,) = dead_copies(classic_broker, queue.name)
    assert headers["message-id"] == before.headers["message-id"]
    assert headers["original-destination"] == f"/queue/{queue.name}"
    assert "jmsx_death_reason" not in headers
    volatile = fresh_queue()
    put(classic_broker, volatile, volatile.name, persistent="false")
    with Connection(classic_broker.url, dead_letter="broker") as connection:
        reject_one(connection, volatile, "no")
        assert settles(classic_broker, volatile, size=0)
    assert dead_copies(classic_broker, volatile.name) == []


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_a_refused_copy_keeps_the_original(
    classic_broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """A copy that the broker does not take settles nothing: the original comes again, to somebody else too."""
    put(classic_broker, queue, "a", "b")
    diary = Diary()
    with Connection(classic_broker.url) as connection:
        gone = dead_destination(classic_broker, connection.create_session())
    with Connection(
        classic_broker.url, dead_letter=gone.uri, redelivery_policy=NO_RETRY, observers=[diary]
    ) as connection:
        if mode is AUTO:
            reject_one(connection, queue, "no")
        else:
            connection.start()
            session = connection.create_session(mode)
            take(session.create_consumer(queue), 1)
            session.rollback()
        assert eventually(
            lambda: any(type(event).__name__ == "DeadLetterFailed" for event in diary.events)
        )
        assert bodies(classic_broker, queue) == ["a", "b"]
    assert rest(classic_broker, queue) == ["a", "b"]
    assert diary.dead() == []
    assert not diary.outcomes()[Outcome.DEAD_LETTERED]


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


# Poison and order ----------------------------------------------------------------------------------------------------


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
    """A batch that is over its limit is buried whole, each message once, by NACK or by copy as it needs it."""
    put(classic_broker, queue, "p1", case=queue.name)
    put(classic_broker, queue, "n1", case=queue.name, persistent="false")
    put(classic_broker, queue, "p2", case=queue.name)
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
