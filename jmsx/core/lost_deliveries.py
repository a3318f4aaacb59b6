"""
What a session remembers of messages that it lost with its link, to continue their counts when they come again.

STOMP has a `redelivered` flag and no count; after a crash of the broker, and for durable subscriptions, the flag is not
set either. And it is set for every message that was on its way, also for those that the application never saw: jmsx
delivers these as new. The session may also have dropped the link itself, because the broker refused a commit.

A message that another session got instead never comes here again, so the oldest entries are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery, Failures
from jmsx.core.delivery_state import ENDED
from jmsx.core.events import Outcome
from jmsx.core.history import DeadLetterCause, Lost
from jmsx.core.values import DestinationKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


#: Messages that are remembered at most, or twice those of the largest loss; the oldest are forgotten, and count again
#: from the broker's flag.
LIMIT: Final = 2_000


@dataclass(frozen=True, slots=True)
class _LostDelivery:
    counts: Lost
    only_ack_owed: bool  #: it is copied or processed; only its ACK is owed
    owed_end: Outcome | None  #: how it ends when that ACK is written
    #: It was to be a dead letter, and that was not confirmed.
    dead_letter_cause: DeadLetterCause | None
    failed: Failures


class LostDeliveries:
    """Remembers messages that were lost with a link, by the hashes of their names (as in process_memory.py)."""

    def __init__(self) -> None:
        self._lost: OrderedDict[int, _LostDelivery] = OrderedDict()
        self._noted = 0  #: messages of the loss that is being noted
        self._limit = LIMIT

    def __len__(self) -> int:
        return len(self._lost)

    def note(
        self,
        consumer: ConsumerCore,
        lost: Iterable[Delivery],
        *,
        handed_out: bool,
        refused: bool = False,
        processed: bool = False,
    ) -> None:
        """
        Remember messages whose link is lost, or dropped because the broker `refused` to commit them.

        `processed`: only their ACK is owed when they come again. A delivery that the application held counts, however
        it would have ended. A topic's message without a durable subscription does not come again.
        """
        if consumer.settings.kind is DestinationKind.TOPIC:
            return
        for delivery in lost:
            name, history = consumer.memory.key(delivery), delivery.history
            self._noted += 1
            self._lost[name] = _LostDelivery(
                Lost(
                    history.deliveries + handed_out,
                    history.failures + handed_out,
                    refused,
                    history.flag_unexplained,
                    None if handed_out or history.lost is None else history.lost.failure,
                ),
                processed or delivery.state in ENDED,
                None if processed else delivery.decided.owed_end,
                delivery.dead_letter_cause,
                delivery.failed._replace(failure=None),
            )
            self._lost.move_to_end(name)

    def trim(self) -> None:
        """Forget the oldest messages beyond the limit; call it when all messages of a loss are noted."""
        self._limit = max(self._limit, 2 * self._noted)
        self._noted = 0
        while len(self._lost) > self._limit:
            self._lost.popitem(last=False)

    def tell(
        self, consumer: ConsumerCore, delivery: Delivery, told: Callable[[Lost], Lost]
    ) -> bool:
        """Change by `told` what is known of the last delivery of a lost message; False if it has come again."""
        name = consumer.memory.key(delivery)
        past = self._lost.get(name)
        if past is None:
            return False
        self._lost[name] = replace(past, counts=told(past.counts))
        return True

    def recall(self, consumer: ConsumerCore, delivery: Delivery) -> None:
        """Continue the count of a message that has come, if it was lost with a link."""
        past = self._lost.pop(consumer.memory.key(delivery), None)
        if past is None:
            return
        cause = past.dead_letter_cause
        if cause is not None and not cause.holds(flagged=delivery.history.flagged):
            return
        if past.only_ack_owed and delivery.is_alive:
            delivery.owe(past.owed_end)
        delivery.recover(past.failed, cause)
        delivery.continue_after_loss(past.counts)
