"""A real broker as a child process: it starts, keeps messages, and leaves nothing behind, however we end."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jmsx.errors import BrokerTimeoutError, ConfigurationError, IllegalStateError
from jmsx_broker import ArtemisBroker, ClassicBroker, own
from jmsx_broker.local import LocalBroker
from jmsx_broker.ports import HOST, check_free, free_port
from jmsx_broker.wire import Wire
from tests.integration.broker_support import (
    eventually,
    executable,
    is_listening,
    is_running,
    python,
    read_line,
    send,
)

if TYPE_CHECKING:
    import subprocess

    from jmsx import Queue
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

both = pytest.mark.parametrize("kind", [ClassicBroker, ArtemisBroker])

#: A program that starts a broker, tells where it is, and then waits for its end.
PARENT = """
from jmsx_broker import ArtemisBroker, ClassicBroker
broker = ClassicBroker().start()
print(broker.pid, broker.url, broker.log.parent, flush=True)
input()
"""


def test_broker_answers_as_classic(classic_broker: Broker) -> None:
    """The fixture's broker is the release that we say it is."""
    with Wire(classic_broker.url) as wire:
        assert wire.server == "ActiveMQ/6.1.8"


def test_broker_answers_as_artemis(artemis_broker: Broker) -> None:
    """The same of the other broker."""
    with Wire(artemis_broker.url) as wire:
        assert wire.server.startswith("ActiveMQ-Artemis/2.44.0 ")


@both
def test_stop_leaves_neither_process_nor_port_nor_folder(
    kind: type[ClassicBroker | ArtemisBroker],
) -> None:
    """After the with block, it is as if there had never been a broker."""
    with kind() as broker:
        pid, url, folder = broker.pid, broker.url, broker.log.parent
        assert is_running(pid)
        assert is_listening(url)
        assert is_listening(broker.openwire_url)
    assert not is_running(pid)
    assert not is_listening(url)
    assert not is_listening(broker.openwire_url)
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_broker_ends_with_its_parent(number: signal.Signals) -> None:
    """A parent that cannot clean up leaves no process, no port and no folder."""
    with python("-c", PARENT) as process:
        pid, url, folder = where(process)
        process.send_signal(number)
        process.wait()
        assert eventually(lambda: not is_running(pid))
        assert eventually(lambda: not is_listening(url))
        assert eventually(lambda: not folder.exists())


def test_forgotten_broker_leaves_no_folder() -> None:
    """A program that stops its broker, does not close it, and ends, leaves nothing."""
    program = PARENT.replace("input()", "broker.stop()")
    with python("-c", program) as process:
        _, _, folder = where(process)
        assert process.wait(30) == 0
    assert not folder.exists()


def test_paused_broker_ends_with_its_parent() -> None:
    """A frozen broker is not forgotten either."""
    with python("-c", PARENT) as process:
        pid, url, _ = where(process)
        os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        assert eventually(lambda: not is_running(pid))
        assert eventually(lambda: not is_listening(url))


def test_broker_does_not_hear_the_terminal(mortal: ClassicBroker) -> None:
    """Ctrl-C goes to the whole group of the parent; when the broker ends is the parent's decision."""
    assert os.getsid(mortal.pid) != os.getsid(0)
    assert os.getpgid(mortal.pid) != os.getpgid(0)


@both
def test_restart_keeps_persistent_messages(kind: type[ClassicBroker | ArtemisBroker]) -> None:
    """The same object started again, however it ended, has the same ports and what was confirmed before."""
    with kind() as broker:
        before = broker.url, broker.openwire_url
        for number, end in enumerate((LocalBroker.stop, LocalBroker.kill)):
            queue = f"kept.{number}"
            send(broker, queue, [b"a", b"b"])
            end(broker)
            assert not broker.running
            broker.start()
            assert before == (broker.url, broker.openwire_url)
            assert [message.body for message in broker.browse(queue)] == [b"a", b"b"]


def test_broker_killed_by_a_stranger_starts_again(mortal: ClassicBroker, queue: Queue) -> None:
    """A broker that ended by itself is not in the way of the next start."""
    send(mortal, queue.name, [b"a"])
    os.kill(mortal.pid, signal.SIGKILL)
    assert mortal.wait(10) == -signal.SIGKILL
    assert not mortal.running
    mortal.start()
    assert mortal.statistics(queue.name).size == 1


@both
def test_given_folder_outlives_the_object(
    kind: type[ClassicBroker | ArtemisBroker], tmp_path: Path
) -> None:
    """A folder that the user named is kept, for another object too."""
    with kind(data=tmp_path / "data") as broker:
        send(broker, "kept", [b"a"])
    with kind(data=tmp_path / "data") as broker:
        assert [message.body for message in broker.browse("kept")] == [b"a"]


def test_paused_broker_is_silent_until_it_is_resumed() -> None:
    """A paused broker accepts a connection, by the kernel, and says nothing."""
    with ClassicBroker() as broker:
        broker.pause()
        with pytest.raises(BrokerTimeoutError):
            Wire(broker.url, timeout=0.5)
        broker.resume()
        Wire(broker.url).close()
        broker.pause()
        pid = broker.pid
    assert not is_running(pid)


def test_second_start_is_refused(mortal: ClassicBroker) -> None:
    """A running broker is not started twice, and the refusal does not hurt it."""
    with pytest.raises(IllegalStateError):
        mortal.start()
    Wire(mortal.url).close()


@both
def test_used_port_is_named(kind: type[ClassicBroker | ArtemisBroker]) -> None:
    """A port that somebody else listens on is a clear error, and nothing is left behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = kind(port)
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
            broker.start()
    assert not broker.running


@both
def test_failed_start_quotes_the_log_and_leaves_nothing(
    kind: type[ClassicBroker | ArtemisBroker], tmp_path: Path
) -> None:
    """A broker that cannot work says why in its own words, and is gone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    broker = kind(port, openwire_port=port, data=tmp_path)
    with pytest.raises(ConfigurationError, match=r"(?s)ended with 1 while starting.*in use"):
        broker.start()
    assert not broker.running
    assert not is_listening(broker.url)


def test_start_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not come up in time is ended, and its temporary folder is removed."""
    script = """[ "$1" != -version ] && exec sleep 99; echo 'version "17.0.1"'"""
    monkeypatch.setenv("JMSX_JAVA", str(executable(tmp_path / "java", script)))
    broker = ClassicBroker()
    with pytest.raises(BrokerTimeoutError, match="did not answer in time"):
        broker.start(timeout=0.3)
    assert not broker.running
    with pytest.raises(IllegalStateError):
        _ = broker.log


def where(process: subprocess.Popen[str]) -> tuple[int, str, Path]:
    """What PARENT tells of its broker: process id, URL, folder."""
    pid, url, folder = read_line(process).split()
    return int(pid), url, Path(folder)


#: A program whose children end in several ways, with a broker that it has started.
FORKS = """
import os, sys
from jmsx.errors import IllegalStateError
from jmsx_broker import ClassicBroker

def child(broker, way):
    if way == "close":
        broker.close()
    if way == "kill":
        broker.kill()
    if way == "start":
        try:
            broker.start()
        except IllegalStateError as error:
            os._exit(0 if "fork()" in str(error) else 3)
    if way == "_exit":
        os._exit(0)
    sys.exit(0)  # through the `with`, and whatever else is called at the end

with ClassicBroker() as broker:
    told = []
    for way in ("close", "kill", "start", "_exit", "exit"):
        pid = os.fork()
        if pid == 0:
            child(broker, way)
        told.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    broker.statistics("nobody")
    sleeper = os.fork()
    if sleeper == 0:
        os.execvp("sleep", ["sleep", "60"]) if os.fork() == 0 else os._exit(0)
    os.waitpid(sleeper, 0)
    lasting = os.fork()
    if lasting == 0:
        import time
        time.sleep(60)
        os._exit(0)
    print(told, broker.running, broker.log.exists(), broker.pid, lasting, broker.log.parent, flush=True)
    input()
"""


def test_children_of_a_fork_leave_the_broker_alone() -> None:
    """Whatever they call, and however they end; and one that lives on does not keep it alive when the parent dies."""
    with python("-c", FORKS) as parent:
        told = read_line(parent)
        assert told.startswith("[0, 0, 0, 0, 0] True True ")
        *_, pid, lasting, folder = told.split()
        parent.send_signal(signal.SIGKILL)
        try:
            assert eventually(lambda: not is_running(int(pid)))
            assert eventually(lambda: not Path(folder).exists())
        finally:
            os.kill(int(lasting), signal.SIGKILL)


@both
@pytest.mark.parametrize("door", ["stomp", "openwire"])
def test_a_port_that_was_taken_meanwhile_is_replaced(
    kind: type[ClassicBroker | ArtemisBroker], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when we looked."""
    taken = free_port()
    with socket.create_server((HOST, taken)):
        found = [free_port(), taken] if door == "stomp" else [taken, free_port()]
        monkeypatch.setattr(own, "free_port", lambda: found.pop() if found else free_port())
        with kind() as broker:
            assert not found
            assert f":{taken}" not in broker.url + broker.openwire_url
            Wire(broker.url).close()


@both
def test_a_given_port_that_was_taken_meanwhile_is_not_replaced(
    kind: type[ClassicBroker | ArtemisBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when we looked; nobody would look for the broker elsewhere, so it is not launched again."""
    taken, looks = free_port(), []

    def look(port: int) -> None:
        looks.append(port)
        if len(looks) > 1:
            check_free(port)

    with socket.create_server((HOST, taken)):
        monkeypatch.setattr(own, "check_free", look)
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{taken}"):
            kind(taken).start()
    assert looks == [taken, taken]
