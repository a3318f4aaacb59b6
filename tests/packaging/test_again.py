"""What fails in a run of all tests gets a second chance alone, and the last line says what holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_HEAD = """
import os, pathlib, pytest

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
"""
_SPREADING = """
from tests import telling
from tests.spreading import Spreading

def pytest_configure(config):
    telling.briefly(config)

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


def run(folder: Path, *tests: str) -> tuple[int, list[str]]:
    """Run tests as CI does, with the plugins that have to do with it; the exit code, and what is told in the end."""
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -p xdist.plugin --numprocesses=2\n", encoding="utf-8"
    )
    (folder / "conftest.py").write_text(_SPREADING, encoding="utf-8")
    (folder / "test_it.py").write_text(_HEAD + "".join(tests), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.again", "--again"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return done.returncode, done.stdout.partition("\n== in the end\n")[2].splitlines()


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
