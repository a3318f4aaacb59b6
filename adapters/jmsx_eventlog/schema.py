"""
The schema of the event log, in one place: the kinds of lines, their fields, and where each field comes from.

The writer, SCHEMA.md, the columns of readers, and `fault_of`, which says what is wrong with a line, are
all derived from `KINDS` and `FIELDS`. This module imports only the standard library, so a reader needs no
more than this file. Within a major version fields, kinds and words are only ever added, and a field that a
kind did not have from its first day is never required: a reader of version 1 must be able to read every
line of version 1 (`tests/pipeline/golden` keeps lines of each).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: The major version of the schema, in each line as `v`.
VERSION: Final = 1


class FieldType(StrEnum):
    """The type of a field, by the name that Spark and most databases use."""

    STRING = "string"
    INT = "int"  #: 32 bits, signed
    LONG = "bigint"  #: 64 bits, signed
    BOOLEAN = "boolean"


class Origin(StrEnum):
    """How a field's value is made from the event's attribute."""

    COPIED = "copied"
    FROM_MONOTONIC = "from_monotonic"  #: seconds, monotonic -> microseconds since the epoch
    FROM_SECONDS = "from_seconds"  #: seconds -> microseconds
    FROM_EPOCH_MS = "from_epoch_ms"  #: milliseconds since the epoch -> microseconds since the epoch
    OPT_IN = "opt_in"  #: free text that may hold personal data: only `with_text`
    BY_WRITER = "by_writer"  #: the event log's own


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of line."""

    name: str
    meaning: str
    required: tuple[str, ...]  #: the fields without which a line says nothing, beside `REQUIRED`
    #: The evidence of the audit: a full queue is waited for before this is dropped.
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field: a column for Spark, a member of the JSON object in the log."""

    name: str
    type: FieldType
    unit: str  #: "" where there is none
    meaning: str
    sources: dict[str, str]  #: kind -> attribute of the event; empty: in every line
    origin: Origin = Origin.COPIED
    #: kind -> the only values allowed in lines of that kind; in other kinds any text is.
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    least: int | None = None  #: the least value of a number


#: The fields that every line has.
REQUIRED: Final = ("v", "kind", "writer", "seq", "ts_us")
_WHERE: Final = ("dest", "consumer")
_COUNTED: Final = (*_WHERE, "messages")

KINDS: Final = (
    Kind(
        "delivery",
        "one delivery of one message, from frame to fate",
        (*_WHERE, "msg_key", "attempt", "outcome"),
        urgent=True,
    ),
    Kind(
        "delivery.late",
        "how a delivery went that was abandoned while the application had it; under the epoch that it came in",
        (*_WHERE, "msg_key", "attempt", "outcome"),
        urgent=True,
    ),
    Kind("send", "a SEND ended", ("dest", "msg_key", "outcome"), urgent=True),
    Kind(
        "dlq",
        "a message was given to a dead letter queue",
        (*_WHERE, "msg_key", "reason"),
        urgent=True,
    ),
    Kind(
        "dlq.failed",
        "a dead letter could not be confirmed; the original is kept",
        (*_WHERE, "msg_key"),
        urgent=True,
    ),
    Kind("tx.commit", "a transaction was committed", ("tx_id",), urgent=True),
    Kind("tx.rollback", "a transaction was rolled back", ("tx_id",), urgent=True),
    Kind("tx.in_doubt", "nobody knows how a transaction ended", ("tx_id",), urgent=True),
    Kind(
        "redelivery.scheduled",
        "a message will be delivered again by us after a delay",
        (*_WHERE, "msg_key", "next_attempt", "delay_us"),
    ),
    Kind("recv.batch", "MESSAGE frames of one chunk came in for one consumer", _COUNTED),
    Kind("ack.batch", "one ACK frame was written", _COUNTED),
    Kind("ack.dropped", "acknowledgements not sent, because their connection is gone", _COUNTED),
    Kind("sub.open", "the broker confirmed a subscription; holds what is constant for it", _WHERE),
    Kind("sub.close", "a consumer was closed", _WHERE),
    Kind(
        "sub.removed",
        "the broker confirmed that a durable subscription is removed, with the messages that it still had",
        ("subscription",),
        urgent=True,
    ),
    Kind(
        "conn.up",
        "a socket is up; holds what is constant for the session",
        ("session_id", "broker"),
    ),
    Kind("conn.closed", "a socket was closed by us", ("session_id",)),
    Kind("conn.lost", "a socket was lost", ("session_id",)),
    Kind(
        "conn.restored",
        "after a loss there is a socket again, with every subscription on it",
        ("session_id",),
    ),
    Kind("conn.failed", "a broker that was tried let nobody in", ("broker", "reason")),
    Kind(
        "conn.stats",
        "what has gone over a socket since it was opened; the last one at its end",
        ("frames_in", "frames_out", "bytes_in", "bytes_out"),
    ),
    Kind(
        "sub.stats",
        "how many messages of a consumer are here, told now and then",
        (*_WHERE, "buffered", "in_process"),
    ),
    Kind("receipt.missed", "the broker did not answer a frame in time", ("command",)),
    Kind("broker.error", "the broker sent ERROR", ()),
    Kind(
        "broker.stats",
        "what the broker itself counts of one queue",
        ("dest", "enqueued", "dequeued", "size"),
    ),
    Kind(
        "broker.clock",
        "the broker's clock beside this host's",
        ("broker", "ahead_us", "within_us"),
    ),
    Kind("log.open", "the first line of a writer; holds what is constant for the process", ()),
    Kind("log.close", "the last line of a writer that ended in order", ("dropped",)),
    Kind(
        "log.gap",
        "events of one kind that are missing from the log, and why",
        ("dropped", "dropped_kind"),
    ),
    Kind("log.recovered", "the last line of a writer that died, added by another", ()),
)

#: Kinds of lines from which the audit compares sends with settlements.
AUDITED: Final = frozenset({"delivery", "delivery.late", "send", "sub.removed"})

_DELIVERIES: Final = ("delivery", "delivery.late")
_CONSUMED: Final = (*_DELIVERIES, "dlq", "dlq.failed", "redelivery.scheduled", "sub.open")
_OF_A_SUBSCRIPTION: Final = ("sub.stats", "sub.close")
_BATCHES: Final = ("recv.batch", "ack.batch", "ack.dropped")
_TRANSACTIONS: Final = ("tx.commit", "tx.rollback", "tx.in_doubt")


def _from(attribute: str, *kinds: str) -> dict[str, str]:
    """Name the same attribute as the source in each of `kinds`."""
    return dict.fromkeys(kinds, attribute)


_STRING, _INT, _LONG, _BOOLEAN = (
    FieldType.STRING,
    FieldType.INT,
    FieldType.LONG,
    FieldType.BOOLEAN,
)
_US_EPOCH: Final = "us, epoch"
_MESSAGES: Final = "messages"

_DELIVERY_OUTCOMES: Final = (
    *("acknowledged", "committed", "rolled_back", "dead_lettered", "discarded"),
    *("duplicate", "expired", "released", "abandoned"),
)
_SEND_OUTCOMES: Final = ("confirmed", "unconfirmed", "error", "rolled_back")
_REASONS: Final = {
    "dlq": ("max_redeliveries", "rejected", "expired", "undecodable"),
    "conn.closed": ("closed",),
    "conn.lost": ("heartbeat", "error_frame", "io", "protocol"),
    "ack.dropped": ("stale_epoch",),
    "log.gap": ("overflow", "unencodable"),
}
_RESULTS: Final = ("refused", "credentials", "timeout", "tls", "settings")
_TRIGGERS: Final = ("each", "threshold", "idle", "explicit", "commit", "close")
_ACK_MODES: Final = ("auto", "client", "dups_ok", "individual", "transacted")

#: Roughly in the order of a line: `v` and `kind` come first, so that a parser may stop early.
FIELDS: Final = (
    Field("v", _INT, "", "major version of this schema", {}, Origin.BY_WRITER),
    Field("kind", _STRING, "", "which kind of line this is", {}, Origin.BY_WRITER),
    Field("writer", _STRING, "", "host-pid-8 hex digits: one per process", {}, Origin.BY_WRITER),
    Field("seq", _LONG, "", "gapless for each writer, from 0", {}, Origin.BY_WRITER, least=0),
    Field("ts_us", _LONG, _US_EPOCH, "when it happened, wall clock", {}, Origin.BY_WRITER, least=0),
    Field("mono_us", _LONG, "us", "the same, monotonic clock of the process", {}, Origin.BY_WRITER),
    Field("session_id", _STRING, "", "the session; its `conn.up` says more", {}, Origin.BY_WRITER),
    Field("epoch", _INT, "", "which socket of the session, from 1", {}, Origin.BY_WRITER),
    Field(
        "dest",
        _STRING,
        "",
        "destination, such as queue://orders",
        _from("destination", *_CONSUMED, *_BATCHES, *_OF_A_SUBSCRIPTION, "send", "broker.stats"),
    ),
    Field(
        "consumer",
        _STRING,
        "",
        "the consumer's name",
        _from("consumer", *_CONSUMED, *_BATCHES, *_OF_A_SUBSCRIPTION),
    ),
    Field(
        "subscription",
        _STRING,
        "",
        "whose copy of the topic's messages: `durable:` client id `.` name, or this consumer alone;"
        " absent where all who read `dest` share its messages",
        _from("subscription", *_DELIVERIES, "sub.open", "sub.removed"),
    ),
    Field(
        "msg_key",
        _STRING,
        "",
        "stable identity of the message; of jmsx senders 32 hex digits, the first 12 epoch ms",
        _from("message_key", *_DELIVERIES, "send", "dlq", "dlq.failed", "redelivery.scheduled"),
    ),
    Field(
        "cause_key",
        _STRING,
        "",
        "stable identity of the message whose handler, or a task of that, sent this one while it ran; absent where none"
        " did, a handler of several, or a thread that one started",
        _from("cause_key", "send"),
    ),
    Field(
        "duplicate_id",
        _STRING,
        "",
        "by which the broker drops a second message that is sent there, as `dedupe_id=` gives it, or a handler's output"
        " has it; absent: by none, or by its own `msg_key`",
        _from("duplicate_id", "send"),
    ),
    Field("msg_id", _STRING, "", "the broker's message-id", _from("message_id", "delivery", "dlq")),
    Field("corr_id", _STRING, "", "correlation id", _from("correlation_id", "delivery")),
    Field(
        "attempt",
        _INT,
        "",
        "which delivery of the message, from 1",
        _from("attempt", *_DELIVERIES),
        least=1,
    ),
    Field(
        "redelivered",
        _BOOLEAN,
        "",
        "whether it was delivered before, by the broker's flag or our count",
        _from("redelivered", "delivery"),
    ),
    Field(
        "sent_us",
        _LONG,
        _US_EPOCH,
        "the broker's `timestamp` header",
        _from("sent_ms", "delivery"),
        Origin.FROM_EPOCH_MS,
    ),
    Field(
        "expires_us",
        _LONG,
        _US_EPOCH,
        "the broker may throw it away from then on; absent: never",
        _from("expires_ms", "send"),
        Origin.FROM_EPOCH_MS,
    ),
    Field(
        "recv_us",
        _LONG,
        _US_EPOCH,
        "frame received",
        _from("received_at", "delivery"),
        Origin.FROM_MONOTONIC,
    ),
    Field(
        "start_us",
        _LONG,
        _US_EPOCH,
        "handed to the application; of `send` and `tx.*`: begun (`ts_us` is the end)",
        _from("started_at", *_DELIVERIES, "send", *_TRANSACTIONS),
        Origin.FROM_MONOTONIC,
    ),
    Field(
        "end_us",
        _LONG,
        _US_EPOCH,
        "the application was done; `ts_us` is when it was settled. Abandoned while the application has it: that, and"
        " `delivery.late` tells it; before that: `start_us` at most",
        _from("ended_at", "delivery"),
        Origin.FROM_MONOTONIC,
    ),
    Field(
        "outcome",
        _STRING,
        "",
        "how it ended",
        _from("outcome", *_DELIVERIES, "send"),
        words={
            "delivery": _DELIVERY_OUTCOMES,
            "delivery.late": ("done", "failed", "undone", "in_doubt"),
            "send": _SEND_OUTCOMES,
        },
    ),
    Field(
        "error_type",
        _STRING,
        "",
        "class of what the handler raised",
        _from("error_type", *_DELIVERIES, "dlq"),
    ),
    Field(
        "error_place",
        _STRING,
        "",
        "file and line of that, the innermost of the application's code",
        _from("error_place", *_DELIVERIES, "dlq"),
    ),
    Field(
        "error_stack",
        _STRING,
        "",
        "the way there, and that of its causes, without what they say: `a.py:3 call > b.py:9 find: KeyError | a.py:5"
        " call: ValueError`; of the first failure of a message, and of its death; 8 KiB at most, the end of it",
        _from("error_stack", "delivery", "dlq"),
    ),
    Field(
        "tx_id",
        _STRING,
        "",
        "the transaction",
        _from("transaction_id", "delivery", "send", *_TRANSACTIONS),
    ),
    Field(
        "size",
        _INT,
        "bytes",
        "length of the body; of `broker.stats`: messages in the queue",
        _from("size", "delivery", "send", "broker.stats"),
        least=0,
    ),
    Field("messages", _INT, _MESSAGES, "how many", _from("messages", *_BATCHES), least=0),
    Field(
        "redelivered_messages",
        _INT,
        _MESSAGES,
        "how many of them the broker flagged as redelivered",
        _from("redelivered", "recv.batch"),
        least=0,
    ),
    Field(
        "trigger",
        _STRING,
        "",
        "why the ACK was written",
        _from("trigger", "ack.batch"),
        words={"ack.batch": _TRIGGERS},
    ),
    Field(
        "next_attempt",
        _INT,
        "",
        "which delivery comes next, from 1",
        _from("next_attempt", "redelivery.scheduled"),
    ),
    Field(
        "delay_us",
        _LONG,
        "us",
        "planned wait before it",
        _from("delay", "redelivery.scheduled"),
        Origin.FROM_SECONDS,
    ),
    Field(
        "blocking",
        _BOOLEAN,
        "",
        "later messages of the consumer wait for it",
        _from("blocking", "redelivery.scheduled"),
    ),
    Field(
        "by_broker",
        _BOOLEAN,
        "",
        "it waits in the broker's scheduler; false: with the consumer; absent in lines of older releases",
        _from("by_broker", "redelivery.scheduled"),
    ),
    Field(
        "attempts",
        _INT,
        "attempts",
        "how often it was tried: to deliver, or to connect",
        _from("attempts", "dlq", "conn.restored"),
    ),
    Field(
        "dlq_dest",
        _STRING,
        "",
        "where it went; absent where the broker decides",
        _from("dead_letter_destination", "dlq"),
    ),
    Field("by_copy", _BOOLEAN, "", "sent as our copy, confirmed", _from("by_copy", "dlq")),
    Field(
        "reason",
        _STRING,
        "",
        "why; of `dlq.failed` the broker's own words",
        _from("reason", "dlq", "dlq.failed", "conn.closed", "conn.lost", "ack.dropped")
        | _from("", "log.gap")
        | _from("result", "conn.failed"),
        words=_REASONS | {"conn.failed": _RESULTS},
    ),
    Field(
        "in_doubt",
        _BOOLEAN,
        "",
        "a commit was not answered, and the next socket will tell how it ended",
        _from("in_doubt", "conn.lost"),
    ),
    Field("tx_sends", _INT, _MESSAGES, "sends in it", _from("sends", *_TRANSACTIONS)),
    Field(
        "tx_acks",
        _INT,
        _MESSAGES,
        "acknowledgements in it",
        _from("acknowledgements", *_TRANSACTIONS),
    ),
    Field(
        "ack_mode",
        _STRING,
        "",
        "acknowledge mode",
        _from("ack_mode", "sub.open"),
        words={"sub.open": _ACK_MODES},
    ),
    Field("prefetch", _INT, _MESSAGES, "prefetch limit", _from("prefetch", "sub.open")),
    Field(
        "max_redeliveries",
        _INT,
        "deliveries",
        "of the redelivery policy; -1: no limit",
        _from("maximum_redeliveries", "sub.open"),
    ),
    Field(
        "optimize_ack",
        _BOOLEAN,
        "",
        "acknowledgements go in batches",
        _from("optimize_acknowledge", "sub.open"),
    ),
    Field(
        "selective",
        _BOOLEAN,
        "",
        "the broker may give it less than all that waits there: a selector, `no_local`, `consumer.*` options, or each"
        " message only when it is asked for; absent in lines of older releases",
        _from("selective", "sub.open"),
    ),
    Field("server", _STRING, "", "the broker's own words", _from("server", "conn.up")),
    Field(
        "connect_us",
        _LONG,
        "us",
        "how long connecting took",
        _from("seconds", "conn.up"),
        Origin.FROM_SECONDS,
    ),
    Field(
        "outage_us",
        _LONG,
        "us",
        "how long there was no socket",
        _from("seconds", "conn.restored"),
        Origin.FROM_SECONDS,
    ),
    Field(
        "enqueued",
        _LONG,
        _MESSAGES,
        "messages that came in since the broker was started",
        _from("enqueued", "broker.stats"),
        least=0,
    ),
    Field(
        "dequeued",
        _LONG,
        _MESSAGES,
        "messages that left since then: acknowledged, dead-lettered or expired",
        _from("dequeued", "broker.stats"),
        least=0,
    ),
    Field(
        "expired",
        _LONG,
        _MESSAGES,
        "messages whose time to live was over since then",
        _from("expired", "broker.stats"),
        least=0,
    ),
    Field(
        "broker",
        _STRING,
        "",
        "the broker's address",
        _from("", "conn.up", "conn.failed", "broker.clock"),
        Origin.BY_WRITER,
    ),
    Field("broker_kind", _STRING, "", "the dialect", _from("", "conn.up"), Origin.BY_WRITER),
    Field("conn_id", _STRING, "", "the connection", _from("", "conn.up"), Origin.BY_WRITER),
    Field(
        "receipt_id",
        _STRING,
        "",
        "the receipt that was asked for",
        _from("receipt_id", "broker.error"),
    ),
    Field(
        "error_message",
        _STRING,
        "",
        "free text, only if the application asked for it (`with_text`)",
        {
            "dlq": "error_message",
            "conn.lost": "detail",
            "conn.failed": "detail",
            "broker.error": "message",
        },
        Origin.OPT_IN,
    ),
    Field(
        "command",
        _STRING,
        "",
        "the STOMP command that had no answer",
        _from("command", "receipt.missed"),
    ),
    Field(
        "subject",
        _STRING,
        "",
        "what it was about: destination, transaction or consumer",
        _from("subject", "receipt.missed"),
    ),
    Field(
        "heard_us",
        _LONG,
        _US_EPOCH,
        "the broker's last bytes, heart-beats too",
        _from("heard_at", "conn.stats"),
        Origin.FROM_MONOTONIC,
    ),
    Field(
        "silence_limit_us",
        _LONG,
        "us",
        "silence after which the socket is dropped; 0: no heart-beats are agreed",
        _from("silence_limit", "conn.stats"),
        Origin.FROM_SECONDS,
    ),
    *(
        Field(f"{what}_{way}", _LONG, what, about, _from(f"{what}_{way}", "conn.stats"), least=0)
        for what in ("frames", "bytes")
        for way, about in (("in", "from the broker"), ("out", "to the broker"))
    ),
    Field(
        "unanswered",
        _INT,
        "frames",
        "that the broker has yet to answer; absent in lines of older releases",
        _from("unanswered", "conn.stats"),
        least=0,
    ),
    Field(
        "buffered",
        _INT,
        _MESSAGES,
        "they wait here to be handed out, some for the end of a back-off, or for the broker to move them",
        _from("buffered", "sub.stats"),
        least=0,
    ),
    Field(
        "in_process",
        _INT,
        _MESSAGES,
        "the application has them: their handlers run, or they are not acknowledged or committed",
        _from("in_process", "sub.stats"),
        least=0,
    ),
    Field(
        "still_in_process",
        _INT,
        _MESSAGES,
        "of these, those that it had already when this was told last; absent in lines of older releases",
        _from("still_in_process", "sub.stats"),
        least=0,
    ),
    Field(
        "ahead_us",
        _LONG,
        "us",
        "what the broker's clock is ahead of this host's; negative: behind",
        _from("ahead", "broker.clock"),
        Origin.FROM_SECONDS,
    ),
    Field(
        "within_us",
        _LONG,
        "us",
        "how far that may be off: half of the way there and back",
        _from("within", "broker.clock"),
        Origin.FROM_SECONDS,
        least=0,
    ),
    Field(
        "service", _STRING, "", "the application's name", _from("", "log.open"), Origin.BY_WRITER
    ),
    Field("host", _STRING, "", "host name", _from("", "log.open"), Origin.BY_WRITER),
    Field("pid", _INT, "", "process id", _from("", "log.open"), Origin.BY_WRITER),
    Field("version", _STRING, "", "jmsx version", _from("", "log.open"), Origin.BY_WRITER),
    Field(
        "dropped",
        _LONG,
        "events",
        "how many are missing; in `log.close`: all in all",
        _from("", "log.gap", "log.close"),
        Origin.BY_WRITER,
        least=0,
    ),
    Field("dropped_kind", _STRING, "", "of which kind", _from("", "log.gap"), Origin.BY_WRITER),
    Field(
        "lost_bytes",
        _LONG,
        "bytes",
        "torn end that was cut off",
        _from("", "log.recovered"),
        Origin.BY_WRITER,
    ),
    Field(
        "recovered_by",
        _STRING,
        "",
        "the writer that did it",
        _from("", "log.recovered"),
        Origin.BY_WRITER,
    ),
)


def fields_of(kind: str) -> tuple[Field, ...]:
    """Return the fields that a line of `kind` may have, in the order of the line."""
    return tuple(field for field in FIELDS if not field.sources or kind in field.sources)


#: The first number that is too large for a field of each type.
_END: Final = {FieldType.INT: 2**31, FieldType.LONG: 2**63}
_YEAR_10000: Final = 253_402_300_800_000_000  #: us, epoch; most calendars end before it


def limits_of(one: Field) -> tuple[int, int]:
    """Return the least number that the field may have, and the first that is too large."""
    end = _YEAR_10000 if one.unit == _US_EPOCH else _END[one.type]
    return -end if one.least is None else one.least, end


def fault_of(line: object) -> str | None:
    """
    Return why `line`, the decoded JSON of one line, is not a valid line of this log; None: it is valid.

    It checks the version, the kind, the fields that the kind requires, the types and ranges of the kind's
    fields, and the values of fields with fixed words. A field that is null counts as absent, and unknown
    fields are ignored: later releases may have them. The answer is one sentence without a full stop, of at
    most some 120 characters; equal faults have equal sentences except for the quoted value. Raises nothing,
    whatever `line` is.
    """
    if not isinstance(line, dict):
        return "no JSON object"
    kind = line.get("kind")
    if (fault := _fault_of_version(line.get("v")) or _fault_of_kind(kind)) is not None:
        return fault
    required, checks = _CHECKS[str(kind)]
    for name in required:
        if line.get(name) is None:
            return f"{kind} without {name}"
    for name, value in line.items():
        if value is not None and name in checks and not checks[name](value):
            return f"{name} of {kind} is {_shown(value)}"
    return None


def _fault_of_version(version: object) -> str | None:
    if type(version) is not int or version < 1:
        return "no version (v)" if version is None else f"v is {_shown(version)}, and no version"
    if version > VERSION:
        return f"v {_shown(version)} is newer than {VERSION}, the newest that this release knows"
    return None


def _fault_of_kind(kind: object) -> str | None:
    if isinstance(kind, str) and kind in _CHECKS:
        return None
    return "no kind" if kind is None else f"unknown kind {_shown(kind)}"


_SHOWN: Final = 40  #: the most characters of a text that are quoted
_BITS: Final = 64  #: greater numbers are not written out


def _shown(value: object) -> str:
    """Return a short ASCII form of any value, for people."""
    if isinstance(value, str):
        text = ascii(value[:_SHOWN])
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}...'"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and value.bit_length() > _BITS:  # str() raises for very great ones
        return f"a number of {value.bit_length()} bits"
    return json.dumps(value)


def _check(one: Field, kind: str) -> Callable[[Any], bool]:
    """Return a function that tests a value of the field in lines of `kind`."""
    if one.type is FieldType.BOOLEAN:
        return lambda value: isinstance(value, bool)
    if one.type is FieldType.STRING:
        words = frozenset(one.words.get(kind, ()))
        return lambda value: isinstance(value, str) and (not words or value in words)
    least, end = limits_of(one)
    return lambda value: type(value) is int and least <= value < end


#: Kind -> the fields that it requires, and the tests of its fields' values.
_CHECKS: Final = {
    kind.name: (
        (*REQUIRED[2:], *kind.required),
        {one.name: _check(one, kind.name) for one in fields_of(kind.name)},
    )
    for kind in KINDS
}


def markdown() -> str:
    """Return the text of SCHEMA.md."""
    lines = [
        "# The event log, line by line",
        "",
        (
            "Made from `schema.py` by `python -m jmsx_eventlog`. One JSON object a line; a field"
            " without a value is left out."
        ),
        "",
        (
            f"Every line has {_names(REQUIRED)}. A line that lacks one of these or one that its kind"
            " requires, has a value of another type or a word that is not in the last table, or is of an"
            " unknown kind or a newer version, is put aside by readers; further fields are not."
        ),
        "",
        (
            "Segments lie in the log's folder as `date=2026-11-30/hour=14/WRITER-SEQ.jsonl`: the UTC hour in which"
            " one was begun, and the `seq` of its first line in 12 digits; `.jsonl.open` until it is complete. What"
            " `log.gap` tells of has no `seq`. A process with a connection open writes `conn.stats` every 15 s, so"
            " one that is silent for long is no idle one."
        ),
        "",
        (
            "A delivery is the last one of its message if it ends as `acknowledged`, `committed`, `dead_lettered`,"
            " `discarded`, `duplicate` (done before) or `expired`; after `rolled_back`, `released` (by a close) and"
            " `abandoned` (by a lost link) the message comes again, but for what the broker may have made a dead letter"
            " by then (`delivery.late`: `in_doubt`)."
        ),
        "",
        "| kind | meaning | requires |",
        "|---|---|---|",
        *(f"| `{kind.name}` | {kind.meaning} | {_names(kind.required)} |" for kind in KINDS),
        "",
        "| field | type | unit | in | meaning |",
        "|---|---|---|---|---|",
    ]
    for one in FIELDS:
        kinds = ", ".join(f"`{kind}`" for kind in one.sources) or "every kind"
        lines.append(f"| `{one.name}` | {one.type} | {one.unit or '-'} | {kinds} | {one.meaning} |")
    lines += ["", "| field | in | words |", "|---|---|---|"]
    lines += [
        f"| `{one.name}` | `{kind}` | {_names(words)} |"
        for one in FIELDS
        for kind, words in one.words.items()
    ]
    return "\n".join(lines) + "\n"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"
