"""The consuming program, made to be killed: `python -m tests.faults.consumer TASK`."""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from jmsx import AcknowledgeMode, Message, Queue, RedeliveryPolicy, Session
from jmsx.app import App
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver
from tests.faults.books import numbers
from tests.faults.settings import HEARTBEAT, MARK, SLOW, Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class RefusedError(Exception):
    """A handler's, for a marked message."""


def main(text: str) -> None:
    """Write a line about each delivery, in one call so that none is torn, before anything is done with it."""
    faulthandler.register(signal.SIGUSR1)  # the bench asks where it hangs
    threading.Thread(target=_end_with_bench, daemon=True).start()
    task = Task.loads(text)
    plan = task.plan
    if plan.stepped:
        step_clock(task.clock)
    journal = os.open(task.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    metrics = PrometheusObserver()
    app = App(
        task.way.url,
        tls=task.way.tls,
        heartbeat=HEARTBEAT,
        ledger=task.ledger if plan.ledger else None,
        commit_markers=plan.markers,
        observers=[EventLog(task.events, service="faults"), metrics],
    )

    @app.consumer(
        Queue(task.queue),
        mode=AcknowledgeMode[plan.mode],
        redelivery=RedeliveryPolicy(
            maximum_redeliveries=plan.maximum_redeliveries,
            initial_redelivery_delay=0.1,
            redelivery_delay=0.1,
        ),
        dead_letter=f"queue://{task.dlq}" if plan.dlq else "safe",
        concurrency=2,
        prefetch=20,
    )
    def handle(message: Message, session: Session) -> None:
        line = f"{time.monotonic()} {int(message.redelivered)} {message.text}\n"
        os.write(journal, line.encode())
        if message.text.endswith(MARK):
            MARKED[plan.marked](message)
        time.sleep(plan.work)
        if plan.forwards:
            session.create_producer(Queue(task.output)).send(Message(message.text))

    app.run()
    told = {"pid": os.getpid(), "numbers": numbers(metrics)}
    task.metrics.write_text(json.dumps(told), "utf-8")


def _end_with_bench() -> None:
    """Nobody closes our standard input but the death of the bench."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _kill(_message: Message) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(message: Message) -> None:
    raise RefusedError(message.text)


def _retry(message: Message) -> None:
    if not message.redelivered:
        raise RefusedError(message.text)


def _slow(_message: Message) -> None:
    time.sleep(SLOW)


MARKED: Final[dict[str, Callable[[Message], None]]] = {
    "kill": _kill,
    "raise": _raise,
    "retry": _retry,
    "slow": _slow,
}


def step_clock(file: Path) -> None:
    """Let `time.time()` be ahead of the true time by what stands in `file`, at every moment."""
    with file.open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    true_time = time.time
    time.time = lambda: true_time() + struct.unpack("d", ahead)[0]


if __name__ == "__main__":
    main(sys.argv[1])
