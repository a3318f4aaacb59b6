"""
What the core costs: CPU microseconds a message on one thread, without broker, socket or lock.

    uv run python -m tests.benchmarks.core [--rounds N] [--json]

Recorded MESSAGE frames of Classic go through `Splitter` and `SessionCore`, which is called as the engine calls it:
after each call its actions are taken and its next timer is asked for. Each number is the least of several rounds, so
that a busy machine can hardly spoil it, and stands beside its ratio to the first row. There is a table by mode; two by
the number of subscriptions of one session, whose messages are for one of them or for one after the other; and two by
the number of messages that an INDIVIDUAL session holds, which are then acknowledged in one order or another.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame, Transmit
from jmsx.core.modes import AcknowledgeMode, Covers, SettledBy
from jmsx.core.policy import no_jitter
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.session import SessionCore
from jmsx.core.values import ConsumerSettings, DestinationKind, SessionSettings, StompAck
from jmsx.core.wire import Splitter
from jmsx_classic import DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jmsx.core.delivery import Delivery

#: Messages of one measurement.
MESSAGES: Final = 2_000

#: Messages that are read from the socket at once, and acknowledged or committed together.
CHUNK: Final = 50
BATCH: Final = 100

#: As Classic 6.1.8 writes one.
HEAD: Final = (
    "MESSAGE\nexpires:0\ndestination:/queue/q\nack:ID\\cvm-35499-1795308494655-7\\c{0}\nsubscription:{1}\npriority:4\n"
    "number:{0}\nmessage-id:ID\\cvm-35499-1795308494655-6\\c2\\c-1\\c1\\c{0}\npersistent:true\n"
    "timestamp:1795308543183\n\n"
)

BODY: Final = "x" * 256

_numbers = itertools.count(1_000_000)


def wire(subscription: int) -> bytes:
    """The next message, for that subscription."""
    return (HEAD.format(next(_numbers), subscription) + BODY + "\0\n").encode()


class Driven:
    """A session with so many subscriptions, driven on this thread; all of its consumers have a listener."""

    def __init__(
        self, mode: AcknowledgeMode, subscriptions: int = 1, prefetch: int = 1_000
    ) -> None:
        self.mode = mode
        self.prefetch = prefetch
        self.names = dict.fromkeys(str(one) for one in range(1, subscriptions + 1))
        self.now = 0.0
        self.splitter = Splitter()
        settings = SessionSettings(mode=mode, broker="broker:61613", session_id="s")
        self.core = SessionCore(settings, DIALECT, no_jitter, ProcessMemory())
        self.core.link_opened("ActiveMQ/6.1.8", 0.0, self.now)
        for name in self.names:
            request = self.core.subscribe(self._consumer(name), self.now)
            answer = Frame("RECEIPT", {"receipt-id": request.receipt_id})
            self.core.receive([answer], self.now, 0.0)
        self.tell()
        self.core.want(self.names, self.now)

    def _consumer(self, name: str) -> ConsumerSettings:
        ack = StompAck.CLIENT_INDIVIDUAL if self.mode.does.single_acks else StompAck.CLIENT
        return ConsumerSettings(
            subscription_id=name,
            name="bench",
            destination="queue://q",
            kind=DestinationKind.QUEUE,
            mode=self.mode,
            stomp_ack=ack,
            headers={"destination": "/queue/q", "ack": ack.value},
            origin="queue://q",
            dead_letter_queue="queue://ActiveMQ.DLQ",
            prefetch=self.prefetch,
        )

    def tell(self) -> None:
        """What the engine does after each call: write the frames, and look when to wake up."""
        for action in self.core.take_actions():
            if isinstance(action, Transmit):
                for frame in action.frames:
                    frame.encode()
        self.core.next_timer()

    def come(self, data: bytes) -> None:
        """Bytes were read."""
        self.now += 0.001
        self.core.receive(self.splitter.feed(data), self.now, 0.0)
        due = self.core.next_timer()
        if due is not None and due <= self.now:
            self.core.handle_timer(self.now)
        self.tell()

    def take(self) -> Delivery | None:
        """The next message for a listener."""
        delivery = self.core.handing_out.deliver(self.names, self.now)
        if delivery is None:
            self.core.want(self.names, self.now)
        self.tell()
        return delivery

    def done(self, delivery: Delivery) -> None:
        """The listener has returned."""
        self.core.consumed(delivery, self.now)
        self.tell()

    def acknowledge(self, delivery: Delivery) -> None:
        """As message.acknowledge()."""
        self.core.acknowledge(delivery, self.now)
        self.tell()

    def commit(self) -> None:
        """Commit, and the broker confirms it."""
        request = self.core.commit(self.now)
        self.tell()
        if not request.done:
            receipt = {"receipt-id": next(iter(self.core._requests._open))}
            self.core.receive([Frame("RECEIPT", receipt)], self.now, 0.0)
        self.tell()

    def consume(self, chunks: Sequence[bytes]) -> int:
        """All of these, to their end; returns how many messages it were."""
        does = self.mode.does
        number = 0
        for chunk in chunks:
            self.come(chunk)
            while (delivery := self.take()) is not None:
                self.done(delivery)
                number += 1
                if does.acknowledge_covers is Covers.MESSAGE or (
                    does.settled_by is SettledBy.CALL and number % BATCH == 0
                ):
                    self.acknowledge(delivery)
                elif does.transacted and number % BATCH == 0:
                    self.commit()
        return number


def chunks(subscriptions: Iterator[int]) -> list[bytes]:
    """What the broker writes: messages for these subscriptions, one after the other."""
    sizes = itertools.repeat(CHUNK, MESSAGES // CHUNK)
    return [b"".join(wire(next(subscriptions)) for _ in range(size)) for size in sizes]


def least(rounds: int, measure: Callable[[], tuple[float, int]]) -> float:
    """The least of several rounds of (CPU seconds, messages), in microseconds a message."""
    gc.disable()
    try:
        found = []
        for _ in range(rounds):
            seconds, number = measure()
            found.append(seconds / number * 1e6)
            gc.collect()
        return min(found)
    finally:
        gc.enable()


def by_mode(mode: AcknowledgeMode) -> tuple[float, int]:
    """A listener's session of that mode."""
    driven, data = Driven(mode), chunks(itertools.repeat(1))
    start = time.thread_time()
    number = driven.consume(data)
    return time.thread_time() - start, number


def by_subscriptions(subscriptions: int, *, spread: bool) -> tuple[float, int]:
    """An AUTO session with so many; the messages are for the first one, or for one after the other."""
    driven = Driven(AcknowledgeMode.AUTO_ACKNOWLEDGE, subscriptions)
    turn = itertools.cycle(range(1, subscriptions + 1)) if spread else itertools.repeat(1)
    data = chunks(turn)
    start = time.thread_time()
    number = driven.consume(data)
    return time.thread_time() - start, number


def by_held(held: int, order: str) -> tuple[float, float]:
    """
    Microseconds of each receive while an INDIVIDUAL session comes to hold so many, and of each acknowledgement.

    The prefetch is small, so that the window is opened over and over, as with a broker that pages messages in.
    """
    driven = Driven(AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE, prefetch=200)
    data = [b"".join(wire(1) for _ in range(CHUNK)) for _ in range(held // CHUNK)]
    got = []
    start = time.thread_time()
    for chunk in data:
        driven.come(chunk)
        while (delivery := driven.take()) is not None:
            got.append(delivery)
        due = driven.core.next_timer()
        if due is not None:  # the window is opened
            driven.now = max(driven.now, due)
            driven.core.handle_timer(driven.now)
            driven.tell()
    received = time.thread_time() - start
    if order == "newest first":
        got.reverse()
    elif order == "any":
        random.Random(1).shuffle(got)
    start = time.thread_time()
    for delivery in got:
        driven.acknowledge(delivery)
    return received / held * 1e6, (time.thread_time() - start) / held * 1e6


def show(title: str, rows: dict[str, float]) -> None:
    """One table."""
    first = next(iter(rows.values()))
    print(f"\n{title:44} {'us/message':>10} {'ratio':>7}")
    for name, cost in rows.items():
        print(f"{name:44} {cost:10.2f} {cost / first:7.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    tables: dict[str, dict[str, float]] = {}
    tables["by mode"] = {
        mode.label: least(given.rounds, partial(by_mode, mode)) for mode in AcknowledgeMode
    }
    for spread, told in ((False, "messages for one"), (True, "messages for each in turn")):
        tables[f"by subscriptions, {told}"] = {
            str(number): least(
                given.rounds if number < BATCH else 3,
                partial(by_subscriptions, number, spread=spread),
            )
            for number in (1, 10, 100, 1_000)
        }
    costs = {
        (held, order): [by_held(held, order) for _ in range(given.rounds if held < MESSAGES else 1)]
        for held in (100, 1_000, 10_000)
        for order in ("oldest first", "newest first", "any")
    }
    tables["INDIVIDUAL, receive while it holds"] = {
        f"{held} held": min(
            cost for (each, _), found in costs.items() if each == held for cost, _ in found
        )
        for held, _ in costs
    }
    tables["INDIVIDUAL, acknowledge"] = {
        f"{held} held, {order}": min(cost for _, cost in found)
        for (held, order), found in costs.items()
    }
    if given.json:
        print(json.dumps(tables))
        return
    for title, rows in tables.items():
        show(title, rows)


if __name__ == "__main__":
    main()
