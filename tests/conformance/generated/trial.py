"""Programs run by both clients, and what was different."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from tests.conformance.generated.table import Table, subscribed_late, unpaused
from tests.conformance.java import JavaClient
from tests.conformance.scenario import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
    artemis: bool = False  #: whether `tested` is one, of which the table of guarantees says more

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
            if (difference := self._difference(*one, other))
        ]
        for changed in (_ample, self._by_the_table):
            found = self._unlike(found, changed)
        return found

    def _unlike(
        self, found: Sequence[Difference], changed: Callable[[Json], tuple[Json, list[int]]]
    ) -> list[Difference]:
        """Those of `found` that differ from the STOMP-like Java client on the `changed` program, too."""
        others = [changed(one.program) for one in found]
        traces = self._run([program for program, _ in others], judge=True, stomp_like=True)
        return [
            one
            for one, (_, order), trace in zip(found, others, traces, strict=True)
            if self._difference(
                one.program,
                one.java,
                one.jmsx,
                [trace[order.index(index)] for index in range(len(trace))],
            )
        ]

    def _by_the_table(self, program: Json) -> tuple[Json, list[int]]:
        """The program as the Java client would have to see it to do what the table of guarantees says."""
        changed = unpaused(roomy(program))
        return subscribed_late(changed) if self.artemis else _in_order(changed)

    def steady(self, difference: Difference, times: int = 3) -> Difference | None:
        """
        The difference as it shows again with nothing else going on; None if it does not.

        A program that passes once, or on which the Java client disagrees with itself, differs by chance.
        """
        alone = replace(self, jobs=1)
        for _ in range(times):
            again = alone.differences([difference.program])
            if not again or trace_difference(
                difference.program["steps"], difference.java, again[0].java
            ):
                return None
            difference = again[0]
        return difference

    def _difference(
        self, program: Json, java: list[Json], jmsx: list[Json], reduced: list[Json]
    ) -> Difference | None:
        """How `jmsx` differs from the STOMP-like trace `reduced`, and what the table makes of it; or None."""
        steps, table = program["steps"], Table(program, jmsx, artemis=self.artemis)
        expected = [(reduced, java), (table.amended(reduced), table.amended(java))]
        firsts = [stomp_difference(steps, one, jmsx, whole) for one, whole in expected]
        if None in firsts:
            return None
        index, text = firsts[0] or (0, "")
        return Difference(
            program=program,
            text=f"step {index} ({steps[index]['op']}): {text}",
            kind=_kind(steps[index]["op"], reduced[index], jmsx[index]),
            java=java,
            reduced=reduced,
            jmsx=jmsx,
        )

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
            yield Trial(judge=judge, tested=tested, jobs=jobs, artemis=True)


def _written(folder: Path, program: Json) -> Path:
    path = folder / f"{program['id']}.json"
    path.write_text(json.dumps(program), encoding="utf-8")
    return path


def _ample(program: Json) -> tuple[Json, list[int]]:
    return _in_order(roomy(program))


def _in_order(program: Json) -> tuple[Json, list[int]]:
    return program, list(range(len(program["steps"])))


def _kind(op: str, expected: Json, actual: Json) -> str:
    """Name the sort of a difference, so that a smaller program that differs otherwise can be told."""
    if "error" in expected or "error" in actual:
        return f"{op}: {expected.get('error')}, {actual.get('error')}"
    bodies = [[message["body"] for message in messages(one)] for one in (expected, actual)]
    if len(bodies[0]) != len(bodies[1]):
        return f"{op}: {'fewer' if len(bodies[0]) > len(bodies[1]) else 'more'}"
    return f"{op}: {'order' if bodies[0] != bodies[1] else 'flags'}"
