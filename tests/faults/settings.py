"""How both ends of the workload connect, and what the consuming programs are to do with their messages."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from jmsx import TlsOptions
from jmsx.core.values import DeadLetterStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Seconds: (send every, expect every). Short, for a dead link is what most cases are about.
HEARTBEAT: Final = (1.0, 1.0)

#: Stands in a body before the word that says how the consuming program treats it.
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
    #: Marked messages a round, by what becomes of them: kill, raise, retry, once, twice or slow.
    marks: Mapping[str, int] = field(default_factory=dict)
    maximum_redeliveries: int = 6
    delay: float = 0.1  #: of each redelivery
    scheduled: bool = False  #: the broker's scheduler has what waits for its redelivery
    non_blocking: bool = False  #: others go on meanwhile
    #: That every handler takes, so that some are at it whenever something happens
    work: float = 0.005
    dead_letter: str = "safe"  #: a strategy, or the first part of a queue of the round's own
    forwards: bool = False  #: each message is sent on
    dedupe_outputs: bool = False  #: with an id of its own for each
    markers: bool = False  #: doubtful commits are cleared up
    ledger: bool = False
    store: str = ""  #: of what was done: memory, sqlite or database; "": there is none
    stepped: bool = False  #: the time of day is the true one plus what stands in a file
    asynchronous: bool = False  #: the handler is an `async def`
    batch: int | None = None  #: messages a call; None: it takes no list
    batch_timeout: float = 0.2
    named: bool = True  #: of a batch that fails it is said which messages did
    optimized: bool = False
    prefetch: int | None = 20  #: None: the default
    concurrency: int = 2
    processes: int = 1
    groups: int = 0  #: that the messages are sent in; 0: in none

    @property
    def cumulative(self) -> bool:
        """Whether one ACK settles all that came before."""
        return not (self.non_blocking or self.mode == "INDIVIDUAL_ACKNOWLEDGE")

    @property
    def subscriptions(self) -> int:
        """How many of them all processes have together."""
        return self.concurrency * self.processes


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
        return f"{self.plan.dead_letter}.{self.queue}"

    @property
    def dead_letter(self) -> str:
        """What the consumers are told of dead letters."""
        if self.plan.dead_letter in tuple(DeadLetterStrategy):
            return self.plan.dead_letter
        return f"queue://{self.dlq}"

    @property
    def journal(self) -> Path:
        """A line for each message that a handler was called with."""
        return self.folder / "journal"

    @property
    def ends(self) -> Path:
        """A line for each of those whose call has ended."""
        return self.folder / "ends"

    @property
    def failures(self) -> Path:
        """A folder with a file for each failure of a message that fails once or twice only."""
        return self.folder / "failures"

    @property
    def done(self) -> Path:
        """What is known as done, by a file of jmsx's own."""
        return self.folder / "done.db"

    @property
    def bookings(self) -> Path:
        """The database that handlers write to, and that knows what is done."""
        return self.folder / "bookings.db"

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
        """A folder with what each program counted that has ended in order, by its process id."""
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
