"""
Effectively once on Artemis: a relay dies, or loses its link, at every single frame that it writes.

Its outputs carry identities made from their input, so however often the input comes again, each output is there once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.frames import Frame
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import AcknowledgeMode
from jmsx.testing import FakeBroker
from jmsx_artemis import DIALECT
from tests.property.peer import Habit, Peer

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery

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


class BrokenError(Exception):
    """The process is killed, or its link is gone, just now."""


class Relay(Peer):
    """Sends on twice what it receives; breaks at one frame, before or after the broker has it."""

    at = 0  #: which frame, from 1
    applied = False  #: the broker has it, but its answer is lost
    written = 0

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
                    {**DIALECT.send_headers("queue://out"), "persistent": "true"},
                    f"{body}{part}".encode(),
                )
                self.call(
                    lambda core, now, frame=frame: core.send(frame, "key", "queue://out", now)
                )
            request = self.call(lambda core, now: core.commit(now))
            while not request.done:
                if self.dead:
                    self.connect(fresh=False)
                self.read()
            if self.dead:
                self.connect(fresh=False)

    def _receive(self) -> Delivery | None:
        for _ in range(4):
            self.read()
            delivery: Delivery | None = self.call(lambda core, now: core.deliver(["1"], now))
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
        headers = {**DIALECT.send_headers("queue://in"), "persistent": "true"}
        link.feed(Frame("SEND", headers, body.encode()), 0.0)


def relay(broker: FakeBroker, **fault: Any) -> Relay:
    """A new process."""
    made = Relay("relay", broker, HABIT, {"1": "in"}, now=lambda: 0.0, dialect=DIALECT)
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
@pytest.mark.parametrize("killed", [False, True], ids=["link", "process"])
@pytest.mark.parametrize("at", FRAMES)
def test_broken_at_any_frame(at: int, *, killed: bool, applied: bool) -> None:
    """Nothing is lost, and no output is there twice."""
    broker = FakeBroker("artemis")
    put(broker)
    one = relay(broker, at=at, applied=applied)
    while True:
        try:
            if one.dead:
                fresh = not hasattr(one, "core")
                one.connect(fresh=fresh)
                if not fresh:  # as an application does that is told of it
                    one.call(lambda core, now: core.rollback(now))
            one.work()
            break
        except BrokenError:
            if killed:
                broker.drop(one.link, 0.0)
                one = relay(broker)
            else:
                one.lose()
    assert outputs(broker) == sorted(OUTPUTS)
    assert len(broker.queue("in")) == 0
