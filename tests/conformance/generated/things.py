"""The things that a program makes: connections, sessions, consumers, and what waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: From this prefetch on, the broker has dispatched all that a program sends.
ROOMY: Final = 50


class Indeterminate(Exception):  # noqa: N818 - a verdict on a step, not a failure
    """A step after which a program could do one thing or another; says why."""


@dataclass(slots=True, eq=False)
class Letter:
    """One message on its way to one reader."""

    half: str | None = None  #: of a queue that is read by selectors
    redeliveries: int = 0


@dataclass(slots=True, eq=False)
class Backlog:
    """What waits in a queue or for a subscription, oldest first."""

    waiting: list[Letter] = field(default_factory=list)
    users: list[Consumer] = field(default_factory=list)
    sure: bool = True  #: a listener makes it a guess
    returned: bool = False  #: a consumer left some of it behind
    doubtful: bool = False  #: over STOMP the window decided which of them are flagged


@dataclass(slots=True, eq=False, kw_only=True)
class Connection:
    """One connection; its limit and prefetch are those of its consumers."""

    name: str
    limit: int
    prefetch: int
    optimized: bool
    client_id: str | None
    sessions: list[Session] = field(default_factory=list)
    started: bool = True
    closed: bool = False
    crashed: bool = False
    spent: bool = False  #: a handler may have closed it

    def close(self, *, crashed: bool = False) -> None:
        """Close it, and its sessions."""
        self.closed, self.crashed = True, crashed
        for session in self.sessions:
            session.close(crashed=crashed or session.crashed)


@dataclass(slots=True, eq=False, kw_only=True)
class Session:
    """One session."""

    name: str
    connection: Connection
    mode: str
    consumers: list[Consumer] = field(default_factory=list)  #: open ones
    sends: list[tuple[str, list[Letter]]] = field(default_factory=list)  #: not committed
    closed: bool = False
    crashed: bool = False
    spent: bool = False

    @property
    def listening(self) -> bool:
        """Whether a consumer has a listener."""
        return any(consumer.listener for consumer in self.consumers)

    def close(self, *, crashed: bool = False) -> None:
        """Close it, and its consumers."""
        self.closed, self.crashed = True, crashed
        self.sends.clear()
        for consumer in list(self.consumers):
            consumer.close()


@dataclass(slots=True, eq=False, kw_only=True)
class Consumer:
    """One consumer."""

    name: str
    session: Session
    destination: str
    backlog: Backlog
    durable: str | None
    is_topic: bool
    half: str | None
    prefetch: int
    held: list[Letter] = field(default_factory=list)  #: delivered, not settled
    listener: str | None = None
    closing: bool = False  #: closed in a transaction that is not ended
    closed: bool = False

    @property
    def lazy(self) -> bool:
        """Whether it acknowledges some time later: DUPS_OK on a topic."""
        return self.session.mode == "DUPS_OK" and self.is_topic

    def close(self) -> None:
        """Close it; nobody reads its backlog any more."""
        self.closed, self.closing, self.held = True, False, []
        if self in self.session.consumers:
            self.session.consumers.remove(self)
        if self in self.backlog.users:
            self.backlog.users.remove(self)
