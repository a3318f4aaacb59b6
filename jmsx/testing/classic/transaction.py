"""
The broker's side of a transaction: what to do when it commits, what when it rolls back.

Source: activemq-broker 6.1.8 Transaction, LocalTransaction and Synchronization.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jmsx.testing.faults import BrokerFault

if TYPE_CHECKING:
    from collections.abc import Callable


def _nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class FakeTransaction:
    """One local transaction; it outlives its STOMP name when a COMMIT fails."""

    name: str  #: the STOMP name, which may be in use again
    rollback_only: bool = False
    _steps: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)

    def enlist(
        self,
        *,
        on_commit: Callable[[], None] = _nothing,
        on_rollback: Callable[[], None] = _nothing,
    ) -> None:
        """Remember what is to be done at the end."""
        self._steps.append((on_commit, on_rollback))

    def commit(self) -> None:
        """
        Do all commit steps, oldest first.

        Raises BrokerFault if rollback-only; the transaction then stays open and nothing is undone, until its
        connection dies (LocalTransaction.commit rethrows without rolling back).
        """
        if self.rollback_only:
            raise BrokerFault(
                "COMMIT FAILED: Transaction marked rollback only xaErrorCode:100",
                "javax.transaction.xa.XAException",
            )
        steps, self._steps = self._steps, []
        for on_commit, _ in steps:
            on_commit()

    def rollback(self) -> None:
        """Do all rollback steps, newest first."""
        steps, self._steps = self._steps, []
        for _, on_rollback in reversed(steps):
            on_rollback()
