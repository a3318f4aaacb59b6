"""Draining a process: signals, its exit code, and a rolling restart that does nothing twice."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from jmsx import Queue
from jmsx.core.frames import Frame
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    MODES,
    bodies,
    fresh_queue,
    put,
    settles,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


SHOP = """\
import sys, time
import jmsx
from jmsx.app import App

app = App(redelivery_policy=jmsx.RedeliveryPolicy(maximum_redeliveries=0))

@app.consumer({queue!r})
def handle(message):
    print("began", message.text, flush=True)
    time.sleep({seconds})
    print("done", message.text, flush=True)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: Queue) -> Callable[[float], None]:
    """Writes an application into the working folder: each message takes so many seconds."""
    monkeypatch.chdir(tmp_path)

    def write(seconds: float) -> None:
        text = SHOP.format(queue=queue.uri, seconds=seconds)
        (tmp_path / "shop.py").write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(
    classic_broker: Broker, queue: Queue, shop: Callable[[float], None], number: int
) -> None:
    """`jmsx run`: the handler finishes, its message is settled, the next one is untouched; exit code 0."""
    shop(1.0)
    put(classic_broker, queue, "a", "b")
    with python("-m", "jmsx.cli", "run", "shop:app", JMSX_BROKER_URL=classic_broker.url) as process:
        assert read_line(process) == "began a"
        process.send_signal(number)
        assert read_line(process) == "done a"
        out, errors = process.communicate(timeout=10)
        assert process.returncode == 0, errors
        assert out == ""
        assert "waiting for 1 running handler," in errors
        assert "Traceback" not in errors
    assert bodies(classic_broker, queue) == ["b"]
    assert settles(classic_broker, queue, size=1)


def test_a_second_signal_ends_at_once(
    classic_broker: Broker, queue: Queue, shop: Callable[[float], None]
) -> None:
    """A handler that will not end is left behind by the second signal, with words; its message comes again."""
    shop(60.0)
    put(classic_broker, queue, "a")
    with python("-m", "jmsx.cli", "run", "shop:app", JMSX_BROKER_URL=classic_broker.url) as process:
        assert read_line(process) == "began a"
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "a second signal aborts" not in process.stderr.readline():
            assert process.poll() is None  # two signals at once would be one
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 130
        assert "Traceback" not in errors
    assert settles(classic_broker, queue, size=1)


def test_a_drain_that_takes_too_long(
    classic_broker: Broker, queue: Queue, shop: Callable[[float], None]
) -> None:
    """--drain-timeout: the process ends in time, with an error that says for whom, exit code 1."""
    shop(60.0)
    put(classic_broker, queue, "a")
    command = ("-m", "jmsx.cli", "run", "shop:app", "--drain-timeout", "0.5")
    with python(*command, JMSX_BROKER_URL=classic_broker.url) as process:
        assert read_line(process) == "began a"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=5)
        assert process.returncode == 1
        assert "the handler of handle still ran" in errors
        assert "was given 0.5 s" in errors
        assert "Traceback" not in errors
    assert settles(classic_broker, queue, size=1)


def test_a_signal_while_it_starts(shop: Callable[[float], None]) -> None:
    """A broker that accepts and says nothing: the first signal ends the process, which has taken nothing."""
    shop(1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"stomp://127.0.0.1:{silent.getsockname()[1]}"
        command = ("-m", "jmsx.cli", "run", "shop:app", "--url", url)
        with python(*command) as process:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(16).startswith(b"CONNECT")
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=20)
            assert process.returncode == 0, errors
            assert "Traceback" not in errors


#: Appends a line for each message that a handler has finished; O_APPEND keeps lines of several processes whole.
ROLLING: Final = """\
import os, sys, time
import jmsx
from jmsx.app import App

app = App({url!r})
lines = os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def consume(name, settings):
    @app.consumer(f"queue://{base}.{{name}}", name=name, concurrency=2, prefetch=50, **settings)
    def handle(message, session):
        if session.transacted:
            session.create_producer().send(jmsx.Message(message.text), destination="queue://{base}.out")
        time.sleep(0.02)
        os.write(lines, f"{{os.getpid()}} {{name}} {{message.text}}\\n".encode())

for name, settings in {modes!r}.items():
    consume(name, {{key: jmsx.AcknowledgeMode(value) if key == "mode" else value for key, value in settings.items()}})
app.run(announce=lambda words: None)
"""

#: Messages that a process has finished before the one that it replaces is told to go.
WARM: Final = 100

#: Messages of each mode that wait from the beginning: with a dry buffer nothing would be left to confirm.
BACKLOG: Final = 200


def test_a_rolling_restart(classic_broker: Broker, tmp_path: Path) -> None:
    """Twice the old process goes while the new one works, under load: each message is finished exactly once."""
    base, path, enough = fresh_queue().name, tmp_path / "finished", threading.Event()
    path.touch()
    modes = {
        name: {key: value.value if key == "mode" else value for key, value in settings.items()}
        for name, settings in MODES.items()
    }
    program = ROLLING.format(url=classic_broker.url, path=str(path), base=base, modes=modes)

    def finished() -> list[list[str]]:
        return [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines()]

    def is_warm(process: subprocess.Popen[str]) -> bool:
        return sum(1 for pid, _ in finished() if pid == str(process.pid)) > WARM

    def produce() -> int:
        sent = 0
        with Wire(classic_broker.url, timeout=30) as wire:
            while sent < BACKLOG or not enough.wait(0.02):
                for name in modes:
                    head = {"destination": f"/queue/{base}.{name}", "persistent": "true"}
                    wire.send(Frame("SEND", head, str(sent).encode()))
                sent += 1
        return sent

    def stop(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors

    with contextlib.ExitStack() as processes:
        load = Call(produce)
        old = processes.enter_context(python("-c", program))
        for _ in range(2):
            new = processes.enter_context(python("-c", program))
            assert eventually(partial(is_warm, old))
            assert eventually(partial(is_warm, new))
            stop(old)
            old = new
        enough.set()
        sent = load.join(20).value or 0
        assert eventually(lambda: len(finished()) >= sent * len(modes)), (len(finished()), sent)
        stop(old)
    counts = Counter(line for _, line in finished())
    assert set(counts) == {f"{name} {number}" for name in modes for number in range(sent)}
    assert {line: times for line, times in counts.items() if times > 1} == {}
    for name in modes:
        assert settles(classic_broker, Queue(f"{base}.{name}"), size=0)
    assert Counter(bodies(classic_broker, f"{base}.out")) == Counter(map(str, range(sent)))


def test_a_signal_while_it_waits_for_its_broker(shop: Callable[[float], None]) -> None:
    """An app that starts before its broker ends at the first signal, with nothing to drain."""
    shop(1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"stomp://127.0.0.1:{server.getsockname()[1]}"
    with python("-m", "jmsx.cli", "run", "shop:app", "--url", url) as process:
        assert process.stderr is not None
        assert "Ctrl-C drains" in process.stderr.readline()
        assert "waiting for broker" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=5)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
