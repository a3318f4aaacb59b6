"""
What failed runs once more, alone: `pytest --again`.

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
    from collections.abc import Generator, Sequence

#: How many tests may fail the first time, and pass alone.
MOST_FLAKY: Final = 3
#: Seconds for all second runs together; what they do not suffice for counts as failed.
_BUDGET: Final = 480.0


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


class SecondChance:
    """A pytest plugin that runs again what a tally has as failed, and decides."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Behind pytest's own summary: try again, tell what holds in the end, and decide."""
        result = yield
        status = int(session.exitstatus)
        complete = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        suspects = self._tally.having("failed")
        flaky = _passing_alone(suspects) if complete else []
        failed = [*(name for name in suspects if name not in flaky), *self._tally.uncollected]

        print("\n== in the end")
        for name in flaky:
            print(f"FLAKY {name}")
        for name in failed:
            print(f"FAILED {name}")
        if len(flaky) > MOST_FLAKY:
            print(f"{len(flaky)} tests are flaky; more than {MOST_FLAKY} fail the run")
        if not complete:
            print(f"pytest ended early (exit code {status}): not every test has run")
        print(
            f"{len(self._tally.having('passed')) + len(flaky)} passed, {len(failed)} failed,"
            f" {len(self._tally.having('skipped'))} skipped",
            flush=True,
        )
        good = complete and not failed and len(flaky) <= MOST_FLAKY
        session.exitstatus = pytest.ExitCode.OK if good else status or pytest.ExitCode.TESTS_FAILED
        return result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--again`."""
    parser.addoption("--again", action="store_true", help="run what failed once more, alone")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that speaks, and not in its workers."""
    if config.getoption("again") and not hasattr(config, "workerinput"):
        tally = Tally()
        config.pluginmanager.register(tally)
        config.pluginmanager.register(SecondChance(tally))


def _passing_alone(names: Sequence[str]) -> list[str]:
    """Which of the tests pass in a process of their own, one after the other."""
    over, passing = time.monotonic() + _BUDGET, []
    for name in names:
        left = over - time.monotonic()
        if left <= 0:
            print(f"no time is left to run {name} again", flush=True)
            continue
        print(f"\n== again, alone: {name}", flush=True)
        command = [sys.executable, "-m", "tests.again", name]
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
    sys.exit(_run_alone(sys.argv[1]))
