"""How both ends of the workload connect, and what the consuming program is to do with its messages."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

from jmsx import TlsOptions

#: Seconds: (send every, expect every). Short, for a dead link is what most cases are about.
HEARTBEAT: Final = (1.0, 1.0)

#: The end of a body that the consuming program treats as its plan says.
MARK: Final = "!"

#: Seconds that a slow handler takes: a silent broker is given up after twice what is expected of it.
SLOW: Final = 2 * max(HEARTBEAT) + 1.5


@dataclass(frozen=True, slots=True)
class Way:
    """How to the brokers: one, or several in their order."""

    urls: tuple[str, ...]
    ca_file: str | None = None  #: of TLS

    @property
    def url(self) -> str:
        """A connection that outlives its links, with attempts that are soon enough for a bench."""
        return f"failover:({','.join(self.urls)})?maxReconnectDelay=200&randomize=false"

    @property
    def tls(self) -> TlsOptions:
        """Whom to trust."""
        return TlsOptions(ca_file=self.ca_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the consuming program does; times in seconds."""

    mode: str = "AUTO_ACKNOWLEDGE"
    marked: str = ""  #: what becomes of marked messages: kill, raise, retry or slow
    marks: int = 0  #: marked messages a round
    maximum_redeliveries: int = 6
    work: float = (
        0.005  #: that every handler takes, so that some are at it whenever something happens
    )
    dlq: bool = False  #: dead letters are copied to a queue of the round
    forwards: bool = False  #: each message is sent on
    markers: bool = False  #: doubtful commits are cleared up
    ledger: bool = False
    stepped: bool = False  #: the time of day is the true one plus what stands in a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A plan, and where it is carried out."""

    plan: Plan
    way: Way
    queue: str
    folder: Path = field(default_factory=Path)

    @property
    def output(self) -> str:
        """The queue of what is sent on."""
        return f"{self.queue}.done"

    @property
    def dlq(self) -> str:
        """The queue of dead letters, if the plan has one."""
        return f"dlqs.{self.queue}"

    @property
    def journal(self) -> Path:
        """A line for each call of the handler."""
        return self.folder / "journal"

    @property
    def ledger(self) -> Path:
        """Of deliveries."""
        return self.folder / "deliveries.db"

    @property
    def events(self) -> Path:
        """The folder of the event log."""
        return self.folder / "events"

    @property
    def metrics(self) -> Path:
        """What the program counted, once it has ended in order."""
        return self.folder / "metrics"

    @property
    def clock(self) -> Path:
        """Eight bytes: what the time of day is ahead of the true one, in seconds."""
        return self.folder / "clock"

    def dumps(self) -> str:
        """As text, for the command line of the program."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def loads(cls, text: str) -> Self:
        """From such a text."""
        told = json.loads(text)
        way = Way(tuple(told["way"]["urls"]), told["way"]["ca_file"])
        return cls(
            plan=Plan(**told["plan"]),
            way=way,
            queue=told["queue"],
            folder=Path(told["folder"]),
        )
