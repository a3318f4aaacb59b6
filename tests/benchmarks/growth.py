"""
What grows with what: `uv run python -m tests.benchmarks.growth [--broker classic,artemis] [--only WORD]`.

Ten times the messages, sessions, subscriptions, held messages, redeliveries, large bodies. Each measurement has a
process of its own. CPU is microseconds of the client a message; memory is that of its process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.brokers import Broker
from tests.benchmarks.rivals import SIZE, Meter, Raw, cpu, frame, jmsx_consume, target

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds for one measurement.
PATIENCE: Final = 240.0

#: Messages of one measurement that is about something else.
FEW: Final = 2_000


def _rss() -> float:
    """Megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def messages(place: dict[str, Any], _count: int, face: str) -> dict[str, float]:
    """Many messages, AUTO."""
    meter = Meter(place["messages"])
    told = {"mode": "auto", "face": face, "observers": "", "asynchronous": False}
    jmsx_consume({**place, **told}, meter)
    return {"us": meter.told["us"], "rss_mb": meter.told["rss_mb"]}


def sessions(place: dict[str, Any], count: int) -> dict[str, float]:
    """Sessions with a listener each, that have nothing to do."""
    import jmsx  # noqa: PLC0415 - the memory that it takes is measured

    before, began, used = _rss(), time.perf_counter(), cpu()
    connection = jmsx.Connection(place["url"])
    connection.start()
    for number in range(count):
        session = connection.create_session()
        consumer = session.create_consumer(jmsx.Queue(f"{place['queue']}.{number}"))
        consumer.set_listener(lambda _message: None)
    told = {
        "open_ms": (time.perf_counter() - began) / count * 1e3,
        "open_cpu_ms": (cpu() - used) / count * 1e3,
        "rss_mb": (_rss() - before) / count,
        "threads": threading.active_count(),
    }
    time.sleep(1)
    used = cpu()
    time.sleep(3)
    told["idle_cpu_ms_a_second"] = (cpu() - used) / 3 * 1e3
    connection.close()
    return told


def subscriptions(place: dict[str, Any], count: int) -> dict[str, float]:
    """Consumers in one session, and messages to all of them in turn."""
    import jmsx  # noqa: PLC0415 - the memory that it takes is measured

    connection = jmsx.Connection(place["url"])
    connection.start()
    session, meter = connection.create_session(), Meter(FEW)
    began = time.perf_counter()
    queues = [f"{place['queue']}.{number}" for number in range(count)]
    for queue in queues:
        session.create_consumer(jmsx.Queue(queue)).set_listener(lambda _message: meter.hit())
    opened = time.perf_counter() - began
    raw = Raw(place)
    for number in range(FEW):
        headers = {**target({**place, "queue": queues[number % count]}), "persistent": "true"}
        raw.socket.sendall(frame("SEND", headers, b"x" * SIZE))
    raw.bye()
    meter.done.wait(PATIENCE / 2)
    meter.end()
    connection.close()
    return {"us": meter.told["us"], "open_ms": opened / count * 1e3, "seen": meter.seen}


def held(place: dict[str, Any], count: int, mode: str, *, newest_first: bool) -> dict[str, float]:
    """Messages that are taken, and settled at the end; CPU of receiving them in the first and in the last fifth."""
    import jmsx  # noqa: PLC0415 - the memory that it takes is measured

    connection = jmsx.Connection(place["url"])
    connection.start()
    session = connection.create_session(jmsx.AcknowledgeMode[mode])
    consumer = session.create_consumer(jmsx.Queue(place["queue"]))
    taken, fifths, used = [], [], cpu()
    for number in range(count):
        message = consumer.receive(30)
        if message is None:
            return {"stalled_at": number}
        taken.append(message)
        if (number + 1) % (count // 5) == 0:
            fifths.append((cpu() - used) / (count // 5) * 1e6)
            used = cpu()
    used = cpu()
    if mode == "SESSION_TRANSACTED":
        session.commit()
    elif mode == "CLIENT_ACKNOWLEDGE":
        taken[-1].acknowledge()
    else:
        for message in reversed(taken) if newest_first else taken:
            message.acknowledge()
    settled = (cpu() - used) / count * 1e6
    told = {"first_fifth_us": fifths[0], "last_fifth_us": fifths[-1], "settle_us": settled}
    connection.close()
    return {**told, "rss_mb": _rss()}


def redeliveries(place: dict[str, Any], count: int) -> dict[str, float]:
    """Messages that each fail once, and are delivered again in between the others."""
    import jmsx  # noqa: PLC0415 - the memory that it takes is measured

    logging.disable(logging.CRITICAL)
    meter = Meter(count)
    policy = jmsx.RedeliveryPolicy(
        maximum_redeliveries=3, initial_redelivery_delay=0.5, redelivery_delay=0.5
    )
    connection = jmsx.Connection(
        place["url"],
        non_blocking_redelivery=True,
        redelivery_policy=policy,
        prefetch_policy=jmsx.PrefetchPolicy.all(count),
    )
    connection.start()
    used = cpu()

    def listen(message: Any) -> None:
        if message.delivery_count < 2:
            raise ValueError("not yet")
        meter.hit()

    consumer = connection.create_session().create_consumer(jmsx.Queue(place["queue"]))
    consumer.set_listener(listen)
    meter.done.wait(PATIENCE / 2)
    told = {"us": (cpu() - used) / count * 1e6, "seen": float(meter.seen)}
    connection.close()
    return told


#: What is measured: its name, how much of it, how many messages of which size lie there, and how.
MEASURED: Final[
    tuple[tuple[str, int, int, int, Callable[[dict[str, Any], int], dict[str, float]]], ...]
] = (
    *(
        (
            f"messages, {face}",
            count,
            count,
            SIZE,
            lambda place, n, face=face: messages(place, n, face),
        )
        for face in ("listener", "receive")
        for count in (5_000, 50_000)
    ),
    *(("sessions", count, 0, SIZE, sessions) for count in (1, 10, 100, 200)),
    *(
        ("subscriptions of a session", count, 0, SIZE, subscriptions)
        for count in (1, 10, 100, 1_000)
    ),
    *(
        (
            f"held, {mode}",
            count,
            count,
            SIZE,
            lambda place, n, mode=mode: held(place, n, mode, newest_first=False),
        )
        for mode in ("CLIENT_ACKNOWLEDGE", "INDIVIDUAL_ACKNOWLEDGE", "SESSION_TRANSACTED")
        for count in (1_000, 10_000)
    ),
    (
        "held, newest settled first",
        10_000,
        10_000,
        SIZE,
        lambda place, n: held(place, n, "INDIVIDUAL_ACKNOWLEDGE", newest_first=True),
    ),
    *(("redeliveries", count, count, SIZE, redeliveries) for count in (500, 5_000)),
    ("bodies of 1 MiB", 200, 200, 1 << 20, lambda place, n: messages(place, n, "receive")),
)


def growths(broker: Broker, only: str = "") -> list[dict[str, Any]]:
    """All measurements on one broker, each with its name and figures."""
    found = []
    for number, (name, count, waiting, size, _) in enumerate(MEASURED):
        what = f"{name}: {count:,}"
        if only not in what:
            continue
        queue = f"growth.{number}.{count}"
        if waiting:
            broker.fill(queue, waiting, size)
        told = json.dumps({**broker.place(queue, waiting or FEW), "number": number})
        command = [sys.executable, "-m", "tests.benchmarks.growth", "--one", told]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=True
            )
            figures = json.loads(ended.stdout.strip().rpartition("\n")[2])
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"! {what}: {error}", file=sys.stderr)
            figures = {}
        found.append({"what": what, "figures": figures})
        print(f"  {what:42} {shown(figures)}", file=sys.stderr, flush=True)
    return found


def shown(figures: dict[str, float]) -> str:
    """The figures of one measurement as text."""
    return ", ".join(f"{name} {value:,.4g}" for name, value in figures.items()) or "failed"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--broker", default="classic", help="classic,artemis")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        place = json.loads(given.one)
        _, count, _, _, measure = MEASURED[place.pop("number")]
        print(json.dumps(measure(place, count)), flush=True)
        os._exit(0)
    for kind in given.broker.split(","):
        with Broker(kind) as broker:
            for one in growths(broker, given.only):
                print(f"{kind:8} {one['what']:42} {shown(one['figures'])}")


if __name__ == "__main__":
    main()
