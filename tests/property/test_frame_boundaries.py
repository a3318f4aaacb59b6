"""
Effectively once on Artemis: a relay dies, or loses its link, at every single frame that it writes.

Its outputs carry identities made from their input, so however often the input comes again, each output is there once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.requests import Request, answered
from jmsx.testing import FakeBroker
from jmsx_artemis import DIALECT
from tests.property.peer import Habit, Peer

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery
    from jmsx.core.session import SessionCore

HABIT = Habit(
    mode=AcknowledgeMode.SESSION_TRANSACTED,
    policy=RedeliveryPolicy(
        maximum_redeliveries=-1, initial_redelivery_delay=0.0, redelivery_delay=0.0
    ),
    prefetch=2,
    dead_letter="safe",
)
INPUTS = ("a", "b", "c")
OUTPUTS = tuple(f"{body}{part}" for body in INPUTS for part in "12")

#: Frames that a run without a fault writes, and some: later ones are never reached.
FRAMES = range(1, 28)


def send(frame: Frame, core: SessionCore, now: float) -> Request | None:
    """Send one more."""
    return core.send(frame, "key", "queue://out", now)


class BrokenError(Exception):
    """The process is killed, or its link is gone, just now."""


class Relay(Peer):
    """Sends on twice what it receives; breaks at one frame, before or after the broker has it."""

    at = 0  #: which frame, from 1
    applied = False  #: the broker has it, but its answer is lost
    written = 0
    committing: Request = answered("COMMIT", "none")  #: the last commit

    def transmit(self, frame: Frame) -> None:
        """Break at the frame that is said."""
        self.written += 1
        if self.written == self.at and not self.applied:
            raise BrokenError
        super().transmit(frame)
        if self.written == self.at:
            raise BrokenError

    def work(self) -> None:
        """Relay until nothing comes any more."""
        while (delivery := self._receive()) is not None:
            body = delivery.frame.body.decode()
            for part in "12":
                frame = Frame(
                    "SEND",
                    {**DIALECT.writing.send_headers("queue://out"), "persistent": "true"},
                    f"{body}{part}".encode(),
                )
                request: Request | None = self.call(partial(send, frame))
                self.ask(request)
            self.call(self._commit)
            while not self.committing.done:
                if self.dead:
                    self.connect(fresh=False)
                self.read()
            if self.dead:
                self.connect(fresh=False)

    def recover(self) -> None:
        """As an application does: wait for the end of the commit that it has called, and roll back what is not done."""
        while not self.committing.done:
            self.read()
        assert not (self.habit.commit_markers and self.committing.error)
        self.call(lambda core, now: core.rollback(now))

    def _commit(self, core: SessionCore, now: float) -> None:
        self.committing = core.commit(now)

    def _receive(self) -> Delivery | None:
        for _ in range(4):
            self.read()
            delivery: Delivery | None = self.call(
                lambda core, now: core.handing_out.deliver(["1"], now)
            )
            if delivery is not None:
                return delivery
            self.call(lambda core, now: core.want(["1"], now))
            self.run_timers()
        return None


def put(broker: FakeBroker) -> None:
    """The inputs, from somebody else."""
    link = broker.open_link(0.0)
    link.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), 0.0)
    for body in INPUTS:
        headers = {**DIALECT.writing.send_headers("queue://in"), "persistent": "true"}
        link.feed(Frame("SEND", headers, body.encode()), 0.0)


def relay(broker: FakeBroker, habit: Habit = HABIT, **fault: Any) -> Relay:
    """A new process."""
    made = Relay("relay", broker, habit, {"1": "in"}, now=lambda: 0.0, dialect=DIALECT)
    for name, value in fault.items():
        setattr(made, name, value)
    return made


def outputs(broker: FakeBroker) -> list[str]:
    """What lies in the queue of outputs."""
    return sorted(message.body.decode() for message in broker.queue("out").browse())


def test_a_run_without_a_fault() -> None:
    """So many frames are written; each is a place to break."""
    broker = FakeBroker("artemis")
    put(broker)
    one = relay(broker)
    one.connect()
    one.work()
    assert outputs(broker) == sorted(OUTPUTS)
    assert len(broker.queue("in")) == 0
    assert one.written < max(FRAMES)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("marked", [False, True], ids=["doubt", "markers"])
@pytest.mark.parametrize("killed", [False, True], ids=["link", "process"])
@pytest.mark.parametrize("at", FRAMES)
def test_broken_at_any_frame(at: int, *, killed: bool, applied: bool, marked: bool) -> None:
    """Nothing is lost, no output is there twice, and with commit markers no commit fails with its link."""
    broker, habit = FakeBroker("artemis"), replace(HABIT, commit_markers=marked)
    put(broker)
    one = relay(broker, habit, at=at, applied=applied)
    while True:
        try:
            if one.dead:
                fresh = not hasattr(one, "core")
                one.connect(fresh=fresh)
                if not fresh:
                    one.recover()
            one.work()
            break
        except BrokenError:
            if killed:
                broker.drop(one.link, 0.0)
                one = relay(broker, habit)
            else:
                one.lose()
    assert outputs(broker) == sorted(OUTPUTS)
    assert len(broker.queue("in")) == 0
