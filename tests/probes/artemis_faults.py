"""Faults of ActiveMQ Artemis itself; races are repeated, and counted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from jmsx_broker import ArtemisBroker
from tests.integration.artemis_support import Console
from tests.probes.support import (
    clients,
    expect,
)

if TYPE_CHECKING:
    from tests.integration.parity.sides import Side

QUEUE: Final = "~"
_FROM_A_QUEUE: Final = {"subscription-type": "ANYCAST"}
_TO_A_QUEUE: Final = {"destination-type": "ANYCAST"}


def a67_a_priority_that_is_none_loses_the_message() -> str:
    """A SEND of priority 10, 127 or -1 has a RECEIPT, and its message is nowhere; one of 9 is there."""
    with ArtemisBroker() as broker, clients(broker) as side, Console(broker) as console:
        client = side.open()
        answers = {}
        for priority in ("10", "127", "-1"):
            answers[priority] = client.ask(
                "SEND",
                b"x",
                destination=f"{QUEUE}{priority}",
                priority=priority,
                persistent="true",
                **_TO_A_QUEUE,
            )
        lost = console.holds({})
        left = console.sizes()
        client.put(QUEUE, "a", priority="9")
        kept = sum(console.sizes().values())
    expect(set(answers.values()) == {"RECEIPT"}, f"answers: {answers}")
    expect(lost, f"left: {left}")
    expect(kept == 1, f"of priority 9 {kept} messages are there")
    return f"{len(answers)} RECEIPTs, 0 messages"


def delivering(console: Console, name: str) -> int:
    """How many messages of a queue are in delivery."""
    return int(console.ask(f"queue.{name}", "getDeliveringCount"))


def _slowest_connect(side: Side, count: int) -> float:
    """The seconds until the last of `count` CONNECTs is answered; at most 30."""
    began = time.monotonic()
    others = [side.open_silent() for _ in range(count)]
    for other in others:
        other.tell("CONNECT", **{"accept-version": "1.2", "host": "x"})
    for other in others:
        other.wire.read(max(began + 30 - time.monotonic(), 0.0))
    took = time.monotonic() - began
    for other in others:
        other.wire.cut()
    return took
