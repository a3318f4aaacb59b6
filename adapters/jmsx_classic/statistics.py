"""
The counts of ActiveMQ Classic, from its statistics plugin, which answers messages to reserved destinations.

A broker without the plugin does not answer and keeps the question as a message, so the first question goes to a topic,
where it leaves none. A question about a queue that does not exist gets no answer; so the broker's own counts are asked
for last, and their answer marks the end.

Source: https://activemq.apache.org/components/classic/documentation/statisticsplugin, `StatisticsBroker.java`;
probed on 6.1.8.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeAlias

from jmsx import Message, Session
from jmsx.core.headers import whole
from jmsx.core.values import QueueCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Told: TypeAlias = "Mapping[str, object]"


_QUESTIONS: Final = "ActiveMQ.Statistics."
_OF_BROKER: Final = f"topic://{_QUESTIONS}Broker"

#: Seconds that an answer may take where somebody waits for it; the broker answers in some milliseconds, or never.
PATIENCE: Final = 2.0

#: The same where nobody waits: the first answer of a broker that was just started on a busy machine took 2 s and more.
LEISURE: Final = 10.0


class Statistics:
    """Asks the broker of `session`, which must be started and not in use by others meanwhile."""

    def __init__(self, session: Session, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._reply_to = session.create_temporary_queue()
        self._producer = session.create_producer()
        self._answers = session.create_consumer(self._reply_to)

    def broker(self) -> Told | None:
        """Return the broker's own counts; None: it has no such plugin, or this user may not ask."""
        self._ask(_OF_BROKER)
        return next(self._told(), None)

    def queues(self, names: Sequence[str]) -> dict[str, Told]:
        """Return the broker's counts of those queues `names` that exist, by name."""
        for name in names:
            self._ask(f"queue://{_QUESTIONS}Destination.{name}")
        self._ask(_OF_BROKER)
        found = {}
        for told in self._told():
            destination = told.get("destinationName")
            if destination is None:
                break
            found[str(destination).removeprefix("queue://")] = told
        return found

    def _ask(self, question: str) -> None:
        message = Message(None, reply_to=self._reply_to)
        self._producer.send(
            message, destination=question, persistent=False, time_to_live=self._patience
        )

    def _told(self) -> Iterator[Told]:
        """Yield the answers, until none comes for a while."""
        deadline = time.monotonic() + self._patience
        while (answer := self._answers.receive(max(deadline - time.monotonic(), 0.0))) is not None:
            if isinstance(answer.body, dict):
                yield answer.body


def counts(session: Session, queues: Sequence[str]) -> dict[str, QueueCounts] | None:
    """Return the counts of `queues` (URIs) that exist; None if the broker does not tell any. Raises JmsxError."""
    asked = Statistics(session, LEISURE)
    if asked.broker() is None:
        return None
    found = asked.queues([uri.removeprefix("queue://") for uri in queues])
    return {f"queue://{name}": _counts(told) for name, told in found.items()}


def _counts(told: Told) -> QueueCounts:
    def count(name: str) -> int:
        number = whole(str(told[name]))
        if number is None:
            raise ValueError(f"{name} is {told[name]!r}")
        return number

    return QueueCounts(
        enqueued=count("enqueueCount"),
        dequeued=count("dequeueCount"),
        expired=count("expiredCount"),
        size=count("size"),
    )
