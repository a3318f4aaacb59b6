"""Events to lines: pure, driven by the table in `schema`; no clock, no file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from jmsx.core import events as core
from jmsx_eventlog.schema import FIELDS, KINDS, VERSION, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.events import Event, Source

#: The kind of line for each class of event; None: it depends on the event's outcome or reason.
_KIND_OF_CLASS: Final[dict[type, str | None]] = {
    core.MessagesReceived: "recv.batch",
    core.DeliveryEnded: "delivery",
    core.MessagesAcknowledged: "ack.batch",
    core.RedeliveryScheduled: "redelivery.scheduled",
    core.MessageDeadLettered: "dlq",
    core.DeadLetterFailed: "dlq.failed",
    core.MessageSent: "send",
    core.TransactionEnded: None,
    core.SubscriptionOpened: "sub.open",
    core.SubscriptionClosed: "sub.close",
    core.LinkOpened: "conn.up",
    core.LinkClosed: None,
    core.LinkRestored: "conn.restored",
    core.ErrorReceived: "broker.error",
    core.AckDropped: "ack.dropped",
}
_KIND_OF_TRANSACTION: Final = {
    core.TransactionOutcome.COMMITTED: "tx.commit",
    core.TransactionOutcome.ROLLED_BACK: "tx.rollback",
    core.TransactionOutcome.IN_DOUBT: "tx.in_doubt",
}
_MICROSECONDS: Final = 1_000_000


def kind_of(event: Event) -> str:
    """Name the kind of line that tells of `event`."""
    if isinstance(event, core.TransactionEnded):
        return _KIND_OF_TRANSACTION[event.outcome]
    if isinstance(event, core.LinkClosed):
        return "conn.closed" if event.reason == "closed" else "conn.lost"
    return _KIND_OF_CLASS[type(event)] or ""


def urgent_classes() -> frozenset[type]:
    """List the classes of events whose lines are evidence."""
    urgent = {kind.name for kind in KINDS if kind.urgent}
    return frozenset(
        cls
        for cls, kind in _KIND_OF_CLASS.items()
        if kind in urgent or cls is core.TransactionEnded
    )


def _as_is(value: Any, _offset: float) -> Any:
    return value


def _from_monotonic(value: float, offset: float) -> int:
    return round((value + offset) * _MICROSECONDS)


def _from_seconds(value: float, _offset: float) -> int:
    return round(value * _MICROSECONDS)


def _from_epoch_ms(value: int, _offset: float) -> int:
    return value * 1000


_CONVERSION: Final[dict[Origin, Callable[[Any, float], Any]]] = {
    Origin.COPIED: _as_is,
    Origin.OPT_IN: _as_is,
    Origin.FROM_MONOTONIC: _from_monotonic,
    Origin.FROM_SECONDS: _from_seconds,
    Origin.FROM_EPOCH_MS: _from_epoch_ms,
}
#: Field name, attribute of the event, conversion (None: copy).
Plan: TypeAlias = "tuple[tuple[str, str, Callable[[Any, float], Any] | None], ...]"


def _plan(kind: str, *, with_text: bool) -> Plan:
    """How the lines of `kind` are filled."""
    return tuple(
        (
            field.name,
            field.sources[kind],
            None if field.origin is Origin.COPIED else _CONVERSION[field.origin],
        )
        for field in FIELDS
        if field.sources.get(kind) and (with_text or field.origin is not Origin.OPT_IN)
    )


class Encoder:
    """
    Makes the lines of one writer.

    `with_text` also writes free text (error messages), which may hold personal data.
    """

    def __init__(self, writer: str, *, with_text: bool = False) -> None:
        self._writer = writer
        self._plans = {kind.name: _plan(kind.name, with_text=with_text) for kind in KINDS}

    def event(self, event: Event, source: Source, seq: int, offset: float) -> bytes:
        """
        Make the line for `event`, with its line feed.

        `offset` is what the wall clock is ahead of the monotonic clock, in seconds. Raises
        TypeError where a value is of no type that JSON has; the caller reports a gap.
        """
        kind = kind_of(event)
        record: dict[str, Any] = {
            "v": VERSION,
            "kind": kind,
            "writer": self._writer,
            "seq": seq,
            "ts_us": _from_monotonic(event.at, offset),
            "mono_us": _from_seconds(event.at, offset),
            "session_id": source.session_id,
            "epoch": source.epoch,
        }
        for name, attribute, convert in self._plans[kind]:
            value = getattr(event, attribute)
            if value is not None:
                record[name] = value if convert is None else convert(value, offset)
        if kind == "conn.up":
            record |= {
                "broker": source.broker,
                "broker_kind": source.broker_kind,
                "conn_id": source.connection_id,
            }
        return _line(record)

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
    record["ts_us"] = _from_seconds(wall, 0)
    if monotonic is not None:
        record["mono_us"] = _from_seconds(monotonic, 0)
    return _line(record | members)


def _line(record: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        # Header values that were not UTF-8 come as lone surrogates: replaced rather than lost.
        replaced = {
            name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
            for name, value in record.items()
        }
        return orjson.dumps(replaced, option=orjson.OPT_APPEND_NEWLINE)
