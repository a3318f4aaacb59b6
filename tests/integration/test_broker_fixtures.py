"""The pytest plugin as its users meet it: which brokers its fixtures give, and what is said where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

NOWHERE: Final = "unix:///nowhere/docker"

USERS_TEST: Final = """
def test_both(classic_broker, artemis_broker):
    print(type(classic_broker).__name__, classic_broker.url)
    print(type(artemis_broker).__name__, artemis_broker.url)
"""


def test_brokers_that_run_already(
    classic_broker: Broker, artemis_broker: Broker, tmp_path: Path
) -> None:
    """With a URL for each kind, nothing is started: containers or not, Docker or not."""
    urls = {"JMSX_BROKER_URL": classic_broker.url, "JMSX_ARTEMIS_URL": artemis_broker.url}
    code, said = run(tmp_path, "-s", "--jmsx-broker=container", **urls)
    assert code == 0
    assert f"ExternalBroker {classic_broker.url}" in said
    assert f"ExternalBroker {artemis_broker.url}" in said


@pytest.mark.parametrize("way", ["option", "environment", "ini"])
def test_one_option_asks_for_containers(way: str, tmp_path: Path) -> None:
    """On the command line, in the environment or in the ini file; without Docker it says what is missing."""
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\n{'jmsx_broker = container' if way == 'ini' else ''}\n", encoding="utf-8"
    )
    arguments = ["--jmsx-broker=container"] if way == "option" else []
    environment = {"JMSX_BROKER": "container"} if way == "environment" else {}
    code, said = run(tmp_path, *arguments, **environment)
    assert code == 1
    assert f"no Docker daemon answers at {NOWHERE}" in said


def test_other_words_are_refused(tmp_path: Path) -> None:
    """A misspelt environment does not silently mean a process."""
    code, said = run(tmp_path, JMSX_BROKER="containers")
    assert code != 0
    assert "jmsx_broker is 'containers'; it can be process or container" in said


@pytest.mark.parametrize(("ci", "expected"), [("", 0), ("true", 1)])
def test_containers_are_skipped_without_docker_but_not_in_ci(ci: str, expected: int) -> None:
    """The reason is told; in CI, which starts a daemon, a skip would hide a failure."""
    test = "tests/containers/test_lifecycle.py::test_image_that_is_nowhere_is_told_with_the_remedy"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "CI": ci, "DOCKER_HOST": NOWHERE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stdout
    assert f"no Docker daemon answers at {NOWHERE}" in done.stdout
    assert ("1 error" if ci else "1 skipped") in done.stdout


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run USERS_TEST in `folder`, where no Docker is; its exit code, and what it printed."""
    (folder / "test_users.py").write_text(USERS_TEST, encoding="utf-8")
    clean = {name: text for name, text in os.environ.items() if not name.startswith("JMSX_BROKER")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder)],
        cwd=folder,
        env={**clean, "DOCKER_HOST": NOWHERE, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
