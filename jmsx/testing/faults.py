"""
What goes wrong inside the fake broker, and what a test makes go wrong.

::

    Fault
    ├── ProtocolFault   the STOMP converter refuses the frame: ERROR, the transaction goes on
    ├── BrokerFault     the broker refuses the command: ERROR, and see `Link.ask_broker` for the transaction
    └── SocketFault     the socket just closes, without a word

Source: activemq-stomp 6.1.8 ProtocolConverter.onStompCommand, activemq-broker 6.1.8 TransportConnection.service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsx.testing.fake_link import FakeLink


class Fault(Exception):  # noqa: N818 - a fault is what the broker has, not an error of the caller
    """The root; never leaves the fake broker."""

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
class Refusal:
    """The broker answers the next `command` with ERROR instead of doing it."""

    command: str
    message: str
    link: FakeLink | None  #: None: whichever link is first

    def before(self) -> None:
        """Fail before the broker does its work."""
        raise BrokerFault(self.message)

    def after(self) -> None:
        """Nothing: there is no work to come after."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The socket dies at the next `command`: before the broker saw it, or `applied` but not answered."""

    command: str
    applied: bool
    link: FakeLink | None  #: None: whichever link is first

    def before(self) -> None:
        """Die before the broker does its work, if so planned."""
        if not self.applied:
            raise SocketFault("cut before it was done")

    def after(self) -> None:
        """Die after the broker has done its work and before it answers."""
        raise SocketFault("cut after it was done")


class FaultPlan:
    """Faults that a test asked for, each used once, oldest first."""

    __slots__ = ("_planned",)

    def __init__(self) -> None:
        self._planned: list[Refusal | Cut] = []

    def add(self, fault: Refusal | Cut) -> None:
        """Put `fault` behind those that are already planned."""
        self._planned.append(fault)

    def take(self, command: str, link: FakeLink) -> Refusal | Cut | None:
        """The next fault for `command` on `link`, which is then used up; None if there is none."""
        for position, fault in enumerate(self._planned):
            if fault.command == command and fault.link in {None, link}:
                return self._planned.pop(position)
        return None

    def __len__(self) -> int:
        return len(self._planned)
