"""
Messages that the broker keeps "in delivery" although no consumer has them.

When a consumer's socket breaks, Artemis 2.44.0 may keep the messages just sent to it in delivery, although the consumer
is gone (measured: 11 messages in 641 breaks under load). No consumer gets them until the broker is restarted, and the
queue looks empty to clients. The management shows them: the queue has more in delivery than its consumers together.
"""

from __future__ import annotations

from typing import Final

from jmsx import Destination, Session
from jmsx.core.management import Inquiry
from jmsx_artemis.asking import ask_if_it_answers, may_ask
from jmsx_artemis.questions import consumers, count, queues

#: How often the queue is looked at: a message that is just being delivered may look stranded once, but not each time.
_LOOKS: Final = 3


def stranded(session: Session, destination: Destination) -> int | None:
    """
    Return how many messages of a queue are in delivery although no consumer has them; None if the broker cannot be
    asked. Raises JmsxError.
    """
    if destination.is_topic:
        return 0 if may_ask(session) else None
    return ask_if_it_answers(session, inquiry(destination.name.rpartition("::")[2]))


def inquiry(name: str) -> Inquiry[int]:
    """Return the queue's messages in delivery minus those that its consumers hold: the least of some looks."""
    seen = []
    for _ in range(_LOOKS):
        found = yield from queues("NAME", name)
        held = yield from consumers(name)
        delivering = count(found[0], "deliveringCount") if found else 0
        if delivering <= held:
            return 0
        seen.append(delivering - held)
    return min(seen)
