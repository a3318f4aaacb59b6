"""What becomes of a session whose link is being dropped when a signal handler raises."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import AcknowledgeMode, Message
from jmsx.core.process_memory import ProcessMemory
from jmsx.drivers.engine import Engine
from jmsx.drivers.link_state import LINKED, LinkState
from jmsx.drivers.transport import DriverTransport, Stream
from jmsx.errors import ConnectionFailedError, IllegalStateError, JmsxError
from tests.benchmarks.one_thread import OneThread
from tests.depth import some
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx import MessageConsumer
    from jmsx.jms.link import SessionLink

#: What is interrupted.
LOSING: Final = ("/jmsx/drivers/engine.py", "/jmsx/drivers/link_state.py", "/jmsx/core/")


@pytest.fixture(autouse=True)
def _memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a lock: the end of a `with` is a step here, though no handler runs there, and leaves it held."""
    monkeypatch.setattr("jmsx.jms.link.MEMORY", ProcessMemory())


def dropped(mode: AcknowledgeMode, *at: int) -> tuple[Interrupt, bool, bool, int]:
    """Drop a link, which these steps interrupt; is there one then, is it restored, and how much is unanswered?"""
    one, interrupt = OneThread(mode, 2), Interrupt(*at, within=LOSING)
    engine, consumer = one.link.engine, one.consumer()
    engine.changed.wait(0.0)  # the messages are here
    assert consumer.receive(1) is not None
    with contextlib.suppress(Alarm):
        interrupt.run(lambda: engine.renew("a test"))
    engine._listen(engine.now())  # the session's thread
    core = engine.core
    linked = core.linked
    assert (engine.state in LINKED) is linked
    return interrupt, linked, engine.state is LinkState.OUTAGE, 0 if linked else len(core._requests)


@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_a_drop_that_is_interrupted_at_any_step(mode: AcknowledgeMode) -> None:
    """The link is as it was, or is gone and restored; nobody waits on one that is neither."""
    whole, *rest = dropped(mode)
    assert rest == [False, True, 0]
    assert whole.steps > 100
    for step in some(range(1, whole.steps + 1)):
        _, *rest = dropped(mode, step)
        assert rest in ([True, False, 0], [False, True, 0]), step


def interrupted(link: SessionLink) -> None:
    """As a call of the session by Ctrl-C."""
    with link.engine.lock:
        link.engine.interrupted("a test")


#: What the main thread does, and what a signal handler calls in the middle of it.
DOES: Final[dict[str, Callable[[SessionLink], object]]] = {
    "renew": lambda link: link.renew("a test"),
    "fault": lambda link: link.engine.fault(ValueError("a test")),
    "interrupted": interrupted,
    "leave": lambda link: link.engine.leave(),
    "abort": lambda link: link.abort(),
}


@pytest.mark.parametrize(
    ("act", "handler"),
    [*((name, "abort") for name in DOES), ("abort", "renew"), ("abort", "fault")],
)
def test_a_signal_handler_that_calls_the_session(act: str, handler: str) -> None:
    """Whatever it comes into the middle of: a session that is aborted has ended, and nobody is told of an arrow."""

    def done(*at: int) -> int:
        link = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0).link

        def handle(_alarm: Alarm) -> None:
            with contextlib.suppress(IllegalStateError):  # in the middle of a call
                DOES[handler](link)

        interrupt = Interrupt(*at, within=LOSING[:2], handler=handle)
        # of `leave`, where there is no link any more
        with contextlib.suppress(ConnectionFailedError):
            interrupt.run(lambda: DOES[act](link))
        assert link.engine.state is LinkState.ENDED or not at, (at, link.engine.state)
        return interrupt.steps

    for step in some(range(1, done() + 1)):
        done(step)


#: Calls of a session that has received a message, on the main thread.
CALLS: Final[
    dict[str, tuple[AcknowledgeMode, Callable[[OneThread, MessageConsumer, Message], object]]]
] = {
    "receive": (
        AcknowledgeMode.AUTO_ACKNOWLEDGE,
        lambda _one, consumer, _message: consumer.receive(1),
    ),
    "acknowledge": (
        AcknowledgeMode.CLIENT_ACKNOWLEDGE,
        lambda _one, _consumer, message: message.acknowledge(),
    ),
    "send": (AcknowledgeMode.AUTO_ACKNOWLEDGE, lambda one, _consumer, _message: _send(one)),
    "commit": (
        AcknowledgeMode.SESSION_TRANSACTED,
        lambda one, _consumer, _message: one.session.commit(),
    ),
    "rollback": (
        AcknowledgeMode.SESSION_TRANSACTED,
        lambda one, _consumer, _message: one.session.rollback(),
    ),
}


def _send(one: OneThread) -> None:
    one.session.create_producer("queue://answers").send(Message("x"), persistent=True)


@pytest.mark.parametrize("call", CALLS)
def test_an_abort_in_the_middle_of_a_call(call: str) -> None:
    """By a signal handler: that call comes to its end, or to a typed error, and waits for no answer."""

    def done(*at: int) -> int:
        mode, act = CALLS[call]
        one, aborted = OneThread(mode, 2, request_timeout=None), list[Alarm]()
        consumer, engine = one.consumer(), one.link.engine
        engine.changed.wait(0.0)  # the messages are here
        message = consumer.receive(1)
        assert message is not None

        def handle(alarm: Alarm) -> None:
            aborted.append(alarm)
            one.link.abort()

        interrupt = Interrupt(*at, within=LOSING, handler=handle)
        with contextlib.suppress(JmsxError):
            interrupt.run(lambda: act(one, consumer, message))
        assert engine.state is LinkState.ENDED or not aborted, (aborted, engine.state)
        return interrupt.steps

    for step in some(range(1, done() + 1)):
        done(step)


def fails_in_an_outage(engine: Engine) -> None:
    """As a session that could not note that its link is gone."""
    engine.renew("a test")
    engine.fault(ValueError("a test"))


#: What a session's own thread does while another thread aborts the session.
SERVES: Final[dict[str, Callable[[Engine], object]]] = {
    "listens": lambda engine: engine._listen(engine.now()),
    "loses its link": lambda engine: engine.renew("a test"),
    "fails": lambda engine: engine.fault(ValueError("a test")),
    "fails in an outage": fails_in_an_outage,
}


@pytest.mark.parametrize("act", SERVES)
def test_an_abort_by_another_thread(act: str) -> None:
    """At any step: the session has ended, and its link with it, so that whoever waits for an answer is told."""

    def done(*at: int) -> int:
        link = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0).link
        engine, others = link.engine, list[threading.Thread]()

        def handle(_alarm: Alarm) -> None:
            other = threading.Thread(target=link.abort)
            others.append(other)
            other.start()
            while other.is_alive() and not engine._ending:
                time.sleep(0.001)

        interrupt = Interrupt(*at, within=LOSING[:1], handler=handle)
        interrupt.run(lambda: SERVES[act](engine))
        for other in others:
            other.join()
        ended = engine.state is LinkState.ENDED and not engine.core.linked
        assert ended or not at, (at, engine.state)
        return interrupt.steps

    for step in some(range(1, done() + 1)):
        done(step)


def test_an_abort_that_is_interrupted_at_any_step() -> None:
    """The session has ended, or goes on: it does not wait on a link that nobody hears."""

    def done(*at: int) -> int:
        link = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0).link
        engine, interrupt = link.engine, Interrupt(*at, within=("/jmsx/drivers/",))
        with contextlib.suppress(Alarm):
            interrupt.run(link.abort)
        engine._listen(engine.now())  # the session's thread
        assert engine.state is LinkState.ENDED or not engine._epoch.link._dropped, at
        return interrupt.steps

    for step in some(range(1, done() + 1)):
        done(step)


def test_a_commit_behind_the_end_of_its_session_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler has closed that, which undid the transaction, when the call had just begun."""
    # The recorded broker does not answer DISCONNECT.
    monkeypatch.setattr("jmsx.drivers.calls.DISCONNECT_WAIT", 0.0)
    one = OneThread(AcknowledgeMode.SESSION_TRANSACTED, 0)
    _send(one)
    work = Engine.work

    def interrupted_work(engine: Engine, operation: Any) -> object:
        monkeypatch.setattr(Engine, "work", work)
        one.session.close()
        return work(engine, operation)

    monkeypatch.setattr(Engine, "work", interrupted_work)
    with pytest.raises(ConnectionFailedError):
        one.session.commit()


def test_a_fault_in_it_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried for ever."""
    engine = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0).link.engine

    def broken(*_: object) -> None:
        raise ValueError("a test")

    monkeypatch.setattr(engine.core, "link_closed", broken)
    with pytest.raises(ValueError, match="a test"):
        engine.renew("a test")
    engine._run()
    assert "a test" in str(engine.error)


class RacedTransport(DriverTransport):
    """Another thread drops the link as soon as it is known that this shall be done later."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_last_call" and value is not None:
            self.drop()


def test_a_link_that_is_dropped_while_its_end_is_put_off() -> None:
    """As by stomp.py's thread, where the broker closes at that moment: it was a fault, which ended the session."""

    def refuse() -> Stream:
        raise ConnectionRefusedError

    transport = RacedTransport(("mq", 61613), refuse, lambda _frames: None, 1)
    transport.drop(after=0.01)
    assert transport._last_call is None
