"""Programs of the ActiveMQ Java client: compiled once, which takes a JDK; a newcomer may have a JRE only."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from jmsx.errors import ConfigurationError
from jmsx_broker.artefacts import cache_root, classic_libraries
from jmsx_broker.java import find_java
from jmsx_broker.recipe import JAVA_OPTIONS


def _has_compiler() -> bool:
    try:
        return (find_java().resolve().parent / "javac").exists()
    except ConfigurationError:
        return False


#: Skips a test where there is no `javac`; in CI it runs, and fails.
NEEDS_JDK = pytest.mark.skipif(
    "CI" not in os.environ and not _has_compiler(),
    reason="the Java client needs javac (a JDK), and there is a JRE only",
)

_PEERS: Final = Path(__file__).parent / "integration" / "java"


class CompileError(Exception):
    """A Java program does not compile; says what javac printed."""


def compiled(source: Path, *, java: Path, jars: Path) -> Path:
    """
    The folder of a program's classes, which stay in the user's cache, keyed by the source and the client's jars.

    `java` is the folder of `javac`. Raises CompileError.
    """
    key = hashlib.sha256(source.read_bytes())
    key.update("\n".join(sorted(jar.name for jar in jars.glob("*.jar"))).encode())
    classes = cache_root(os.environ) / f"{source.stem}-{key.hexdigest()[:12]}"
    if classes.is_dir():
        return classes
    classes.parent.mkdir(parents=True, exist_ok=True)
    fresh = tempfile.mkdtemp(dir=classes.parent)
    command = [
        str(java / "javac"),
        "-nowarn",
        "-encoding",
        "UTF-8",
        "-d",
        fresh,
        "-cp",
        f"{jars}{os.sep}*",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(fresh)
        raise CompileError(f"{source.name} does not compile: {done.stderr}")
    try:
        Path(fresh).rename(classes)
    except OSError:  # another process was quicker
        shutil.rmtree(fresh)
    return classes


@cache
def _command(peer: str) -> tuple[str, ...]:
    java = find_java()
    jars = classic_libraries(java)
    classes = compiled(_PEERS / f"{peer}.java", java=java.resolve().parent, jars=jars)
    path = os.pathsep.join([f"{jars}{os.sep}*", str(classes)])  # CI's archives begin with the jars
    return (str(java), *JAVA_OPTIONS, "-cp", path, peer)


def run_peer(peer: str, *arguments: str, told: str = "") -> str:
    """Run the program `peer` of tests/integration/java, which reads `told`; returns what it prints."""
    done = subprocess.run(
        [*_command(peer), *arguments],
        input=told,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
