"""Random rounds: each draws its settings and what is done to it from its own seed, and can be played again alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from jmsx import AcknowledgeMode
from jmsx.errors import JmsxError
from tests.faults.account import End
from tests.faults.bench import await_consumers, dead_letters, keep_books, look, set_up
from tests.faults.books import disagreements, told_of
from tests.faults.findings import Finding, Record, find
from tests.faults.settings import Plan
from tests.faults.workload import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.faults.brokers import Stable
    from tests.faults.process import Consumer
    from tests.faults.scene import Scene

#: Messages a round, from to, and seconds between two.
_SIZE: Final = (60, 140)
_PACE: Final = 0.06

#: Things that are done to a round for each of its messages, from to, and seconds between two.
_HARMS: Final = (0.1, 0.16)
_REST: Final = (0.05, 0.9)

#: Bytes behind which a link is cut.
_REACH: Final = 8000

#: Words in frames at which a link is cut, and whether they go to the broker.
_WORDS: Final = (
    (b"COMMIT", True),
    (b"ACK", True),
    (b"SEND", True),
    (b"BEGIN", True),
    (b"SUBSCRIBE", True),
    (b"RECEIPT", False),
    (b"MESSAGE", False),
)

#: Characters of what is told of a finding in the line about it.
_WORDS_SHOWN: Final = 500

#: Seconds without progress after which no more is expected; commits in doubt are given up after 12.
_QUIET: Final = 20.0

#: Seconds that programs may take to start which were killed at last, on a machine that has much else to do.
_START: Final = 120.0

#: The kind of finding that a round is whose program failed, or that came to nothing.
_NO_END: Final = "no end"

#: Rounds after which a broker has enough dead letters of others.
_TURNS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a round went."""

    number: int
    seed: str
    broker: str
    plan: Plan
    seconds: float
    sent: int = 0
    calls: int = 0
    dead: int = 0
    done: Mapping[str, int] = field(default_factory=dict)  #: what was done to it, how often
    found: tuple[Finding, ...] = ()

    @property
    def violations(self) -> list[Finding]:
        """What nothing excuses."""
        return [each for each in self.found if not each.excuse]

    def lines(self) -> Iterator[str]:
        """One, and more if there is something to tell."""
        harms = " ".join(f"{name}={times}" for name, times in sorted(self.done.items()))
        yield (
            f"{'FAILED' if self.violations else 'kept  '} round {self.number} {self.broker} sent={self.sent}"
            f" calls={self.calls} dead={self.dead} {harms} {self.seconds:.1f} s"
        )
        for each in self.violations:
            yield f"  VIOLATION {each.kind}: {each.body} {each.words[:_WORDS_SHOWN]}"
        excused = Counter((each.kind, each.excuse) for each in self.found if each.excuse)
        for (kind, excuse), times in excused.items():
            yield f"  excused {kind} {times} times: {excuse}"
        if self.found:
            yield f"  seed {self.seed!r} plan {json.dumps(_otherwise(self.plan))}"


@dataclass(slots=True)
class Sum:
    """Of all rounds."""

    rounds: int = 0
    sent: int = 0
    kills: int = 0
    cuts: int = 0
    failed: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def add(self, played: Played) -> None:
        """One more."""
        self.rounds += 1
        self.sent += played.sent
        self.kills += played.done.get("kill", 0)
        self.cuts += sum(times for name, times in played.done.items() if name in _CUTTING)
        self.failed += bool(played.violations)
        self.found.update(
            f"{each.kind}{' (excused)' if each.excuse else ''}" for each in played.found
        )

    def line(self) -> str:
        """In words."""
        found = ", ".join(f"{kind} {times}" for kind, times in sorted(self.found.items()))
        return (
            f"{self.rounds} rounds, {self.sent} messages, {self.kills} kills, {self.cuts} cuts,"
            f" {self.failed} failed: {found or 'nothing found'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Random rounds on the brokers of `stable`, numbered from 0."""

    stable: Stable
    seed: int
    size: int | None = None  #: messages of each, and more; None: that is drawn, too
    fixed: Mapping[str, Any] = field(default_factory=dict)  #: fields of `Plan` that all have
    keep: Path | None = None  #: where the books of those go in which something was found

    def play_for(self, minutes: float) -> Iterator[Played]:
        """One after the other until that is over, one at least."""
        until = time.monotonic() + minutes * 60
        for number in itertools.count():
            if number % _TURNS == _TURNS - 1:
                self.stable.discard()
            yield self.play(number)
            if time.monotonic() > until:
                return

    def play(self, number: int) -> Played:
        """One of them; what has no end is found, too."""
        kind = self.stable.kind
        own = f"{self.seed} {kind} {number}"
        chance = Random(own)
        plan = draw(chance, kind, **self.fixed)
        drawn = chance.randint(*_SIZE)
        size = drawn if self.size is None else self.size
        began = time.monotonic()
        played = Played(number=number, seed=own, broker=kind, plan=plan, seconds=0.0)
        with ExitStack() as stack:
            scene = None
            try:
                scene = set_up(stack, self.stable, chance, plan, size=size, pace=_PACE)
                played = replace(played, **_outcome(scene, kind, _harm(scene, size)))
            except (BenchError, JmsxError) as error:
                found = Finding(_NO_END, "", f"{type(error).__name__}: {error}")
                played = replace(played, found=(found,))
            if self.keep is not None and scene is not None and played.found:
                _keep(scene, played, self.keep)
        if any(each.kind == _NO_END for each in played.found):
            self.stable.discard()
        return replace(played, seconds=time.monotonic() - began)


def draw(chance: Random, broker: str, **fixed: Any) -> Plan:
    """Settings by chance that make sense together, save those that are `fixed`."""
    mode = chance.choice([*AcknowledgeMode.__members__, "SESSION_TRANSACTED", "SESSION_TRANSACTED"])
    does = AcknowledgeMode[mode].does
    transacted = does.transacted
    batch = chance.choice((None, None, 1, 2, 10)) if does.in_batches is not None else None
    store = chance.choice(("", "", "memory", "sqlite", "database"))
    forwards = transacted and store != "database" and chance.random() < 0.7
    plan = Plan(
        mode=mode,
        asynchronous=chance.random() < 0.5,
        batch=batch,
        batch_timeout=chance.choice((0.05, 0.3)),
        named=chance.random() < 0.7,
        concurrency=chance.randint(1, 3),
        processes=chance.randint(1, 2),
        prefetch=chance.choice((1, 10, None)),
        optimized=does.may_optimize and batch is None and chance.random() < 0.3,
        maximum_redeliveries=chance.randint(0, 3),
        delay=chance.choice((0.0, 0.05, 0.3)),
        non_blocking=chance.random() < 0.5,
        scheduled=chance.random() < 0.25,
        markers=transacted and chance.random() < 0.5,
        store=store,
        ledger=chance.random() < 0.5,
        dead_letter=chance.choice(("safe", "broker", "dead")),
        forwards=forwards,
        dedupe_outputs=forwards and broker == "artemis" and batch is not None,
        groups=chance.choice((0, 0, 5)),
        work=chance.choice((0.0, 0.005, 0.03)),
        marks={
            "raise": chance.randint(2, 8),
            "once": chance.randint(2, 12),
            "twice": chance.randint(0, 6),
            "slow": chance.choice((0, 0, 1, 2)),
        },
    )
    plan = replace(plan, **fixed)
    if plan.prefetch is not None:  # a batch that is larger would never be full
        plan = replace(plan, prefetch=max(plan.prefetch, plan.batch or 1))
    return plan


def _harm(scene: Scene, size: int) -> Counter[str]:
    """Do by chance what hurts, then heal all, and wait until everything is done; what was done how often."""
    chance, done = scene.chance, Counter[str]()
    for _ in range(round(size * chance.uniform(*_HARMS))):
        name = chance.choices([*_HURTS], [weight for weight, _ in _HURTS.values()])[0]
        scene.proxy.sprung.clear()
        _HURTS[name][1](scene)
        time.sleep(chance.uniform(*_REST))
        if name not in _TRAPS or scene.proxy.sprung.is_set():
            done[name] += 1
    scene.proxy.disarm()
    scene.proxy.thaw()
    scene.producer.join(120)
    await_consumers(scene.broker, scene.consumers, _START)
    scene.settle(_QUIET, lambda: not _owed(scene))
    for consumer in scene.consumers:
        consumer.stop()
    return done


def _owed(scene: Scene) -> bool:
    """Whether some message that was sent is neither done nor a dead letter."""
    done = {
        line.split()[2]
        for line in scene.task.ends.read_text("utf-8").splitlines()
        if f" {End.OK} " in line
    }
    return bool(scene.producer.sent - done) and bool(
        scene.producer.sent - done - set(dead_letters(scene))
    )


def _outcome(scene: Scene, broker: str, done: Counter[str]) -> dict[str, Any]:
    """What is to be seen when all is over."""
    traces = look(scene, time.monotonic())
    broken = [*scene.broken, *disagreements(scene.task, traces, scene.producer.keys)]
    record = Record(
        broker=broker,
        plan=scene.task.plan,
        traces=replace(traces, broken=broken),
        booked=_booked(scene),
        started={pid: at for each in scene.consumers for pid, at in each.started.items()},
        killed={pid: at for each in scene.consumers for pid, at in each.killed.items()},
        sent_at=scene.producer.began,
        deaths=told_of("dlq", scene.task, scene.producer.keys),
        unanswered=told_of("dlq.failed", scene.task, scene.producer.keys, "before it answered"),
    )
    return {
        "sent": len(traces.sent),
        "calls": len(traces.deliveries),
        "dead": len(traces.dead),
        "done": done,
        "found": tuple(find(record)),
    }


def _booked(scene: Scene) -> list[str]:
    """What handlers wrote into their database."""
    if scene.task.plan.store != "database":
        return []
    with contextlib.closing(sqlite3.connect(scene.task.bookings, 30)) as database:
        return [body for (body,) in database.execute("SELECT body FROM bookings")]


def _keep(scene: Scene, played: Played, keep: Path) -> None:
    """Leave the evidence."""
    folder = keep / f"{played.seed.replace(' ', '-')}-{scene.task.queue}"
    keep_books(scene, folder, 0.0)
    lines = [*played.lines(), *map(str, played.found)]
    folder.joinpath("found").write_text("\n".join(lines) + "\n", "utf-8")
    folder.joinpath("sent").write_text("\n".join(sorted(scene.producer.sent)) + "\n", "utf-8")
    folder.joinpath("keys").write_text(json.dumps(scene.producer.keys, indent=0), "utf-8")


def _cut_after(scene: Scene) -> None:
    """At a byte, either way."""
    scene.proxy.cut_after(scene.chance.randint(1, _REACH), to_broker=scene.chance.random() < 0.5)


def _cut_at(scene: Scene) -> None:
    """Within, or on either side of, what carries a word."""
    word, to_broker = scene.chance.choice(_WORDS)
    passed = scene.chance.choice((0.0, scene.chance.random(), 1.0))
    scene.proxy.cut_at(word, to_broker=to_broker, passed=passed)


def _cut_behind(scene: Scene) -> None:
    """The broker has a frame, and its answer comes to nobody."""
    scene.proxy.cut_beside(scene.chance.choice(("COMMIT\n", "ACK\n", "SEND\n")), behind=True)


def _cut(scene: Scene) -> None:
    scene.proxy.cut()


def _hang_up(scene: Scene) -> None:
    scene.proxy.hang_up()


def _half_open(scene: Scene) -> None:
    scene.proxy.freeze()


def _delay(scene: Scene) -> None:
    with scene.proxy.held():
        time.sleep(scene.chance.uniform(0.05, 1.5))


def _shut(scene: Scene) -> None:
    with scene.proxy.closed():
        time.sleep(scene.chance.uniform(0.1, 1.0))


def _victim(scene: Scene) -> Consumer:
    return scene.chance.choice(scene.consumers)


def _kill(scene: Scene) -> None:
    """SIGKILL, and a new start."""
    victim = _victim(scene)
    victim.kill()
    time.sleep(scene.chance.uniform(0, 0.3))
    victim.restart()
    time.sleep(scene.chance.uniform(0.5, 2.0))  # it takes a while to begin


def _restart(scene: Scene) -> None:
    """SIGTERM, its end in good order, and a new start."""
    victim = _victim(scene)
    victim.stop(confirmed=False)
    victim.restart()
    time.sleep(scene.chance.uniform(0.5, 2.0))


#: What may be done to a round, with its weight.
_HURTS: Final[dict[str, tuple[int, Callable[[Scene], None]]]] = {
    "cut_after": (4, _cut_after),
    "cut_at": (4, _cut_at),
    "cut_behind": (5, _cut_behind),
    "cut": (1, _cut),
    "hang_up": (1, _hang_up),
    "half_open": (1, _half_open),
    "delay": (1, _delay),
    "shut": (1, _shut),
    "kill": (8, _kill),
    "restart": (2, _restart),
}

#: Those that wait for their moment, and those that cost links.
_TRAPS: Final = frozenset({"cut_after", "cut_at", "cut_behind"})
_CUTTING: Final = _TRAPS | {"cut", "hang_up", "half_open", "shut"}


def _otherwise(plan: Plan) -> dict[str, Any]:
    """The settings that are not as ever, as `--plan` takes them."""
    usual = asdict(Plan())
    return {name: value for name, value in asdict(plan).items() if value != usual[name]}
