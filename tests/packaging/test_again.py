"""What fails in a run of all tests gets a second chance alone, and the last line says what holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.broker_support import eventually

ROOT = Path(__file__).parents[2]

_HEAD = """
import os, pathlib, time, pytest

def once(name):
    mark = pathlib.Path(name + ".seen")
    seen = mark.exists()
    mark.touch()
    return not seen

@pytest.fixture
def broken():
    assert not once("fixture")

@pytest.fixture
def late():
    yield
    assert not once("late")

ended = []

@pytest.fixture
def ends():
    yield
    ended.append(True)

@pytest.fixture
def interrupted_setup():
    if once("setup"):
        raise KeyboardInterrupt

@pytest.fixture
def interrupted_teardown(ends):
    yield
    if once("teardown"):
        raise KeyboardInterrupt
"""
_SPREADING = """
from tests import interrupting, telling
from tests.spreading import Spreading

def pytest_configure(config):
    telling.briefly(config)
    interrupting.fail_alone(config)

def pytest_xdist_make_scheduler(config, log):
    return Spreading(config, log)
"""
FLAKY = "def test_flaky(): assert not once('flaky')\n"
FIXTURE = "def test_fixture(broken): pass\n"
LATE = "def test_late(late): pass\n"
DEAD = "def test_dead():\n    if once('dead'): os._exit(9)\n"
DEADLY = "def test_deadly(): os._exit(9)\n"
WRONG = "def test_wrong(): assert False\n"
LATER_SKIPPED = "def test_skipped():\n    assert not once('skip')\n    pytest.skip('no docker')\n"
GOOD = "def test_good(): pass\n"
INTERRUPTED = """
from tests import interrupting
interrupting.TOLD_SECONDS = 0.1  # nobody tells them that the run is over
def test_interrupted_before(interrupted_setup): pass
def test_interrupted():
    if once("call"):
        raise KeyboardInterrupt
def test_interrupted_behind(interrupted_teardown): pass
def test_what_else_is_behind_a_test_was_done():
    assert ended
"""
#: Tells that it has begun, and waits for Ctrl-C, which is to end what else there is.
WAITING = """
@pytest.mark.parametrize("number", range(3))
def test_waiting(number):
    pathlib.Path(f"{number}.seen").touch()
    time.sleep(100)
"""


def begin(folder: Path, *tests: str, workers: int = 2) -> subprocess.Popen[str]:
    """Run tests as CI does, with the plugins that have to do with it, in a group of processes of their own."""
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = -p xdist.plugin --numprocesses={workers}\n", encoding="utf-8"
    )
    (folder / "conftest.py").write_text(_SPREADING, encoding="utf-8")
    (folder / "test_it.py").write_text(_HEAD + "".join(tests), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.again", "--again"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(running: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Wait for its end; the exit code, and what is told then."""
    with running:
        try:
            told, _ = running.communicate(timeout=150)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    return running.returncode, told.partition("\n== in the end\n")[2].splitlines()


def run(folder: Path, *tests: str) -> tuple[int, list[str]]:
    """Run tests to their end."""
    return end(begin(folder, *tests))


def test_nothing_fails(tmp_path: Path) -> None:
    """Nothing runs twice."""
    assert run(tmp_path, GOOD) == (0, ["1 passed, 0 failed, 0 skipped"])


def test_up_to_three_that_pass_alone_are_told_by_name(tmp_path: Path) -> None:
    """A failure, one before or behind a test, and a worker that died all count."""
    code, told = run(tmp_path, FIXTURE, LATE, DEAD, GOOD)

    assert (code, told[-1]) == (0, "4 passed, 0 failed, 0 skipped")
    assert sorted(told[:-1]) == [
        f"FLAKY test_it.py::test_{name}" for name in ("dead", "fixture", "late")
    ]


def test_more_than_three_fail_the_run(tmp_path: Path) -> None:
    """All of them are named."""
    code, told = run(tmp_path, FIXTURE, LATE, DEAD, FLAKY, GOOD)

    assert code == 1
    assert told[-2:] == [
        "4 tests are flaky; more than 3 fail the run",
        "5 passed, 0 failed, 0 skipped",
    ]


@pytest.mark.parametrize(
    ("test", "name"),
    [(WRONG, "wrong"), (DEADLY, "deadly"), (LATER_SKIPPED, "skipped")],
)
def test_what_does_not_pass_alone_fails_the_run(tmp_path: Path, test: str, name: str) -> None:
    """It failed twice, killed two processes, or showed nothing the second time."""
    code, told = run(tmp_path, FLAKY, test, GOOD)

    assert code == 1
    assert told == [
        "FLAKY test_it.py::test_flaky",
        f"FAILED test_it.py::test_{name}",
        "2 passed, 1 failed, 0 skipped",
    ]


def test_a_file_that_does_not_import_fails_the_run(tmp_path: Path) -> None:
    """There is nothing to run again."""
    code, told = run(tmp_path, "import nowhere_at_all\n")

    assert code != 0
    assert told[-1] == "0 passed, 1 failed, 0 skipped"
    assert "FAILED test_it.py" in told


def test_an_interrupt_that_a_test_raises_fails_that_test_alone(tmp_path: Path) -> None:
    """Before, in and behind it; all others run, and what else was to be done behind it is."""
    code, told = run(tmp_path, INTERRUPTED, GOOD)

    assert (code, told[-1]) == (0, "5 passed, 0 failed, 0 skipped")
    assert sorted(told[:-1]) == [
        f"FLAKY test_it.py::test_interrupted{which}" for which in ("", "_before", "_behind")
    ]


def test_ctrl_c_ends_the_run(tmp_path: Path) -> None:
    """A terminal tells all processes: no other test begins, and nothing runs again."""
    running = begin(tmp_path, WAITING)
    began = eventually(lambda: list(tmp_path.glob("*.seen")) != [], 60)
    os.killpg(running.pid, signal.SIGINT)
    code, told = end(running)

    assert began
    assert (code, told[0]) == (2, "pytest ended early (exit code 2): not every test has run")
    assert [path.name for path in tmp_path.glob("*.seen")] == ["0.seen"]


def test_an_interrupt_without_workers_ends_the_run(tmp_path: Path) -> None:
    """There it is as likely to be of who sits before it."""
    code, told = end(begin(tmp_path, INTERRUPTED, GOOD, workers=0))

    assert (code, told) == (
        2,
        [
            "pytest ended early (exit code 2): not every test has run",
            "0 passed, 0 failed, 0 skipped",
        ],
    )
