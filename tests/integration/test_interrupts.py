"""
Exceptions out of nowhere: what a signal handler raises in the middle of a call loses no message and locks up nothing.

Each program runs on the main thread, where Python runs signal handlers, with a timer that fires at random moments.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest

from jmsx import Connection, Message, PrefetchPolicy, Queue
from jmsx.errors import IllegalStateError, TransactionInDoubtError, TransactionRolledBackError
from jmsx.jms.session import link_of
from tests.integration.liar import Client, Liar
from tests.integration.support import AT_ONCE, MODES, TRANSACTED, fresh_queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx import Session
    from jmsx.core.session import SessionCore
    from jmsx.jms.consumer import MessageConsumer
    from jmsx_broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(240, method="thread"),
    # an alarm that hits a callback of the garbage collector is told by Python, and goes no further
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MESSAGES = 300


class Alarm(Exception):  # noqa: N818 - as a program would call it
    """What the handler raises."""


class Timer:
    """Raises Alarm in the main thread, again and again, a random moment after each `set`; a context manager."""

    def __init__(self, seed: int, longest: float) -> None:
        self.count = 0
        self._random = random.Random(seed)
        self._longest = longest

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._fire)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def set(self) -> None:
        """Fire once, soon."""
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-5, self._longest))

    def _fire(self, *_: object) -> None:
        self.count += 1
        raise Alarm


def fill(broker: Broker, messages: int = MESSAGES) -> Queue:
    """A queue with numbered messages."""
    queue = fresh_queue()
    with Connection(broker.url) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        for number in range(messages):
            producer.send(Message(str(number)))
        session.commit()
    return queue


def left(broker: Broker, queue: Queue) -> list[str]:
    """What lies in the queue, when all who had some of it are gone."""
    found = []
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        while (message := consumer.receive(1.0)) is not None:
            found.append(message.text)
    return found


def settle(session: Session, message: Message) -> None:
    """As the mode has it; without being interrupted."""
    if session.transacted:
        with contextlib.suppress(TransactionRolledBackError, TransactionInDoubtError):
            session.commit()
    else:
        message.acknowledge()


def take_all(
    session: Session, consumer: MessageConsumer, timer: Timer, *, every: int
) -> Counter[str]:
    """What `receive()` returned, while the timer fires in it; until nothing has come for a while."""
    seen: Counter[str] = Counter()
    idle_at = time.monotonic() + 1.0
    while True:
        message = None
        try:
            if time.monotonic() < idle_at:
                timer.set()
            message = consumer.receive(1.0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            if message is None:
                continue
        idle_at = time.monotonic() + 1.0
        if message is None:
            return seen
        seen[message.text] += 1
        if sum(seen.values()) % every == 0:
            settle(session, message)


@pytest.mark.parametrize(("mode", "prefetch"), [*((mode, 1000) for mode in MODES), ("auto", 1)])
def test_a_receive_that_is_interrupted_loses_nothing(
    broker: Broker, mode: str, prefetch: int
) -> None:
    """Each message is returned at last, or lies in its queue."""
    queue, given = fill(broker), dict(MODES[mode])
    asked: list[Any] = [given.pop("mode")] if "mode" in given else []
    with (
        Connection(
            broker.url,
            prefetch_policy=PrefetchPolicy.all(prefetch),
            redelivery_policy=AT_ONCE,
            **given,
        ) as connection,
        Timer(1, 0.0008) as timer,
    ):
        session = connection.create_session(*asked)
        consumer = session.create_consumer(queue)
        connection.start()
        seen = take_all(session, consumer, timer, every=1 if "individual" in mode else 7)
        if session.transacted:
            session.commit()
    rest = set(left(broker, queue))
    lost = {str(number) for number in range(MESSAGES)} - set(seen) - rest
    assert lost == set()
    assert timer.count > 20


def test_a_commit_that_is_interrupted_leaves_a_session_that_goes_on(broker: Broker) -> None:
    """commit() or rollback() right behind it waits for the answer, and nothing is lost or there twice."""
    queue, sent = fresh_queue(), 0
    with Connection(broker.url) as connection, Timer(2, 0.002) as timer:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        for number in range(200):
            producer.send(Message(str(number)))
            sent += 1
            try:
                timer.set()
                session.commit()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                session.rollback()
            except (TransactionRolledBackError, TransactionInDoubtError):
                session.rollback()
    found = left(broker, queue)
    assert timer.count > 20
    assert len(found) == len(set(found)) <= sent


@pytest.mark.parametrize("gives_up", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_the_next_commit_tells_how_an_interrupted_one_ended(
    monkeypatch: pytest.MonkeyPatch, *, waits: bool, gives_up: bool
) -> None:
    """
    If it was undone, and the application has not rolled back: else all would look as if it were done.

    It is interrupted while it waits for the answer, or right behind what asks for that.
    """

    def refuse(client: Client) -> None:
        frame = client.obey("COMMIT")
        assert frame is not None
        interrupted.wait(10)
        receipt_id = frame.headers["receipt"]
        words = "COMMIT FAILED: Transaction marked rollback only"
        client.say(
            f"ERROR\nreceipt-id:{receipt_id}\nmessage:{words}\n\n"
            f"javax.transaction.xa.XAException: {words}\n\0".encode()
        )

    interrupted = threading.Event()
    with (
        Liar(refuse, Client.obey) as liar,
        Connection(liar.url) as connection,
        Timer(3, 1) as timer,
    ):
        session = connection.create_session(TRANSACTED)
        session.create_producer(Queue("q")).send(Message("x"))
        engine = link_of(session).engine
        call = engine.call

        def interrupted_call(operation: Callable[[SessionCore, float], object]) -> None:
            call(operation)
            raise Alarm

        if waits:
            timer.set()
        else:
            monkeypatch.setattr(engine, "call", interrupted_call)
        with pytest.raises(Alarm):
            session.commit()
        monkeypatch.undo()
        interrupted.set()
        if gives_up:
            session.rollback()
        else:
            with pytest.raises(TransactionRolledBackError):
                session.commit()
        session.commit()


def test_a_send_in_a_signal_handler_is_refused_where_it_interrupts_another(broker: Broker) -> None:
    """It works, or is an IllegalStateError: never a deadlock, and the send that it interrupted is done."""
    queue, refused = fresh_queue(), []
    with Connection(broker.url) as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        sent: list[str] = []
        inside = threading.Lock()

        def handler(*_: object) -> None:
            if not inside.acquire(blocking=False):
                return  # a slow machine: it has interrupted itself
            try:
                producer.send(Message(f"handler {len(sent)}"))
                sent.append("")
            except IllegalStateError as error:
                refused.append(str(error))
            finally:
                inside.release()

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0021)
            for number in range(300):
                producer.send(Message(str(number)))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert len(left(broker, queue)) == 300 + len(sent)
    assert all("signal handler" in text for text in refused)
    assert refused
