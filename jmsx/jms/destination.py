"""Where messages go: queues and topics, with the options that a consumer may carry in the name."""

from __future__ import annotations

from typing import Protocol, final

from jmsx.core.destination_names import DestinationUri, parse_destination
from jmsx.errors import IllegalStateError, InvalidDestinationError


class Destination:
    """
    A queue or topic. Two destinations are equal if their kinds and names are.

    Raises InvalidDestinationError for a name that no destination can have, ConfigurationError for an unknown option.
    """

    _kind = "queue"

    def __init__(self, name: str) -> None:
        self.address: DestinationUri = parse_destination(name, self._kind)
        if type(self) is not Destination and self.address.kind != self._kind:
            raise InvalidDestinationError(f"{name!r} is a {self.address.kind}, not a {self._kind}")
        self._uri = str(self.address)  # kept, for every send uses it

    @classmethod
    def told(cls, uri: str) -> Destination:
        """Return the destination that a broker named, without checking the name; it has no options."""
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
        """Whether this is a topic: every subscriber gets each message."""
        return self.address.kind.endswith("topic")

    @property
    def is_temporary(self) -> bool:
        """Whether the destination is temporary, made by this program or another: it ends with the session it is of."""
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
    """The session that has created a temporary destination; no other session may consume from it."""

    @property
    def closed(self) -> bool:
        """Whether the session is closed; then its temporary destinations no longer exist."""

    @property
    def epoch(self) -> int:
        """The number of the session's current link; on each link the broker gives a temporary queue a new name."""

    def consumes(self, destination: Destination) -> bool:
        """Return whether a consumer of the session reads `destination`."""

    def forget_temporary(self, destination: Temporary) -> None:
        """Have the broker remove the deleted `destination`, if the broker has a management that can be asked to."""

    def tell_name(self, destination: Temporary, place: str) -> None:
        """Send a message to `place` (URI) with `destination` as its reply-to, where a reader sees the broker's name."""


class Temporary(Destination):
    """A queue or topic that exists until the session that created it is closed, or until it is deleted."""

    def __init__(self, name: str, *, owner: Owner | None = None) -> None:
        super().__init__(name)
        self.owner = owner  #: the session that may consume from it
        #: The name by which other sessions send to it; None: not asked for yet.
        self.public: Destination | None = None
        self.public_epoch = 0  #: number of its session's link on which `public` is valid
        self.deleted = False

    def delete(self) -> None:
        """
        Delete it, so that no session of this program can send to it or consume from it any more; idempotent.

        On Artemis the management removes it. Classic has no way to remove it over STOMP, and keeps it until the session
        is closed; so a program that sends many requests should use one queue for all replies, and match them by
        `correlation_id`.
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
    """A queue that exists until its session is closed; made by `Session.create_temporary_queue`."""

    _kind = "temp-queue"


@final
class TemporaryTopic(Temporary):
    """A topic that exists until its session is closed; made by `Session.create_temporary_topic`."""

    _kind = "temp-topic"


def destination(given: Destination | str) -> Destination:
    """
    Return `given` as a Destination; as text it is `topic://prices`, `/topic/prices`, `topic:prices`, or a queue's name.

    Raises InvalidDestinationError.
    """
    return given if isinstance(given, Destination) else Destination(given)
