"""
The messages of a consumer that are being moved, to a dead letter queue or back to the broker's scheduler.

Who moves one gives its state its arrow here, so that these are the deliveries which are DYING or LEAVING
(delivery_state.py). What may be handed out follows from that.
"""

from __future__ import annotations

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

    def __init__(self, changes: Callable[[], None]) -> None:
        """`changes` is called before what blocks, or does no longer, changes."""
        self._changes = changes
        self._open: dict[Delivery, None] = {}
        self._blocking: dict[Delivery, None] = {}
        self.single_acks = 0  #: written in transactions of ours, where ACKs are single
        self._clear: list[Callable[[], None]] = []
        self._then: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._open)

    @property
    def blocks_dispatch(self) -> bool:
        """Whether nothing may be handed out, because the ACK of a later message would cover an original."""
        return bool(self._blocking)

    @property
    def closing(self) -> bool:
        """Whether the consumer closes as soon as everything is settled."""
        return self._then is not None

    def add(self, delivery: Delivery, given: DeliveryInput, *, blocks: bool) -> None:
        """Track `delivery`, which is being moved (`given`). `blocks`: nothing is handed out until it is removed."""
        self._changes()
        delivery.step(given)
        self._open[delivery] = None
        if blocks:
            self._blocking[delivery] = None

    def remove(self, delivery: Delivery, given: DeliveryInput) -> None:
        """Stop tracking `delivery`, which is moved, or not to be (`given`)."""
        self._changes()
        delivery.step(given)
        self._open.pop(delivery, None)
        self._blocking.pop(delivery, None)

    def no_others(self, deliveries: Iterable[Delivery]) -> bool:
        """Return whether no others than `deliveries` are unconfirmed."""
        return self._open.keys() <= set(deliveries)

    def when_clear(self, settle: Callable[[], None]) -> None:
        """Have `finish` run `settle` when no copy is unconfirmed: a cumulative ACK would cover their originals."""
        self._clear.append(settle)

    def after(self, then: Callable[[], None]) -> None:
        """Have `finish` run `then`, which closes the consumer, when no copy is unconfirmed."""
        self._then = then

    def finish(self) -> None:
        """Run what waits for the copies, if none is unconfirmed. Call it after `remove`."""
        while self._clear and not self._open:
            self._clear.pop(0)()
        if self._then is not None and not self._open:
            then, self._then = self._then, None
            then()
