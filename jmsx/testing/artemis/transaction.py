"""
The SENDs of one transaction: Artemis' STOMP has nothing else in it.

Source: artemis-stomp-protocol 2.44.0 StompProtocolManager and StompSession; jmsx_artemis/BROKER.md A26.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.testing.artemis.faults import Refused, bundled

if TYPE_CHECKING:
    from collections.abc import Callable


class ArtemisTransaction:
    """What is remembered under one transaction id, until the connection ends; it is used again and again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rollback_only = False  #: a duplicate was sent
        self._begun = False
        self._steps: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Start it; raises Refused if it has not ended."""
        if self._begun:
            raise Refused(f"Transaction already started: {self.name}")
        self._begun = True

    def enlist(self, step: Callable[[], None]) -> None:
        """Do `step` at the commit. Nobody asks for BEGIN here."""
        self._steps.append(step)

    def check_begun(self) -> None:
        """Raises Refused if there is nothing to end."""
        if not self._begun:
            raise Refused(f"No transaction started: {self.name}")

    def commit(self) -> None:
        """
        Do all steps, in order.

        Raises Refused if it was not begun, or if a duplicate is in it: then all of it is lost, and it is still begun.
        """
        if not self._begun:
            raise bundled(339013, f"Error committing {self.name}")
        steps, doomed = self._steps, self.rollback_only
        self.forget()
        if doomed:
            raise bundled(339013, f"Error committing {self.name}")
        for step in steps:
            step()
        self._begun = False

    def abort(self) -> None:
        """Forget all steps; raises Refused if it was not begun."""
        self.check_begun()
        self.forget()
        self._begun = False

    def forget(self) -> None:
        """Nothing of it was ever sent."""
        self._steps = []
        self.rollback_only = False
