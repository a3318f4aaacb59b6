"""What a session writes in one go, where nobody waits for what each frame does."""

from __future__ import annotations

from typing import Final

import pytest

import jmsx
from jmsx.drivers.engine import MOST_TOGETHER, TOGETHER
from tests.benchmarks.one_thread import OneThread

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
