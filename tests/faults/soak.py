"""A soak: load without end, faults at random, one consuming program that lives through them all and must not grow."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tests.faults import deeds
from tests.faults.account import Account, longest_silence
from tests.faults.bench import look, set_up
from tests.faults.books import disagreements
from tests.faults.promises import events_are_whole
from tests.faults.settings import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.faults.brokers import Stable
    from tests.faults.scene import Scene

#: What the program lives through; those that it does not are cases only.
_FAULTS: Final[dict[str, Callable[[Scene], None]]] = {
    "broker-killed": deeds.broker_killed,
    "broker-restarted": deeds.broker_restarted,
    "connection-cut": deeds.connection_cut,
    "half-open": deeds.half_open,
    "broker-paused": deeds.broker_paused,
    "clock-stepped": deeds.clock_stepped,
}

#: Seconds between two faults, from to; what is only on its way to its end has got there in the shorter time.
_REST: Final = (5.0, 10.0)

#: Deliveries that show that all goes on.
_SIGN: Final = 20

#: Seconds that recovery may take.
_RECOVERY: Final = 5.0


class Vitals(NamedTuple):
    """What the system says of a process."""

    moment: float  #: seconds, monotonic
    memory: int  #: bytes, resident
    threads: int
    files: int  #: descriptors

    @classmethod
    def of(cls, pid: int) -> Self:
        """How it is now."""
        folder = Path("/proc") / str(pid)
        lines = folder.joinpath("status").read_text("utf-8").splitlines()
        told = dict(line.split(":", 1) for line in lines)
        memory = int(told["VmRSS"].split()[0]) * 1024
        files = len(os.listdir(folder / "fd"))  # noqa: PTH208 - it is the count that matters
        return cls(time.monotonic(), memory, int(told["Threads"]), files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """How it went."""

    account: Account
    minutes: float
    faults: Counter[str]
    vitals: Sequence[Vitals] = field(repr=False)  #: between faults

    @property
    def warm(self) -> list[Vitals]:
        """Those after the first sixth of the time."""
        start = self.vitals[0].moment
        sixth = (self.vitals[-1].moment - start) / 6
        return [each for each in self.vitals if each.moment >= start + sixth]

    @property
    def unsteady(self) -> list[str]:
        """What grew, or shrank."""
        first, *later = self.warm
        found = [
            f"memory went from {first.memory >> 20} to {each.memory >> 20} MiB"
            for each in later
            if abs(each.memory - first.memory) > first.memory / 10
        ]
        for name in ("threads", "files"):
            counts = Counter(getattr(each, name) for each in self.vitals)
            if len(counts) > 1:
                found.append(f"{name} were not always the same: {dict(counts)} times")
        return found[:5]

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        return self.account.failed or bool(self.unsteady)

    def as_json(self) -> dict[str, Any]:
        """Plain values; memory in MiB."""
        memory = [each.memory / 2**20 for each in self.warm]
        return {
            **self.account.as_json(),
            "minutes": round(self.minutes, 1),
            "faults": dict(self.faults),
            "memory_mib": [round(size, 1) for size in (memory[0], min(memory), max(memory))],
            "threads": sorted({each.threads for each in self.vitals}),
            "files": sorted({each.files for each in self.vitals}),
            "unsteady": self.unsteady,
        }


def soak(stable: Stable, chance: Random, minutes: float) -> Soak:
    """Run for so long; raises BenchError when a fault has no end."""
    began = time.monotonic()
    windows: list[tuple[float, float]] = []  #: from the end of a fault to the beginning of the next
    vitals: list[Vitals] = []
    done: Counter[str] = Counter()
    with ExitStack() as stack:
        scene = set_up(stack, stable, chance, Plan(stepped=True), size=0)
        for name in itertools.chain.from_iterable(
            chance.sample(sorted(_FAULTS), len(_FAULTS)) for _ in itertools.count()
        ):
            time.sleep(chance.uniform(*_REST))
            vitals.append(Vitals.of(scene.consumer.pid))
            if windows and time.monotonic() > began + minutes * 60:  # one fault at least
                break
            _FAULTS[name](scene)
            done[name] += 1
            lifted = time.monotonic()
            scene.consumer.wait_count(len(scene.consumer.read()) + _SIGN, 60)
            scene.proxy.thaw()
            windows.append((lifted, time.monotonic()))
        scene.producer.join(120)
        scene.settle()
        scene.consumer.stop()
        traces = look(scene, windows[-1][0])
        broken = [
            *events_are_whole(scene, traces),
            *disagreements(scene.task, traces, scene.producer.keys),
        ]
        traces = replace(traces, broken=broken)
    moments = [delivery.moment for delivery in traces.deliveries]
    slowest = max(longest_silence(moments, *window) for window in windows)
    account = replace(Account("soak").add(traces), max_recovery_seconds=slowest)
    if slowest > _RECOVERY:
        account.broken.append(f"{slowest:.1f} s without a delivery")
    return Soak(account=account, minutes=minutes, faults=done, vitals=vitals)
