"""
What a message costs beyond one thread: `uv run python -m tests.benchmarks.hand_overs [--messages N] [--rounds R]`.

This process plays Classic on a real socket, and sends messages a hundred at a time, or one for each ACK, to a client in
another one. So the ways differ in nothing but how often the client's threads are woken. In turns; each figure is the
median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
from typing import Final

from tests.benchmarks.one_thread import GREETING, HEAD
from tests.benchmarks.rivals import SIZE
from tests.benchmarks.ways import Way

#: Messages that a consumer is given without an ACK.
WINDOW: Final = 1000

STEPS: Final = (100, 1)

WAYS: Final = (
    *(
        Way(work="consume", who="jmsx", face=face, mode=mode)
        for face in ("receive", "listener", "app")
        for mode in ("auto", "individual")
    ),
    Way(work="consume", who="jmsx", face="app", mode="auto", asynchronous=True),
)

#: The label of a way, messages at once, and a message's CPU microseconds, those in the kernel, and waits of threads.
Figures = tuple[str, int, float, float, float]

_RECEIPT: Final = re.compile(rb"\nreceipt:([^\n]+)")
_ID: Final = re.compile(rb"\nid:([^\n]+)")


def play(listener: socket.socket, messages: int, step: int) -> None:
    """Be Classic for one connection; `step` messages are sent as soon as so many may be."""
    client, _ = listener.accept()
    with client:
        _play_on(client, messages, step)


def _play_on(client: socket.socket, messages: int, step: int) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kept, subscription, sent, acknowledged = b"", "", 0, 0
    body = "x" * SIZE + "\0\n"
    while data := client.recv(1 << 18):
        *frames, kept = (kept + data).split(b"\0")
        for one in frames:
            command = one.lstrip(b"\n")
            if command.startswith(b"CONNECT"):
                client.sendall(GREETING)
            elif command.startswith(b"SUBSCRIBE") and (found := _ID.search(one)):
                subscription = found[1].decode()
            elif command.startswith(b"ACK") and (found := _ID.search(one)):
                acknowledged = int(found[1].rpartition(b"\\c")[2]) + 1  # and all before it
            for receipt in _RECEIPT.findall(one):
                client.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % receipt)
            if command.startswith(b"DISCONNECT"):
                return
        count = min(messages, acknowledged + WINDOW) - sent
        if subscription and count >= min(step, messages - sent) > 0:
            chunk = "".join(
                HEAD.format(number=sent + one, subscription=subscription, sender=6) + body
                for one in range(count)
            )
            client.sendall(chunk.encode())
            sent += count


def run(way: Way, messages: int, step: int) -> dict[str, float]:
    """One run of one way, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = threading.Thread(target=play, args=(listener, messages, step), daemon=True)
        broker.start()
        url = f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        told = json.dumps(way.told(url=url, broker="classic", queue="bench", messages=messages))
        ended = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.rivals", told],
            capture_output=True,
            text=True,
            check=True,
        )
        broker.join()
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def measured(messages: int, rounds: int) -> list[Figures]:
    """Of each way, and so many messages at once, the medians of all rounds."""
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for way in WAYS:
            for step in STEPS:
                runs.setdefault((way.label, step), []).append(run(way, messages, step))

    def median(each: list[dict[str, float]], name: str) -> float:
        return statistics.median(one[name] for one in each)

    return [
        (label, step, median(each, "us"), median(each, "kernel_us"), median(each, "waits"))
        for (label, step), each in runs.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.hand_overs", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"{'':24} {'at once':>8} {'CPU us':>8} {'kernel':>8} {'waits':>8}")
    for label, step, us, kernel, waits in measured(given.messages, given.rounds):
        print(f"{label:24} {step:8} {us:8.1f} {kernel:8.1f} {waits:8.2f}")


if __name__ == "__main__":
    main()
