"""What the tests of `jmsx_broker` share: a way to send, programs as child processes, and looks at what is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.local import LocalBroker
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from jmsx_broker import Broker
    from jmsx_broker.recipe import Listeners


def send(
    broker: Broker, queue: str, bodies: Iterable[bytes], headers: dict[str, str] | None = None
) -> None:
    """Send persistent messages; return when the broker has confirmed the last, and with it all."""
    with Wire(broker.url, timeout=30) as wire:
        head = {**queue_headers(wire, queue), "persistent": "true", **(headers or {})}
        *rest, last = (Frame("SEND", head, body) for body in bodies)
        for frame in rest:
            wire.send(frame)
        wire.request(last)


def queue_headers(wire: Wire, queue: str) -> dict[str, str]:
    """How a SEND or SUBSCRIBE names a queue to this broker."""
    if wire.is_artemis:
        return {
            "destination": queue,
            "destination-type": "ANYCAST",
            "subscription-type": "ANYCAST",
        }
    return {"destination": f"/queue/{queue}"}


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie that nobody has collected."""
    told = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.strip()[:1] not in {"", "Z"}


def is_listening(url: str) -> bool:
    """Whether somebody accepts connections at `url`."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) == 0


def eventually(holds: Callable[[], bool], timeout: float = 15.0) -> bool:
    """Whether `holds` comes true within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def python(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in a group of its own with pipes to it; ended with the block, if it has not ended before."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints; an AssertionError with its last words if there is none."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


@dataclass(frozen=True, slots=True)
class _ChangedRecipe(ClassicRecipe):
    """Classic with other words in its activemq.xml."""

    changes: tuple[tuple[str, str], ...] = ()

    def files(self, listeners: Listeners) -> dict[str, str]:
        """Its activemq.xml, changed."""
        return {
            name: self._changed(text) for name, text in ClassicRecipe.files(self, listeners).items()
        }

    def _changed(self, text: str) -> str:
        for old, new in self.changes:
            assert old in text
            text = text.replace(old, new)
        return text


def changed_classic(*changes: tuple[str, str], tls: bool = False) -> LocalBroker:
    """A Classic, not yet started, in whose activemq.xml each (old, new) was replaced."""
    return LocalBroker(_ChangedRecipe(changes=changes), 0, tls=tls)


def executable(path: Path, script: str) -> Path:
    """A shell script that stands for a program of the machine."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
