"""Draining: what was finished is confirmed and never done again, what was not begun goes back, and all in time."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import Message, Queue, RedeliveryPolicy
from jmsx.app import App
from jmsx.core.frames import Frame
from jmsx.errors import ConnectionFailedError, DrainError, IllegalStateError
from jmsx_broker import ClassicBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    AUTO,
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jmsx import AcknowledgeMode, Session
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: Every way to settle a message.
MODES: Final[dict[str, dict[str, Any]]] = {
    "auto": {},
    "optimized": {"optimize_acknowledge": True},
    "dups-ok": {"mode": DUPS_OK},
    "client": {"mode": CLIENT},
    "individual": {"mode": INDIVIDUAL},
    "non-blocking": {"non_blocking_redelivery": True},
    "transacted": {"mode": TRANSACTED},
}


@pytest.fixture
def mortal() -> Iterator[ClassicBroker]:
    """A broker to kill or to pause."""
    with ClassicBroker() as broker:
        yield broker


# In the process ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", MODES.values(), ids=MODES)
def test_a_running_handler_finishes(
    classic_broker: Broker, queue: Queue, diary: Diary, settings: dict[str, Any]
) -> None:
    """Its message is settled, once; what nobody had begun comes again, to others, unchanged."""
    app = App(classic_broker.url, observers=[diary])
    began, seen = threading.Event(), []

    @app.consumer(queue, **settings)
    def slow(message: Message) -> None:
        began.set()
        time.sleep(0.4)  # a handler that takes its time
        seen.append(message.text)

    put(classic_broker, queue, "a", "b", "c")
    with nothing_left():
        app.start()
        assert began.wait(5)
        app.stop()
    assert seen == ["a"]
    assert bodies(classic_broker, queue) == ["b", "c"]
    assert settles(classic_broker, queue, size=2)
    assert diary.outcomes().total() == 1
    assert diary.closed == 1


def test_what_an_idle_worker_holds_goes_back_at_once(classic_broker: Broker) -> None:
    """It does not wait for another consumer's handler; nor does a message that waits for its redelivery."""
    slow_queue, idle_queue = fresh_queue(), fresh_queue()
    hours = RedeliveryPolicy(initial_redelivery_delay=3600.0, redelivery_delay=3600.0)
    app = App(classic_broker.url, redelivery_policy=hours)
    began, failed, free = threading.Event(), threading.Event(), threading.Event()

    @app.consumer(slow_queue)
    def slow(_message: Message) -> None:
        began.set()
        free.wait(20)

    @app.consumer(idle_queue)
    def fails(_message: Message) -> None:
        failed.set()
        raise ValueError

    put(classic_broker, slow_queue, "slow")
    put(classic_broker, idle_queue, "a", "b", "c")
    with nothing_left():
        app.start()
        assert began.wait(5)
        assert failed.wait(5)
        assert settles(classic_broker, idle_queue, size=3, inflight=3)
        stop = Call(app.stop)
        assert settles(classic_broker, idle_queue, size=3, inflight=0)
        assert stop.waiting
        free.set()
        assert stop.join(5).error is None
    assert settles(classic_broker, slow_queue, size=0)


def test_a_handler_that_never_returns(
    classic_broker: Broker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """stop() gives up after its time, and says for whom; its message comes again, the others' are settled."""
    other = fresh_queue()
    app = App(classic_broker.url)
    began, free = threading.Semaphore(0), threading.Event()

    @app.consumer(queue, name="stuck")
    def stuck(_message: Message) -> None:
        began.release()
        free.wait(30)

    @app.consumer(other)
    def finishes(_message: Message) -> None:
        began.release()
        time.sleep(0.3)  # shorter than the time for draining

    put(classic_broker, queue, "a")
    put(classic_broker, other, "b")
    (message,) = classic_broker.browse(queue.name)
    with nothing_left():
        app.start()
        assert began.acquire(timeout=5)
        assert began.acquire(timeout=5)
        stop = within(3, lambda: app.stop(drain_timeout=0.8))
        assert isinstance(stop.error, DrainError)
        assert 0.8 <= stop.seconds < 1.5
        assert settles(classic_broker, queue, size=1)
        assert settles(classic_broker, other, size=0)
        free.set()
    message_id = message.headers["message-id"]
    assert "stuck" in str(stop.error)
    assert message_id in str(stop.error)
    assert "0.8 s" in str(stop.error)
    (line,) = [one.getMessage() for one in caplog.records if "abandoned" in one.getMessage()]
    assert "consumer='stuck'" in line
    assert f"message_id='{message_id}'" in line
    assert "running_seconds=0." in line
    assert bodies(classic_broker, queue) == ["a"]


def test_a_transaction_that_is_cut_off(classic_broker: Broker, queue: Queue) -> None:
    """A transacted handler that is late has done nothing: its message comes again, what it sent is undone."""
    out = fresh_queue()
    app = App(classic_broker.url)
    began, free = threading.Event(), threading.Event()

    @app.consumer(queue, mode=TRANSACTED)
    def late(_message: Message, session: Session) -> None:
        session.create_producer(out).send(Message("sent"))
        began.set()
        free.wait(30)

    put(classic_broker, queue, "a")
    with nothing_left():
        app.start()
        assert began.wait(5)
        assert isinstance(within(3, lambda: app.stop(drain_timeout=0.2)).error, DrainError)
        free.set()
    assert settles(classic_broker, queue, size=1)
    assert bodies(classic_broker, queue) == ["a"]
    assert bodies(classic_broker, out) == []


def test_a_broker_that_does_not_answer(mortal: ClassicBroker, queue: Queue) -> None:
    """Nothing confirms what the handler finished: an error says so, in time, however patient requests are."""
    app = App(mortal.url, request_timeout=30.0)
    began, free = threading.Event(), threading.Event()

    @app.consumer(queue, name="ship", concurrency=2)
    def handle(_message: Message) -> None:
        began.set()
        free.wait(20)

    put(mortal, queue, "a")
    with nothing_left():
        app.start()
        assert began.wait(5)
        mortal.pause()
        free.set()
        stop = within(5, lambda: app.stop(drain_timeout=1.0))
    assert isinstance(stop.error, DrainError)
    assert stop.seconds < 2
    assert "did not confirm" in str(stop.error)
    assert "ship" in str(stop.error)


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_a_broker_that_is_away(mortal: ClassicBroker, queue: Queue, mode: AcknowledgeMode) -> None:
    """Nobody waits for it to come back: the handler finishes, what it did is told as not confirmed, and that is all."""
    app = App(mortal.url)
    began, free = threading.Event(), threading.Event()
    done: list[str] = []

    @app.consumer(queue, name="busy", mode=mode)
    def busy(message: Message) -> None:
        began.set()
        free.wait(20)
        done.append(message.text)

    app.consumer(fresh_queue(), name="idle")(lambda _message: None)
    put(mortal, queue, "a", "b")
    with nothing_left():
        app.start()
        assert began.wait(5)
        mortal.kill()
        assert eventually(lambda: not app.ready().ok, 5)
        stop = Call(app.stop)
        assert not eventually(lambda: not stop.waiting, 0.3)
        free.set()
        error = stop.join(3).error
    assert isinstance(error, DrainError)
    assert "busy" in str(error)
    assert "idle" not in str(error)
    assert done == ["a"]
    mortal.start()
    assert bodies(mortal, queue) == ["a", "b"]


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


def test_a_handler_that_stops_the_app(classic_broker: Broker, queue: Queue) -> None:
    """quit() in a handler ends the app after it, in good order; stop() there would wait for itself, and says so."""
    app = App(classic_broker.url)
    said: list[str] = []

    @app.consumer(queue)
    def last(_message: Message) -> None:
        with pytest.raises(IllegalStateError, match="quit"):
            app.stop()
        said.append("stop() refused")
        app.quit()
        time.sleep(0.3)  # so that stop() finds it running

    put(classic_broker, queue, "a", "b")
    with nothing_left():
        app.start()
        app.wait(10)
        app.stop()
    assert said == ["stop() refused"]
    assert bodies(classic_broker, queue) == ["b"]


def test_one_lost_link_cuts_nobody_else_off(classic_broker: Broker, queue: Queue) -> None:
    """The app ends with the error of the consumer that lost its link; the other's handler finishes before."""
    app = App(classic_broker.url, reconnect=False)
    began, done = threading.Event(), threading.Event()

    @app.consumer(queue, name="slow")
    def slow(_message: Message) -> None:
        began.set()
        time.sleep(1.0)  # longer than it takes to notice
        done.set()

    app.consumer(fresh_queue(), name="unlucky")(lambda _message: None)
    put(classic_broker, queue, "a", "b")
    with nothing_left():
        app.start()
        assert began.wait(5)
        app._workers[1]._session.pump._life.drop()
        with pytest.raises(ConnectionFailedError):
            app.wait(5)
        assert isinstance(within(5, app.stop).error, ConnectionFailedError)
    assert done.is_set()
    assert bodies(classic_broker, queue) == ["b"]


# As a process --------------------------------------------------------------------------------------------------------

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
        assert "waiting for 1 running handlers" in errors
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
        time.sleep(0.5)  # two signals at once would be one
        assert process.poll() is None
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
        assert "had 0.5 s" in errors
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
                _, errors = process.communicate(timeout=5)
            assert process.returncode == 0, errors
            assert "Traceback" not in errors


# A rolling restart ---------------------------------------------------------------------------------------------------

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
