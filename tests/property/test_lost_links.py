"""Random apps in virtual time whose links are cut at random: nothing is lost, doubled or buried for a link's sake."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import AcknowledgeMode, App, BatchError, Message, ReconnectPolicy, RedeliveryPolicy
from jmsx.testing import harness
from jmsx.testing.profiles import ArtemisProfile, ClassicProfile
from tests.depth import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx.testing.world import World

ROUNDS: Final = rounds(100)  #: of each broker
MESSAGES: Final = 12

POISON: Final = "poison"

#: Artemis as jmsx advises at its start: else the broker makes dead letters of what was on ten links that died.
PROFILES: Final[dict[str, ClassicProfile | ArtemisProfile]] = {
    "classic": ClassicProfile(),
    "artemis": ArtemisProfile(max_delivery_attempts=-1),
}

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
DUPS_OK = AcknowledgeMode.DUPS_OK_ACKNOWLEDGE
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a round is like."""

    mode: AcknowledgeMode
    limit: int  #: redeliveries
    batch: int | None
    concurrency: int
    prefetch: int | None
    forwards: bool
    harm: float  #: how likely a call loses all links
    counted: bool  #: by a ledger

    @classmethod
    def draw(cls, chance: Random) -> Plan:
        """A random one."""
        mode = chance.choice([AUTO, DUPS_OK, INDIVIDUAL, TRANSACTED])
        return cls(
            mode=mode,
            limit=chance.choice([0, 1, 2]),
            batch=None if mode is DUPS_OK else chance.choice([None, 3]),
            concurrency=chance.choice([1, 2, 3]),
            prefetch=chance.choice([3, 10, None]),
            forwards=mode is TRANSACTED,
            harm=chance.choice([0.05, 0.15, 0.3]),
            counted=chance.choice([False, True]),
        )


@dataclass(kw_only=True)
class Work:
    """What handlers do: some calls take their time, some lose their links, and what is poison fails each time."""

    app: App
    plan: Plan
    chance: Random
    world: World | None = None  #: whose links are cut; None: no more
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, message: Message) -> None:
        """Handle one message."""
        with self._lock:
            cuts = self.world is not None and self.chance.random() < self.plan.harm
            pause = self.chance.choice([0.0, 0.0, 0.05, 0.3, 1.0])
        if self.world is not None:
            if cuts:
                self.world.cut()
            if pause:
                self.world.event().wait(pause)
        with self._lock:
            (self.failed if message.text.endswith(POISON) else self.done)[message.text] += 1
        if message.text.endswith(POISON):
            raise ValueError(message.text)
        if self.plan.forwards:
            self.app.send("queue://out", message.text)

    def some(self, messages: list[Message]) -> None:
        """Handle a batch, and name those that fail."""
        failed = []
        for message in messages:
            try:
                self.one(message)
            except ValueError:
                failed.append(message)
        if failed:
            raise BatchError(failed)


def make_app(plan: Plan, chance: Random, path: Path) -> Work:
    """An application of that plan."""
    app = App(
        ledger=path / "ledger.db" if plan.counted else None,
        reconnect=ReconnectPolicy(initial_delay=0.01),
        redelivery_policy=RedeliveryPolicy(
            maximum_redeliveries=plan.limit, initial_redelivery_delay=0.05, redelivery_delay=0.05
        ),
    )
    work = Work(app=app, plan=plan, chance=chance)
    options: dict[str, Any] = {
        "name": "work",
        "mode": plan.mode,
        "concurrency": plan.concurrency,
        "prefetch": plan.prefetch,
        "dead_letter": "queue://dead",
    }
    if plan.batch is None:
        app.consumer("queue://in", **options)(work.one)
    else:
        app.consumer("queue://in", batch=plan.batch, batch_timeout=0.2, **options)(work.some)
    return work


@pytest.mark.parametrize("kind", PROFILES)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_only_what_fails_is_buried(kind: str, seed: int, tmp_path: Path) -> None:
    """What is fit is done, and is no dead letter; what is poison has all its attempts, and is one."""
    chance = Random(f"{kind} {seed}")
    plan = Plan.draw(chance)
    work = make_app(plan, chance, tmp_path)
    texts = [f"{number} {chance.choice(['fit', 'fit', POISON])}" for number in range(MESSAGES)]
    with harness(work.app, PROFILES[kind]) as mq:
        work.world = mq._world
        for text in texts:
            mq.send("queue://in", text)
        for _ in range(6):
            mq.advance(chance.choice([0.1, 0.3, 1.0, 3.0]))
            if chance.random() < plan.harm:
                mq.drop_connections()
        work.world = None
        mq.advance("10min")
        left = [message.text for message in mq.messages("queue://in")]
        dead = Counter(message.text for message in mq.messages("queue://dead"))
        out = Counter(message.text for message in mq.messages("queue://out"))
    assert not left, plan
    fit = {text for text in texts if not text.endswith(POISON)}
    assert dead.keys() == set(texts) - fit, plan
    assert work.done.keys() == fit, plan
    assert all(work.failed[text] >= (1 + plan.limit) for text in dead), plan
    if plan.forwards and plan.batch is None:
        assert out == Counter(fit), plan
