"""
Processes that send and consume, their clocks, and the segments that they leave behind.

Times are true microseconds since the epoch; each process adds its own skew when it writes one down. Nothing here
decides what is right: `shop` says what happens, and counts it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
#: 2026-11-20 06:00 UTC, at a full hour so that hours are easily told apart.
START: Final = 1_795_154_400 * SECOND

#: The host and port of an Artemis beside the usual broker.
SECOND_BROKER: Final = "10.9.9.9:61613"

Line = dict[str, Any]


def encoded(line: Line | bytes) -> bytes:
    """Write one line as the event log does; bytes are taken as they are."""
    if isinstance(line, bytes):
        return line
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def key_at(true_us: int, chance: random.Random) -> str:
    """Make the key of a message that a jmsx sender with a clock of `true_us` sends."""
    return f"{true_us // 1000:012x}{chance.getrandbits(80):020x}"


@dataclass
class Segment:
    """One file of a process: `path` below the log's directory, and its lines."""

    folder: str
    writer: str
    first: int
    lines: list[Line | bytes]
    suffix: str = ".jsonl"

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.writer}-{self.first:012d}{self.suffix}"

    @property
    def path(self) -> str:
        """The path below the directory of the log."""
        return f"{self.folder}/{self.name}"

    def content(self) -> bytes:
        """What the file holds."""
        return b"".join(encoded(line) for line in self.lines)

    def write(self, directory: Path) -> Path:
        """Write the file below `directory`."""
        path = directory / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content())
        return path


@dataclass
class Process:
    """One process with one event log: its `writer`."""

    service: str
    host: str
    pid: int
    writer: str
    skew: int = 0  #: what its wall clock is ahead of the truth
    broker: str = "10.0.0.1:61613"
    kind: str = "classic"
    #: closed: with log.close; killed: without; living: the last segment is open
    ends: str = "closed"
    noted: list[tuple[int, int, Line]] = field(default_factory=list)
    consumers: dict[str, str] = field(default_factory=dict)  #: destination -> name
    copies: dict[str, str] = field(default_factory=dict)  #: destination -> its subscription
    #: Destinations of which it may be given less than all; None: its release does not tell of any.
    selects: set[str] | None = field(default_factory=set)
    _first_skew: int = 0

    def __post_init__(self) -> None:
        """Remember how the clock went when the process was started."""
        self._first_skew = self.skew

    @property
    def session(self) -> str:
        """The one session of this process."""
        return f"{self.pid}-{self.writer[-8:]}-1"

    def at(self, true_us: int) -> int:
        """What the wall clock of the process shows at `true_us`."""
        return true_us + self.skew

    def note(self, kind: str, true_us: int, **fields: Any) -> None:
        """Have a line of `kind` written at `true_us`; fields that are None are left out."""
        kept = {name: value for name, value in fields.items() if value is not None}
        line = {"kind": kind, "ts_us": self.at(true_us), "mono_us": _monotonic(true_us)} | kept
        self.noted.append((true_us, len(self.noted), line))

    def noted_of_session(self, kind: str, true_us: int, **fields: Any) -> None:
        """The same for a line that belongs to the session, or to that of `session_id`."""
        self.note(kind, true_us, **({"session_id": self.session, "epoch": 1} | fields))

    def connects_to(self, broker: str, true_us: int, **fields: Any) -> str:
        """Have a further session, on another broker; returns its id."""
        session = f"{self.session[:-1]}2"
        told = {
            "session_id": session,
            "server": "ActiveMQ/6.1.8",
            "connect_us": 2500,
            "broker": broker,
            "broker_kind": "classic",
            "conn_id": session.removesuffix("-2"),
        }
        self.noted_of_session("conn.up", true_us, **(told | fields))
        return session

    def lines(self, opened: int, closed: int) -> list[Line]:
        """All lines in the order in which they were written, numbered."""
        now, self.skew = self.skew, self._first_skew
        first = [
            self._own(
                "log.open",
                opened,
                service=self.service,
                host=self.host,
                pid=self.pid,
                version="0.1.0",
            ),
            self._up(opened + 1000),
            *(
                self._open_subscription(opened + 2000, to, name)
                for to, name in self.consumers.items()
            ),
        ]
        self.skew = now
        last = []
        if self.ends == "closed":
            last = [
                self._of_session("conn.closed", closed, reason="closed"),
                self._own("log.close", closed + 1000, dropped=0),
            ]
        told = [line for _, _, line in sorted(self.noted, key=lambda note: note[:2])]
        return [self._numbered(seq, line) for seq, line in enumerate([*first, *told, *last])]

    def _own(self, kind: str, true_us: int, **fields: Any) -> Line:
        clocks = {"ts_us": self.at(true_us), "mono_us": _monotonic(true_us)}
        return {"kind": kind, **clocks} | fields

    def _of_session(self, kind: str, true_us: int, **fields: Any) -> Line:
        return self._own(kind, true_us, session_id=self.session, epoch=1, **fields)

    def _up(self, true_us: int) -> Line:
        return self._of_session(
            "conn.up",
            true_us,
            server="ActiveMQ/6.1.8",
            connect_us=2500,
            broker=self.broker,
            broker_kind=self.kind,
            conn_id=self.session.removesuffix("-1"),
        )

    def _open_subscription(self, true_us: int, to: str, name: str) -> Line:
        more: dict[str, Any] = {}
        if to in self.copies:
            more["subscription"] = self.copies[to]
        if self.selects is not None:
            more["selective"] = to in self.selects
        return self._of_session(
            "sub.open",
            true_us,
            dest=to,
            consumer=name,
            ack_mode="auto",
            prefetch=100,
            max_redeliveries=6,
            optimize_ack=False,
            **more,
        )

    def _numbered(self, seq: int, line: Line) -> Line:
        return {"v": 1, "kind": line["kind"], "writer": self.writer, "seq": seq} | line


def _monotonic(true_us: int) -> int:
    return true_us - START + 5_000_000_000


class Fleet:
    """All processes of one situation, and the chance by which they live."""

    def __init__(self, seed: int, *, segment_lines: int = 120) -> None:
        self.chance = random.Random(seed)
        self.segment_lines = segment_lines
        self.processes: list[Process] = []
        self.opened = START
        self.closed = START

    def process(self, service: str, host: str, *, skew: int = 0, **more: Any) -> Process:
        """Start a process."""
        pid = 4000 + len(self.processes)
        writer = f"{host}-{pid}-{self.chance.getrandbits(32):08x}"
        started = Process(service, host, pid, writer, skew, **more)
        self.processes.append(started)
        return started

    def segments(self) -> list[Segment]:
        """Cut the lines of each process into its files."""
        return [segment for process in self.processes for segment in self.segments_of(process)]

    def segments_of(self, process: Process) -> list[Segment]:
        """Cut the lines of one process into its files; where it lives on, the last one is open."""
        end = max([self.closed, *(at for at, _, _ in process.noted)]) + SECOND
        lines = process.lines(self.opened - SECOND, end)
        cut = list(_cut(lines, self.segment_lines))
        if process.ends == "living":
            cut[-1].suffix = ".jsonl.open"
        return cut


def _cut(lines: list[Line], size: int) -> Iterator[Segment]:
    """A new segment each `size` lines, and at each full hour."""
    begun, hour = 0, None
    for index in range(len(lines) + 1):
        here = lines[index]["ts_us"] // HOUR if index < len(lines) else None
        if index and (here != hour or index - begun == size):
            first = lines[begun]
            yield Segment(folder_of(first["ts_us"]), first["writer"], begun, [*lines[begun:index]])
            begun = index
        hour = here


def folder_of(wall_us: int) -> str:
    """The folder of a segment that was begun at `wall_us`."""
    at = datetime.fromtimestamp(wall_us / SECOND, UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"


def rewritten(segment: Segment, change: Callable[[Line], Line | bytes | None]) -> Segment:
    """The segment with each line changed; None takes a line out."""
    changed = (change(dict(line)) for line in segment.lines if not isinstance(line, bytes))
    segment.lines = [line for line in changed if line is not None]
    return segment
