"""
Run the tests, and what failed once more, alone: `python -m tests.again [arguments of pytest]`.

A test that passes the second time, with nothing beside it, is told by its name, as FLAKY. The exit code is 0 if every
test passed in the end and no more than three were flaky; the last line is what holds then.
"""

# ruff: noqa: T201 - printing is what this module is for

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many tests may fail the first time, and pass alone.
MOST_FLAKY: Final = 3
#: Seconds for all second runs together; what they do not suffice for counts as failed.
_BUDGET: Final = 480.0
_ALONE: Final = "--alone"


class Tally:
    """A pytest plugin that keeps each test's outcome; a failure anywhere, fixtures and dead workers too, is one."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}
        self.uncollected: list[str] = []  #: what could not even be read

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of one test."""
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self._outcomes.setdefault(report.nodeid, "skipped")
        elif report.when == "call":
            self._outcomes.setdefault(report.nodeid, "passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that does not import."""
        if report.failed and report.nodeid not in self.uncollected:
            self.uncollected.append(report.nodeid)

    def having(self, outcome: str) -> list[str]:
        """The tests with one outcome: passed, failed or skipped (an expected failure is a skip)."""
        return [name for name, found in self._outcomes.items() if found == outcome]


def main(arguments: Sequence[str]) -> int:
    """Run the tests that `arguments` name, or all; the exit code."""
    if arguments[:1] == [_ALONE]:
        return _run_alone(arguments[1])
    tally = Tally()
    status = pytest.main([*arguments], plugins=[tally])
    complete = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    suspects = tally.having("failed")
    flaky = _passing_alone(suspects) if complete else []
    failed = [*(name for name in suspects if name not in flaky), *tally.uncollected]

    print("\n== in the end")
    for name in flaky:
        print(f"FLAKY {name}")
    for name in failed:
        print(f"FAILED {name}")
    if len(flaky) > MOST_FLAKY:
        print(f"{len(flaky)} tests are flaky; more than {MOST_FLAKY} fail the run")
    if not complete:
        print(f"pytest ended early (exit code {int(status)}): not every test has run")
    print(
        f"{len(tally.having('passed')) + len(flaky)} passed, {len(failed)} failed,"
        f" {len(tally.having('skipped'))} skipped",
        flush=True,
    )
    return 0 if complete and not failed and len(flaky) <= MOST_FLAKY else int(status) or 1


def _passing_alone(names: Sequence[str]) -> list[str]:
    """Which of the tests pass in a process of their own, one after the other."""
    over, passing = time.monotonic() + _BUDGET, []
    for name in names:
        left = over - time.monotonic()
        if left <= 0:
            print(f"no time is left to run {name} again", flush=True)
            continue
        print(f"\n== again, alone: {name}", flush=True)
        command = [sys.executable, "-m", "tests.again", _ALONE, name]
        try:
            done = subprocess.run(command, check=False, timeout=left)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            passing.append(name)
    return passing


def _run_alone(name: str) -> int:
    """Run one test, here; 0 only if it ran and passed, for a test that is skipped shows nothing."""
    tally = Tally()
    status = pytest.main(["--numprocesses=0", name], plugins=[tally])
    return int(status) or int(tally.having("passed") != [name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
