"""
Sessions on a fake broker, with an application that does anything in any order and a network that dies at any time.

What must hold: nothing is lost, nothing is settled twice on a link, order is kept, no acknowledgement outlives its
link, a commit is what it is said to be, and everything is consumed in the end.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from jmsx.core.delivery import Held
from jmsx.core.delivery_state import TO_SETTLE, DeliveryState
from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import NO_FAILURE, Disposition, Failure, OptimizeAcknowledge
from jmsx.errors import TransactionInDoubtError
from jmsx.testing.profiles import ArtemisProfile
from jmsx_artemis import DIALECT as ARTEMIS_DIALECT
from tests.property.peer import Habit, Peer
from tests.property.world import AUTO, DUPS_OK, World, body, held
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.delivery import Delivery
    from jmsx.core.requests import Request
    from jmsx.core.session import SessionCore

CLIENT, INDIVIDUAL, TRANSACTED = (
    AcknowledgeMode.CLIENT_ACKNOWLEDGE,
    AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
    AcknowledgeMode.SESSION_TRANSACTED,
)

BROKEN = Failure("ValueError", "broken", "stack")
REJECTED = Failure("Reject", "never", "stack", Disposition.REJECT)
DISCARDED = Failure("Discard", "stale", "stack", Disposition.DISCARD)
LATER = Failure("Retry", "later", "stack", delay=0.25)
UNSEEN = Failure(disposition=Disposition.RELEASE)
ENDS = st.sampled_from([None, BROKEN, REJECTED, DISCARDED, LATER, UNSEEN])

POLICIES = st.builds(
    RedeliveryPolicy,
    maximum_redeliveries=st.sampled_from([-1, 0, 1, 3]),
    initial_redelivery_delay=st.sampled_from([0.0, 0.5]),
    redelivery_delay=st.sampled_from([0.0, 0.5]),
    pre_dispatch_check=st.booleans(),
)
HABITS = st.builds(
    Habit,
    mode=st.sampled_from(AcknowledgeMode),
    policy=POLICIES,
    prefetch=st.sampled_from([1, 2, 5, 100]),
    dead_letter=st.sampled_from(["safe", "queue://dead"]),
    non_blocking=st.booleans(),
    single=st.booleans(),
    optimize=st.one_of(st.none(), st.just(OptimizeAcknowledge(timeout=0.3))),
)
SCHEDULED = st.builds(
    Habit,
    mode=st.sampled_from(AcknowledgeMode),
    policy=st.builds(
        RedeliveryPolicy,
        maximum_redeliveries=st.sampled_from([0, 1, 3]),
        initial_redelivery_delay=st.just(0.5),
        redelivery_delay=st.just(0.5),
    ),
    prefetch=st.sampled_from([2, 5]),
    dead_letter=st.just("queue://dead"),
    single=st.booleans(),
    scheduled=st.just(value=True),
)
WHICH = st.integers(0, 1)
CONSUMER = st.sampled_from(["own", "shared"])

#: Where a signal handler raises.
WITHIN = ("/jmsx/core/",)

#: How often a driver tries to put back what an interrupted `receive()` had been given.
GIVE_BACK = 5


class Meanwhile(Enum):
    """What another thread does between the interruption of a `receive()` and what the driver does then."""

    CLOSE = "closes the consumer"
    LOSE = "loses the link"
    READ = "reads what has come"
    WAIT = "does what is due in a second"


def acknowledge(delivery: Delivery, core: SessionCore, now: float) -> None:
    """As the application does it."""
    core.acknowledge(delivery, now)


class SessionMachine(World):
    """Two sessions; each reads a queue of its own, and both read a third."""

    within: tuple[str, ...] = WITHIN

    # Making ----------------------------------------------------------------------------------------------------------

    @initialize(habits=st.tuples(HABITS, HABITS))
    def connect(self, habits: tuple[Habit, Habit]) -> None:
        """Both sessions are up and subscribed."""
        for number, habit in enumerate(habits):
            given = habit if habit.mode is AUTO else replace(habit, optimize=None)
            queues = {"own": f"q{number}", "shared": "shared"}
            peer = Peer(
                f"s{number}", self.broker, given, queues, lambda: self.time, dialect=self.dialect
            )
            peer.connect()
            self.peers.append(peer)

    # The outside world -----------------------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(["q0", "q1", "shared"]),
        persistent=st.booleans(),
        number=st.integers(1, 4),
    )
    def somebody_sends(self, queue: str, number: int, *, persistent: bool) -> None:
        """Messages come into a queue."""
        for _ in range(number):
            text = f"m{next(self.numbers)}"
            headers = self.dialect.writing.send_headers(f"queue://{queue}")
            headers["persistent"] = str(persistent).lower()
            self.producer.feed(Frame("SEND", headers, text.encode()), self.time)
            self.sent[text] = queue

    @rule(which=WHICH)
    def frames_arrive(self, which: int) -> None:
        """The network brings what the broker wrote."""
        if not self.peers[which].dead:
            self.peers[which].read()
        self.notice(which)

    @rule(seconds=st.sampled_from([0.001, 0.005, 0.1, 0.5, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        """With every timer on the way."""
        self.pass_to(self.time + seconds)

    @rule()
    def next_timer(self) -> None:
        """Just until something is due."""
        timers = [peer.core.next_timer() for peer in self.peers if not peer.dead]
        due = min((at for at in timers if at is not None), default=None)
        if due is not None:
            self.pass_to(max(self.time, due))

    @rule(which=WHICH, unread=st.booleans())
    def link_dies(self, which: int, *, unread: bool) -> None:
        """With or without what was still on its way."""
        peer = self.peers[which]
        if not unread and not peer.dead:
            peer.read()
        peer.lose()
        self.notice(which)

    @rule(
        which=WHICH,
        command=st.sampled_from(["ACK", "NACK", "SEND", "COMMIT", "ABORT", "BEGIN"]),
        applied=st.booleans(),
    )
    def link_will_die(self, which: int, command: str, *, applied: bool) -> None:
        """At the next such command, before or after the broker has done it."""
        if not len(self.broker.faults):
            self.broker.cut_next(command, applied=applied, link=self.peers[which].link)

    @rule(which=WHICH, command=st.sampled_from(["SEND", "COMMIT"]))
    def broker_will_refuse(self, which: int, command: str) -> None:
        """The next SEND or COMMIT."""
        if not len(self.broker.faults):
            self.broker.refuse_next(command, link=self.peers[which].link)

    @rule(which=WHICH, fresh=st.booleans())
    def session_comes_back(self, which: int, *, fresh: bool) -> None:
        """On a new link, in the old session or a new one."""
        self.come_back(which, fresh=fresh)

    # The application -------------------------------------------------------------------------------------------------

    @rule(which=WHICH, name=CONSUMER, number=st.integers(1, 3))
    def receive(self, which: int, name: str, number: int) -> None:
        """`receive()`: in AUTO the message is acknowledged when it returns."""
        for _ in range(number):
            if not self.free(which):
                return
            self.peers[which].read()
            if self.free(which) and (delivery := self.hand_out(which, (name,))) is not None:
                self.consume(which, delivery, returning=True)

    @rule(which=WHICH)
    def listener_begins(self, which: int) -> None:
        """One listener thread serves both consumers."""
        if not self.free(which):
            return
        self.peers[which].read()
        if not self.free(which):
            return
        delivery = self.hand_out(which, ("own", "shared"))
        if delivery is not None:
            self.busy[which] = delivery

    @rule(which=WHICH, failure=st.sampled_from([None, None, BROKEN, REJECTED, DISCARDED, LATER]))
    def listener_ends(self, which: int, failure: Failure | None) -> None:
        """It returns or raises; also after its link has died."""
        delivery = self.busy.pop(which, None)
        if delivery is None:
            return
        if failure is None:
            self.consume(which, delivery, returning=False)
            return
        peer = self.peers[which]
        if peer.habit.mode in (AUTO, DUPS_OK, INDIVIDUAL) and self.holds(which, delivery):
            all_of_it = failure.disposition is Disposition.REDELIVER
            failed = peer.delivered(delivery.arrival.subscription_id) if all_of_it else [delivery]
            self.fail(
                which, failed, failure, lambda: peer.core.failed(delivery, failure, self.time)
            )
        elif not peer.dead:
            peer.call(lambda core, now: core.failed(delivery, failure, now))

    @rule(which=WHICH, data=st.data())
    def acknowledge(self, which: int, data: st.DataObject) -> None:
        """`message.acknowledge()` on any message that the application has, or had, in its hands."""
        if self.got[which] and not self.peers[which].dead:
            self.acknowledge_one(which, data.draw(st.sampled_from(self.got[which])))

    def acknowledge_one(self, which: int, delivery: Delivery) -> None:
        """On that one, which may wait, or be done with, or have come on a lost link."""
        peer = self.peers[which]
        if peer.habit.mode is CLIENT and delivery.arrival.epoch == peer.core.epoch:
            self.may_go |= {body(one) for one in held(peer)}
        elif peer.habit.mode is INDIVIDUAL and delivery.arrival.epoch == peer.core.epoch:
            self.may_go |= {body(delivery)} if delivery.state in TO_SETTLE else set()
        peer.call(lambda core, now: core.acknowledge(delivery, now))

    @rule(which=WHICH, ends=st.lists(ENDS, min_size=2, max_size=4))
    def batch(self, which: int, ends: list[Failure | None]) -> None:
        """A handler of batches tells how each of its messages went; in a transaction none is done."""
        peer = self.peers[which]
        if not self.free(which) or peer.habit.mode not in (INDIVIDUAL, TRANSACTED):
            return
        self.somebody_sends(f"q{which}", len(ends), persistent=True)
        self.receive(which, "own", len(ends))
        mine = [one for one in peer.delivered("own") if one.state is not DeliveryState.COPIED]
        if peer.habit.transacted:
            ends = [UNSEEN if end is None else end for end in ends]
        outcomes = list(zip(mine, ends, strict=False))
        if not outcomes:
            return
        self.may_go |= {body(one) for one, end in outcomes if end in (None, DISCARDED)}
        failed = [one for one, end in outcomes if end not in (None, DISCARDED)]
        self.fail(which, failed, NO_FAILURE, lambda: peer.core.settle(outcomes, self.time))
        self.uncommitted[which] = []

    @rule(which=WHICH)
    def recover(self, which: int) -> None:
        """Also from within a listener."""
        peer = self.peers[which]
        if peer.dead or peer.habit.transacted:
            return
        mine = held(peer)
        self.fail(which, mine, NO_FAILURE, lambda: peer.core.recover(self.time))

    @rule(which=WHICH, failure=st.sampled_from([NO_FAILURE, BROKEN, REJECTED, DISCARDED, LATER]))
    def rollback(self, which: int, failure: Failure) -> None:
        """With or without a cause, also from within a listener."""
        peer = self.peers[which]
        if peer.dead or not peer.habit.transacted:
            return
        mine = held(peer)
        self.fail(which, mine, failure, lambda: peer.core.rollback(self.time, failure))
        self.uncommitted[which] = []

    @rule(which=WHICH)
    def send(self, which: int) -> None:
        """The session sends a message; in a transaction nothing is known of it yet."""
        peer = self.peers[which]
        if peer.dead:
            return
        text = f"o{next(self.numbers)}"
        headers = {**self.dialect.writing.send_headers("queue://out"), "persistent": "true"}
        frame = Frame("SEND", headers, text.encode())
        if not peer.habit.transacted:
            request = peer.ask(
                peer.call(lambda core, now: core.send(frame, text, "queue://out", now))
            )
            assert request is not None
            if request.error is None:
                assert text in self.bodies("out")
        elif peer.core._work.refusal() is None:
            peer.call(lambda core, now: core.send(frame, text, "queue://out", now))
            self.uncommitted[which].append(text)
        self.notice(which)

    @rule(which=WHICH)
    def commit(self, which: int) -> None:
        """What it says is so: all of it is in the broker, or nothing, or nobody knows."""
        peer = self.peers[which]
        if peer.dead or not peer.habit.transacted:
            return
        mine = held(peer)
        texts, before = self.uncommitted[which], self.may_go
        self.uncommitted[which] = []
        self.may_go = before | {body(one) for one in mine}
        self.commit_ends(which, peer.call(lambda core, now: core.commit(now)), mine, texts, before)

    def commit_ends(
        self,
        which: int,
        request: Request,
        mine: list[Delivery],
        texts: list[str],
        before: set[str],
    ) -> None:
        """Wait for the answer; `before`: what might go when it was asked for."""
        peer = self.peers[which]
        # Artemis: it is repeated on the next link, if its inputs come again
        while not request.done:
            if peer.dead:
                peer.connect(fresh=False)
            else:
                peer.read()
            if not request.done:
                self.pass_to(self.time + 0.5)
        out = set(self.bodies("out"))
        stored = {text for queue in ("q0", "q1", "shared") for text in self.bodies(queue)}
        if request.error is None:
            assert set(texts) <= out
            if self.dialect.transactional_ack:
                assert not stored & {body(one) for one in mine}
        elif isinstance(request.error, TransactionInDoubtError):
            assert set(texts) <= out or not set(texts) & out
        else:
            assert not set(texts) & out
            self.may_go = before
            self.dying |= {body(one) for one in mine} - self.alive(which)
        self.notice(which)

    @rule(which=WHICH, name=CONSUMER)
    def close_and_open_again(self, which: int, name: str) -> None:
        """A consumer goes and comes; in a transaction with messages it stays until that ends."""
        peer = self.peers[which]
        if not self.free(which) or (peer.habit.transacted and peer.delivered(name)):
            return
        self.close(which, name)
        if not peer.dead:
            peer.subscribe(name)
        self.notice(which)

    def close(self, which: int, name: str) -> None:
        """A consumer goes; what it would have handed out once more nobody gets."""
        peer = self.peers[which]
        self.may_go |= self.kept(which, name)
        self.got[which] = [one for one in self.got[which] if one.arrival.subscription_id != name]
        peer.ask(peer.call(lambda core, now: core.close_consumer(name, now)))

    def next_is_not_understood(self, which: int, *, refuse: bool = False) -> bool:
        """The next message of its own queue cannot be decoded; False if there is none."""
        peer = self.peers[which]
        delivery = self.hand_out(which, ("own",)) if self.free(which) else None
        if delivery is None:
            return False
        if refuse:
            self.broker_will_refuse(which, "SEND")
        odd = ValueError("odd")
        self.fail(
            which, [delivery], BROKEN, lambda: peer.core.undecodable(delivery, odd, self.time)
        )
        return True

    # Signals ---------------------------------------------------------------------------------------------------------

    @rule(
        which=WHICH,
        step=st.integers(1, 300),
        further=st.one_of(st.none(), st.integers(1, 40)),
        meanwhile=st.one_of(st.none(), st.sampled_from(Meanwhile)),
    )
    def receive_is_interrupted(
        self,
        which: int,
        step: int,
        further: int | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """
        A signal handler raises at a step of `receive()`, and again `further` on, where the message is put back.

        Nobody has got the message: it is handed out once more, or the broker delivers it again.
        """
        peer = self.peers[which]
        if self.free(which):
            self.somebody_sends(f"q{which}", 1, persistent=True)
            peer.read()
        if not self.free(which):
            return
        taken, returned = Held(), Held()
        interrupt = Interrupt(
            step, *([] if further is None else [step + further]), within=self.within
        )

        def receive(core: SessionCore, now: float) -> None:
            delivery = core.handing_out.deliver(("own",), now, taken)
            if delivery is not None:
                core.consumed(delivery, now, returning=True)
                returned.delivery = delivery

        try:
            self.run(which, interrupt, receive)
        except Alarm:
            self.alarms += 1
            if meanwhile is not None:
                self.another_thread(which, meanwhile)
            if meanwhile is Meanwhile.CLOSE and taken.delivery is not None:
                self.may_go.add(body(taken.delivery))  # it was acknowledged with the rest
            self.put_back(which, taken, interrupt)
            if not peer.dead and not peer.core.is_open("own"):
                peer.subscribe("own")
        else:
            self.returned(which, returned.delivery)
        self.notice(which)

    def returned(self, which: int, delivery: Delivery | None) -> None:
        """A `receive()` has returned a message for all that, and acknowledged it in AUTO."""
        if delivery is not None:
            self.got[which].append(delivery)
            done = delivery.is_acknowledged or self.peers[which].habit.mode in (AUTO, DUPS_OK)
            (self.may_go.add if done else self.may_go.discard)(body(delivery))

    def another_thread(self, which: int, what: Meanwhile) -> None:
        """It has the session's lock before the driver has put anything right."""
        peer = self.peers[which]
        match what:
            case Meanwhile.CLOSE:
                if not peer.habit.transacted:  # there it would wait for the end of the transaction
                    self.close(which, "own")
            case Meanwhile.LOSE:
                peer.lose()
            case Meanwhile.READ:
                peer.read()
            case Meanwhile.WAIT:
                self.pass_to(self.time + 1.0)

    def put_back(self, which: int, taken: Held, interrupt: Interrupt) -> None:
        """As a driver does; with its link what cannot be put back comes again."""
        peer = self.peers[which]
        for _ in range(GIVE_BACK):
            try:
                known = peer.call(lambda core, _now: interrupt.run(partial(core.take_back, taken)))
            except Alarm:
                continue
            if not known:
                break
            peer.midway = False
            peer.write()
            return
        peer.midway = False
        peer.lose()

    @rule(which=WHICH, step=st.integers(1, 250))
    def acknowledge_is_interrupted(self, which: int, step: int) -> None:
        """A signal handler raises there, and the driver drops the link."""
        peer = self.peers[which]
        mine = held(peer)
        if not mine or peer.habit.mode not in (CLIENT, INDIVIDUAL):
            return
        self.may_go |= {body(one) for one in (mine if peer.habit.mode is CLIENT else mine[:1])}
        self.interrupt(which, step, partial(acknowledge, mine[0]))

    @rule(
        which=WHICH,
        step=st.integers(1, 250),
        failure=st.sampled_from([NO_FAILURE, BROKEN, REJECTED]),
    )
    def giving_back_is_interrupted(self, which: int, step: int, failure: Failure) -> None:
        """The same at `recover()`, or `rollback()`."""
        peer = self.peers[which]
        if peer.dead:
            return
        transacted = peer.habit.transacted

        def act(core: SessionCore, now: float) -> None:
            if transacted:
                core.rollback(now, failure)
            else:
                core.recover(now, failure)

        self.fail(which, held(peer), failure, lambda: self.interrupt(which, step, act))
        if transacted:
            self.uncommitted[which] = []

    @rule(which=WHICH, step=st.integers(1, 250))
    def commit_is_interrupted(self, which: int, step: int) -> None:
        """The same at `commit()`: what became of it the next call tells."""
        peer = self.peers[which]
        if peer.dead or not peer.habit.transacted:
            return
        mine, texts, before = held(peer), self.uncommitted[which], self.may_go
        told = peer.core.last_commit
        self.may_go = before | {body(one) for one in mine}
        self.interrupt(which, step, lambda core, now: core.commit(now))
        request = peer.core.last_commit
        self.uncommitted[which] = []
        if request is None or request is told or not (request.done or peer.core.committing):
            assert not set(texts) & set(self.bodies("out"))
            self.may_go = before
        else:
            self.commit_ends(which, request, mine, texts, before)

    def interrupt(self, which: int, step: int, act: Callable[[SessionCore, float], object]) -> None:
        """Raise at a step of a call, after which all begins anew on another link."""
        try:
            self.run(which, Interrupt(step, within=self.within), act)
        except Alarm:
            self.peers[which].midway = False
            self.peers[which].lose()
        self.notice(which)

    def run(
        self, which: int, interrupt: Interrupt, act: Callable[[SessionCore, float], object]
    ) -> None:
        """Run a call; raises Alarm where it is interrupted: nothing is checked until that is put right."""
        peer = self.peers[which]
        peer.midway = True
        peer.call(lambda core, now: interrupt.run(partial(act, core, now)))
        peer.midway = False

    # The end ----------------------------------------------------------------------------------------------------

    def everything_is_consumed_in_the_end(self) -> None:
        """With an application that wants all and a network that works, nothing stays behind."""
        self.broker.faults.clear()
        for _ in range(200):
            for which, peer in enumerate(self.peers):
                self.come_back(which, fresh=False)
                self.listener_ends(which, None)
                peer.read()
                for name in peer.queues:
                    while not peer.dead and (delivery := self.hand_out(which, (name,))) is not None:
                        self.consume(which, delivery, returning=True)
            stored = self.left()
            if not stored:
                return
            if stored <= {body(one) for peer in self.peers for one in held(peer)}:
                self.settle_all(0)
                self.settle_all(1)
            self.pass_to(self.time + 0.05)
        raise AssertionError(f"left behind: {self.left()}")

    def settle_all(self, which: int) -> None:
        """Commit or acknowledge."""
        peer = self.peers[which]
        mine = held(peer)
        if peer.habit.transacted:
            self.commit(which)
        elif peer.habit.mode is CLIENT and mine:
            self.may_go |= {body(one) for one in mine}
            peer.call(lambda core, now: core.acknowledge(mine[0], now))
        elif peer.habit.mode is INDIVIDUAL:
            for delivery in mine:
                self.may_go.add(body(delivery))
                peer.call(partial(acknowledge, delivery))

    def teardown(self) -> None:
        """Whatever happened, the end is the same."""
        if self.peers:
            self.everything_is_consumed_in_the_end()
            self.nothing_is_lost()
            self.the_broker_does_not_complain()


class ArtemisMachine(SessionMachine):
    """The same on Artemis: ACKs at once, windows of bytes, each ERROR the end of its connection."""

    profile = ArtemisProfile()
    dialect = ARTEMIS_DIALECT

    @initialize(habits=st.tuples(HABITS, HABITS), marked=st.booleans())
    def connect(self, habits: tuple[Habit, Habit], *, marked: bool = False) -> None:
        """Commits that lose their link are repeated, or are in doubt; the other session may get their inputs."""
        first, second = habits
        super().connect(
            (replace(first, commit_markers=marked), replace(second, commit_markers=marked))
        )


class ScheduledMachine(SessionMachine):
    """Sessions that send back what failed: on Classic in one transaction with its ACK."""

    @initialize(habits=st.tuples(SCHEDULED, SCHEDULED))
    def connect(self, habits: tuple[Habit, Habit]) -> None:
        """Every session does, and all other habits are as they are."""
        super().connect(habits)

    @rule(which=WHICH, refuse=st.booleans(), number=st.integers(0, 2))
    def one_is_not_understood(self, which: int, number: int, *, refuse: bool) -> None:
        """Behind `number` that are handed out; its copy may be refused, and then the work fails."""
        self.somebody_sends(f"q{which}", number + 2, persistent=True)
        self.receive(which, "own", number)
        if self.next_is_not_understood(which, refuse=refuse):
            self.rollback(which, BROKEN)
            self.receive(which, "own", 1)
