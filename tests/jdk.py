"""Programs of the ActiveMQ Java client: compiled once, which takes a JDK; a newcomer may have a JRE only."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
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
def _classes(peer: str) -> Path:
    java = find_java()
    return compiled(
        _PEERS / f"{peer}.java", java=java.resolve().parent, jars=classic_libraries(java)
    )


class _Peers:
    """A Java machine that runs programs one after the other, for most take less time than it needs to start."""

    def __init__(self) -> None:
        java = find_java()
        jars = f"{classic_libraries(java)}{os.sep}*"
        path = os.pathsep.join([jars, str(_classes("Peers"))])  # CI's archives begin with the jars
        self._process = subprocess.Popen(
            [str(java), *JAVA_OPTIONS, "-cp", path, "Peers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, *texts: str) -> tuple[str, str]:
        """Run a program, as Peers.java says: why it failed, and what it printed."""
        assert self._process.stdin is not None
        self._process.stdin.write(struct.pack(">i", len(texts)) + b"".join(map(_framed, texts)))
        self._process.stdin.flush()
        return self._text(), self._text()

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def _text(self) -> str:
        assert self._process.stdout is not None
        (length,) = struct.unpack(">i", self._process.stdout.read(4))
        return self._process.stdout.read(length).decode()


def _framed(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


@cache
def _peers() -> _Peers:
    return _Peers()


def run_peer(peer: str, *arguments: str, told: str = "") -> str:
    """Run the program `peer` of tests/integration/java, which reads `told`; returns what it prints."""
    peers = _peers()
    try:
        failure, printed = peers.run(str(_classes(peer)), peer, told, *arguments)
    except BaseException:  # its answer may come yet, or never
        end_peers()
        raise
    assert not failure, failure
    return printed


def end_peers() -> None:
    """End the machine that runs peers, if there is one."""
    if _peers.cache_info().currsize:
        _peers().end()
        _peers.cache_clear()
