"""An application for the fault x alert matrix: it does to each message what the message says, and shows its metrics."""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from jmsx import App, DeadLetterStrategy, JmsxError, Message, RedeliveryPolicy, Reject
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jmsx.observe import Observer

_RATE = 40.0  #: messages a second
_HANG = 3600.0  #: seconds
_BRISK = 2.0  #: seconds between heart-beats
_FULL = 200_000  #: bytes of an event log after which its disk is full
#: Where messages go that are not for the queue that is read in order.
_PLACES = {"once": "queue://patience", "calm": "queue://patience", "fill": "queue://tight"}


def make(uri: str, observers: Sequence[Observer], role: str) -> App:
    """Return the application on `uri`: a queue that is read in order, and one where others pass what failed."""
    beat = _BRISK if role == "brisk" else 10.0
    dead = "queue://tight" if role == "tight" else DeadLetterStrategy.SAFE
    app = App(uri, observers=observers, broker_stats=1.0, watch=0, heartbeat=(beat, beat))
    later = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=90.0)
    at_once = RedeliveryPolicy(
        maximum_redeliveries=3, initial_redelivery_delay=0.002, redelivery_delay=0.002
    )

    @app.consumer("queue://orders", redelivery=at_once, dead_letter=dead)
    def handle(message: Message) -> None:
        treat(message)

    @app.consumer("queue://patience", redelivery=later, non_blocking_redelivery=True)
    def wait(message: Message) -> None:
        treat(message)

    return app


def treat(message: Message) -> None:
    """Do what the message says."""
    word, _, number = message.text.partition(":")
    if word == "reject":
        raise Reject("it says so")
    if word == "raise":
        raise ValueError("it says so")
    if word == "once" and message.delivery_count == 1:
        raise ConnectionError("busy, but not for long")
    if word in {"sleep", "hang"}:
        time.sleep(float(number or _HANG))


def send(app: App, words: list[str], stopped: threading.Event) -> None:
    """Send one message after the other, each the next of `words`."""
    number = 0
    while not stopped.wait(1 / _RATE):
        word = words[number % len(words)]
        place = _PLACES.get(word, "queue://orders")
        with contextlib.suppress(JmsxError):  # such as a broker that is away
            app.send(place, Message(word))
        number += 1


def full_log(folder: str) -> EventLog:
    """An event log in `folder`, whose disk is soon full: no file of this process may be longer."""
    sys.dont_write_bytecode = True  # it would be cut short, and taken for whole by others
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL, resource.RLIM_INFINITY))
    return EventLog(folder, service="shop")


def main(uri: str, port: str, role: str, *words: str) -> None:
    """
    Run until standard input ends.

    `role` is `work`, `send`, `both`, and as that one `brisk`, which soon misses a broker that is silent, `tight`, whose
    dead letters go to a queue of that name, and `full`, which has an event log and no room for it.
    """
    stopped = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        log = full_log(folder) if role == "full" else None
        observer = PrometheusObserver(log=log)
        # as an event log does: the app asks the broker for its counts
        vars(observer)["keeps_counts"] = True
        observers: list[Observer] = [observer] if log is None else [observer, log]
        app = (
            make(uri, observers, role)
            if role != "send"
            else App(uri, observers=observers, broker_stats=1.0)
        )
        sender = threading.Thread(target=send, args=(app, list(words), stopped), daemon=True)
        with serve(observer, int(port)):
            app.start()
            if role != "work":
                sender.start()
            sys.stdin.read()
            stopped.set()
            app.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
