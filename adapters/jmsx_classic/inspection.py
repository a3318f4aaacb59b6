"""What ActiveMQ Classic tells over STOMP about itself: counts by its statistics plugin, if it has that, little else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx import Session
from jmsx.check.finding import Finding, Level
from jmsx_classic.copies import DEAD_LETTER_QUEUE
from jmsx_classic.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


#: Percent of a limit from which a warning is given: at 100 the broker blocks senders.
_NEARLY_FULL: Final = 80


def inspect(session: Session, queues: Sequence[str]) -> Iterator[Finding]:
    """Yield limits of the broker, redelivery, and the counts of its dead letter queue and of `queues`."""
    yield Finding(
        "broker plugins",
        Level.NOTE,
        "not visible over STOMP: with a discardingDLQBrokerPlugin in activemq.xml, dead letters that jmsx gives to the"
        " broker (NACK) are deleted; name a queue with dead_letter= then, and it gets confirmed copies",
    )
    yield Finding(
        "broker redelivery",
        Level.NOTE,
        "not visible over STOMP: with a redeliveryPlugin in activemq.xml, dead letters that jmsx gives to the broker"
        " (NACK) would be redelivered by it again; name a queue with dead_letter= then",
    )
    asked = Statistics(session)
    broker = asked.broker()
    if broker is None:
        yield Finding(
            "broker limits",
            Level.NOTE,
            "not visible: the broker has no statisticsBrokerPlugin, or does not let this user ask",
        )
        return
    yield from _limits(broker)
    found = asked.queues((DEAD_LETTER_QUEUE, *queues))
    for name in (DEAD_LETTER_QUEUE, *queues):
        told = found.get(name)
        dead = name == DEAD_LETTER_QUEUE
        if told is None:
            text = "empty" if dead else "does not exist yet; the broker makes it at its first use"
            yield Finding(f"queue {name}", Level.NOTE, text)
        else:
            size, consumers = told.get("size", 0), told.get("consumerCount", 0)
            level = Level.WARNING if dead and size else Level.NOTE
            kind = "dead letters" if dead else "messages"
            yield Finding(f"queue {name}", level, f"{size} {kind}, {consumers} consumers")


def _limits(broker: Mapping[str, object]) -> Iterator[Finding]:
    """Yield how full the broker is: at 100 % it blocks senders."""
    used = {what: broker.get(f"{what}PercentUsage") for what in ("store", "memory", "temp")}
    numbers = {what: value for what, value in used.items() if isinstance(value, int)}
    words = ", ".join(f"{what} {value} %" for what, value in numbers.items())
    full = any(value >= _NEARLY_FULL for value in numbers.values())
    yield Finding("broker limits", Level.WARNING if full else Level.OK, f"in use: {words}")
