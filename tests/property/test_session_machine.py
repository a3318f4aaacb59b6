"""
Sessions on a fake broker, with an application that does anything in any order and a network that dies at any time.

What must hold: nothing is lost, nothing is settled twice on a link, order is kept, no acknowledgement outlives its
link, a commit is what it is said to be, and everything is consumed in the end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from jmsx.core.delivery_state import DeliveryState
from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import NO_FAILURE, Disposition, Failure, OptimizeAcknowledge
from jmsx.errors import TransactionInDoubtError
from jmsx.testing.profiles import ArtemisProfile
from jmsx_artemis import DIALECT as ARTEMIS_DIALECT
from tests.depth import rounds
from tests.property.peer import Habit, Peer
from tests.property.world import AUTO, DUPS_OK, World, body, held

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery
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


def acknowledge(delivery: Delivery, core: SessionCore, now: float) -> None:
    """As the application does it."""
    core.acknowledge(delivery, now)


class SessionMachine(World):
    """Two sessions; each reads a queue of its own, and both read a third."""

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
            failed = peer.delivered(delivery.subscription_id) if all_of_it else [delivery]
            self.fail(
                which, failed, failure, lambda: peer.core.failed(delivery, failure, self.time)
            )
        elif not peer.dead:
            peer.call(lambda core, now: core.failed(delivery, failure, now))

    @rule(which=WHICH, data=st.data())
    def acknowledge(self, which: int, data: st.DataObject) -> None:
        """`message.acknowledge()` on any message in the application's hands."""
        peer = self.peers[which]
        mine = held(peer)
        if not mine:
            return
        delivery = data.draw(st.sampled_from(mine))
        if peer.habit.mode is CLIENT:
            self.may_go |= {body(one) for one in mine}
        elif peer.habit.mode is INDIVIDUAL:
            self.may_go.add(body(delivery))
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
        request = peer.call(lambda core, now: core.commit(now))
        while (
            not request.done
        ):  # Artemis: it is repeated on the next link, if its inputs come again
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
        peer.ask(peer.call(lambda core, now: core.close_consumer(name, now)))
        if not peer.dead:
            peer.subscribe(name)
        self.notice(which)

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
        if not self.free(which):
            return
        peer = self.peers[which]
        delivery = self.hand_out(which, ("own",))
        if delivery is None:
            return
        if refuse:
            self.broker_will_refuse(which, "SEND")
        odd = ValueError("odd")
        self.fail(
            which, [delivery], BROKEN, lambda: peer.core.undecodable(delivery, odd, self.time)
        )
        self.rollback(which, BROKEN)
        self.receive(which, "own", 1)


def habit(mode: AcknowledgeMode, redeliveries: int, *, single: bool = False) -> Habit:
    """Whose failed messages come again at once."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=redeliveries, initial_redelivery_delay=0.0, redelivery_delay=0.0
    )
    return Habit(mode=mode, policy=policy, prefetch=5, dead_letter="safe", single=single)


def test_what_is_given_back_waits_behind_what_is_older() -> None:
    """A part of what is held is settled, and fails; `recover()` gives back the rest. An example that was found."""
    machine = SessionMachine()
    machine.connect(habits=(habit(INDIVIDUAL, -1), habit(TRANSACTED, -1)))
    machine.somebody_sends(queue="q0", number=1, persistent=False)
    machine.receive(which=0, name="own", number=1)
    machine.batch(which=0, ends=[None, BROKEN])
    machine.recover(which=0)
    machine.teardown()


def test_what_dies_unseen_is_passed() -> None:
    """It was over its limit when it came again, and its copy is not confirmed. An example that was found."""
    machine = ArtemisMachine()
    machine.connect(habits=(habit(TRANSACTED, 1, single=True),) * 2)
    machine.batch(which=1, ends=[BROKEN, None])
    machine.listener_begins(which=1)
    machine.link_dies(which=1, unread=False)
    machine.teardown()


def test_a_commit_of_sends_alone_settles_nothing_that_holds_a_window_open() -> None:
    """Classic settles the ACKs of every open transaction at the end of one of them. An example that was found."""
    machine = SessionMachine()
    waits = RedeliveryPolicy(maximum_redeliveries=-1, initial_redelivery_delay=0.5)
    given = Habit(mode=TRANSACTED, policy=waits, prefetch=1, dead_letter="safe", non_blocking=True)
    machine.connect(habits=(given, given))
    machine.batch(which=0, ends=[BROKEN, None])
    machine.next_timer()
    machine.send(which=0)
    machine.commit(which=0)
    machine.teardown()


def test_what_was_not_understood_comes_to_another_consumer() -> None:
    """It has its copy, and is known again. An example that was found."""
    machine = ScheduledMachine()
    later = replace(habit(CLIENT, 0), dead_letter="queue://dead", scheduled=True)
    machine.connect(habits=(later, later))
    machine.one_is_not_understood(which=0, number=1, refuse=False)
    machine.close_and_open_again(which=0, name="own")
    machine.teardown()


TestScheduled = ScheduledMachine.TestCase
TestScheduled.settings = settings(
    max_examples=rounds(150), stateful_step_count=40, derandomize=True, deadline=None
)

TestSessionsOnArtemis = ArtemisMachine.TestCase
TestSessionsOnArtemis.settings = settings(
    max_examples=rounds(100), stateful_step_count=40, derandomize=True, deadline=None
)

TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(
    max_examples=rounds(200),
    stateful_step_count=40,
    derandomize=True,  # the same programs in every run, and more of them in a whole one
    deadline=None,
)
