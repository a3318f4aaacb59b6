"""Encodes events as lines, by the table in `schema`; pure functions without clock or file."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from jmsx.core import events as core
from jmsx.core.events import Event, Source
from jmsx_eventlog.schema import FIELDS, KINDS, VERSION, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_KIND_OF_TRANSACTION: Final = {
    core.TransactionOutcome.COMMITTED: "tx.commit",
    core.TransactionOutcome.ROLLED_BACK: "tx.rollback",
    core.TransactionOutcome.IN_DOUBT: "tx.in_doubt",
}
#: The kinds of line that events of a class become.
_KINDS_OF_CLASS: Final[Mapping[type, tuple[str, ...]]] = {
    core.MessagesReceived: ("recv.batch",),
    core.DeliveryEnded: ("delivery",),
    core.DeliveryEndedLate: ("delivery.late",),
    core.MessagesAcknowledged: ("ack.batch",),
    core.RedeliveryScheduled: ("redelivery.scheduled",),
    core.MessageDeadLettered: ("dlq",),
    core.DeadLetterFailed: ("dlq.failed",),
    core.MessageSent: ("send",),
    core.TransactionEnded: tuple(_KIND_OF_TRANSACTION.values()),
    core.SubscriptionOpened: ("sub.open",),
    core.SubscriptionClosed: ("sub.close",),
    core.SubscriptionRemoved: ("sub.removed",),
    core.LinkOpened: ("conn.up",),
    core.LinkClosed: ("conn.closed", "conn.lost"),
    core.LinkRestored: ("conn.restored",),
    core.ConnectFailed: ("conn.failed",),
    core.LinkMeasured: ("conn.stats",),
    core.ConsumerMeasured: ("sub.stats",),
    core.ReceiptMissed: ("receipt.missed",),
    core.ErrorReceived: ("broker.error",),
    core.AckDropped: ("ack.dropped",),
    core.QueueCounted: ("broker.stats",),
    core.ClockCompared: ("broker.clock",),
}
_MICROSECONDS: Final = 1e6  # as a float: so its product with seconds costs a third
#: The most members of a dict display that Python 3.11 builds in one step; with more it adds each by itself
_AT_ONCE: Final = 15


def kind_of(event: Event) -> str:
    """Return the kind of line for `event`; if its class has none, the name of the class."""
    if isinstance(event, core.TransactionEnded):
        return _KIND_OF_TRANSACTION[event.outcome]
    if isinstance(event, core.LinkClosed):
        return "conn.closed" if event.reason == "closed" else "conn.lost"
    (kind,) = _KINDS_OF_CLASS.get(type(event), (type(event).__name__,))
    return kind


def urgent_classes() -> frozenset[type]:
    """Return the classes of events whose lines are evidence for the audit."""
    urgent = {kind.name for kind in KINDS if kind.urgent}
    return frozenset(cls for cls, kinds in _KINDS_OF_CLASS.items() if urgent & {*kinds})


#: The Python expression for a value of each origin; `ahead` is the offset of the wall clock in microseconds.
_EXPRESSION: Final = {
    Origin.COPIED: "{}",
    Origin.OPT_IN: "{}",
    Origin.FROM_MONOTONIC: f"round({{}} * {_MICROSECONDS} + ahead)",
    Origin.FROM_SECONDS: f"round({{}} * {_MICROSECONDS})",
    Origin.FROM_EPOCH_MS: "{} * 1000",
}
#: Fields of a `conn.up` line that come from the session (`Source`) and not from the event.
_OF_SOURCE: Final = {"broker": "broker", "broker_kind": "broker_kind", "conn_id": "connection_id"}

#: The text between two lines in a JSON array, and in the log.
_BETWEEN: Final = b'},{"v":%d,"kind":"' % VERSION
_END_AND_BEGIN: Final = _BETWEEN.replace(b",", b"\n", 1)

#: Errors raised for events that cannot be written as JSON: a value of a wrong type, too large, or NaN; an unknown
#: event.
UNENCODABLE: Final = (TypeError, ValueError, AttributeError, OverflowError, KeyError)

#: Makes the members of one line from event, source, seq, and by how many microseconds the wall clock is ahead.
Maker: TypeAlias = "Callable[[Any, Source, int, float], dict[str, Any]]"


def _maker(kind: str, writer: str, optional: frozenset[str], *, with_text: bool) -> Maker:
    """
    Make the function that fills lines of `kind`; attributes in `optional` may be None and are left out then.

    The function is compiled from the table, as a dataclass is from its fields: a loop over the table for each event
    would cost three times as much.
    """
    members = {
        "v": repr(VERSION),
        "kind": repr(kind),
        "writer": repr(writer),
        "seq": "seq",
        "ts_us": "round(at + ahead)",
        "mono_us": "round(at)",
        "session_id": "source.session_id",
        # A late delivery belongs to a socket that is gone, not to the session's present one.
        "epoch": "event.epoch" if kind == "delivery.late" else "source.epoch",
    }
    last = []
    for field in FIELDS:
        attribute = field.sources.get(kind)
        if attribute is None or (field.origin is Origin.OPT_IN and not with_text):
            continue
        if not attribute:
            members[field.name] = f"source.{_OF_SOURCE[field.name]}"
        elif attribute in optional:
            value = _EXPRESSION[field.origin].format("value")
            last += [
                f"    value = event.{attribute}",
                f"    if value is not None: record[{field.name!r}] = {value}",
            ]
        else:
            members[field.name] = _EXPRESSION[field.origin].format(f"event.{attribute}")
    items = [*members.items()]
    first = ", ".join(f"{name!r}: {value}" for name, value in items[:_AT_ONCE])
    code = [
        "def make(event, source, seq, ahead):",
        f"    at = event.at * {_MICROSECONDS}",
        f"    record = {{{first}}}",
        *(f"    record[{name!r}] = {value}" for name, value in items[_AT_ONCE:]),
        *last,
    ]
    made: dict[str, Any] = {}
    exec("\n".join([*code, "    return record"]), made)  # noqa: S102 - made of the table and nothing else
    maker: Maker = made["make"]
    return maker


class Encoder:
    """
    Makes the lines of one writer.

    `with_text` also writes free text (error messages), which may hold personal data.
    """

    def __init__(self, writer: str, *, with_text: bool = False) -> None:
        self._writer = writer
        self._makers: dict[str, Maker] = {}
        self._maker_of: dict[type, Maker] = {}  # of the classes with one kind
        for cls, kinds in _KINDS_OF_CLASS.items():
            optional = frozenset(one.name for one in fields(cls) if "None" in str(one.type))
            for kind in kinds:
                self._makers[kind] = _maker(kind, writer, optional, with_text=with_text)
            if len(kinds) == 1:
                self._maker_of[cls] = self._makers[kind]

    def events(self, events: Iterable[tuple[Event, Source]], seq: int, offset: float) -> bytes:
        """
        Make the lines of `events`, numbered from `seq`, each with its line feed.

        `offset` is wall clock minus monotonic clock, in seconds. Raises one of `UNENCODABLE` if an event cannot be
        written as JSON; the caller then calls `event` for each to find which.
        """
        ahead = offset * _MICROSECONDS
        maker_of, records = self._maker_of, []
        for number, (event, source) in enumerate(events, seq):
            make = maker_of.get(type(event)) or self._makers[kind_of(event)]
            records.append(make(event, source, number, ahead))
        # One call for all events is ten times as fast as one for each. Quotes in texts are escaped, and no value is an
        # object, so `_BETWEEN` occurs only between two lines.
        lines = orjson.dumps(records)[1:-1].split(_BETWEEN)
        if len(lines) != len(records):
            raise TypeError("a value is an array of objects")
        lines[-1] += b"\n"
        return _END_AND_BEGIN.join(lines)

    def event(self, event: Event, source: Source, seq: int, offset: float) -> bytes:
        """
        Make the line for `event`, with its line feed.

        Raises one of `UNENCODABLE` if the event cannot be written as JSON; the caller writes a `log.gap` instead.
        """
        make = self._makers[kind_of(event)]
        return _line(make(event, source, seq, offset * _MICROSECONDS))

    def own(
        self, kind: str, seq: int, wall: float, monotonic: float | None, **members: Any
    ) -> bytes:
        """Make a line that the event log writes about itself: `log.open` and the like."""
        return own_line(self._writer, kind, seq, wall, monotonic, **members)


def own_line(
    writer: str, kind: str, seq: int, wall: float, monotonic: float | None, **members: Any
) -> bytes:
    """Make a line about the log; clocks in seconds, `monotonic` None for another writer's line."""
    record: dict[str, Any] = {"v": VERSION, "kind": kind, "writer": writer, "seq": seq}
    record["ts_us"] = round(wall * _MICROSECONDS)
    if monotonic is not None:
        record["mono_us"] = round(monotonic * _MICROSECONDS)
    return _line(record | members)


def _line(record: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        # Header values that were not UTF-8 contain lone surrogates: replace these rather than lose the line.
        replaced = {
            name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
            for name, value in record.items()
        }
        return orjson.dumps(replaced, option=orjson.OPT_APPEND_NEWLINE)
