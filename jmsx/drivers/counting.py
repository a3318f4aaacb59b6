"""Where a ledger comes in: asked before each hand-out, told afterwards; under the pump's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jmsx.core.actions import Record
    from jmsx.core.delivery import Delivery
    from jmsx.core.handing_out import Held
    from jmsx.core.ledger import Ledger
    from jmsx.core.session import SessionCore


class Counting:
    """Hands out one session's messages, counted by a ledger if there is one."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger

    def deliver(
        self,
        core: SessionCore,
        subscription_ids: Sequence[str],
        now: float,
        held: Held | None = None,
    ) -> Delivery | None:
        """As `core.handing_out.deliver`; what the ledger says is over its limit is buried on the way."""
        ledger = self._ledger
        if ledger is None:
            return core.handing_out.deliver(subscription_ids, now, held)
        while (delivery := core.handing_out.offer(subscription_ids, now, held)) is not None:
            identity = core.handing_out.identity(delivery)
            entry = None if identity is None else ledger.begin(identity)
            if core.handing_out.admit(delivery, now, entry):
                return delivery
        ledger.flush()
        return None

    def record(self, told: Record) -> None:
        """Tell the ledger what became of hand-outs that it has."""
        if self._ledger is not None:
            (self._ledger.settle if told.settled else self._ledger.finish)(told.entries)
