"""
Faults inside the fake broker, and those that a test plans.

::

    Fault
    ├── ProtocolFault   the STOMP converter refuses the frame: ERROR, the transaction goes on
    ├── BrokerFault     the broker refuses the command: ERROR, and Classic may mark the transaction rollback-only
    └── SocketFault     the socket just closes, without an ERROR
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


class Fault(Exception):  # noqa: N818 - a fault is what the broker has, not an error of the caller
    """The root of all faults; it never leaves the fake broker."""

    java_class = "java.lang.RuntimeException"

    def __init__(self, message: str, java_class: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if java_class is not None:
            self.java_class = java_class


class ProtocolFault(Fault):
    """The converter refuses a frame; `fatal` closes the socket after the ERROR."""

    java_class = "org.apache.activemq.transport.stomp.ProtocolException"

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


class BrokerFault(Fault):
    """The broker refuses a command that the converter gave it."""

    java_class = "jakarta.jms.JMSException"


class SocketFault(Fault):
    """The broker closes the socket without an ERROR."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault for the next `command` on `link`; on any link if that is None."""

    command: str
    fault: Fault
    link: object | None = None
    applied: bool = False  #: strike after the broker has carried out the command, not before


@dataclass(slots=True)
class FaultPlan:
    """Faults that a test asked for, each used once, oldest first."""

    _planned: list[PlannedFault] = field(default_factory=list)

    def add(self, planned: PlannedFault) -> None:
        """Put `planned` behind those that are already there."""
        self._planned.append(planned)

    def clear(self) -> None:
        """Forget the planned faults that have not happened."""
        self._planned.clear()

    def perform(self, command: str, link: object, work: Callable[[], None]) -> None:
        """Do `work` for a `command` on `link`; raises the fault that is planned for it, before or after."""
        planned = self._take(command, link)
        if planned is not None and not planned.applied:
            raise planned.fault
        work()
        if planned is not None:
            raise planned.fault

    def _take(self, command: str, link: object) -> PlannedFault | None:
        for position, planned in enumerate(self._planned):
            if planned.command == command and planned.link in {None, link}:
                return self._planned.pop(position)
        return None

    def __len__(self) -> int:
        return len(self._planned)
