"""The main job as a newcomer and an ill-meaning one run it: the whole, on a real broker, by the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def start_demo(*arguments: str) -> subprocess.Popen[str]:
    """`jmsx demo` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "jmsx.cli", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def descendants(pid: int) -> list[int]:
    """Process ids of all children of `pid`, and of theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def broker_of(demo: subprocess.Popen[str], deadline: float = 60.0) -> int:
    """The process id of the demo's Java, as soon as there is one."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        for pid in descendants(demo.pid):
            try:
                if "org.apache.activemq" in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
            except OSError:
                continue
        time.sleep(0.05)
    raise AssertionError("the demo has started no broker")


def await_traffic(out: Path, deadline: float = 60.0) -> None:
    """Wait until the event log of the demo grows: messages flow."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if sum(file.stat().st_size for file in out.rglob("*.open")) > 100_000:
            return
        time.sleep(0.05)
    raise AssertionError("no traffic")


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.spark
def test_the_demo_accounts_for_every_message(tmp_path: Path) -> None:
    """Nothing is lost, all books agree, and each poison message died after 1 + 3 deliveries."""
    demo = start_demo("--json", "--messages", "1000", "--out", str(tmp_path))
    out, err = demo.communicate(timeout=240)
    assert demo.returncode == 0, err
    told = json.loads(out)
    assert (told["lost"], told["duplicates"], told["agree"]) == (0, 0, True)
    assert told["audit"] == "balanced"
    assert (told["sent"], told["dead_lettered"]) == (1200, 10)
    assert told["redelivered"] == 50 * 2 + 10 * 3
    assert Path(told["report"]).read_text().startswith("<!doctype html>")
    assert "jmsx_settled_messages_total" in Path(told["metrics"]).read_text()


def test_artemis_and_no_spark(tmp_path: Path) -> None:
    """The same account on the other broker; without a report nothing of Spark is needed; else that is told."""
    without = "import sys; sys.modules['pyspark'] = None; from jmsx.cli import main; main()"
    options = ("--json", "--messages", "500", "--out", str(tmp_path), "--broker", "artemis")
    asked, done = (
        subprocess.run(
            [sys.executable, "-c", without, "demo", *report, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        for report in ([], ["--no-report"])
    )
    assert asked.returncode == 1
    assert "leave the audit out: --no-report" in asked.stderr
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["lost"], told["duplicates"], told["differences"]) == (0, 0, [])
    assert (told["sent"], told["dead_lettered"], told["audit"]) == (600, 5, "not run")
    assert told["redelivered"] == 25 * 2 + 5 * 3


OWN_QUEUE = """
from jmsx import App, Message, Reject

app = App("stomp://localhost:61613", dead_letter="queue://own.dead")


@app.consumer("queue://orders")
def ship(order: Message) -> None:
    if order.text == "7":
        raise Reject("no")


def messages(count):
    return [("queue://orders", str(number)) for number in range(count)]
"""


def test_an_application_that_names_its_dead_letter_queue(tmp_path: Path) -> None:
    """What lies there is not lost."""
    program = tmp_path / "shop.py"
    program.write_text(OWN_QUEUE)
    options = ("--app", str(program), "--messages", "10", "--no-report", "--out", str(tmp_path))
    demo = start_demo("--json", *options)
    out, err = demo.communicate(timeout=120)
    assert demo.returncode == 0, err
    told = json.loads(out)
    assert (told["dead_lettered"], told["lost"], told["differences"]) == (1, 0, [])


def test_a_killed_broker_is_a_clear_error(tmp_path: Path) -> None:
    """SIGKILL of the broker in the middle ends the demo with words, exit code 1 and no process left."""
    demo = start_demo("--json", "--messages", "1000000", "--out", str(tmp_path))
    broker = broker_of(demo)
    await_traffic(tmp_path)
    os.kill(broker, signal.SIGKILL)
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert out == ""
    assert "Traceback" not in err
    assert "error: " in err
    assert "127.0.0.1:" in err
    assert not is_alive(broker)


def test_ctrl_c_drains(tmp_path: Path) -> None:
    """Ctrl-C ends the demo in order: what was acknowledged was processed, the rest lies on the broker."""
    demo = start_demo("--json", "--messages", "1000000", "--out", str(tmp_path))
    broker = broker_of(demo)
    await_traffic(tmp_path)
    os.kill(demo.pid, signal.SIGINT)
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == 130, err
    told = json.loads(out)
    assert told["sent"] > 0
    assert (told["lost"], told["agree"], told["differences"]) == (0, True, [])
    assert "Traceback" not in err
    assert not is_alive(broker)


RAISING = """
import random
from pathlib import Path
import importlib.util
spec = importlib.util.spec_from_file_location("orders", {orders!r})
orders = importlib.util.module_from_spec(spec)
spec.loader.exec_module(orders)
app, messages = orders.app, orders.messages
chance = random.Random(7)
def now_and_then(handler):
    def handle(message, *rest):
        if chance.random() < 0.2:
            raise RuntimeError("bad luck")
        result = handler(message, *rest)
        if chance.random() < 0.05:
            raise RuntimeError("bad luck, afterwards")
        return result
    return handle
for consumer in app.consumers:
    wrapped = now_and_then(consumer.handler)
    handler = (lambda m, s, f=wrapped: f(m, s)) if consumer.takes_session else (lambda m, f=wrapped: f(m))
    app.replace_handler(consumer.name, handler)
for name in ("ship", "invoice", "book"):
    app.change(name, redelivery=orders.SOON)
"""


@pytest.mark.spark
def test_books_agree_when_handlers_raise_at_random(tmp_path: Path) -> None:
    """Handlers that raise before or after their work change counts, never their agreement."""
    shop = tmp_path / "shop.py"
    shop.write_text(RAISING.format(orders=str(ROOT / "examples" / "orders.py")))
    demo = start_demo("--json", "--messages", "2000", "--out", str(tmp_path), "--app", str(shop))
    out, err = demo.communicate(timeout=240)
    assert demo.returncode == 0, err + out
    told = json.loads(out)
    assert (told["lost"], told["agree"], told["differences"]) == (0, True, [])
    assert told["redelivered"] > 500
    assert told["dead_lettered"] > 20
