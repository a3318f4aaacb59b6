"""Waiting for answers: what is told when one comes late, or to nobody."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Connection, Message, Queue
from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.requests import Request
from jmsx.core.session import SessionCore
from jmsx.drivers.calls import STANDSTILL
from jmsx.drivers.link_state import LinkState
from jmsx.errors import (
    BrokerFaultError,
    BrokerTimeoutError,
    ConnectionFailedError,
    IllegalStateError,
    SendUnconfirmedError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer
from tests.benchmarks.one_thread import OneThread
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds for an answer.
LIMIT = 0.05


def session(**options: Any) -> OneThread:
    """A transacted session that has sent something."""
    one = OneThread(AcknowledgeMode.SESSION_TRANSACTED, 0, request_timeout=LIMIT, **options)
    one.session.create_producer(Queue("q")).send(Message("x"))
    return one


def commit(one: OneThread) -> Request:
    """Ask for a commit, with a marker in hand, and wait for nothing."""
    engine = one.link.engine
    engine.call(lambda core, _now: core.may_commit())
    head = {"subscription": "commits", "message-id": "m", "ack": "m", "destination": "/queue/m"}
    session_id = engine.core.settings.session_id
    marker = MessageFrame.of({**head, "jmsx_session": session_id, "jmsx_marker": "1"}, b"")
    engine.call(lambda core, now: core.receive([marker], now, now))
    request: Request = engine.call(lambda core, now: core.commit(now))
    return request


def test_an_interrupted_commit_that_stays_in_doubt_is_told_in_time() -> None:
    """Its link is lost, and no other one tells what became of it: the next call says so, and the session goes on."""
    one = session(commit_markers=True)
    calls, engine = one.link.calls, one.link.engine
    request = commit(one)
    one.recording._answers.clear()
    engine.renew("a test")
    assert engine.core.committing
    assert not request.done
    assert isinstance(calls.end_commit(), TransactionInDoubtError)
    assert calls.end_commit() is None
    assert not engine.core.committing
    one.session.rollback()


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.create_producer(Queue("q")).send(Message("y")),
        lambda session: session.commit(),
        lambda session: session.rollback(),
        lambda session: session.create_consumer(Queue("q")),
    ],
    ids=["send", "commit", "rollback", "create_consumer"],
)
def test_a_call_in_the_middle_of_a_commit_waits_for_nothing(call: Callable[[Any], object]) -> None:
    """
    By a signal handler, before the COMMIT is written: its end cannot come before the call itself has returned.

    It waited for that as long as for an answer of the broker, without the lock, and dropped the link then.
    """
    epochs: list[int] = []
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=2) as one:
        session = one.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        session.create_producer(Queue("q")).send(Message("x"))
        engine = link_of(session).engine

        def commit_and_be_interrupted(core: SessionCore, now: float) -> Request:
            request = core.commit(now)
            with pytest.raises(IllegalStateError, match="in the middle of another of its calls"):
                call(session)
            epochs.append(core.epoch)
            return request

        request = engine.call(commit_and_be_interrupted)
        link_of(session).calls.wait(request)
        assert epochs == [engine.core.epoch]
        assert engine.error is None


@pytest.mark.parametrize(
    "call",
    [lambda session: session.commit(), lambda session: session.rollback()],
    ids=["commit", "rollback"],
)
def test_what_was_refused_in_the_middle_of_a_commit_has_told_nothing(
    caplog: pytest.LogCaptureFixture, call: Callable[[Any], object]
) -> None:
    """The signal handler's call heard nothing of the commit's end, and its error ended that: the next call tells."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=2) as one:
        session = one.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        session.create_producer(Queue("q")).send(Message("x"))

        def commit_and_be_interrupted(core: SessionCore, now: float) -> None:
            core.commit(now)
            call(session)

        with pytest.raises(IllegalStateError, match="in the middle of another of its calls"):
            link_of(session).engine.call(commit_and_be_interrupted)
        assert [line for line in caplog.messages if "rollback()" in line] == []
        with pytest.raises((TransactionInDoubtError, TransactionRolledBackError)):
            session.commit()
        session.commit()


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_a_receive_in_the_middle_of_a_call_costs_no_link(mode: AcknowledgeMode) -> None:
    """It was refused, so it has nothing to give back; what the call itself did would be lost with the link."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=2) as one:
        session = one.create_session(mode)
        consumer = session.create_consumer(Queue("q"))
        session.create_producer(Queue("q")).send(Message("x"))
        one.start()
        engine = link_of(session).engine

        def work_and_be_interrupted(core: SessionCore, _now: float) -> int:
            for receive in (consumer.receive, consumer.receive_no_wait):
                with pytest.raises(IllegalStateError, match="in the middle of another of its call"):
                    receive()
            return core.epoch

        assert engine.call(work_and_be_interrupted) == 1
        assert engine.reachable
        if session.transacted:
            session.commit()
        received = consumer.receive(5)
        assert received is not None
        assert received.text == "x"
        assert engine.core.epoch == 1


@pytest.mark.parametrize("listening", [False, True])
def test_a_consumer_whose_close_was_refused_can_be_closed(*, listening: bool) -> None:
    """It was closed for its application, and not for the broker, which went on giving it what nobody could receive."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=2) as one:
        session = one.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue("q"))
        if listening:
            consumer.set_listener(lambda _message: None)
        one.start()

        def work_and_be_interrupted(_core: SessionCore, _now: float) -> None:
            with pytest.raises(IllegalStateError, match="in the middle of another of its calls"):
                consumer.close()

        link_of(session).engine.call(work_and_be_interrupted)
        consumer.close()
        session.create_producer(Queue("q")).send(Message("x"))
        with one.create_session() as other:
            received = other.create_consumer(Queue("q")).receive(5)
            assert received is not None
            assert received.text == "x"
        with pytest.raises(IllegalStateError, match="Consumer is closed"):
            consumer.receive_no_wait()


@pytest.mark.parametrize("closing", ["session", "connection"])
def test_a_close_in_the_middle_of_a_call_is_refused_at_once(closing: str) -> None:
    """It waited 2 s for a thread that could not end before the call, and ended the link of that."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=5) as one:
        session = one.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        session.create_producer(Queue("q")).send(Message("x"))
        consumer = session.create_consumer(Queue("q"))
        one.start()
        engine = link_of(session).engine

        def commit_and_be_interrupted(core: SessionCore, now: float) -> Request:
            request = core.commit(now)
            began = time.monotonic()
            with pytest.raises(IllegalStateError, match="in the middle of another of its calls"):
                (session if closing == "session" else one).close()
            assert time.monotonic() - began < 1
            return request

        link_of(session).calls.wait(engine.call(commit_and_be_interrupted))
        assert engine.core.epoch == 1
        received = consumer.receive(5)
        assert received is not None
        assert received.text == "x"
        (session if closing == "session" else one).close()
        assert engine.error is not None
        with pytest.raises(IllegalStateError, match="closed"):
            session.create_producer(Queue("q"))


class InterruptedEnd:
    """The lock of a socket's end; a signal comes when that is shut down, once."""

    def __init__(self, lock: Any, interrupt: Callable[[], object]) -> None:
        self._lock, self._interrupts = lock, [interrupt]
        self.acquire = lock.acquire

    def release(self) -> None:
        """It is still held by who was interrupted."""
        while self._interrupts:
            self._interrupts.pop()()
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("call", ["close", "receive", "abort"])
def test_a_call_in_the_middle_of_dropping_a_link_waits_for_nothing(call: str) -> None:
    """By a signal handler: the session's own thread ends the link, too, and each waited for the other, for ever."""
    refused: list[bool] = []
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=2) as one:
        session = one.create_session()
        consumer = session.create_consumer(Queue("q"))
        one.start()

        calls: dict[str, Callable[[], object]] = {
            "close": session.close,
            "receive": consumer.receive,
            "abort": one.abort,
        }

        def interrupt() -> None:
            with contextlib.ExitStack() as expected:
                if call != "abort":
                    expected.enter_context(pytest.raises(IllegalStateError, match="in the middle"))
                calls[call]()
            refused.append(call != "abort")

        engine = link_of(session).engine
        stream: Any = engine._epoch.link._transport.socket
        stream._ending = InterruptedEnd(stream._ending, interrupt)
        dropping = threading.Thread(target=engine.renew, args=["a test"], daemon=True)
        dropping.start()
        dropping.join(10)
        assert not dropping.is_alive()
        assert refused == [call != "abort"]
        if call != "abort":
            assert consumer.receive(0.1) is None


def test_a_close_of_a_connection_that_was_refused_leaves_its_other_sessions_open() -> None:
    """Else some are closed and some are not, and the second close() would do nothing."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=5) as one:
        first, second = one.create_session(), one.create_session()

        def work_and_be_interrupted(_core: SessionCore, _now: float) -> None:
            with pytest.raises(IllegalStateError, match="in the middle of another of its calls"):
                one.close()

        link_of(second).engine.call(work_and_be_interrupted)
        first.create_producer(Queue("q")).send(Message("x"))
        one.close()
        assert not link_of(first).alive
        assert not link_of(second).alive


@pytest.mark.parametrize("closing", ["session", "connection"])
def test_what_is_interrupted_when_it_closes_has_ended(closing: str) -> None:
    """Ctrl-C while it waits for a listener: its socket stayed open, and what it had prefetched was nobody's."""
    began, may_end = threading.Event(), threading.Event()

    def listener(_message: Message) -> None:
        began.set()
        may_end.wait(30)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=30) as one:
        try:
            session, other = one.create_session(), one.create_session()
            for _ in range(2):
                session.create_producer(Queue("q")).send(Message("x"))
            session.create_consumer(Queue("q")).set_listener(listener)
            one.start()
            assert began.wait(5)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                (session if closing == "session" else one).close()
            assert link_of(session).engine.error is not None
            assert (link_of(other).engine.error is None) == (closing == "session")
            with Connection(server.url) as second:
                second.start()
                consumer = second.create_session().create_consumer(Queue("q"))
                assert [getattr(consumer.receive(5), "text", None) for _ in range(2)] == ["x", "x"]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            may_end.set()


@pytest.mark.parametrize("step", ["leave", "end", "_give_up"])
@pytest.mark.parametrize("closing", ["session", "connection"])
def test_a_close_that_was_interrupted_where_it_ends_is_ended_by_the_next(
    closing: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one did nothing, whether of the session or of the connection: its thread stayed for ever."""

    def interrupt(*given: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            original(*given)
            return
        monkeypatch.undo()
        raise KeyboardInterrupt

    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=5) as one:
        session = one.create_session()
        link = link_of(session)
        holder: Any = link.calls if step == "leave" else link.engine
        original: Callable[..., object] = getattr(holder, step)
        monkeypatch.setattr(holder, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.close()
        (session if closing == "session" else one).close()
        link.engine._thread.join(5)
        assert not link.engine.alive
        assert link.engine.error is not None


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("done", ["rollback() came too late"]),
        ("in doubt", ["rollback() may have come too late"]),
        ("refused", []),
    ],
)
def test_a_rollback_behind_an_interrupted_commit(
    caplog: pytest.LogCaptureFixture, end: str, said: list[str]
) -> None:
    """It cannot undo what was committed, and the log says so once: the application believes that it did."""
    one = session()
    engine = one.link.engine
    engine.call(lambda core, now: core.commit(now))
    if end == "in doubt":
        one.recording._answers.clear()
        engine.renew("a test")
    elif end == "refused":
        (receipt_id,) = engine.core.owed
        refusal = Frame(
            "ERROR", {"receipt-id": receipt_id, "message": "ProtocolException: refused by the test"}
        )
        one.recording._answers.clear()
        engine.call(lambda core, now: core.receive([refusal], now, now))
    for _ in range(2):
        one.session.rollback()
    lines = [one for one in caplog.messages if "rollback()" in one]
    assert [line.partition("event='")[2].partition(":")[0] for line in lines] == said


@pytest.mark.parametrize("marked", [False, True])
def test_an_answer_that_comes_at_the_last_moment_is_one(
    monkeypatch: pytest.MonkeyPatch, *, marked: bool
) -> None:
    """A signal handler that waits for something else lets it in, when the time for it is just over."""
    one = session(commit_markers=marked)
    calls, engine = one.link.calls, one.link.engine
    request = commit(one)

    def too_late(_done: object, _seconds: object) -> bool:
        monkeypatch.undo()
        engine.changed.wait(0.0)
        return False

    monkeypatch.setattr(engine.changed, "wait_for", too_late)
    calls.wait(request)
    assert request.done
    assert engine.reachable


@pytest.mark.parametrize("closing", [False, True])
def test_a_send_that_may_be_there_is_not_said_to_be_none(*, closing: bool) -> None:
    """It was to be sent again, and there was no other link: the first one may have reached the broker all the same."""
    one = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0, request_timeout=LIMIT)
    calls, engine = one.link.calls, one.link.engine
    frame = Frame("SEND", {"destination": "/queue/q", "persistent": "true"})

    def send(core: SessionCore, now: float) -> Request | None:
        asked = core.send(frame, "key", "queue://q", now)
        calls.closed = closing
        core._outbox.disconnect("a test")
        return asked

    with pytest.raises(SendUnconfirmedError):
        calls.ask("SEND queue://q", send, repeat=True)
    assert engine.state is LinkState.OUTAGE


def test_a_send_that_the_broker_complains_of_is_repeated_once() -> None:
    """Each time costs the link, with which all other threads send: that of a full address would go on for ever."""
    one = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0, request_timeout=30.0)
    frame = Frame("SEND", {"destination": "/queue/q", "persistent": "true"})
    sent = list[Request]()

    def send(core: SessionCore, now: float) -> Request | None:
        asked = core.send(frame, "key", "queue://q", now)
        assert asked is not None
        sent.append(asked)
        asked.end(now, BrokerFaultError("a test"))
        return asked

    with pytest.raises(SendUnconfirmedError):
        one.link.calls.ask("SEND queue://q", send, repeat=True)
    assert len(sent) == 2


def test_a_browser_whose_link_is_lost_at_its_end_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is left by `break` has nobody to raise to: Python would print it."""
    one = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 1)
    browser = one.session.create_browser(Queue("q"))

    def lost(_operation: object) -> None:
        raise ConnectionFailedError("a test")

    shown = iter(browser)
    next(shown)
    monkeypatch.setattr(one.link.calls, "finish", lost)
    shown.close()  # type: ignore[attr-defined]  # it is a generator
    browser.close()


def test_nothing_is_written_behind_disconnect() -> None:
    """A thread that sends while another one closes the session hears that nothing was sent, and not of a doubt."""
    with FakeBrokerServer("classic") as server, Connection(server.url) as one:
        link = link_of(one.create_session())
        with server.broker():  # which reads nothing meanwhile
            closing = threading.Thread(target=link.close)
            closing.start()
            assert eventually(lambda: link.engine.state is LinkState.LEAVING, 5)
            with pytest.raises(IllegalStateError, match="The Session is closed; SEND was not sent"):
                link.calls.submit("SEND", lambda _core, _now: pytest.fail("it was written"))
        closing.join(10)
        assert not closing.is_alive()


def test_a_send_whose_time_went_into_the_write_says_why() -> None:
    """It was not answered "in 0 s", and nobody was told that the broker does not read."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=1) as one:
        producer = one.create_session().create_producer(Queue("q"))
        # its link may have ended by then, or not
        late = pytest.raises(
            (BrokerTimeoutError, SendUnconfirmedError), match="did not read what was written"
        )
        with server.broker(), late as sent:  # which reads nothing meanwhile
            producer.send(Message("x" * 20_000_000), timeout=0.5)
        assert "in 0 s" not in str(sent.value)


def test_a_write_waits_no_longer_than_its_call() -> None:
    """A broker that reads nothing held a call of half a second for the whole `request_timeout`."""
    with FakeBrokerServer("classic") as server, Connection(server.url, request_timeout=20) as one:
        producer = one.create_session().create_producer(Queue("q"))
        late = pytest.raises(
            (BrokerTimeoutError, SendUnconfirmedError), match="did not read what was written"
        )
        began = time.monotonic()
        with server.broker(), late:  # which reads nothing meanwhile
            producer.send(Message("x" * 20_000_000), timeout=0.5)
        assert time.monotonic() - began < 5


def test_a_write_beside_others_waits_as_they_do() -> None:
    """The end of the link would put in doubt what others send, and bring again what the application holds."""
    one = OneThread(AcknowledgeMode.CLIENT_ACKNOWLEDGE, 1)
    consumer = one.consumer()
    link: Any = one.link.engine.link
    stream = link._transport.socket
    stream.patience = math.inf
    seen = list[float]()

    def look(_core: SessionCore, _now: float) -> None:
        seen.append(stream.patience)

    one.link.calls.submit("SEND", look, 60.0)
    one.link.calls.submit("SEND", look, 0.0)
    assert consumer.receive() is not None
    one.link.calls.submit("SEND", look, 60.0)
    assert seen == [pytest.approx(60, abs=30), STANDSTILL, math.inf]
    assert stream.patience == math.inf
