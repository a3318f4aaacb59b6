"""Where messages go: queues and topics, with the options that a consumer may carry in the name."""

from __future__ import annotations

from typing import Protocol, final

from jmsx.core.destination_names import DestinationUri, parse_destination
from jmsx.errors import IllegalStateError, InvalidDestinationError


class Destination:
    """
    A queue or topic; equal if of the same kind and name.

    Raises InvalidDestinationError for an unfit name, ConfigurationError for an unknown option.
    """

    _kind = "queue"

    def __init__(self, name: str) -> None:
        self.address: DestinationUri = parse_destination(name, self._kind)
        if type(self) is not Destination and self.address.kind != self._kind:
            raise InvalidDestinationError(f"{name!r} is a {self.address.kind}, not a {self._kind}")
        self._uri = str(self.address)  # every send asks for it

    @classmethod
    def told(cls, uri: str) -> Destination:
        """Return the destination that a broker told us, whatever its name looks like; it has no options."""
        kind, separator, name = uri.partition("://")
        made = cls.__new__(cls)
        made.address = DestinationUri(kind, name) if separator else DestinationUri("queue", uri)
        made._uri = str(made.address)  # noqa: SLF001 - a constructor of this class
        return made

    @property
    def name(self) -> str:
        """The name, without kind and options."""
        return self.address.name

    @property
    def uri(self) -> str:
        """Kind and name, such as `queue://orders`."""
        return self._uri

    @property
    def is_topic(self) -> bool:
        """Whether every subscriber gets each message."""
        return self.address.kind.endswith("topic")

    @property
    def is_temporary(self) -> bool:
        """Whether the destination lives no longer than the session that made it, whoever names it."""
        return "temp-" in self.address.kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Destination) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"<{self.uri}>"


@final
class Queue(Destination):
    """A queue, such as `Queue("orders")` or `Queue("orders?consumer.prefetchSize=1")`."""


@final
class Topic(Destination):
    """A topic, such as `Topic("prices")`."""

    _kind = "topic"


class Owner(Protocol):
    """The session that has made a temporary destination, and that alone may read it."""

    @property
    def closed(self) -> bool:
        """Whether the session is closed, and its temporary destinations are gone with it."""

    @property
    def epoch(self) -> int:
        """The number of the link that the session has; a temporary queue has another name on each."""

    def consumes(self, destination: Destination) -> bool:
        """Return whether a consumer of the session reads `destination`."""

    def forget_temporary(self, destination: Temporary) -> None:
        """Have the broker remove what was deleted, where it can be told."""

    def tell_name(self, destination: Temporary, place: str) -> None:
        """Send a message to `place` (URI) that asks for answers at `destination`: its reader sees the real name."""


class Temporary(Destination):
    """A queue or topic that lives as long as the session that made it, unless it is deleted before."""

    def __init__(self, name: str, *, owner: Owner | None = None) -> None:
        super().__init__(name)
        self.owner = owner  #: the session that may read it
        self.public: Destination | None = None  #: as other sessions name it, once that was needed
        self.public_epoch = 0  #: the link of its session on which it has that name
        self.deleted = False

    def delete(self) -> None:
        """
        Let nobody send to it or read from it any more; idempotent.

        Artemis removes it by its management. Classic cannot be told over STOMP, and keeps it until the session is
        closed: a program that asks often should use one queue for all answers, and match them by `correlation_id`.
        Raises IllegalStateError while a consumer reads from it.
        """
        if self.deleted:
            return
        if self.owner is not None and not self.owner.closed and self.owner.consumes(self):
            raise IllegalStateError(
                f"A consumer is consuming from the temporary destination {self}"
            )
        self.deleted = True
        if self.owner is not None:
            self.owner.forget_temporary(self)

    def check(self) -> None:
        """Raise InvalidDestinationError if it was deleted, or its session is closed."""
        if self.deleted:
            raise InvalidDestinationError(f"{self} is gone: it was deleted; create another one")
        if self.owner is not None and self.owner.closed:
            raise InvalidDestinationError(
                f"{self} is gone: the session that made it is closed; create another one"
            )


@final
class TemporaryQueue(Temporary):
    """A queue that lives as long as its session; made by `Session.create_temporary_queue`."""

    _kind = "temp-queue"


@final
class TemporaryTopic(Temporary):
    """A topic that lives as long as its session; made by `Session.create_temporary_topic`."""

    _kind = "temp-topic"


def destination(given: Destination | str) -> Destination:
    """
    Return `given`, or the destination that it spells: `topic://prices`, `/topic/prices`, `topic:prices`, or a name.

    Raises InvalidDestinationError.
    """
    return given if isinstance(given, Destination) else Destination(given)
