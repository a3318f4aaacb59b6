"""Small logs made by hand, and the audit of them without a file or a process."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import polars as pl

from jmsx_report.additive import Partial, added
from jmsx_report.audit import Audit, audit
from jmsx_report.books import PARTIALS, Terms, books
from jmsx_report.events import SCHEMAS, Events
from jmsx_report.inline import inlined
from jmsx_report.period import Period
from jmsx_report.writers import KNOWN, context
from tests.depth import rounds

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 3600 * SECOND
#: 2026-11-20 06:00 UTC, at a full hour.
START: Final = 1_795_154_400 * SECOND
ORDERS: Final = "queue://orders"
#: Into how many parts a log is cut, unless told.
UNITS: Final = rounds(3)


def key(at_us: int, number: int) -> str:
    """A key as jmsx senders make them."""
    return f"{at_us // 1000:012x}{number:020x}"


class Log:
    """The lines of some writers; each writer numbers its own."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._next: dict[str, int] = defaultdict(int)
        self._keys = 0

    def line(self, writer: str, kind: str, at: int, **fields: Any) -> dict[str, Any]:
        """Add a line."""
        seq = self._next[writer]
        self._next[writer] += 1
        line = {"v": 1, "kind": kind, "writer": writer, "seq": seq, "ts_us": at} | fields
        self.lines.append(line)
        return line

    def opens(
        self, writer: str, at: int = START - SECOND, broker_kind: str | None = None, **fields: Any
    ) -> Log:
        """Open a writer's log; its service and host are its name unless told."""
        told = {"service": writer, "host": writer} | fields
        self.line(writer, "log.open", at, **told)
        told = {"broker": "b:61613", "broker_kind": broker_kind}
        self.line(writer, "conn.up", at, session_id=f"{writer}-1", epoch=1, **told)
        return self

    def closes(self, writer: str, at: int, dropped: int = 0) -> Log:
        """End a writer's log in order."""
        self.line(writer, "log.close", at, dropped=dropped)
        return self

    def reads(self, writer: str, dest: str = ORDERS, **fields: Any) -> None:
        """Subscribe."""
        self._of("sub.open", writer, START - SECOND, {"dest": dest, "consumer": "c"} | fields)

    def send(
        self, writer: str, at: int, dest: str = ORDERS, outcome: str = "confirmed", **fields: Any
    ) -> str:
        """Send a message; its key is made by the sender's clock, `at`, unless told."""
        self._keys += 1
        made: str = fields.pop("msg_key", key(at, self._keys))
        self._of(
            "send",
            writer,
            at + 2000,
            {"dest": dest, "msg_key": made, "outcome": outcome, "start_us": at} | fields,
        )
        return made

    def deliver(
        self,
        writer: str,
        made: str | None,
        at: int,
        dest: str = ORDERS,
        outcome: str = "acknowledged",
        **fields: Any,
    ) -> None:
        """Deliver a message of Artemis, unless another id is told, and settle it at once, by the consumer's clock."""
        told = {
            "msg_id": "17",
            "dest": dest,
            "consumer": "c",
            "msg_key": made,
            "attempt": 1,
            "outcome": outcome,
        }
        times = {"recv_us": at - 300, "start_us": at - 200, "end_us": at - 100}
        self._of("delivery", writer, at, told | times | fields)

    def late(self, writer: str, made: str, at: int, outcome: str, dest: str = ORDERS) -> None:
        """Tell how a delivery went whose link was lost."""
        told = {"dest": dest, "consumer": "c", "msg_key": made, "attempt": 1, "outcome": outcome}
        self._of("delivery.late", writer, at, told)

    def plan(self, writer: str, made: str, at: int, delay_us: int, **fields: Any) -> None:
        """Plan a redelivery; later messages wait for it unless told."""
        told = {"dest": ORDERS, "consumer": "c", "msg_key": made, "next_attempt": 2}
        waits = {"delay_us": delay_us, "blocking": True}
        self._of("redelivery.scheduled", writer, at, told | waits | fields)

    def stats(self, writer: str, at: int, dest: str = ORDERS, **counted: int) -> None:
        """What the broker counts of a queue."""
        none = {"enqueued": 0, "dequeued": 0, "expired": 0, "size": 0}
        self._of("broker.stats", writer, at, {"dest": dest} | none | counted)

    def _of(self, kind: str, writer: str, at: int, fields: dict[str, Any]) -> None:
        self.line(writer, kind, at, **({"session_id": f"{writer}-1", "epoch": 1} | fields))


def events(lines: list[dict[str, Any]]) -> Events:
    """Lines as the reader of segments gives them."""
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        schema = SCHEMAS[line["kind"]]
        by_kind[line["kind"]].append({name: line.get(name) for name in schema})
    return Events(
        {kind: pl.DataFrame(rows, schema=dict(SCHEMAS[kind])) for kind, rows in by_kind.items()}
    )


#: What partials make of a unit without lines, by their names: always the same.
_OF_NOTHING: Final[dict[str, pl.DataFrame]] = {}


def merged(partial: Partial, units: list[Events]) -> pl.DataFrame:
    """Make a partial of each unit, and of one without lines, and add them up, as the engine does."""
    if partial.name not in _OF_NOTHING:
        _OF_NOTHING[partial.name] = added(partial, partial.of(Events({})))
    nothing = _OF_NOTHING[partial.name]
    parts = [added(partial, partial.of(unit)) for unit in units]
    if not any(part.height for part in parts):  # most logs lack most: nothing is to be added up
        assert all(part.schema == nothing.schema for part in parts)
        return nothing
    return added(partial, pl.concat([*parts, nothing]))


@inlined
def audited(log: Log, units: int = UNITS, asked: Period | None = None, **terms: Any) -> Audit:
    """Audit a log that is cut into so many units; of what was sent in the period `asked`."""
    cut = [events(log.lines[number::units]) for number in range(units)]
    sums = {one.name: merged(one, cut) for one in (*PARTIALS, *KNOWN)}
    held = books(sums, context(sums), Terms(**terms), asked or Period())
    return audit(held, lambda of, wanted: merged(of(wanted), cut))


def told(log: Log, **how: Any) -> dict[str, Any]:
    """The summary of the audit."""
    return audited(log, **how).summary


#: The writers of `trade`.
SENDER, WORKER = "shop", "work"


def trade(messages: int = 10, *, dest: str = ORDERS) -> Log:
    """A sender and a worker; so many messages, all done, one a minute from the start."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER, dest)
    for number in range(messages):
        at = START + number * MINUTE
        log.deliver(WORKER, log.send(SENDER, at, dest), at + SECOND, dest)

    return log


def ended(log: Log, at: int = START + 2 * HOUR) -> Log:
    """Both close in order."""
    return log.closes(SENDER, at).closes(WORKER, at)


def findings(summary: dict[str, Any], what: str) -> list[str]:
    """What is said of one thing."""
    return [one["says"] for one in summary["findings"] if one["what"] == what]
