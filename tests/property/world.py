"""
Two sessions on a fake broker and an application that knows what it is done with: what they share, and what must hold.

A message that was sent is in its queue, done with, or a dead letter, whatever is done in whatever order.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from hypothesis.stateful import RuleBasedStateMachine, invariant

from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import Disposition, Failure
from jmsx.testing import FakeBroker
from jmsx.testing.profiles import ClassicProfile, Profile
from jmsx_classic import DIALECT as CLASSIC_DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from tests.property.peer import Peer

AUTO, DUPS_OK = AcknowledgeMode.AUTO_ACKNOWLEDGE, AcknowledgeMode.DUPS_OK_ACKNOWLEDGE

DEAD_LETTER_QUEUES = ("ActiveMQ.DLQ", "jmsx.DLQ", "dead")


class World(RuleBasedStateMachine):
    """Two sessions; each reads a queue of its own, and both read a third."""

    profile: Profile = ClassicProfile(max_page_size=3)
    dialect: Dialect = CLASSIC_DIALECT

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.broker = FakeBroker(self.profile)
        self.producer = self.broker.open_link(0.0)
        self.producer.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), 0.0)
        self.peers: list[Peer] = []
        self.numbers = count(1)
        self.sent: dict[str, str] = {}  #: body -> queue
        self.may_go: set[str] = set()  #: bodies that the application is done with
        self.busy: dict[int, Delivery] = {}  #: session -> what its listener works on
        self.dying: set[str] = set()  #: bodies that are to become dead letters
        self.uncommitted: dict[int, list[str]] = {0: [], 1: []}  #: bodies sent in transactions
        self.alarms = 0  #: calls of `receive()` that were interrupted
        #: Session -> what it was handed, of consumers that are open: the application may keep a message that it
        #: has given back
        self.got: dict[int, list[Delivery]] = {0: [], 1: []}

    def hand_out(self, which: int, names: tuple[str, ...]) -> Delivery | None:
        """The next delivery, which must be the next in order; the application waits if there is none."""
        peer = self.peers[which]
        delivery: Delivery | None = peer.call(
            lambda core, now: core.handing_out.deliver(names, now)
        )
        if delivery is None:
            if not peer.dead:
                peer.call(lambda core, now: core.want(names, now))
            return None
        self.comes(which, delivery)
        return delivery

    def comes(self, which: int, delivery: Delivery) -> None:
        """The application gets a delivery; what is acknowledged comes once more where that was not its end."""
        peer, text = self.peers[which], body(delivery)
        self.got[which].append(delivery)
        if delivery.is_acknowledged:
            self.may_go.add(text)
            return
        assert delivery.message_id not in peer.settled, f"{text} comes after it was settled"
        self.may_go.discard(text)
        self.dying.discard(text)
        habit = peer.habit
        if delivery.arrival.subscription_id == "own" and not (
            habit.non_blocking or habit.scheduled
        ):
            self.check_order(which, text)

    def check_order(self, which: int, text: str) -> None:
        """Whatever is older is done, in the application's hands, or on its way to its dead letter queue."""
        mine = {body(one) for one in self.peers[which].delivered("own")}
        # what was over its limit when it came again died unseen
        mine |= {body(one) for one in self.peers[which].dying("own")}
        older = {other for other in self.bodies(f"q{which}") if int(other[1:]) < int(text[1:])}
        assert not older - mine - self.may_go - self.dying, f"{text} comes before {older}"

    def consume(self, which: int, delivery: Delivery, *, returning: bool) -> None:
        """The application is done with it; AUTO and DUPS_OK acknowledge."""
        peer = self.peers[which]
        if peer.habit.mode in (AUTO, DUPS_OK) and self.holds(which, delivery):
            self.may_go.add(body(delivery))
        if not peer.dead:
            peer.call(lambda core, now: core.consumed(delivery, now, returning=returning))
        self.notice(which)

    def fail(
        self, which: int, failed: list[Delivery], failure: Failure, act: Callable[[], None]
    ) -> None:
        """Do `act`, after which the failed deliveries are redelivered, dead or discarded."""
        bodies = {body(one) for one in failed}
        if failure.disposition is Disposition.DISCARD:
            self.may_go |= bodies
        self.peers[which].call(lambda _core, _now: act())
        if failure.disposition is not Disposition.DISCARD:
            self.dying |= bodies - self.alive(which)
        self.notice(which)

    def alive(self, which: int) -> set[str]:
        """Bodies that the session will deliver again."""
        consumers = self.peers[which].core._consumers
        return {
            body(one)
            for c in consumers
            for one in (*c.waiting, *c.schedule.pending(), *c.delivered)
        }

    def kept(self, which: int, *names: str) -> set[str]:
        """Bodies that the session acknowledged and will deliver all the same, of all consumers or these."""
        consumers = self.peers[which].core._consumers
        return {
            body(one)
            for c in consumers
            if not names or c.settings.subscription_id in names
            for one in (*c.waiting, *c.schedule.pending(), *c.delivered, *c.copies)
            if one.is_acknowledged
        }

    def holds(self, which: int, delivery: Delivery) -> bool:
        """Whether it is still in the application's hands."""
        return delivery in self.peers[which].delivered(delivery.arrival.subscription_id)

    def notice(self, which: int) -> None:
        """A dead link takes all transactions with it."""
        if self.peers[which].dead:
            self.uncommitted[which] = []

    def come_back(self, which: int, *, fresh: bool) -> None:
        """Connect again."""
        peer = self.peers[which]
        while peer.dead:
            self.busy.pop(which, None)
            self.uncommitted[which] = []
            if fresh:
                self.got[which] = []
                self.may_go |= self.kept(which)  # with its process
            peer.connect(fresh=fresh)

    def pass_to(self, moment: float) -> None:
        """Let time go on, timer by timer, and let frames arrive in between."""
        while True:
            timers = [peer.core.next_timer() for peer in self.peers if not peer.dead]
            due = min((at for at in timers if at is not None), default=moment)
            if due >= moment:
                break
            self.time = max(self.time, due)
            self.run_timers()
        self.time = moment
        self.broker.handle_timer(self.time)
        self.run_timers()

    def run_timers(self) -> None:
        """Do what is due in both sessions."""
        for which, peer in enumerate(self.peers):
            peer.run_timers()
            self.notice(which)

    def bodies(self, queue: str) -> list[str]:
        """What the broker has in a queue."""
        found = self.broker.queue(queue)
        return [one.body.decode() for one in (*found.waiting, *found.in_flight)]

    def free(self, which: int) -> bool:
        """Whether the session is up and its thread has nothing else to do."""
        return not self.peers[which].dead and which not in self.busy

    def left(self) -> set[str]:
        """What is in the queues that are read."""
        return {text for queue in ("q0", "q1", "shared") for text in self.bodies(queue)}

    # What must hold --------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        """Each message is in its queue, done with, or a dead letter."""
        dead = {text for queue in DEAD_LETTER_QUEUES for text in self.bodies(queue)}
        kept = {text for which in range(len(self.peers)) for text in self.kept(which)}
        stored = {queue: set(self.bodies(queue)) for queue in set(self.sent.values())}
        for text, queue in self.sent.items():
            elsewhere = text in self.may_go or text in dead or text in kept
            assert text in stored[queue] or elsewhere, f"{text} is lost"

    @invariant()
    def the_broker_does_not_complain(self) -> None:
        """No ERROR but those that were planned: no unknown ack id, transaction or subscription."""
        for peer in self.peers:
            assert peer.complaints == [], peer.complaints


def body(delivery: Delivery) -> str:
    """What identifies a message wherever it goes."""
    return delivery.frame.body.decode()


def held(peer: Peer) -> list[Delivery]:
    """All that the application holds of a session."""
    return [one for name in peer.queues for one in peer.delivered(name)]
