"""
What ActiveMQ Classic tells over STOMP about itself: counts by the statistics plugin, if it is there, and little else.

Source: https://activemq.apache.org/components/classic/documentation/statisticsplugin; behaviour probed on 6.1.8: a
queue that does not exist is not answered, and without the plugin the question would stay as a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx import Message
from jmsx.inspection import Finding, Level
from jmsx_classic.dialect import DEAD_LETTER_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jmsx import MessageConsumer, MessageProducer, Session

_STATISTICS: Final = "queue://ActiveMQ.Statistics."

#: Seconds that an answer may take; the broker answers in some milliseconds, or never.
PATIENCE: Final = 2.0


def inspect(session: Session, queues: Sequence[str]) -> Iterator[Finding]:
    """Limits of the broker, redelivery, and the counts of its dead letter queue and of `queues`."""
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
    answers = session.create_temporary_queue()
    asked = _Statistics(session.create_producer(), session.create_consumer(answers), answers)
    broker = asked.ask("Broker")
    if broker is None:
        yield Finding(
            "broker limits",
            Level.NOTE,
            "not visible: the broker has no statisticsBrokerPlugin, or does not let this user ask",
        )
        return
    yield from _limits(broker)
    for name in (DEAD_LETTER_QUEUE, *queues):
        told = asked.ask(f"Destination.{name}")
        dead = name == DEAD_LETTER_QUEUE
        if told is None:
            text = "empty" if dead else "does not exist yet; the broker makes it at its first use"
            yield Finding(f"queue {name}", Level.NOTE, text)
        else:
            size, consumers = told.get("size", 0), told.get("consumerCount", 0)
            level = Level.WARNING if dead and size else Level.NOTE
            kind = "dead letters" if dead else "messages"
            yield Finding(f"queue {name}", level, f"{size} {kind}, {consumers} consumers")


class _Statistics:
    """Questions to the statistics plugin, one after the other."""

    def __init__(
        self, producer: MessageProducer, answers: MessageConsumer, reply_to: object
    ) -> None:
        self._producer = producer
        self._answers = answers
        self._reply_to = reply_to

    def ask(self, topic: str) -> Mapping[str, object] | None:
        """The answer, or None; a question that nobody answers is gone after a while."""
        question = Message(None, reply_to=self._reply_to)  # type: ignore[arg-type]  # a question has no body
        self._producer.send(
            question, destination=_STATISTICS + topic, persistent=False, time_to_live=PATIENCE
        )
        answer = self._answers.receive(PATIENCE)
        return answer.body if answer is not None and isinstance(answer.body, dict) else None


def _limits(broker: Mapping[str, object]) -> Iterator[Finding]:
    """How full the broker is: at 100 % it holds senders back."""
    used = {what: broker.get(f"{what}PercentUsage") for what in ("store", "memory", "temp")}
    numbers = {what: value for what, value in used.items() if isinstance(value, int)}
    words = ", ".join(f"{what} {value} %" for what, value in numbers.items())
    full = any(value >= 80 for value in numbers.values())  # noqa: PLR2004 - time to look at it
    yield Finding("broker limits", Level.WARNING if full else Level.OK, f"in use: {words}")
