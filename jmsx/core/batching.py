"""
When an acknowledgement that the session owes is written.

Tell a batch what was consumed; it says when the ACK is due. Three rules, the first that holds wins:

1. a full batch goes out at once;
2. a batch whose consumer has nothing left to hand out goes out after `idle` seconds, because the broker pages the next
   messages in only when an ACK arrives (BROKER.md C10), and nobody else would send one; such an ACK comes
   on top of those of the other rules, which count on as if it had not been;
3. a batch older than `timeout` goes out with the next message consumed, and one older than `interval` at once.

Source: `ActiveMQMessageConsumer.java:992-1016,1095-1101`; rule 2 is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from jmsx.core.delivery import Delivery
from jmsx.core.delivery_state import DeliveryState
from jmsx.core.events import AckTrigger
from jmsx.core.values import ConsumerSettings

#: Messages that Classic pages in for one wake-up (PolicyEntry.maxPageSize): a longer batch could stall.
PAGE: Final = 200

#: Seconds without a waiting message after which the batch goes out; measured: 5 ms costs nothing, 200 ms a factor of 7.
IDLE: Final = 0.005


@dataclass(frozen=True, slots=True)
class BatchRule:
    """The rule by which one consumer batches its acknowledgements; times in seconds, None or 0 means off."""

    size: int  #: messages
    bytes: int | None = None  #: bytes of their frames; None: any number
    idle: float = IDLE
    timeout: float = 0.0
    interval: float = 0.0
    trigger: AckTrigger = AckTrigger.THRESHOLD  #: reported for a full batch


def batch_rule(settings: ConsumerSettings, most: int | None = None) -> BatchRule:
    """Return the rule for a consumer of an AUTO or DUPS_OK session; `most`: bytes of frames in a batch, if limited."""
    if settings.lazy:
        return BatchRule(max(1, min(math.ceil(settings.prefetch * 0.5), PAGE)), most)
    if settings.optimize is not None:
        # Half a page: the next one comes while the application is busy with the other half.
        return BatchRule(
            max(1, min(math.ceil(settings.prefetch * 0.65), PAGE // 2)),
            most,
            timeout=settings.optimize.timeout,
            interval=settings.optimize.scheduled_interval,
        )
    # One ACK for each message, but those that end within 5 ms share a frame and a write.
    return BatchRule(PAGE, most, idle=0.0, interval=IDLE, trigger=AckTrigger.EACH)


class Batch:
    """Deliveries that are consumed and not acknowledged yet, oldest first."""

    def __init__(self, rule: BatchRule, now: float) -> None:
        self._rule = rule
        self.consumed: list[Delivery] = []  #: to be read only
        self._since = now  # when the batch began (for the interval of rule 3)
        self._last_ack = now
        self._counted = 0  #: messages since the last ACK that was not due to rule 2
        self._bytes = 0  #: bytes of the frames in `consumed`

    def __len__(self) -> int:
        return len(self.consumed)

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self.consumed

    def note(self, delivery: Delivery, now: float) -> AckTrigger | None:
        """Add a consumed delivery; the trigger says that the batch must go out now."""
        if not self.consumed:
            self._since = now
        self.consumed.append(delivery)
        self._counted += 1
        self._bytes += delivery.frame.size
        heavy = self._rule.bytes is not None and self._bytes >= self._rule.bytes
        if heavy or self._counted >= self._rule.size:
            return self._rule.trigger
        if self._rule.timeout > 0 and now >= self._last_ack + self._rule.timeout:
            return AckTrigger.IDLE
        return None

    def withdraw(self, delivery: Delivery) -> None:
        """Take `delivery` out of the batch again, if it is in it: the application did not get the message after all."""
        if delivery in self.consumed:
            self.consumed.remove(delivery)
            self._counted -= 1
            self._bytes -= delivery.frame.size

    def deadline(self, idle_since: float | None) -> float | None:
        """
        Return when the batch goes out at the latest, or None (seconds, monotonic). `idle_since`: since when nothing is
        left to hand out.
        """
        if not self.consumed:
            return None
        late = self._since + self._rule.interval if self._rule.interval > 0 else None
        if idle_since is None:
            return late
        idle = idle_since + self._rule.idle
        return idle if late is None or idle < late else late

    @property
    def late_trigger(self) -> AckTrigger:
        """The reason that is reported for an ACK which the deadline caused."""
        return AckTrigger.EACH if self._rule.trigger is AckTrigger.EACH else AckTrigger.IDLE

    def owed(self) -> list[Delivery]:
        """
        Return the deliveries that still need an ACK: one may have been written before an interruption kept `settle`
        from running.
        """
        return [one for one in self.consumed if not one.is_acknowledged]

    @property
    def is_torn(self) -> bool:
        """Whether the writing of the batch's ACK was interrupted, so that it is not known how far that came."""
        return any(one.state is DeliveryState.ACKING for one in self.consumed)

    def settle(self, now: float, *, idle: bool = False) -> None:
        """Empty the batch after its ACK was written. `idle`: it was written because of rule 2."""
        self.consumed = []
        self._bytes = 0
        if not idle:
            self._last_ack = now
            self._counted = 0
