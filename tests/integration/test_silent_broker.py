"""
A real broker that neither reads nor answers: what blocks ends in time, and nothing spins.

Every call that might hang has a deadline.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    Queue,
)
from jmsx.drivers.epoch import Epoch
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, JmsxError, SendUnconfirmedError
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.liar import ARTEMIS, Client, Liar
from tests.integration.support import (
    TRANSACTED,
    bodies,
    nothing_left,
    paused,
    put,
    settles,
    text,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx import Session
    from jmsx_broker import ClassicBroker


pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


#: More than the sockets' buffers hold, so that a write blocks at a broker that does not read.
HUGE = b"x" * 20_000_000


# Writes --------------------------------------------------------------------------------------------------------------


def test_ctrl_c_in_the_middle_of_a_frame(mortal: ClassicBroker, queue: Queue) -> None:
    """Nothing may follow half a frame, or the broker reads it as the rest of the body."""
    put(mortal, queue, "warm")
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=5)
        session = connection.create_session()
        producer = session.create_producer(queue)
        with paused(mortal):
            press = Call(partial(press_ctrl_c_when, partial(is_writing_to, mortal)))
            with pytest.raises(KeyboardInterrupt):
                producer.send(Message(HUGE.decode()))  # no content-length: it ends at any NUL
            press.join(5)
        producer.send(Message("second"))  # on a link of its own
        within(5, connection.close)
    put(mortal, queue, "last")
    assert bodies(mortal, queue) == ["warm", "second", "last"]


def test_no_farewell_behind_half_a_frame(queue: Queue) -> None:
    """Artemis is told DISCONNECT on a link that we drop, which would be the end of a text without content-length."""
    stalled = threading.Event()
    said: list[bytes] = []

    def read_no_more(client: Client) -> None:
        client.obey("BEGIN", greeting=ARTEMIS)
        stalled.set()
        assert eventually(lambda: not stalled.is_set(), 20)
        for _ in client.frames():
            pass
        said.append(client.said)

    with nothing_left(), Liar(read_no_more, partial(Client.obey, greeting=ARTEMIS)) as liar:
        connection = Connection(liar.url, request_timeout=5)
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        writing = link_of(session).engine.changed
        press = Call(partial(press_ctrl_c_when, lambda: stalled.is_set() and is_blocked(writing)))
        with pytest.raises(KeyboardInterrupt):
            producer.send(Message(HUGE.decode()))
        press.join(5)
        stalled.clear()
        assert eventually(lambda: bool(said), 10)
        assert said[0].endswith(b"x")
        within(5, connection.close)


def test_a_farewell_that_nobody_reads(queue: Queue) -> None:
    """DISCONNECT on a link that we drop has a moment, and not the whole time of a write, before there is another."""
    over = threading.Event()

    def read_nothing(client: Client) -> None:
        assert next(client.frames()).command == "CONNECT"
        client.say(ARTEMIS)
        over.wait(20)

    with nothing_left(), Liar(read_nothing, partial(Client.obey, greeting=ARTEMIS)) as liar:
        connection = Connection(liar.url, request_timeout=15, heartbeat=(0, 0))
        session = connection.create_session()
        engine = link_of(session).engine
        plug = engine._epoch.link._transport.socket._socket  # type: ignore[attr-defined]  # to fill its buffers
        for size in (65536, 4096, 512, 64):  # the buffers grow for a while
            with contextlib.suppress(BlockingIOError):
                while plug.send(b"\n" * size, socket.MSG_DONTWAIT):
                    pass
            time.sleep(0.1)
        engine.renew("the test wants another one")
        assert eventually(lambda: len(liar.clients) == 2, 5)
        assert within(5, lambda: session.create_producer(queue).send(Message("a"))).error is None
        over.set()
        within(5, connection.close)


def test_a_blocked_write_ends(mortal: ClassicBroker, queue: Queue) -> None:
    """With a typed error, and nothing of it in the queue."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=1, heartbeat=(0, 0))
        producer = connection.create_session().create_producer(queue)
        with paused(mortal):
            call = within(10, lambda: producer.send(Message(HUGE)))
            assert isinstance(call.error, SendUnconfirmedError), call.error
            within(5, connection.close)
    put(mortal, queue, "next")
    assert bodies(mortal, queue) == ["next"]


@pytest.mark.parametrize("timeout", [30.0, None])
def test_a_blocked_write_starves_no_heart_beat(
    mortal: ClassicBroker, queue: Queue, timeout: float | None
) -> None:
    """A broker that neither reads nor says anything is noticed in twice the heart-beat, whatever the timeouts."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=timeout, heartbeat=(2, 2))
        connection.start()
        session = connection.create_session()
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        with paused(mortal):
            send = Call(lambda: producer.send(Message(HUGE)))
            assert eventually(lambda: is_blocked(link_of(session).engine.changed))
            receive = Call(lambda: consumer.receive(30))
            for call, kind in ((send, SendUnconfirmedError), (receive, ConnectionFailedError)):
                error = call.join(7).error
                assert isinstance(error, kind)
                assert "sent nothing for too long" in str(error)
            within(2, connection.close)


def test_abort_asks_nobody_why_the_link_is_gone(
    mortal: ClassicBroker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the session's thread sees the end of the socket before it is told that all is over."""
    connection = Connection(mortal.url)
    connection.start()
    session = connection.create_session()
    session.create_consumer(queue)
    engine, drop, asked = link_of(session).engine, Epoch.drop, threading.Event()

    def ends_links(_settings: object) -> bool:
        asked.set()
        return False

    def slowly(epoch: Epoch) -> None:
        drop(epoch)
        if threading.current_thread() is not engine._thread:
            assert eventually(lambda: asked.is_set() or engine.error is not None)

    monkeypatch.setattr(engine, "ends_links", ends_links)
    monkeypatch.setattr(Epoch, "drop", slowly)
    connection.abort()
    assert not asked.is_set()


def test_abort_while_a_write_blocks(mortal: ClassicBroker, queue: Queue) -> None:
    """At once, whatever the deadline of the write, and the write ends with it."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=30)
        connection.start()
        session = connection.create_session()
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        with paused(mortal):
            send = Call(lambda: producer.send(Message(HUGE)))
            assert eventually(lambda: is_blocked(link_of(session).engine.changed))
            receive = Call(lambda: consumer.receive(20))
            assert within(2, connection.abort).error is None
            for call in (send, receive):
                assert isinstance(call.join(2).error, JmsxError)
        connection.close()


# Commits -------------------------------------------------------------------------------------------------------------


def a_transaction(connection: Connection, broker: ClassicBroker, queue: Queue) -> Session:
    """A session that has received "a" and sent it on."""
    put(broker, queue, "a")
    connection.start()
    session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
    assert text(session.create_consumer(queue).receive(5)) == "a"
    session.create_producer(Queue(f"{queue.name}.out")).send(Message("A"))
    return session


def test_close_waits_for_a_commit(mortal: ClassicBroker, queue: Queue) -> None:
    """Of another thread: that is answered, and nothing of it is done twice."""
    with nothing_left():
        connection = Connection(mortal.url)
        session = a_transaction(connection, mortal, queue)
        with paused(mortal):
            commit = Call(session.commit)
            assert eventually(lambda: link_of(session).engine.core.committing)
            close = Call(connection.close)
            time.sleep(0.5)
            assert close.waiting
        assert commit.join(10).error is None
        assert close.join(10).error is None
    assert settles(mortal, queue, size=0)
    assert bodies(mortal, f"{queue.name}.out") == ["A"]


def test_close_waits_once_for_a_silent_broker(mortal: ClassicBroker, queue: Queue) -> None:
    """Who does not answer UNSUBSCRIBE would not answer DISCONNECT either."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=2.0, heartbeat=(0, 0))
        connection.create_session().create_consumer(queue)
        with paused(mortal):
            close = within(3.5, connection.close)
        assert isinstance(close.error, BrokerTimeoutError)


def test_ctrl_c_in_a_commit(mortal: ClassicBroker, queue: Queue) -> None:
    """It is what the program ends with; that nobody waits for the answer any more is no error of closing."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=1.0)
        session = a_transaction(connection, mortal, queue)
        with paused(mortal):
            press = Call(
                partial(press_ctrl_c_when, lambda: link_of(session).engine.core.committing)
            )
            with pytest.raises(KeyboardInterrupt):
                session.commit()
            press.join(5)
            assert isinstance(within(10, connection.close).error, BrokerTimeoutError | None)
    assert settles(mortal, queue, size=0)
    assert bodies(mortal, f"{queue.name}.out") == ["A"]


def press_ctrl_c() -> None:
    """In this process, as a terminal does."""
    os.kill(os.getpid(), signal.SIGINT)


def press_ctrl_c_when(holds: Callable[[], bool]) -> None:
    """As soon as `holds`; never, if that does not come true."""
    if eventually(holds):
        press_ctrl_c()


def is_writing_to(broker: ClassicBroker) -> bool:
    """Whether bytes for it wait in the buffers of our sockets."""
    port = int(broker.url.rpartition(":")[2])
    sockets = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(
        remote.endswith(f":{port:04X}") and int(queues.partition(":")[0], 16)
        for _, _, remote, _, queues, *_ in sockets
    )


def is_blocked(lock: threading.Condition) -> bool:
    """Whether somebody holds the lock, now and a moment later."""
    for _ in range(3):
        if lock.acquire(blocking=False):
            lock.release()
            return False
        time.sleep(0.05)
    return True


# Sessions ------------------------------------------------------------------------------------------------------------


def test_a_lost_session_does_not_spin(mortal: ClassicBroker, queue: Queue) -> None:
    """Although nobody closes it, and whatever timers it had."""
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


def test_a_subscribe_that_timed_out(mortal: ClassicBroker, queue: Queue) -> None:
    """The broker does it when it can, and then undoes it: no consumer keeps messages that nobody gets."""
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
