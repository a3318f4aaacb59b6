"""`jmsx run` with several workers, until it is idle, and with reload: real processes on a real broker."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jmsx
from jmsx_broker.ports import free_port
from jmsx_prometheus.catalogue import SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

SHOP = """
import os, time
from jmsx import App, Message
from jmsx_prometheus import PrometheusObserver

app = App(observers=[PrometheusObserver()])

@app.consumer({queue!r}, prefetch=1)
def handle(message: Message) -> None:
    if message.text == "die":
        os._exit(7)
    open("begun.txt", "a").close()
    time.sleep({seconds})
    with open("done.txt", "a") as file:
        file.write(f"{{os.getpid()}} {{message.text}} {word}\\n")
"""


class Shop:
    """A folder with an application, and how it is run."""

    def __init__(self, folder: Path, broker: Broker, queue: str) -> None:
        self.folder, self.broker, self.queue = folder, broker, queue
        self.write()

    def write(self, seconds: float = 0.05, word: str = "old") -> None:
        """The module."""
        text = SHOP.format(queue=self.queue, seconds=seconds, word=word)
        (self.folder / "shop.py").write_text(text, encoding="utf-8")

    def put(self, *texts: str) -> None:
        """Send them."""
        with jmsx.Connection(self.broker.url) as connection:
            producer = connection.create_session().create_producer(self.queue)
            for text in texts:
                producer.send(jmsx.Message(text))

    def done(self) -> list[tuple[int, str, str]]:
        """What was handled: by which process, what, with which version."""
        file = self.folder / "done.txt"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [(int(pid), text, word) for pid, text, word in map(str.split, lines)]

    @contextmanager
    def runs(self, *options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """`jmsx run`; killed at the end if it still runs. The URL is an option, unless a variable has it."""
        url = [] if "JMSX_BROKER_URL" in variables else [f"--url={self.broker.url}"]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jmsx.cli",
                "run",
                "shop:app",
                *url,
                *options,
            ],
            cwd=self.folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=10)


@pytest.fixture
def shop(tmp_path: Path, classic_broker: Broker, request: pytest.FixtureRequest) -> Shop:
    """One with a queue of its own."""
    return Shop(
        tmp_path, classic_broker, f"queue://{request.node.name.replace('[', '.').rstrip(']')}"
    )


def eventually(what: Callable[[], Any], seconds: float = 40.0) -> Any:
    """Its result, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The line in which it is."""
    assert process.stderr is not None
    read = []
    for line in process.stderr:
        read.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError("".join(read))


def workers(supervisor: subprocess.Popen[str]) -> list[int]:
    """The processes that it has started."""
    told = subprocess.run(
        ["pgrep", "-P", str(supervisor.pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in told.stdout.split()]


def numbers(supervisor: subprocess.Popen[str]) -> dict[int, int]:
    """The process of each worker, by its number."""
    environments = ((pid, Path(f"/proc/{pid}/environ").read_text()) for pid in workers(supervisor))
    return {int(text.partition("JMSX_WORKER=")[2][0]): pid for pid, text in environments}


def answer(url: str, path: str) -> tuple[int, str]:
    """What is served there."""
    try:
        with urllib.request.urlopen(f"{url}/{path}", timeout=10) as told:  # noqa: S310 - a server of the test
            return told.status, told.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_workers_share_the_work_and_drain(shop: Shop) -> None:
    """Two processes, one health, one exposition; SIGTERM drains both."""
    with shop.runs("--workers=2", "--health=127.0.0.1:0", "--log-level=warning") as process:
        url = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(url, "readyz")[0] == 200)
        shop.put(*(f"m{number}" for number in range(20)))
        eventually(lambda: len(shop.done()) == 20)
        assert {pid for pid, _, _ in shop.done()} == set(workers(process))
        code, body = answer(url, "healthz")
        assert (code, sorted(json.loads(body)["workers"])) == (200, ["0", "1"])
        _, metrics = answer(url, "metrics")
        assert 'worker="0"' in metrics
        assert 'worker="1"' in metrics
        assert "jmsx_workers_running 2\n" in metrics
        for row in SUPERVISOR:
            labels = r'\{worker="0"\}' if row.labels else ""
            head = f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind}\n{row.name}"
            assert len(re.findall(f"{re.escape(head)}{labels} ", metrics)) == 1
        left = workers(process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0, errors
        assert "drained" in errors
        assert "Traceback" not in errors
        assert [pid for pid in left if alive(pid)] == []


def test_a_worker_that_dies_is_started_again(shop: Shop) -> None:
    """And counted; the message that killed it comes to the next one, which handles the rest."""
    with shop.runs("--workers=2", "--health=127.0.0.1:0") as process:
        url = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(url, "readyz")[0] == 200)
        os.kill(workers(process)[0], signal.SIGKILL)
        assert read_until(process, r"worker \d ended with SIGKILL after .* started again in 1 s")
        eventually(lambda: answer(url, "readyz")[0] == 200)
        assert "jmsx_worker_restarts_total 1\n" in answer(url, "metrics")[1]
        shop.put("a")
        eventually(lambda: [text for _, text, _ in shop.done()] == ["a"])


def up(url: str) -> dict[str, str]:
    """What a scrape says of each worker, by its number."""
    return dict(
        re.findall(
            r'^jmsx_worker_up\{worker="(\d)"\} (\d)$', answer(url, "metrics")[1], re.MULTILINE
        )
    )


def test_a_worker_that_hangs_is_told_of(shop: Shop) -> None:
    """As not up, by its number, and its process by health; the broker gives what it held to others. It may go on."""
    shop.write(seconds=1.0)
    with shop.runs("--workers=3", "--health=127.0.0.1:0", "--log-level=warning") as process:
        url = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(url, "readyz")[0] == 200)
        assert up(url) == {"0": "1", "1": "1", "2": "1"}
        shop.put(*(f"m{number}" for number in range(9)))
        eventually((shop.folder / "begun.txt").exists)
        stopped = numbers(process)[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert up(url) == {"0": "1", "1": "0", "2": "1"}
            assert "jmsx_workers_running 3\n" in answer(url, "metrics")[1]
            code, body = answer(url, "healthz")
            assert code == 503
            assert json.loads(body)["workers"]["1"]["pid"] == stopped
            eventually(lambda: len({text for _, text, _ in shop.done()}) == 9, 60)
        finally:
            os.kill(stopped, signal.SIGCONT)
        eventually(lambda: up(url) == {"0": "1", "1": "1", "2": "1"})


def test_a_worker_without_metrics_is_up(shop: Shop) -> None:
    """It answers, if only that it has none. None is down that starts, waits to be started again, or ends."""
    shop.write(seconds=2.0)
    file = shop.folder / "shop.py"
    text = file.read_text("utf-8").replace("observers=[PrometheusObserver()]", "")
    waits = "import os, time\nif os.environ.get('JMSX_WORKER') == '1':\n    time.sleep(3)\n"
    file.write_text(waits + text, encoding="utf-8")
    told: list[dict[str, str]] = []

    def look() -> dict[str, str]:
        told.append(up(url))
        return told[-1]

    with shop.runs("--workers=2", "--health=127.0.0.1:0", "--drain-timeout=20") as process:
        url = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: look() == {"0": "1", "1": "1"})
        assert {"0": "1"} in told
        eventually(lambda: answer(url, "readyz")[0] == 200)
        os.kill(numbers(process)[0], signal.SIGKILL)
        eventually(lambda: up(url) == {"1": "1"})
        eventually(lambda: up(url) == {"0": "1", "1": "1"})
        eventually(lambda: answer(url, "readyz")[0] == 200)
        shop.put("a")
        eventually((shop.folder / "begun.txt").exists)
        process.send_signal(signal.SIGTERM)
        with suppress(OSError):  # it ends at last
            while process.poll() is None:
                look()
        assert process.wait() == 0
    assert [text for _, text, _ in shop.done()] == ["a"]
    assert {"0": "1", "1": "1"} in told[:-1]
    assert [one for one in told if "0" in one.values()] == []


def test_counters_of_workers_add_up_and_those_of_a_new_one_begin_anew(shop: Shop) -> None:
    """Each has the number of its own messages, whoever else dies; a counter that falls is a reset for Prometheus."""

    def counted() -> dict[int, int]:
        found = defaultdict[int, int](int)
        for line in answer(url, "metrics")[1].splitlines():
            if (
                line.startswith("jmsx_processed_messages_total{")
                and 'outcome="acknowledged"' in line
            ):
                found[int(line.partition('worker="')[2][0])] += int(float(line.rpartition(" ")[2]))
        return found

    def handled() -> dict[int, int]:
        by_process = {pid: number for number, pid in running.items()}
        return Counter(by_process[pid] for pid, *_ in shop.done() if pid in by_process)

    with shop.runs("--workers=3", "--health=127.0.0.1:0", "--log-level=warning") as process:
        url = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(url, "readyz")[0] == 200)
        running = numbers(process)
        shop.put(*(f"a{number}" for number in range(60)))
        eventually(lambda: sum(counted().values()) == 60)
        assert counted() == handled()
        before = counted()
        os.kill(running[1], signal.SIGKILL)
        eventually(lambda: len(counted()) == 2)
        assert counted() == {0: before[0], 2: before[2]}
        eventually(lambda: answer(url, "readyz")[0] == 200)
        running = numbers(process)
        assert counted()[1] == 0
        shop.put(*(f"b{number}" for number in range(60)))
        eventually(lambda: sum(counted().values()) == before[0] + before[2] + 60)
        assert counted() == handled()


def test_a_password_of_a_variable_is_no_argument(shop: Shop) -> None:
    """All users of a machine may read those of its processes."""
    url = f"{shop.broker.url}?jms.userName=shop&jms.password=geheim"
    with shop.runs("--workers=2", "--health=127.0.0.1:0", JMSX_BROKER_URL=url) as process:
        served = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(served, "readyz")[0] == 200)
        for pid in (process.pid, *workers(process)):
            assert b"geheim" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_no_broker_is_said_once(shop: Shop) -> None:
    """With the ways in which it can be given; no worker is started for that."""
    for options in ([], ["--workers=3"]):
        with shop.runs(*options, JMSX_BROKER_URL="") as process:
            out, errors = process.communicate(timeout=40)
            assert process.returncode == 1
            assert out == ""
            [line] = errors.splitlines()
            assert "--url" in line
            assert "JMSX_BROKER_URL" in line


def test_workers_that_are_told_to_stop_before_they_run(shop: Shop) -> None:
    """Have nothing to drain, and that is no failure."""
    with (shop.folder / "shop.py").open("a", encoding="utf-8") as file:
        file.write("if 'JMSX_WORKER' in os.environ: time.sleep(30)\n")
    with shop.runs("--workers=2") as process:
        assert read_until(process, "2 workers")
        eventually(lambda: len(workers(process)) == 2)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0, errors
        assert "drained" in errors


def test_no_worker_outlives_its_supervisor(shop: Shop) -> None:
    """Also when that is killed: what runs is finished, and then they end."""
    shop.write(seconds=1.0)
    with shop.runs("--workers=2", "--health=127.0.0.1:0") as process:
        url = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(url, "readyz")[0] == 200)
        left = workers(process)
        assert len(left) == 2
        process.kill()
        eventually(lambda: not any(alive(pid) for pid in left))


def test_a_broker_that_is_away_is_no_reason_to_restart(shop: Shop) -> None:
    """Of one process as of several: they wait for it, so `/healthz` is well, and `/readyz` is not."""
    for options in ([], ["--workers=2"]):
        place = f"127.0.0.1:{free_port()}"
        variables = {"JMSX_HEALTH": place, "JMSX_BROKER_URL": "stomp://127.0.0.1:1"}
        with shop.runs(*options, **variables) as process:
            assert read_until(process, "waiting for broker")
            url = f"http://{place}"
            workers = 2 if options else 1
            # a worker that does not serve yet is well, and says nothing of the broker
            assert eventually(lambda: answer(url, "readyz")[1].count("not started") == workers, 10)  # noqa: B023 - called at once
            assert answer(url, "readyz")[0] == 503
            assert answer(url, "healthz")[0] == 200


def test_what_can_never_run_ends_at_once(shop: Shop) -> None:
    """A worker that says why it cannot begin is not started again and again."""
    shop.write()
    with (shop.folder / "shop.py").open("a", encoding="utf-8") as file:
        file.write("import os\nif 'JMSX_WORKER' in os.environ: raise ValueError('not here')\n")
    with shop.runs("--workers=2") as process:
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 1
        assert "not here" in errors


def test_until_idle(shop: Shop) -> None:
    """It does what is there, and ends with 0; with several workers too."""
    for options in (["--until-idle=1s"], ["--until-idle=1s", "--workers=2"]):
        shop.put("a", "b", "c")
        with shop.runs(*options) as process:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
    assert sorted(text for _, text, _ in shop.done()) == ["a", "a", "b", "b", "c", "c"]


def test_banner(shop: Shop) -> None:
    """Version, broker, dialect, and how each consumer works."""
    with shop.runs("--until-idle=0.5s") as process:
        _, errors = process.communicate(timeout=60)
    assert re.search(r"jmsx \d+\.\d+\.\d+, shop:app: 1 consumer on .*; Ctrl-C drains", errors)
    assert re.search(r"broker 127.0.0.1:\d+: ActiveMQ/6\.\d+\.\d+ \(classic\)", errors)
    flat = " ".join(errors.split())
    assert (
        f"handle: {shop.queue}, auto, 1 session; delivered again 6 times after 1, 1, 1, 1, 1, 1 s;"
        " then a dead letter by the broker's strategy; not promised without dedupe=: that a message is handled once"
        in flat
    )


@pytest.mark.parametrize("count", [1, 2])
def test_all_that_is_said_as_json(shop: Shop, count: int) -> None:
    """A line each on standard output: which app, where it is, and the end; nothing on standard error."""
    with shop.runs("--until-idle=0.5s", "--json", f"--workers={count}", "--health=0") as process:
        output, errors = process.communicate(timeout=40)
    first, *rest = [json.loads(line) for line in output.splitlines()]
    assert (first["app"], first["consumers"], first["workers"]) == ("shop:app", ["handle"], count)
    assert first["broker"] in shop.broker.url
    said = [one["said"] for one in rest]
    assert any(words.startswith("health") for words in said)
    assert (said[-1] == "drained") == (count == 1)  # workers that end by themselves are not drained
    assert errors == ""


@pytest.mark.parametrize("count", [1, 2])
def test_nobody_reads_what_is_said(shop: Shop, count: int) -> None:
    """Ctrl-C ends a reader at the other end of the pipe, too: what runs is drained all the same."""
    shop.write(seconds=3.0)
    with shop.runs("--json", f"--workers={count}", "--health=127.0.0.1:0") as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "health" in line)
        process.stdout.close()
        eventually(lambda: answer(json.loads(said)["said"].split()[-1], "readyz")[0] == 200)
        shop.put("a")  # not before: one worker may have done it when the other is ready
        # A message in flight, but not yet in its handler, is given back by a drain.
        eventually((shop.folder / "begun.txt").exists)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        errors = process.stderr.read()
        assert (process.wait(timeout=40), errors) == (0, "")
    assert [text for _, text, _ in shop.done()] == ["a"]


def test_reload(shop: Shop) -> None:
    """A changed file is what runs next; a broken one is waited out."""
    with shop.runs("--reload") as process:
        shop.put("a")
        eventually(lambda: len(shop.done()) == 1)
        (shop.folder / "shop.py").write_text("raise ValueError('broken')", encoding="utf-8")
        assert read_until(process, "waiting for a change")
        shop.write(word="newer")
        shop.put("b")
        eventually(lambda: ("b", "newer") in [one[1:] for one in shop.done()])
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0, errors


def _interrupt_a_reload(shop: Shop, process: subprocess.Popen[str], body: str, word: str) -> None:
    """Change the program while its handler has a message, and send SIGINT while that is waited for."""
    shop.put(body)
    eventually((shop.folder / "begun.txt").exists)
    shop.write(word=word)
    assert read_until(process, "a file has changed")
    process.send_signal(signal.SIGINT)
    assert read_until(process, "SIGINT: 1 worker drains")


def test_signals_while_a_reload_waits_for_a_handler(shop: Shop) -> None:
    """The first has nothing started again, and does not abort what drains; the second aborts. Nothing is lost."""
    shop.write(seconds=4.0)
    with shop.runs("--reload") as process:
        _interrupt_a_reload(shop, process, "a", word="newer")
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0, errors
    assert [one[1:] for one in shop.done()] == [("a", "old")]
    (shop.folder / "begun.txt").unlink()
    shop.write(seconds=60.0)
    with shop.runs("--reload") as process:
        _interrupt_a_reload(shop, process, "b", word="newest")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 130
    with shop.runs("--until-idle=1s") as process:
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0, errors
    assert [one[1:] for one in shop.done()] == [("a", "old"), ("b", "newest")]


def test_reload_serves_health_where_the_application_says(shop: Shop) -> None:
    """And at another place when it says another one; what cannot be served is told, and ends nothing."""

    def write(health: str) -> None:
        shop.write()
        file = shop.folder / "shop.py"
        text = file.read_text("utf-8")
        file.write_text(text.replace("App(", f"App(health={health!r}, "), encoding="utf-8")
        moment = began * 10**9 + next(milliseconds) * 10**6  # all in one second, as a quick hand
        os.utime(file, ns=(moment, moment))

    began, milliseconds = int(time.time()), itertools.count(1)
    write("127.0.0.1:0")
    with shop.runs("--reload") as process:
        first = read_until(process, r"health of all at (http://\S+)")[1]
        eventually(lambda: answer(first, "healthz")[0] == 200)
        write("localhost:0")
        second = read_until(process, r"health of all at (http://\S+)")[1]
        assert second != first
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = f"127.0.0.1:{other.getsockname()[1]}"
            write(taken)
            assert read_until(process, f"error: cannot serve health at {taken}")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0, errors


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
