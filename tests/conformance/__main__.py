"""The command line of the conformance suite; `--help` tells."""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance import brokers, recording
from tests.conformance.compare import first_difference
from tests.conformance.java import JavaClient, JavaRunnerError
from tests.conformance.scenario import ScenarioError, find, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.conformance.brokers import Broker
    from tests.conformance.scenario import Scenario
    from tests.conformance.traces import Trace


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
        traces: Iterable[Trace]
        if options.client == "java":
            traces = JavaClient(broker=broker, jobs=options.jobs).run(scenarios)
        else:
            traces = _jmsx(broker, options.jobs, scenarios)
        if options.trace:
            return _print_traces(traces, malformed)
        return _print_verdicts(traces, malformed, over_stomp=options.client == "jmsx")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Run conformance scenarios (tests/conformance/scenarios/FORMAT.md).",
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


def _print_verdicts(traces: Iterable[Trace], malformed: Sequence[str], *, over_stomp: bool) -> int:
    passed, failed, skipped = 0, len(malformed), 0
    for line in malformed:
        print(line)
    for trace in traces:
        if trace.impossible is not None:
            skipped += 1
            print(f"NOT {trace.scenario.id}: {trace.impossible}", flush=True)
            continue
        found = first_difference(trace.scenario, trace.outcomes, over_stomp=over_stomp)
        failed, passed = (failed + 1, passed) if found else (failed, passed + 1)
        verdict = f"FAIL {trace.scenario.id}: {found}" if found else f"PASS {trace.scenario.id}"
        print(verdict, flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


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
