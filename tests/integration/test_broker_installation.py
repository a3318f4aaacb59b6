"""A machine that lacks something: each lack is one clear error, and a filled cache needs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jmsx.errors import ConfigurationError, ConnectionFailedError
from jmsx_broker.artefacts import cache_folder, is_complete, libraries
from jmsx_broker.java import find_java
from jmsx_broker.products import ARTEMIS, CLASSIC, Product
from tests.integration.broker_support import executable

#: A stand-in for Maven: it copies the jars of FILLED to the folder that it is told, as slowly as two need to meet.
COPYING = """
for argument; do case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac; done
/bin/sleep 0.3
/bin/cp -R "$FILLED" "$target"
"""


def test_java_that_is_asked_for_comes_first(tmp_path: Path) -> None:
    """JMSX_JAVA wins over JAVA_HOME, which wins over PATH."""
    (tmp_path / "home/bin").mkdir(parents=True)
    chosen = java(tmp_path / "chosen", "17.0.1")
    home = java(tmp_path / "home/bin/java", "21")
    path = java(tmp_path / "java", "25-ea")
    environment = {"PATH": str(tmp_path)}
    assert path == find_java(environment)
    environment["JAVA_HOME"] = str(tmp_path / "home")
    assert home == find_java(environment)
    environment["JMSX_JAVA"] = str(chosen)
    assert chosen == find_java(environment)


def test_old_java_is_passed_over(tmp_path: Path) -> None:
    """A too old JAVA_HOME is no reason to fail when PATH has a good one."""
    (tmp_path / "home/bin").mkdir(parents=True)
    java(tmp_path / "home/bin/java", "11.0.2")
    good = java(tmp_path / "java", "17")
    assert good == find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "home")})


def test_missing_java_is_told_with_the_remedy(tmp_path: Path) -> None:
    """No Java at all: what was looked at, and the command that installs one."""
    with pytest.raises(ConfigurationError, match=r"no java found.*Install it with: .*17"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.8.0_392", "is Java 8"), ("11.0.2", "is Java 11"), ("16", "is Java 16")],
)
def test_too_old_java_is_told_with_its_version(tmp_path: Path, version: str, expected: str) -> None:
    """A Java below 17 is named with its path, version and the command that installs another."""
    old = java(tmp_path / "java", version)
    with pytest.raises(ConfigurationError, match=f"{old} .*{expected}.*Install it with"):
        find_java({"PATH": str(tmp_path)})


def test_broken_java_is_told(tmp_path: Path) -> None:
    """A java that does not say its version does not work (macOS ships such a one)."""
    broken = executable(tmp_path / "java", "echo 'Unable to locate a Java Runtime.'; exit 1")
    with pytest.raises(ConfigurationError, match="is not a working Java"):
        find_java({"JMSX_JAVA": str(broken)})


def test_nothing_to_fetch_with_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Maven nor PySpark: the error says what to install."""
    monkeypatch.setenv("JMSX_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"Install Maven .*jmsx\[spark\]"):
        libraries(CLASSIC, find_java({"JMSX_JAVA": str(java(tmp_path / "java", "17"))}))


def test_failed_fetch_quotes_its_tools_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without network each tool's own words are in the error, and the cache stays empty."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("JMSX_CACHE", str(cache))
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path / "mvn", "echo 'Unknown host'; exit 1")
    failing = executable(tmp_path / "java", "echo 'no route'; exit 1")
    with pytest.raises(
        ConnectionFailedError, match=r"Maven said: Unknown host; Ivy said: no route"
    ):
        libraries(CLASSIC, failing)
    assert list(cache.iterdir()) == []


def test_processes_that_fetch_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets the same whole folder, and no half of one is left."""
    filled = libraries(CLASSIC, find_java())
    cache = tmp_path / "cache"
    monkeypatch.setenv("JMSX_CACHE", str(cache))
    monkeypatch.setenv("FILLED", str(filled))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    executable(tmp_path / "mvn", COPYING)
    fetch = "from jmsx_broker.artefacts import *; print(classic_libraries(None))"
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(subprocess.check_output, [sys.executable, "-c", fetch]) for _ in "ab"]
        folders = {Path(run.result().decode().strip()) for run in runs}
    assert {cache_folder(CLASSIC, {"JMSX_CACHE": str(cache)})} == folders == set(cache.iterdir())
    assert all(is_complete(CLASSIC, folder) for folder in folders)


@pytest.mark.skipif("CI" not in os.environ, reason="fetches 15 to 20 MB; set CI to run it")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["mvn", "ivy"])
@pytest.mark.parametrize("product", [CLASSIC, ARTEMIS], ids=lambda product: product.key)
def test_each_tool_fetches_the_same_jars(
    product: Product, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maven and PySpark's Ivy resolve the same files, the ones in the cache."""
    expected = sorted(jar.name for jar in libraries(product, find_java()).iterdir())
    java = find_java()
    if tool == "ivy":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("mvn") is None:
        pytest.skip("there is no Maven on this machine")
    else:
        monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setenv("JMSX_CACHE", str(tmp_path))
    assert expected == sorted(jar.name for jar in libraries(product, java).iterdir())


def java(path: Path, version: str) -> Path:
    """A program that says it is this Java."""
    return executable(path, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
