"""
Effectively once on Artemis: a relay dies, or loses its link, at every single frame that it writes.

Its outputs carry identities made from their input, so however often the input comes again, each output is there once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.requests import Request, answered
from jmsx.errors import TransactionInDoubtError
from jmsx.testing import FakeBroker
from jmsx_artemis import DIALECT
from tests.depth import some
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
FRAMES = range(1, 36)


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
    rivalled = False  #: somebody else reads the same queue
    clock: ClassVar = [0.0]  #: one for all, which only goes on
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
            self._send_on(delivery)
            self._commit_it()

    def _send_on(self, delivery: Delivery) -> None:
        body = delivery.frame.body.decode()
        for part in "12":
            frame = Frame(
                "SEND",
                {**DIALECT.writing.send_headers("queue://out"), "persistent": "true"},
                f"{body}{part}".encode(),
            )
            request: Request | None = self.call(partial(send, frame))
            self.ask(request)

    def _commit_it(self) -> None:
        while not self.call(self._commits):
            self._go_on()
        while not self.committing.done:
            self._go_on()
        self._judge()
        if self.dead:
            self.connect(fresh=False)

    def recover(self) -> None:
        """As an application does: wait for the end of the commit that it has called, and roll back what is not done."""
        while not self.committing.done:
            self._go_on()
        self._judge()
        self.call(lambda core, now: core.rollback(now))

    def take(self) -> None:
        """Have one input in an open transaction, with its outputs."""
        delivery = self._receive()
        if delivery is not None:
            self._send_on(delivery)

    def finish(self) -> None:
        """Commit what is taken, and relay all that comes then."""
        self._commit_it()
        self.work()

    def _judge(self) -> None:
        """With commit markers no commit fails with its link, but where somebody else has its input."""
        doubtful = isinstance(self.committing.error, TransactionInDoubtError)
        failed = self.committing.error is not None and not (self.rivalled and doubtful)
        assert not (self.habit.commit_markers and failed)

    def _go_on(self) -> None:
        """Time goes on while it waits, so that it waits for nothing that never comes."""
        if self.dead:
            self.connect(fresh=False)
        self.read()
        self.clock[0] += 0.1
        self.run_timers()

    def _commits(self, core: SessionCore, now: float) -> bool:
        """Commit, as soon as that may be done; whether it was."""
        if not core.may_commit():
            return False
        self.committing = core.commit(now)
        return True

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
    made = Relay("relay", broker, habit, {"1": "in"}, now=lambda: made.clock[0], dialect=DIALECT)
    for name, value in fault.items():
        setattr(made, name, value)
    return made


def outputs(broker: FakeBroker) -> list[str]:
    """What lies in the queue of outputs."""
    return sorted(message.body.decode() for message in broker.queue("out").browse())


@pytest.mark.parametrize("marked", [False, True], ids=["doubt", "markers"])
def test_a_run_without_a_fault(*, marked: bool) -> None:
    """So many frames are written; each is a place to break."""
    broker = FakeBroker("artemis")
    put(broker)
    one = relay(broker, replace(HABIT, commit_markers=marked))
    one.connect()
    one.work()
    assert outputs(broker) == sorted(OUTPUTS)
    assert len(broker.queue("in")) == 0
    assert one.written < max(FRAMES)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("marked", [False, True], ids=["doubt", "markers"])
@pytest.mark.parametrize("killed", [False, True], ids=["link", "process"])
@pytest.mark.parametrize("at", some(FRAMES))
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
                broker.drop(one.link, one.now())
                one = relay(broker, habit)
            else:
                one.lose()
    assert outputs(broker) == sorted(OUTPUTS)
    assert len(broker.queue("in")) == 0


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("marked", [False, True], ids=["doubt", "markers"])
@pytest.mark.parametrize("at", some(FRAMES))
def test_a_rival_has_the_input_meanwhile(at: int, *, applied: bool, marked: bool) -> None:
    """
    A link breaks at any frame, and what it held is sent on by another process in a transaction that is open then.

    The broker looks for duplicates at each SEND, and not at a COMMIT (BROKER.md A69): who sends again without holding
    the input doubles its outputs.
    """
    broker, habit = FakeBroker("artemis"), replace(HABIT, commit_markers=marked)
    put(broker)
    one = relay(broker, habit, at=at, applied=applied, rivalled=True)
    rival = relay(broker, habit, rivalled=True)
    rival.name = "rival"
    try:
        one.connect()
        one.work()
    except BrokenError:
        one.lose()
    rival.connect()
    rival.take()
    if hasattr(one, "core"):
        if one.dead:
            one.connect(fresh=False)
        one.recover()
    rival.finish()
    one.work()
    rival.work()
    assert outputs(broker) == sorted(OUTPUTS)
    assert len(broker.queue("in")) == 0
