"""
What JMS asks of a broker for which STOMP has no frame: the protocol that dialects implement by the broker's management.

An inquiry is a generator: it yields questions, is sent the broker's answer to each, and returns its result. It may also
yield a frame, to see whether the broker takes it. So it is pure: its driver decides on which connection to ask, and how
long to wait for an answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.policy import Policy
from jmsx.core.values import DestinationKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """One call of the broker's management."""

    resource: str  #: such as `broker` or `queue.orders`
    operation: str
    arguments: tuple[Any, ...] = ()


#: It yields questions and frames, is sent what the broker answers to each, and returns the result.
Inquiry = Generator[Question | Frame, Any, T]


@dataclass(frozen=True, slots=True)
class Advice:
    """A setting of the broker that does not go well with what the client does."""

    problem: str  #: a sentence
    remedy: str  #: what to do, a sentence
    settings: Mapping[str, int | str] = field(default_factory=dict)  #: those in question


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """A queue that copies of dead letters are sent to."""

    destination: str  #: URI
    #: Frames that are written before each copy, so that its queue exists
    before: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts that a consumer has to know about its destination."""

    dead_letter_queue: DeadLetterQueue
    advice: tuple[Advice, ...] = ()
    #: Where the broker puts what has expired; None: a copy would not be safe there
    expired: DeadLetterQueue | None = None


class Management(Protocol):
    """Makes the inquiries that this kind of broker answers. Implementations are pure and stateless."""

    @property
    def remedy(self) -> str:
        """A sentence for errors: what to do where the broker does not answer."""

    def listen(self, answers: str) -> Frame:
        """Return the SUBSCRIBE (without receipt) to `answers`, a name that nobody else has."""

    def ask(self, question: Question, answers: str) -> Frame:
        """Return the SEND that asks, and has the answer sent to `answers`."""

    def told(self, question: Question, frame: MessageFrame) -> Any:
        """Return what the answer says; raises BrokerError if the broker did not do what was asked."""

    def examine(self, destination: str, kind: DestinationKind, policy: Policy) -> Inquiry[Findings]:
        """
        Look at the destination, a URI, of a consumer that is to be opened.

        Raises InvalidDestinationError if the consumer would take messages that are not meant for it.
        """

    def examine_dead_letter_queue(self, destination: str) -> Inquiry[Findings]:
        """Look at a queue, as URI, that the application names for dead letters: does it keep what it is given?"""

    def try_selector(self, headers: Mapping[str, str]) -> Inquiry[None]:
        """Raise InvalidSelectorError if the broker could not parse the selector of a SUBSCRIBE with `headers`."""

    def check_temporary(self, destination: str) -> Inquiry[None]:
        """Raise InvalidDestinationError if a temporary queue (URI) is gone, and the broker would not say so."""

    def remove_temporary(self, destinations: Iterable[str]) -> Inquiry[None]:
        """Remove the temporary queues (URIs) that nobody reads, with what lies in them."""

    def claim_durable(
        self, client_id: str, subscription: str, headers: Mapping[str, str]
    ) -> Inquiry[None]:
        """
        Remove the durable subscription if it differs from what a SUBSCRIBE with `headers` asks for, as JMS has it.

        One that an older jmsx made for the same is changed in place, and keeps its messages. Raises JmsxError if the
        subscription is in use.
        """

    def remove_durable(self, client_id: str, subscription: str) -> Inquiry[None]:
        """Remove a durable subscription; raises BrokerError if it is in use, InvalidDestinationError if not there."""
