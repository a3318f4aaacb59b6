"""Programs run by both clients, and what was different."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.conformance import brokers
from tests.conformance.client import JmsxClient
from tests.conformance.generated.allowances import (
    messages,
    roomy,
    stomp_difference,
    trace_difference,
)
from tests.conformance.java import JavaClient
from tests.conformance.scenario import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.brokers import Broker
    from tests.conformance.scenario import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A program whose traces are not equal."""

    program: Json
    text: str  #: the first difference
    kind: str  #: what sort of difference that is
    java: list[Json]
    reduced: list[Json]  #: of the STOMP-like Java client
    jmsx: list[Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The judge on its broker, and jmsx on the one under test."""

    judge: Broker
    tested: Broker
    jobs: int = 12  #: programs at once and client

    def differences(self, programs: Sequence[Json]) -> list[Difference]:
        """Run `programs` on both clients; those whose traces differ, in the order given."""
        with ThreadPoolExecutor(1) as aside:
            judging = aside.submit(self._run, programs, judge=True)
            tested = self._run(programs, judge=False)
            judged = judging.result()
        unequal = [
            (program, java, jmsx)
            for program, java, jmsx in zip(programs, judged, tested, strict=True)
            if trace_difference(program["steps"], java, jmsx)
        ]
        reduced = self._run([one for one, *_ in unequal], judge=True, stomp_like=True)
        found = [
            difference
            for one, other in zip(unequal, reduced, strict=True)
            if (difference := _difference(*one, other))
        ]
        ample = self._run([roomy(one.program) for one in found], judge=True, stomp_like=True)
        return [
            one
            for one, other in zip(found, ample, strict=True)
            if _difference(one.program, one.java, one.jmsx, other)
        ]

    def steady(self, difference: Difference, times: int = 3) -> Difference | None:
        """
        The difference as it shows again with nothing else going on; None if it does not.

        A program that passes once, or on which the Java client disagrees with itself, differs by chance.
        """
        alone = Trial(judge=self.judge, tested=self.tested, jobs=1)
        for _ in range(times):
            again = alone.differences([difference.program])
            if not again or trace_difference(
                difference.program["steps"], difference.java, again[0].java
            ):
                return None
            difference = again[0]
        return difference

    def _run(
        self, programs: Sequence[Json], *, judge: bool, stomp_like: bool = False
    ) -> list[list[Json]]:
        """The traces of `programs`, in their order."""
        if not programs:
            return []
        client = (
            JavaClient(broker=self.judge, jobs=self.jobs, stomp_like=stomp_like)
            if judge
            else JmsxClient(broker=self.tested, jobs=self.jobs)
        )
        with TemporaryDirectory() as folder:
            paths = [_written(Path(folder), program) for program in programs]
            traces = client.run([load(path, strict=True) for path in paths])
            outcomes = {trace.scenario.path: trace.outcomes for trace in traces}
        return [outcomes[path] for path in paths]


@contextmanager
def running(kind: str, jobs: int = 12) -> Iterator[Trial]:
    """A trial of jmsx on a fresh broker of `kind`; the judge always runs on Classic."""
    with brokers.running("classic") as judge:
        if kind == "classic":
            yield Trial(judge=judge, tested=judge, jobs=jobs)
            return
        with brokers.running(kind) as tested:
            yield Trial(judge=judge, tested=tested, jobs=jobs)


def _written(folder: Path, program: Json) -> Path:
    path = folder / f"{program['id']}.json"
    path.write_text(json.dumps(program), encoding="utf-8")
    return path


def _difference(
    program: Json, java: list[Json], jmsx: list[Json], reduced: list[Json]
) -> Difference | None:
    """How `jmsx` differs from the STOMP-like trace `reduced`, or None."""
    steps = program["steps"]
    first = stomp_difference(steps, reduced, jmsx, java)
    if first is None:
        return None
    index, text = first
    return Difference(
        program=program,
        text=f"step {index} ({steps[index]['op']}): {text}",
        kind=_kind(steps[index]["op"], reduced[index], jmsx[index]),
        java=java,
        reduced=reduced,
        jmsx=jmsx,
    )


def _kind(op: str, expected: Json, actual: Json) -> str:
    """Name the sort of a difference, so that a smaller program that differs otherwise can be told."""
    if "error" in expected or "error" in actual:
        return f"{op}: {expected.get('error')}, {actual.get('error')}"
    bodies = [[message["body"] for message in messages(one)] for one in (expected, actual)]
    if len(bodies[0]) != len(bodies[1]):
        return f"{op}: {'fewer' if len(bodies[0]) > len(bodies[1]) else 'more'}"
    return f"{op}: {'order' if bodies[0] != bodies[1] else 'flags'}"
