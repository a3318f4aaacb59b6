"""
The messages of a consumer that are being moved, to a dead letter queue or back to the broker's scheduler.

Adding or removing one also steps its state (delivery_state.py), so these are the deliveries that are DYING or LEAVING.
While some of them are `blocking`, the consumer hands out nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jmsx.core.delivery import Delivery
from jmsx.core.delivery_state import DeliveryInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class OpenCopies:
    """
    Tracks the moves of one consumer on one link that are not confirmed. Whoever begins one adds it, and removes it
    when it has ended.
    """

    def __init__(
        self, changes: Callable[[], None], settle: Callable[[list[Delivery], float], None]
    ) -> None:
        """Begin without copies; `changes` is called before `blocking` changes, `settle` acknowledges messages."""
        self._changes = changes
        self._settle = settle
        self._open: dict[Delivery, None] = {}
        #: While this has any, nothing may be handed out: the ACK of a later message would cover an original
        self.blocking: dict[Delivery, None] = {}
        self.single_acks = 0  #: written in transactions of ours, where ACKs are single
        #: Older messages are in a commit that is not answered; if it is refused, a cumulative ACK would settle them
        self.committing = False
        self.owed: list[Delivery] = []  #: to be settled together when no copy is unconfirmed
        self._first_kept = math.inf  #: arrival of the oldest message that no ACK may cover
        self._then: Callable[[float], None] | None = None

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def closing(self) -> bool:
        """Whether the consumer closes as soon as everything is settled."""
        return self._then is not None

    def add(self, delivery: Delivery, given: DeliveryInput, *, blocks: bool) -> None:
        """Track `delivery` while it is moved, and step its state by `given`; `blocks`: hand out nothing meanwhile."""
        self._changes()
        delivery.step(given)
        self._open[delivery] = None
        if blocks:
            self.blocking[delivery] = None

    def remove(self, delivery: Delivery, given: DeliveryInput) -> None:
        """Stop tracking `delivery`, which is moved or stays, and step its state by `given`."""
        self._changes()
        delivery.step(given)
        self._open.pop(delivery, None)
        self.blocking.pop(delivery, None)

    def no_others(self, deliveries: Iterable[Delivery]) -> bool:
        """Return whether all that is unconfirmed is in `deliveries`."""
        return self._open.keys() <= set(deliveries)

    def keep(self, delivery: Delivery) -> None:
        """Stop tracking `delivery`, which stays with the broker because nothing came of its copy."""
        if not delivery.is_acknowledged:
            self.stay([delivery])
        self.remove(delivery, DeliveryInput.KEEP)

    def stay(self, batch: Iterable[Delivery]) -> None:
        """Note that these stay with the broker, so that no ACK may cover them."""
        self._first_kept = min([self._first_kept, *(one.arrival.number for one in batch)])

    def may_cover(self, delivery: Delivery) -> bool:
        """Return whether a cumulative ACK of `delivery` covers nothing that stays with the broker."""
        return delivery.arrival.number < self._first_kept

    def settle_when_clear(self, batch: list[Delivery]) -> None:
        """Have `finish` settle `batch` when no copy is unconfirmed: a cumulative ACK would cover their originals."""
        self.owed += batch

    def after(self, then: Callable[[float], None]) -> None:
        """Have `finish` run `then`, which closes the consumer, when no copy is unconfirmed."""
        self._then = then

    def finish(self, now: float) -> None:
        """
        If no copy and no commit is unconfirmed, do what waits for that. Call it after `remove`.

        What is owed is settled up to the first message that stays with the broker. Copies are not confirmed in the
        order in which their originals came, so one ACK settles all: the ACK of one batch may cover another batch.
        """
        if self._open or self.committing:
            return
        owed = sorted(self.owed, key=lambda one: one.arrival.number)
        covered = [one for one in owed if self.may_cover(one)]
        self.owed = owed[len(covered) :]
        self._settle(covered, now)
        if self._then is not None:
            then, self._then = self._then, None
            then(now)
