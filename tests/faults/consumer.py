"""The consuming program, made to be killed: `python -m tests.faults.consumer URL QUEUE JOURNAL`."""

from __future__ import annotations

import os
import sys
import time

from jmsx import Message, Queue
from jmsx.app import App
from tests.faults.settings import HEARTBEAT, failover


def main(url: str, queue: str, journal: str) -> None:
    """Write a line about each delivery, in one call so that none is torn, before it is acknowledged."""
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    app = App(failover(url), heartbeat=HEARTBEAT)

    @app.consumer(Queue(queue), concurrency=2, prefetch=20)
    def handle(message: Message) -> None:
        line = f"{time.monotonic()} {int(message.redelivered)} {message.text}\n"
        os.write(file, line.encode())

    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
