"""What a session writes in one go, where nobody waits for what each frame does."""

from __future__ import annotations

import re
from queue import SimpleQueue
from typing import Any, Final

import pytest

import jmsx
from jmsx.drivers.engine import MOST_TOGETHER, TOGETHER
from jmsx.drivers.link_state import LinkState
from tests.benchmarks.one_thread import OneThread
from tests.depth import some
from tests.unit.interrupts import Alarm, Interrupt

BEGINNING: Final = 1000.0


class Sender:
    """A transacted session on a recording, whose time the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGINNING
        monkeypatch.setattr("jmsx.clock.SystemClock.monotonic", lambda _clock: self.now)
        self._session = OneThread(jmsx.AcknowledgeMode.SESSION_TRANSACTED, 0)
        self._producer = self._session.session.create_producer(jmsx.Queue("orders"))
        written: list[bytes] = []
        self._written = written
        monkeypatch.setattr(self._session.link.engine._epoch, "_write", written.append)

    def send(self, body: str = "x") -> None:
        """In the transaction."""
        self._producer.send(body)

    def rollback(self) -> None:
        """End the transaction with what is written at once."""
        self._session.session.rollback()

    def turn(self) -> None:
        """What the session's thread does when its timer is due."""
        self._session.link.engine._listen(self.now)

    def wrote(self) -> list[str]:
        """The commands of each write since the last look."""
        told = [
            " ".join(frame.split(b"\n")[0].decode() for frame in data.split(b"\0") if frame)
            for data in self._written
        ]
        self._written.clear()
        return told


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    """One that has just written."""
    made = Sender(monkeypatch)
    made.now += 1
    made.send()
    assert made.wrote() == ["BEGIN SEND"]
    return made


def test_sends_go_with_what_ends_their_transaction(sender: Sender) -> None:
    """Nobody waits for what one of them does."""
    for _ in range(3):
        sender.send()
    assert sender.wrote() == []
    sender.rollback()
    assert sender.wrote() == ["SEND SEND SEND ABORT"]


def test_a_send_waits_no_longer_than_a_moment(sender: Sender) -> None:
    """The session's thread writes it, so that a refusal is known before the commit of a slow transaction."""
    sender.send()
    sender.now += TOGETHER
    sender.turn()
    assert sender.wrote() == ["SEND"]


def test_who_sends_now_and_then_is_not_kept_waiting(sender: Sender) -> None:
    """The wait counts from the last write."""
    for _ in range(3):
        sender.now += TOGETHER
        sender.send()
        assert sender.wrote() == ["SEND"]


def test_large_bodies_do_not_wait(sender: Sender) -> None:
    """They would fill the memory, and the broker could have begun to read them."""
    half = "x" * (MOST_TOGETHER // 2)
    sender.send(half)
    assert sender.wrote() == []
    sender.send(half)
    assert sender.wrote() == ["SEND SEND"]


#: What is interrupted.
WRITING: Final = ("/jmsx/drivers/engine.py", "/jmsx/core/frames.py")

ACK: Final = re.compile(rb"ACK\nid:")


def interrupted_receive(interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """How many ACKs are written for a message whose `receive()` is; None if its link is dropped."""
    now = [BEGINNING]
    monkeypatch.setattr("jmsx.clock.SystemClock.monotonic", lambda _clock: now[0])
    one = OneThread(jmsx.AcknowledgeMode.AUTO_ACKNOWLEDGE, 1)
    engine, consumer, wrote = one.link.engine, one.consumer(), [b""]
    engine.changed.wait(0.0)  # it is here
    monkeypatch.setattr(engine._epoch, "_write", wrote.append)
    monkeypatch.setattr(
        engine._epoch.link, "written", lambda data: len(data) if wrote[-1] == data else 0
    )
    try:
        interrupt.run(lambda: consumer.receive(1))
    except Alarm:
        assert engine.state is LinkState.OUTAGE or consumer.receive(1) is not None
    now[0] += TOGETHER
    engine._listen(now[0])
    return None if engine.state is LinkState.OUTAGE else len(ACK.findall(b"".join(wrote)))


def test_a_write_that_is_interrupted_anywhere_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the link is dropped, where nobody knows what is left out."""
    whole = Interrupt(within=WRITING)
    assert interrupted_receive(whole, monkeypatch) == 1
    assert whole.steps > 30
    for step in some(range(1, whole.steps + 1)):
        told = interrupted_receive(Interrupt(step, within=WRITING), monkeypatch)
        assert told in (1, None), step


class Woken(SimpleQueue[Any]):
    """A session's queue that counts how often its thread is woken without anything that came."""

    times = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT002 - the base's
        """As SimpleQueue's."""
        Woken.times += item is None
        super().put(item, block, timeout)


def test_the_thread_of_a_listener_writes_the_ack_of_a_lone_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To wake the engine's for that would cost more than all else that is done with the message."""
    monkeypatch.setattr("tests.benchmarks.one_thread.queue.SimpleQueue", Woken)
    one, wrote = OneThread(jmsx.AcknowledgeMode.AUTO_ACKNOWLEDGE, 1), list[bytes]()
    Woken.times = 0

    def listen(_message: Any) -> None:
        monkeypatch.setattr(one.link.engine._epoch, "_write", wrote.append)

    one.listen(listen, 1)
    assert [ACK.match(data) is not None for data in wrote] == [True]
    assert Woken.times == 0
