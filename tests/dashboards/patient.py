"""An application for the fault x alert matrix: it does to each message what the message says, and shows its metrics."""

from __future__ import annotations

import sys
import threading
import time

from jmsx import App, Message, RedeliveryPolicy, Reject
from jmsx_prometheus import PrometheusObserver, serve

_RATE = 40.0  #: messages a second
_HANG = 3600.0  #: seconds


def make(uri: str, observer: PrometheusObserver) -> App:
    """Return the application on `uri`: a queue that is read in order, and one where others pass what failed."""
    app = App(uri, observers=[observer], broker_stats=1.0, watch=0)
    later = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=90.0)
    at_once = RedeliveryPolicy(
        maximum_redeliveries=3, initial_redelivery_delay=0.002, redelivery_delay=0.002
    )

    @app.consumer("queue://orders", redelivery=at_once)
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
        place = "queue://patience" if word in {"once", "calm"} else "queue://orders"
        app.send(place, Message(word))
        number += 1


def main(uri: str, port: str, role: str, *words: str) -> None:
    """Run until standard input ends: `role` is `work`, `send` or `both`."""
    observer = PrometheusObserver()
    vars(observer)["keeps_counts"] = (
        True  # as an event log does: the app asks the broker for its counts
    )
    stopped = threading.Event()
    app = (
        make(uri, observer) if role != "send" else App(uri, observers=[observer], broker_stats=1.0)
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
