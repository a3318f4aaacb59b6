"""`jmsx broker` as a user runs it: clean ends, clear words, no traceback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from jmsx_broker import ClassicBroker
from jmsx_broker.ports import free_port
from tests.integration.broker_support import is_listening, python, read_line, send

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(("group", "number"), [(True, signal.SIGINT), (False, signal.SIGTERM)])
def test_command_stops_cleanly(*, group: bool, number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, which reaches the whole group, and SIGTERM end `jmsx broker start` in good order."""
    with command("start", "--port", "0", "--data", str(tmp_path)) as process:
        url = read_line(process)
        assert is_listening(url)
        (os.killpg if group else os.kill)(process.pid, number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopped" in said
    assert "Traceback" not in said
    assert "is shutdown" in (tmp_path / "broker.log").read_text("utf-8")
    assert not is_listening(url)


def test_command_tells_that_the_broker_died(tmp_path: Path) -> None:
    """A broker that dies under the command is an error with its log, not a traceback."""
    with command("start", "--port", "0", "--data", str(tmp_path)) as process:
        url = read_line(process)
        os.kill(broker_below(process.pid), signal.SIGKILL)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "error: the broker ended with -9" in said
    assert "Traceback" not in said
    assert not is_listening(url)


def test_command_tells_a_missing_java(tmp_path: Path) -> None:
    """Without Java the command says what to install."""
    environment = {"JMSX_JAVA": str(tmp_path / "no-java")}
    with command("start", "--port", "0", **environment) as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "needs Java 17 or newer" in said
    assert "openjdk" in said
    assert "Traceback" not in said


def test_command_tells_a_missing_docker() -> None:
    """Images need a daemon to take them."""
    with command("images", DOCKER_HOST="unix:///nowhere/docker") as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "error: no Docker daemon answers at unix:///nowhere/docker" in said
    assert "Traceback" not in said


def test_command_prints_statistics(classic_broker: Broker) -> None:
    """`jmsx broker stats` prints the broker's counts, and refuses an unknown queue."""
    send(classic_broker, "asked", [b"x"] * 1234)
    with command("stats", "asked", "--broker", classic_broker.url) as process:
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "enqueue_count" in said
    assert "1,234" in said
    both = f"failover:(stomp://127.0.0.1:{free_port()},{classic_broker.url})?randomize=false"
    with command("stats", "asked", "--broker", both) as process:
        said, _ = process.communicate(timeout=30)
    assert "1,234" in said
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # it takes the connection and says nothing
        both = f"failover:(stomp://127.0.0.1:{silent.getsockname()[1]},{classic_broker.url})?randomize=false"
        with command("stats", "asked", "--broker", both) as process:
            said, _ = process.communicate(timeout=30)
        assert "1,234" in said
    with command("stats", "unasked", "--url", classic_broker.url) as process:  # its former name
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "has no queue unasked" in said


def test_command_prints_statistics_over_tls() -> None:
    """Of a broker whose authority is trusted; of no other one."""
    with ClassicBroker(tls=True) as secured:
        send(secured, "asked", [b"x"] * 12)
        trusted = f"{secured.tls_url}?tls.caFile={secured.certificates.authority}"
        with command("stats", "asked", "--broker", trusted) as process:
            said, wrong = process.communicate(timeout=30)
        assert (process.returncode, wrong) == (0, "")
        assert re.search(r"^size\t12$", said, re.MULTILINE)
        with command("stats", "asked", "--broker", secured.tls_url) as process:
            _, said = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "its certificate is refused" in said
        assert "ca_file" in said


def command(*arguments: str, **environment: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """`jmsx broker` with these arguments, in a process group of its own."""
    return python("-m", "jmsx_broker", *arguments, **environment)


def broker_below(pid: int) -> int:
    """The process id of the Java among the children of `pid`."""
    children = subprocess.check_output(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], text=True)
    (java,) = (line.split()[0] for line in children.splitlines() if line.endswith("java"))
    return int(java)
