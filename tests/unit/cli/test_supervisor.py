"""When a worker that does not answer is excused for it, and which files `--reload` looks at."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app.endpoint import Endpoint, application
from jmsx.cli import supervisor
from jmsx.cli.supervisor import FIRST_PAUSE, LONGEST_PAUSE, STARTING, STEADY, Place, Supervisor
from jmsx.errors import ResourceAllocationError
from jmsx_broker.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def died(place: Place, began: float, at: float) -> float:
    """Let its process have begun and died then, and start it again when that is due; returns when."""
    place.began = began
    place.forget()
    due = at + place.start_again(at)
    assert place.due == due
    return due


def test_one_that_has_not_begun() -> None:
    """It is to begin; one that ended well is not to."""
    place = Place(0)
    assert place.is_being_started(1000.0)
    place.due = None
    assert not place.is_being_started(1000.0)


def test_one_that_died_is_started_again() -> None:
    """Until it serves health, and for a minute at the most."""
    place = Place(0)
    assert died(place, 0.0, 500.0) == 500.0 + FIRST_PAUSE
    assert place.is_being_started(500.0 + STARTING - 1)
    assert not place.is_being_started(500.0 + STARTING + 1)
    place.url = "http://127.0.0.1:1"
    assert not place.is_being_started(501.0)  # it answers for itself


def test_one_that_dies_at_each_start() -> None:
    """A minute after its first death nothing excuses it, however often it began."""
    place, now, pauses = Place(0), 10.0, []
    while now < 10.0 + 5 * STARTING:
        due = died(place, now - 0.1, now)
        pauses.append(due - now)
        assert place.is_being_started(due) == (due - 10.0 < STARTING), due
        now = due + 0.1
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert max(pauses) == LONGEST_PAUSE


def test_one_that_ran_steadily_is_new() -> None:
    """What it died of before is long ago."""
    place = Place(0)
    due = died(place, 0.0, 1.0)
    again = died(place, due, due + STEADY)
    assert again - due - STEADY == FIRST_PAUSE
    assert place.is_being_started(again + STARTING / 2)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that runs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def test_one_that_has_just_died(process: subprocess.Popen[bytes]) -> None:
    """It is to be started again, also before the supervisor has seen that; unless that has gone on for a minute."""
    place = Place(0, process, url="http://127.0.0.1:1", due=None)
    assert not place.is_being_started(1000.0)
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert place.is_being_started(1000.0)
    place.failing = 1000.0 - STARTING
    assert not place.is_being_started(1000.0)


def test_who_owes_an_answer(process: subprocess.Popen[bytes]) -> None:
    """Who serves; and who does not although it has had a minute. Nobody who is not there, or was told to end."""
    place = Place(0, began=500.0)
    assert not place.owes_an_answer(1000.0)  # it is to begin, or waits to be started again
    place.process = process
    assert not place.owes_an_answer(500.0 + STARTING - 1)
    assert place.owes_an_answer(500.0 + STARTING)
    place.url = "http://127.0.0.1:1"
    assert place.owes_an_answer(501.0)
    place.end()
    assert not place.owes_an_answer(501.0)


def refuse(*_given: object, **_named: object) -> None:
    """Be a system that has no room for another process."""
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_one_that_the_system_does_not_start_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is tried again, at growing pauses; it ended the supervisor, which killed all others."""
    made = supervising(1)
    [place] = made._places
    made._reached = True
    pauses = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        for _ in range(3):
            place.due = before = time.monotonic()
            made._look_at(place)
            assert place.process is None
            assert place.due is not None
            pauses.append(round(place.due - before))
            assert place.is_being_started(place.due)
    assert pauses == [1, 2, 4]
    place.due = 0.0
    made._look_at(place)
    assert place.process is not None
    made._kill()
    capfd.readouterr()


def test_the_first_one_that_the_system_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with words that say what is to be done."""
    made = supervising(1)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ResourceAllocationError, match="temporarily unavailable; end what has many"):
        made._look_at(made._places[0])


@contextmanager
def listener(said: bytes = b"") -> Iterator[str]:
    """The address of somebody who says that to each caller and then, if it is anything, hangs up."""

    def hear() -> None:
        with ExitStack() as callers, suppress(OSError):  # the end of listening
            while True:
                caller = callers.enter_context(server.accept()[0])
                if said:
                    caller.recv(1000)
                    caller.sendall(said)
                    caller.close()

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=hear)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def told(url: str, path: str) -> tuple[int, str]:
    """What a supervisor says there; never by a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def supervising(count: int, reload: Path | None = None) -> Supervisor:
    """One of so many workers, which it does not start."""
    return Supervisor(
        ["true"],
        variables={},
        count=count,
        health=None,
        drain_timeout=1.0,
        reload=reload,
        announce=print,
    )


def test_what_is_said_of_workers_that_answer_and_that_do_not(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up is who answers, whatever it says; who starts is not told of. Health names the process of who does not."""
    monkeypatch.setattr(supervisor, "_ANSWER", 0.5)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    one = supervising(5)
    with (
        closing(Endpoint("127.0.0.1:0", application({}, None)).begin()) as without_metrics,
        listener() as mute,
        listener(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\njmsx_") as dies,
    ):
        urls = [without_metrics.url, mute, dies, f"http://127.0.0.1:{free_port()}", None]
        for place, url in zip(one._places, urls, strict=True):
            place.process, place.url, place.began = process, url, time.monotonic()
        one._serve("127.0.0.1:0")
        assert one.endpoint is not None
        with closing(one.endpoint) as served:
            code, metrics = told(served.url, "metrics")
            _, health = told(served.url, "healthz")
    assert code == 200
    assert [line for line in metrics.splitlines() if line.startswith("jmsx_worker_up")] == [
        'jmsx_worker_up{worker="0"} 1',
        'jmsx_worker_up{worker="1"} 0',
        'jmsx_worker_up{worker="2"} 0',
        'jmsx_worker_up{worker="3"} 0',
    ]
    workers = json.loads(health)["workers"]
    assert [workers[number].get("pid") for number in "01234"] == [
        *(None, process.pid, process.pid, process.pid, None),
    ]


def test_who_begins_to_serve_while_others_are_asked(process: subprocess.Popen[bytes]) -> None:
    """It was not asked, so that it has not answered says nothing."""
    one = supervising(2)
    starts, serves = one._places

    def metrics(_environ: Any, start: Any) -> list[bytes]:
        starts.url = f"http://127.0.0.1:{free_port()}"
        start("200 OK", [])
        return []

    with closing(Endpoint("127.0.0.1:0", application({}, metrics)).begin()) as served:
        for place, url in ((starts, None), (serves, served.url)):
            place.process, place.url, place.began = process, url, time.monotonic()
        one._serve("127.0.0.1:0")
        assert one.endpoint is not None
        with closing(one.endpoint) as all_of_them:
            said = told(all_of_them.url, "metrics")[1]
    assert [line for line in said.splitlines() if line.startswith("jmsx_worker_up")] == [
        'jmsx_worker_up{worker="1"} 1'
    ]


def watched(folder: Path) -> set[str]:
    """The names of the files whose change would be seen."""
    return {os.path.relpath(name, folder) for name in supervising(1, reload=folder)._files()}


def test_the_files_that_are_watched(tmp_path: Path) -> None:
    """The program's: not what is hidden, and no virtual environment, whatever that is called."""
    for name in (
        *("shop.py", "shop/orders.py", "shop/deep/er.py", "shop/notes.txt"),
        *(".git/hook.py", "shop/.#orders.py", ".venv/a.py"),
        *("env/pyvenv.cfg", "env/lib/b.py"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert watched(tmp_path) == {"shop.py", "shop/orders.py", "shop/deep/er.py"}


def test_a_folder_that_is_gone_when_it_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a branch is checked out: that ends nothing."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "shop.py").touch()
    scandir = os.scandir

    def scan(folder: Any) -> Any:
        if os.fspath(folder).endswith("gone"):
            raise FileNotFoundError(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    assert watched(tmp_path) == {"shop.py"}
