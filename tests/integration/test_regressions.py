"""
What a review found, on a real broker: each test fails without the fix that it is named for.

Every call that might hang has a deadline; the broker's own counts and a browse are the witnesses.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    PrefetchPolicy,
    Queue,
    RedeliveryPolicy,
    Reject,
    Retry,
)
from jmsx.app import App
from jmsx.core.events import (
    DeadLetterFailed,
    MessageSent,
    Outcome,
    RedeliveryScheduled,
    TransactionEnded,
)
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    DrainError,
    JmsxError,
    MessageFormatError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.testing import FakeBrokerServer
from jmsx_broker import ClassicBroker
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    AT_ONCE,
    AUTO,
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    dead_copies,
    dead_destination,
    fresh_queue,
    nothing_left,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx import Destination, Session
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: The first failure is the last.
NO_RETRY = RedeliveryPolicy(maximum_redeliveries=0)

#: Three deliveries in all, a moment apart.
QUICK = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.05, redelivery_delay=0.05
)

#: More than the sockets' buffers hold, so that a write blocks at a broker that does not read.
HUGE = b"x" * 20_000_000


@pytest.fixture(scope="module")
def mortal_broker() -> Iterator[ClassicBroker]:
    """One broker for the tests that kill or pause theirs."""
    with ClassicBroker() as broker:
        yield broker


@pytest.fixture
def mortal(mortal_broker: ClassicBroker) -> ClassicBroker:
    """A broker to kill or to pause; alive again for each test."""
    return mortal_broker if mortal_broker.running else mortal_broker.start()


@pytest.fixture
def queue() -> Queue:
    """A queue that no other test knows."""
    return fresh_queue()


@pytest.fixture
def diary() -> Diary:
    """An observer that keeps every event."""
    return Diary()


@contextlib.contextmanager
def paused(broker: ClassicBroker) -> Iterator[None]:
    """A broker that does not read and does not answer, in any of its threads, from the first line of the block on."""

    def stopped() -> bool:
        tasks = Path(f"/proc/{broker.pid}/task").iterdir()
        return all("\nState:\tT" in (task / "status").read_text() for task in tasks)

    broker.pause()
    try:
        assert eventually(stopped, 5)
        yield
    finally:
        broker.resume()


def text(message: Message | None) -> str:
    """The text of a message that must be there."""
    assert message is not None
    return message.text


def refused_commit(session: Session, gone: Destination) -> None:
    """Send to nobody, and commit before the session can hear of it: the broker refuses, and the link is dropped."""
    epoch = session.pump.core.epoch
    with session.pump.changed:  # nothing that comes is looked at before COMMIT is written
        session.create_producer().send(Message("lost"), destination=gone)
        with pytest.raises(TransactionRolledBackError):
            session.commit()
    assert session.pump.core.epoch == epoch + 1


# A1: a copy, and an open transaction ---------------------------------------------------------------------------------


@contextlib.contextmanager
def old_and_buried(
    broker: Broker, queue: Queue, diary: Diary
) -> Iterator[tuple[Connection, Session]]:
    """
    A transacted session holds `old` and `new`; `poison`, which came between them, has been buried by copy.

    It is over its limit, for another consumer had it and is gone.
    """
    put(broker, queue, "poison", "old")
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(Connection(broker.url, prefetch_policy=PrefetchPolicy.all(1)))
        other.start()
        assert text(other.create_session(CLIENT).create_consumer(queue).receive(5)) == "poison"
        dead = f"{queue.uri}.dead"
        connection = stack.enter_context(
            Connection(broker.url, dead_letter=dead, redelivery_policy=NO_RETRY, observers=[diary])
        )
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(5)) == "old"
        other.abort()
        waiting = Call(lambda: consumer.receive(20))
        assert eventually(lambda: bodies(broker, f"{queue.name}.dead") == ["poison"])
        assert eventually(lambda: len(diary.dead()) == 1)  # its receipt is here
        put(broker, queue, "new")
        assert text(waiting.join(5).value) == "new"
        yield connection, session


def test_a_copy_settles_nothing_of_an_open_transaction(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """A1: the ACK behind the copy would have covered `old`, which is received and not committed."""
    with old_and_buried(classic_broker, queue, diary) as (connection, _):
        connection.abort()
    assert settles(classic_broker, queue, size=3)
    assert sorted(bodies(classic_broker, queue)) == ["new", "old", "poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1, Outcome.ABANDONED: 2}


def test_a_commit_settles_a_buried_message_too(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """A1: after the commit all are settled, the buried one is in its grave once, and each delivery ended once."""
    with old_and_buried(classic_broker, queue, diary) as (_, session):
        session.commit()
        assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, f"{queue.name}.dead") == ["poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1, Outcome.COMMITTED: 2}


# A2: a listener that is taken away -----------------------------------------------------------------------------------


def test_a_listener_that_is_taken_away_at_the_hand_out(
    classic_broker: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2: between hand-out and call; whoever was to get the message gets it, and nobody acknowledges it unseen."""
    from jmsx.jms import dispatcher  # noqa: PLC0415 - its import of `received` is what is replaced

    read, seen = dispatcher.received, []
    with Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)

        def taken_away(delivery: Delivery, dialect: Dialect) -> Message:
            consumer.set_listener(None)
            return read(delivery, dialect)

        monkeypatch.setattr(dispatcher, "received", taken_away)
        consumer.set_listener(lambda message: seen.append(message.text))
        put(classic_broker, queue, "a", "b")
        assert settles(classic_broker, queue, size=1, inflight=1)
        assert seen == ["a"]
        monkeypatch.undo()
        assert text(consumer.receive(5)) == "b"
    assert settles(classic_broker, queue, size=0)


# A3: Ctrl-C in the middle of a write ---------------------------------------------------------------------------------


def test_ctrl_c_in_the_middle_of_a_frame(mortal: ClassicBroker, queue: Queue) -> None:
    """A3: nothing may follow half a frame, or the broker reads it as the rest of the body."""
    put(mortal, queue, "warm")
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=5)
        session = connection.create_session()
        producer = session.create_producer(queue)
        with paused(mortal):
            timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                producer.send(Message(HUGE.decode()))  # no content-length: it ends at any NUL
            timer.join()
        with pytest.raises(ConnectionFailedError):
            producer.send(Message("second"))
        within(5, connection.close)
    put(mortal, queue, "last")
    assert bodies(mortal, queue) == ["warm", "last"]


# A4: closing right behind a copy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_closing_right_behind_a_copy(
    classic_broker: Broker, queue: Queue, diary: Diary, mode: AcknowledgeMode
) -> None:
    """A4: the message is in the grave once, and not in the queue; a second look finds nothing more."""
    dead = f"{queue.name}.dead"
    put(classic_broker, queue, "poison")
    options: dict[str, Any] = {"dead_letter": f"queue://{dead}", "redelivery_policy": NO_RETRY}
    for _ in range(2):
        with Connection(classic_broker.url, observers=[diary], **options) as connection:
            connection.start()
            consumer = connection.create_session(mode).create_consumer(queue)
            if mode is TRANSACTED:
                consumer.receive(1)  # and never committed: closing is a failure like a rollback
            else:
                called = threading.Event()

                def fail(_message: Message, called: threading.Event = called) -> None:
                    called.set()
                    raise ValueError

                consumer.set_listener(fail)
                called.wait(1)
    assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, dead) == ["poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1}


def test_stopping_right_behind_a_copy(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """A4: the same with an app, whose handler rejects while it is stopped."""
    dead = f"{queue.name}.dead"
    app = App(classic_broker.url, observers=[diary])
    began, stopping = threading.Event(), threading.Event()

    @app.consumer(queue, dead_letter=f"queue://{dead}")
    def refuse(_message: Message) -> None:
        began.set()
        stopping.wait(5)
        raise Reject

    put(classic_broker, queue, "poison")
    app.start()
    assert began.wait(5)
    stop = Call(app.stop)
    assert eventually(lambda: not app._workers[0]._connection.started)
    stopping.set()
    assert stop.join(10).error is None
    assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, dead) == ["poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1}


def test_a_copy_that_is_refused_while_closing(diary: Diary) -> None:
    """A4: the original stays in the queue and is reported as given back; closing does not hang."""
    with FakeBrokerServer() as server:
        queue = fresh_queue()
        with Connection(server.url) as sender:
            sender.create_session().create_producer(queue).send(Message("poison"))
        options: dict[str, Any] = {"dead_letter": "queue://dead", "redelivery_policy": NO_RETRY}
        connection = Connection(server.url, observers=[diary], **options)
        connection.start()
        consumer = connection.create_session(TRANSACTED).create_consumer(queue)
        assert text(consumer.receive(5)) == "poison"
        with server.broker() as broker:
            broker.refuse_next("SEND", "Usage Manager Memory Limit reached")
        assert within(5, connection.close).error is None
        with server.broker() as broker:
            assert [message.body for message in broker.queue(queue.name).browse()] == [b"poison"]
            assert broker.queue("dead").browse() == []
    assert diary.outcomes() == {Outcome.RELEASED: 1}
    assert sum(isinstance(event, DeadLetterFailed) for event in diary.events) == 1


# A5: commits that are refused ----------------------------------------------------------------------------------------


def test_refused_commits_end_in_a_dead_letter(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """A5: a handler whose output nobody takes is tried 1 + maximum_redeliveries times, with the policy's delays."""
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
    """A5: the same with receive(), for a batch, and the session goes on behind it."""
    put(classic_broker, queue, "a", "b", case=queue.name)
    with Connection(classic_broker.url, redelivery_policy=QUICK) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        gone = dead_destination(classic_broker, session)
        consumer = session.create_consumer(queue)
        for count in (1, 2, 3):
            batch = [consumer.receive(5), consumer.receive(5)]
            told = {(message.text, message.delivery_count) for message in batch if message}
            assert told == {("a", count), ("b", count)}
            refused_commit(session, gone)
        assert consumer.receive(0.5) is None
        put(classic_broker, queue, "behind")
        assert text(consumer.receive(5)) == "behind"
        session.commit()
    assert settles(classic_broker, queue, size=0)
    assert len(dead_copies(classic_broker, queue.name)) == 2


# B1: a broker that does not read -------------------------------------------------------------------------------------


def test_a_blocked_write_ends(mortal: ClassicBroker, queue: Queue) -> None:
    """B1: with a typed error, and nothing of it in the queue."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=1, heartbeat=(0, 0))
        producer = connection.create_session().create_producer(queue)
        with paused(mortal):
            call = within(10, lambda: producer.send(Message(HUGE)))
            assert isinstance(call.error, ConnectionFailedError | BrokerTimeoutError), call.error
            within(5, connection.close)
    put(mortal, queue, "next")
    assert bodies(mortal, queue) == ["next"]


def test_abort_while_a_write_blocks(mortal: ClassicBroker, queue: Queue) -> None:
    """B1: at once, whatever the deadline of the write, and the write ends with it."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=30)
        connection.start()
        session = connection.create_session()
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        with paused(mortal):
            send = Call(lambda: producer.send(Message(HUGE)))
            assert eventually(lambda: is_blocked(session.pump.changed))
            receive = Call(lambda: consumer.receive(20))
            assert within(2, connection.abort).error is None
            for call in (send, receive):
                assert isinstance(call.join(2).error, JmsxError)
        connection.close()


def is_blocked(lock: threading.Condition) -> bool:
    """Whether somebody holds the lock, now and a moment later."""
    for _ in range(3):
        if lock.acquire(blocking=False):
            lock.release()
            return False
        time.sleep(0.05)
    return True


# B2: a session that has lost its link --------------------------------------------------------------------------------


def test_a_lost_session_does_not_spin(mortal: ClassicBroker, queue: Queue) -> None:
    """B2: although nobody closes it, and whatever timers it had."""
    with nothing_left():
        connection = Connection(mortal.url, heartbeat=(1.0, 1.0), optimize_acknowledge=True)
        errors: list[JmsxError] = []
        connection.set_exception_listener(errors.append)
        connection.start()
        sessions = [connection.create_session(mode) for mode in AcknowledgeMode]
        for session in sessions:
            session.create_consumer(queue)
        mortal.kill()
        assert eventually(lambda: len(errors) == len(sessions))
        began = time.process_time()
        time.sleep(1.5)  # what is measured is this time, which is longer than a heart-beat
        assert time.process_time() - began < 0.15
        within(5, connection.close)


# B3, B4: a session that gets a new link ------------------------------------------------------------------------------


def test_abort_while_a_link_is_restored(mortal: ClassicBroker, queue: Queue) -> None:
    """B3: the link that comes too late is dropped, and no consumer is left that nobody reads."""
    put(mortal, queue, "a")
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=0.5, connect_timeout=8)
        connection.start()
        session = connection.create_session(TRANSACTED)
        assert text(session.create_consumer(queue).receive(5)) == "a"
        with paused(mortal):
            commit = Call(session.commit)
            assert eventually(lambda: session.pump.dropped)
            time.sleep(0.3)  # so that it waits for CONNECTED; there is nothing to see of that
            assert commit.waiting
            assert within(3, connection.abort).error is None
        assert isinstance(commit.join(10).error, TransactionInDoubtError)
        assert eventually(lambda: mortal.statistics(queue.name).consumer_count == 0)
    connection.close()  # only now: abort() alone must have left nothing


def test_listeners_go_on_after_a_restore_by_another_thread(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """B4: the thread of the listeners waits for the new link, and gets what comes on it."""
    put(classic_broker, queue, "a")
    seen: list[tuple[str, int]] = []
    errors: list[JmsxError] = []
    options: dict[str, Any] = {"redelivery_policy": AT_ONCE, "observers": [diary]}
    with nothing_left(), Connection(classic_broker.url, **options) as connection:
        connection.set_exception_listener(errors.append)
        connection.start()
        session = connection.create_session(TRANSACTED)
        gone = dead_destination(classic_broker, session)
        session.create_consumer(queue).set_listener(
            lambda message: seen.append((message.text, message.delivery_count))
        )
        assert eventually(lambda: seen == [("a", 1)])
        refused_commit(session, gone)
        assert eventually(lambda: seen == [("a", 1), ("a", 2)])
        put(classic_broker, queue, "b")
        assert eventually(lambda: seen[2:] == [("b", 1)])
        session.commit()
        assert settles(classic_broker, queue, size=0)
    assert not errors


# B5, B6: what handlers raise -----------------------------------------------------------------------------------------


class CannotSayError(Exception):
    """Neither its text nor its representation can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no str")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("error", [ValueError("no file \udcff"), CannotSayError()], ids=["a", "b"])
@pytest.mark.parametrize("mode", [AUTO, TRANSACTED, CLIENT, INDIVIDUAL])
def test_errors_that_cannot_be_written(
    classic_broker: Broker, queue: Queue, diary: Diary, mode: AcknowledgeMode, error: Exception
) -> None:
    """B5: a surrogate, or no text at all: three deliveries, one copy with what can be told, and the next message."""
    dead = f"{queue.name}.dead"
    seen: list[str] = []
    app = App(classic_broker.url, observers=[diary])

    @app.consumer(queue, mode=mode, redelivery=QUICK, dead_letter=f"queue://{dead}")
    def handle(message: Message) -> None:
        seen.append(message.text)
        if message.text == "bad":
            raise error

    put(classic_broker, queue, "bad", "good")
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    assert seen == ["bad", "bad", "bad", "good"]
    (copy,) = classic_broker.browse(dead)
    assert copy.headers["jmsx_exception"] == type(error).__name__
    assert copy.headers["jmsx_exception_message"] in (
        "no file ?",
        "<CannotSayError that cannot be printed>",
    )


def test_a_retry_in_the_distant_future(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """B6: 30,000 years are more than a lock can wait for; the session lives, and closes."""
    put(classic_broker, queue, "a")
    with nothing_left():
        connection = Connection(classic_broker.url, heartbeat=(0, 0), observers=[diary])
        connection.start()
        session = connection.create_session()
        called = threading.Event()

        def later(_message: Message) -> None:
            called.set()
            raise Retry(delay=1e12)

        session.create_consumer(queue).set_listener(later)
        assert called.wait(5)
        assert eventually(lambda: any(isinstance(e, RedeliveryScheduled) for e in diary.events))
        other = fresh_queue()
        send = within(5, lambda: session.create_producer(other).send(Message("x")))
        assert send.error is None
        assert within(5, connection.close).error is None
    assert bodies(classic_broker, queue) == ["a"]


def test_receive_with_an_infinite_timeout(classic_broker: Broker, queue: Queue) -> None:
    """B6: for ever, as without one."""
    with nothing_left(), Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        call = Call(lambda: consumer.receive(float("inf")))
        assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 1)
        assert call.waiting
        put(classic_broker, queue, "a")
        assert text(call.join(5).value) == "a"


# B7: a SUBSCRIBE that came too late ----------------------------------------------------------------------------------


def test_a_subscribe_that_timed_out(mortal: ClassicBroker, queue: Queue) -> None:
    """B7: the broker does it when it can, and then undoes it: no consumer keeps messages that nobody gets."""
    put(mortal, queue, "a")
    with nothing_left(), Connection(mortal.url, request_timeout=0.5) as connection:
        connection.start()
        session = connection.create_session()
        with paused(mortal):
            call = within(5, lambda: session.create_consumer(queue))
            assert isinstance(call.error, BrokerTimeoutError)
        assert eventually(lambda: mortal.statistics(queue.name).consumer_count == 0)
        assert settles(mortal, queue, size=1, inflight=0)
        assert text(session.create_consumer(queue).receive(5)) == "a"


# B8: listeners that close each other ---------------------------------------------------------------------------------


def test_listeners_that_close_each_other(classic_broker: Broker, diary: Diary) -> None:
    """B8: each waits for the other no longer than for the broker, and both messages are done."""
    queues = [fresh_queue(), fresh_queue()]
    both = threading.Barrier(2)
    closed: list[int] = []
    with nothing_left():
        connection = Connection(classic_broker.url, request_timeout=1.5, observers=[diary])
        connection.start()
        sessions = [connection.create_session() for _ in queues]

        def closer(number: int) -> Callable[[Message], None]:
            def close(_message: Message) -> None:
                both.wait(5)
                sessions[1 - number].close()
                closed.append(number)

            return close

        for number, queue in enumerate(queues):
            sessions[number].create_consumer(queue).set_listener(closer(number))
            put(classic_broker, queue, f"{number}")
        assert eventually(lambda: len(closed) == 2, 6)
        assert within(5, connection.close).error is None
    assert diary.outcomes().total() == 2


# C1: what the wire cannot carry --------------------------------------------------------------------------------------

UNFIT = {
    "property": Message("x", properties={"a": "\ud800"}),
    "text": Message("a\udcffb"),
    "map": Message({"a": "\ud800"}),
    "correlation id": Message("x", correlation_id="\udcff"),
    "long property": Message("x", properties={"a": "x" * 11_000}),
    "long correlation id": Message("x", correlation_id="ä" * 6_000),
    "negative delay": Message("x", properties={"AMQ_SCHEDULED_DELAY": -1}),
    "number that is none": Message("x", properties={"JMSXGroupSeq": "first"}),
}

QUALITIES: list[dict[str, Any]] = [
    {"priority": 10},
    {"priority": 4.5},
    {"priority": "5"},
    {"time_to_live": float("inf")},
    {"time_to_live": "1"},
]


@pytest.mark.parametrize("case", UNFIT)
def test_a_message_that_cannot_be_sent(
    classic_broker: Broker, queue: Queue, diary: Diary, case: str
) -> None:
    """C1: an error at once; the transaction goes on without it, and the evidence knows of what was sent only."""
    with Connection(classic_broker.url, observers=[diary]) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        producer.send(Message("before"))
        with pytest.raises(MessageFormatError):
            producer.send(UNFIT[case])
        producer.send(Message("after"))
        session.commit()
        plain = connection.create_session().create_producer(queue)
        with pytest.raises(MessageFormatError):
            plain.send(UNFIT[case])
        plain.send(Message("last"))
    assert bodies(classic_broker, queue) == ["before", "after", "last"]
    sent = [event.outcome for event in diary.events if isinstance(event, MessageSent)]
    assert sent == ["confirmed"] * 3
    (ended,) = [event for event in diary.events if isinstance(event, TransactionEnded)]
    assert ended.sends == 2


def test_a_quality_that_the_broker_cannot_read(classic_broker: Broker, queue: Queue) -> None:
    """Classic would close the connection on it; an error at once, and the session goes on."""
    with Connection(classic_broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for quality in QUALITIES:
            with pytest.raises(ConfigurationError):
                producer.send(Message("x"), **quality)
        producer.send(Message("sent"), priority=9, time_to_live=60)
    assert bodies(classic_broker, queue) == ["sent"]


def test_a_header_line_of_the_greatest_length(classic_broker: Broker, queue: Queue) -> None:
    """C1: the limit is the broker's own: what just fits arrives whole, escapes and all."""
    value = "x\n" * 3_412  # two bytes on the wire for each LF, and `p:` before them
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(Message("x", properties={"p": value}))
        with pytest.raises(MessageFormatError):
            producer.send(Message("x", properties={"p": value + "xx\n"}))
        message = session.create_consumer(queue).receive(5)
        assert message is not None
        assert message.properties["p"] == value


# C2 to C7: the app ---------------------------------------------------------------------------------------------------


def test_the_apps_sender_recovers(mortal: ClassicBroker, queue: Queue) -> None:
    """C2: from a first use without a broker, and from a broker that was restarted."""
    app = App(mortal.url, connect_timeout=2)
    with nothing_left():
        mortal.kill()
        for _ in range(2):
            assert isinstance(
                within(5, lambda: app.send(queue, "lost")).error, ConnectionFailedError
            )
        mortal.start()
        app.send(queue, "first")
        mortal.kill()
        mortal.start()
        results = [within(5, lambda: app.send(queue, "second")).error for _ in range(2)]
        assert results[1] is None
        assert results[0] is None or isinstance(results[0], ConnectionFailedError)
        app.stop()
    assert bodies(mortal, queue)[:2] == ["first", "second"]


def test_a_stop_pauses_all_consumers_at_once(classic_broker: Broker) -> None:
    """C3: while one handler takes its time, the others begin nothing more."""
    slow_queue, quick_queue = fresh_queue(), fresh_queue()
    app = App(classic_broker.url)
    began, free = threading.Event(), threading.Event()
    handled: list[str] = []

    @app.consumer(slow_queue)
    def slow(_message: Message) -> None:
        began.set()
        free.wait(20)

    @app.consumer(quick_queue)
    def quick(message: Message) -> None:
        handled.append(message.text)
        time.sleep(0.02)  # a handler with something to do

    put(classic_broker, slow_queue, "slow")
    put(classic_broker, quick_queue, *map(str, range(100)))
    with nothing_left():
        app.start()
        assert began.wait(5)
        stop = Call(app.stop)
        assert eventually(lambda: not any(each._connection.started for each in app._workers), 3)
        at_most = len(handled) + 1
        assert not eventually(lambda: len(handled) > at_most, 0.5)
        free.set()
        assert stop.join(10).error is None
    assert settles(classic_broker, quick_queue, size=100 - len(handled))
    assert settles(classic_broker, slow_queue, size=0)


def test_a_drain_has_one_deadline(classic_broker: Broker) -> None:
    """C3: three handlers that do not end take as long as one."""
    app = App(classic_broker.url)
    began, free = threading.Semaphore(0), threading.Event()

    def stuck(_message: Message) -> None:
        began.release()
        free.wait(20)

    for number in range(3):
        queue = fresh_queue()
        app.consumer(queue, name=f"stuck {number}")(stuck)
        put(classic_broker, queue, "x")
    with nothing_left():
        app.start()
        for _ in range(3):
            assert began.acquire(timeout=5)
        stop = within(5, lambda: app.stop(drain_timeout=1.0))
        assert isinstance(stop.error, DrainError)
        assert 1.0 <= stop.seconds < 1.9
        free.set()


RUN = """\
import signal, sys, time
from jmsx.app import App

class Observer:
    def observe(self, event, source):
        pass

    def close(self):
        print("closed", flush=True)

app = App({url!r}, observers=[Observer()])

@app.consumer({queue!r})
def handle(message):
    print("began", flush=True)
    time.sleep(60)

try:
    app.run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
"""


def test_a_second_signal_closes_the_observers(classic_broker: Broker, queue: Queue) -> None:
    """C4: run() is over at once, all is closed and given back, and the signals are as they were."""
    put(classic_broker, queue, "a")
    program = RUN.format(url=classic_broker.url, queue=queue.uri)
    with python("-c", program) as process:
        assert read_line(process) == "began"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # two signals at once would be one
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=10)
    assert out.splitlines() == ["closed", "interrupted", "True"], errors
    assert settles(classic_broker, queue, size=1)


@pytest.mark.parametrize("first", ["stop", "abort"])
def test_observers_are_closed_once(classic_broker: Broker, diary: Diary, first: str) -> None:
    """C5: however often an app is stopped or aborted."""
    app = App(classic_broker.url, observers=[diary])
    app.consumer(fresh_queue(), name="x")(lambda _message: None)
    app.start()
    getattr(app, first)()
    for _ in range(2):
        app.stop()
        app.abort()
    assert diary.closed == 1


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_an_app_that_acknowledges(
    classic_broker: Broker, queue: Queue, diary: Diary, mode: AcknowledgeMode
) -> None:
    """C6: returning settles, raising redelivers, poison is a dead letter, and Reject is one at once."""
    app = App(classic_broker.url, observers=[diary])
    seen: list[tuple[str, int]] = []

    @app.consumer(queue, mode=mode, redelivery=QUICK, give_up_on=(KeyError,), prefetch=1)
    def handle(message: Message) -> None:
        seen.append((message.text, message.delivery_count))
        if message.text == "poison" or (message.text, message.delivery_count) == ("twice", 1):
            raise ValueError(message.text)
        if message.text == "reject":
            raise Reject
        if message.text == "hopeless":
            raise KeyError(message.text)
        if message.text == "itself":
            message.acknowledge()

    texts = ["fine", "twice", "poison", "reject", "hopeless", "itself", "last"]
    put(classic_broker, queue, *texts, case=queue.name)
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    counts = dict.fromkeys(texts, 1) | {"twice": 2, "poison": 3}
    assert seen == [(name, n) for name, most in counts.items() for n in range(1, most + 1)]
    assert diary.outcomes() == {
        Outcome.ACKNOWLEDGED: 4,
        Outcome.ROLLED_BACK: 3,
        Outcome.DEAD_LETTERED: 3,
    }
    assert len(dead_copies(classic_broker, queue.name)) == 3


def test_a_block_that_loses_its_broker(mortal: ClassicBroker, queue: Queue) -> None:
    """C7: `with app:` does not end as if all were well."""
    app = App(mortal.url)
    app.consumer(queue)(lambda _message: None)

    def block() -> None:
        with app:
            mortal.kill()
            assert app._stopping.wait(5)

    with nothing_left():
        assert isinstance(within(10, block).error, ConnectionFailedError)
        assert not app._running


# D: `jmsx run` -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("1 / 0", "cannot import broken: ZeroDivisionError: division by zero"),
        ("import no_such_module", "cannot import broken: ModuleNotFoundError: No module named"),
        ("def x(:", "cannot import broken: SyntaxError"),
        ("app = 1", "broken has no App called 'app'"),
    ],
)
def test_a_fault_in_the_users_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    """D: what is wrong with it in one message, exit code 1, and no traceback of ours."""
    (tmp_path / "broken.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with python("-m", "jmsx.cli", "run", "broken:app") as process:
        out, errors = process.communicate(timeout=20)
    assert words in errors
    assert "Traceback" not in errors
    assert (process.returncode, out) == (1, "")
