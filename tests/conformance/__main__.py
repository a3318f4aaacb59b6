"""The command line of the conformance suite; `--help` tells."""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.conformance import brokers, recording
from tests.conformance.artemis import STRANDED
from tests.conformance.compare import first_difference
from tests.conformance.java import JavaClient, JavaRunnerError
from tests.conformance.scenario import ScenarioError, find, load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tests.conformance.brokers import Broker
    from tests.conformance.scenario import Scenario
    from tests.conformance.traces import Trace


#: Kind of a scenario that goes by the clock, and failed.
TIMED: Final = "timed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and give the exit code: 0 passed, 1 something failed, 2 used wrongly."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (ScenarioError, JavaRunnerError) as error:
        print(error, file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    scenarios, malformed = _load(options.paths, strict=options.record)
    with brokers.running(options.broker) as broker:
        if options.record:
            return _record(scenarios, malformed, broker)
        run = _java if options.client == "java" else _jmsx
        if options.trace:
            return _print_traces(run(broker, options.jobs, scenarios), malformed)
        over_stomp = options.client == "jmsx"
        verdicts = _Judge(malformed, over_stomp=over_stomp)
        late = verdicts.judge(run(broker, options.jobs, scenarios), {TIMED, STRANDED})
        for again in ({STRANDED}, {STRANDED}, set[str]()):
            late = verdicts.judge(run(broker, 1, late), again) if late else []
        return verdicts.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Run conformance scenarios (tests/conformance/scenarios/FORMAT.md)."
        " One that goes by the clock and fails is run again, alone, before it is judged. What failed is shown"
        " whole on stderr, as a trace.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="file or folder")
    parser.add_argument("--client", choices=("java", "jmsx"), default="jmsx")
    parser.add_argument("--broker", choices=brokers.KINDS, default="classic")
    parser.add_argument("--trace", action="store_true", help="print outcomes, judge nothing")
    parser.add_argument("--jobs", type=int, default=8, help="scenarios at once (default 8)")
    parser.add_argument(
        "--record", action="store_true", help="write what the Java client does into the files"
    )
    return parser


def _load(paths: Iterable[Path], *, strict: bool) -> tuple[list[Scenario], list[str]]:
    """Read the scenarios; a malformed one is a failure of its own and keeps no other from running."""
    scenarios, malformed = [], []
    for path in find(paths):
        try:
            scenarios.append(load(path, strict=strict))
        except ScenarioError as error:
            malformed.append(f"FAIL {path.stem}: malformed: {error}")
    return scenarios, malformed


def _java(broker: Broker, jobs: int, scenarios: Sequence[Scenario]) -> Iterable[Trace]:
    return JavaClient(broker=broker, jobs=jobs).run(scenarios)


def _jmsx(broker: Broker, jobs: int, scenarios: Sequence[Scenario]) -> Iterable[Trace]:
    from tests.conformance.client import JmsxClient  # noqa: PLC0415 - the judge runs without jmsx

    logging.getLogger("jmsx").setLevel(logging.CRITICAL)  # failures are what scenarios are made of
    return JmsxClient(broker=broker, jobs=jobs).run(scenarios)


def _print_traces(traces: Iterable[Trace], malformed: Sequence[str]) -> int:
    for trace in traces:
        print(trace.line(), flush=True)
    for line in malformed:
        print(line, file=sys.stderr)
    return 1 if malformed else 0


class _Judge:
    """Judges traces, prints a line for each, and counts."""

    def __init__(self, malformed: Sequence[str], *, over_stomp: bool) -> None:
        self._over_stomp = over_stomp
        self._passed, self._failed, self._skipped = 0, len(malformed), 0
        for line in malformed:
            print(line)

    def judge(self, traces: Iterable[Trace], patient: Collection[str]) -> list[Scenario]:
        """
        Judge `traces`; give back, without a verdict, those of the kinds in `patient`, which tell nothing of the client.

        They are to be run again, alone. A TIMED one goes by the clock and failed: among others it may have been the
        machine that was late, once. STRANDED is one of which the broker kept a message for nobody, by its own counts:
        that is a matter of chance. What failed is shown whole.
        """
        late = []
        for trace in traces:
            scenario, why_not = trace.scenario, trace.impossible
            found = why_not or first_difference(
                scenario, trace.outcomes, over_stomp=self._over_stomp
            )
            if found is None:
                self._passed += 1
                print(f"PASS {scenario.id}", flush=True)
            elif (TIMED if why_not is None and scenario.is_timed() else why_not) in patient:
                print(f"again, alone: {scenario.id}: {found}\n{trace.line()}", file=sys.stderr)
                late.append(scenario)
            elif why_not is not None:
                self._skipped += 1
                print(f"NOT {scenario.id}: {found}", flush=True)
            else:
                self._failed += 1
                print(f"FAIL {scenario.id}: {found}", flush=True)
                print(trace.line(), file=sys.stderr)
        return late

    def close(self) -> int:
        """Print the sums; the exit code."""
        print(f"{self._passed} passed, {self._failed} failed, {self._skipped} skipped")
        return 1 if self._failed else 0


def _record(scenarios: Sequence[Scenario], malformed: Sequence[str], broker: Broker) -> int:
    def runs(java: JavaClient) -> Callable[[Sequence[Scenario]], list[Trace]]:
        return lambda some: list(java.run(some))

    java = JavaClient(broker=broker)
    refused = recording.record(scenarios, runs(java), runs(replace(java, stomp_like=True)))
    for line in [*malformed, *refused]:
        print(line)
    print(f"{len(scenarios) - len(refused)} recorded, {len(malformed) + len(refused)} refused")
    return 1 if malformed or refused else 0


if __name__ == "__main__":
    sys.exit(main())
