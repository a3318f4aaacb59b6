"""
The one table of what stands in the event log: its kinds, its fields, where each field comes from.

The writer, SCHEMA.md and the Spark StructType are all made from `KINDS` and `FIELDS`. Nothing here
imports anything but the standard library, so a reader needs no more than this file. Fields are only
ever added: a reader of version 1 must be able to read every line of version 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: The major version of the schema, in each line as `v`.
VERSION: Final = 1


class FieldType(StrEnum):
    """The type of a field, in the words that Spark and most databases share."""

    STRING = "string"
    INT = "int"  #: 32 bits, signed
    LONG = "bigint"  #: 64 bits, signed
    BOOLEAN = "boolean"


class Origin(StrEnum):
    """How the value in the line is made from the attribute of the event."""

    COPIED = "copied"
    FROM_MONOTONIC = "from_monotonic"  #: seconds, monotonic -> microseconds since the epoch
    FROM_SECONDS = "from_seconds"  #: seconds -> microseconds
    FROM_EPOCH_MS = "from_epoch_ms"  #: milliseconds since the epoch -> microseconds since the epoch
    OPT_IN = "opt_in"  #: free text that may hold personal data: only if the application asks for it
    BY_WRITER = "by_writer"  #: the event log's own


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of line."""

    name: str
    meaning: str
    urgent: bool = (
        False  #: the evidence of the audit: a full queue is waited for before this is dropped
    )


@dataclass(frozen=True, slots=True)
class Field:
    """One field: a column for Spark, a member of the JSON object in the log."""

    name: str
    type: FieldType
    unit: str  #: "" where there is none
    meaning: str
    sources: dict[str, str]  #: kind -> attribute of the event; empty: in every line
    origin: Origin = Origin.COPIED


KINDS: Final = (
    Kind("delivery", "one delivery of one message, from frame to fate", urgent=True),
    Kind("send", "a SEND ended", urgent=True),
    Kind("dlq", "a message was given to a dead letter queue", urgent=True),
    Kind("dlq.failed", "a dead letter could not be confirmed; the original is kept", urgent=True),
    Kind("tx.commit", "a transaction was committed", urgent=True),
    Kind("tx.rollback", "a transaction was rolled back", urgent=True),
    Kind("tx.in_doubt", "nobody knows how a transaction ended", urgent=True),
    Kind("redelivery.scheduled", "a message will be delivered again by us after a delay"),
    Kind("recv.batch", "MESSAGE frames of one chunk came in for one consumer"),
    Kind("ack.batch", "one ACK frame was written"),
    Kind("ack.dropped", "acknowledgements not sent, because their connection is gone"),
    Kind("sub.open", "the broker confirmed a subscription; holds what is constant for it"),
    Kind("sub.close", "a consumer was closed"),
    Kind("conn.up", "a socket is up; holds what is constant for the session"),
    Kind("conn.closed", "a socket was closed by us"),
    Kind("conn.lost", "a socket was lost"),
    Kind("conn.restored", "after a loss there is a socket again, with every subscription on it"),
    Kind("broker.error", "the broker sent ERROR"),
    Kind("log.open", "the first line of a writer; holds what is constant for the process"),
    Kind("log.close", "the last line of a writer that ended in order"),
    Kind("log.gap", "events of one kind that are missing from the log, and why"),
    Kind("log.recovered", "the last line of a writer that died, added by another"),
)

#: Kinds that the audit of sent against settled is built on.
AUDITED: Final = frozenset({"delivery", "send"})

_CONSUMED: Final = ("delivery", "dlq", "dlq.failed", "redelivery.scheduled", "sub.open")
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

#: In the order of a line, about: `v` and `kind` come first, so that a parser may stop early.
FIELDS: Final = (
    Field("v", _INT, "", "major version of this schema", {}, Origin.BY_WRITER),
    Field("kind", _STRING, "", "which kind of line this is", {}, Origin.BY_WRITER),
    Field("writer", _STRING, "", "host-pid-8 hex digits: one per process", {}, Origin.BY_WRITER),
    Field("seq", _LONG, "", "gapless for each writer, from 0", {}, Origin.BY_WRITER),
    Field("ts_us", _LONG, _US_EPOCH, "when it happened, wall clock", {}, Origin.BY_WRITER),
    Field("mono_us", _LONG, "us", "the same, monotonic clock of the process", {}, Origin.BY_WRITER),
    Field("session_id", _STRING, "", "the session; its `conn.up` says more", {}, Origin.BY_WRITER),
    Field("epoch", _INT, "", "which socket of the session, from 1", {}, Origin.BY_WRITER),
    Field(
        "dest",
        _STRING,
        "",
        "destination, such as queue://orders",
        _from("destination", *_CONSUMED, *_BATCHES, "sub.close", "send"),
    ),
    Field(
        "consumer",
        _STRING,
        "",
        "the listener's name",
        _from("consumer", *_CONSUMED, *_BATCHES, "sub.close"),
    ),
    Field(
        "msg_key",
        _STRING,
        "",
        "stable identity of the message; of jmsx senders 32 hex digits, the first 12 epoch ms",
        _from("message_key", "delivery", "send", "dlq", "dlq.failed", "redelivery.scheduled"),
    ),
    Field("msg_id", _STRING, "", "the broker's message-id", _from("message_id", "delivery", "dlq")),
    Field("corr_id", _STRING, "", "correlation id", _from("correlation_id", "delivery")),
    Field(
        "attempt", _INT, "", "which delivery of the message, from 1", _from("attempt", "delivery")
    ),
    Field(
        "redelivered", _BOOLEAN, "", "the broker's flag, or ours", _from("redelivered", "delivery")
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
        _from("started_at", "delivery", "send", *_TRANSACTIONS),
        Origin.FROM_MONOTONIC,
    ),
    Field(
        "end_us",
        _LONG,
        _US_EPOCH,
        "the application was done; `ts_us` is when it was settled",
        _from("ended_at", "delivery"),
        Origin.FROM_MONOTONIC,
    ),
    Field(
        "outcome",
        _STRING,
        "",
        "delivery: acknowledged, committed, rolled_back, dead_lettered, discarded, duplicate,"
        " expired, released, abandoned; send: confirmed, unconfirmed, error",
        _from("outcome", "delivery", "send"),
    ),
    Field(
        "error_type",
        _STRING,
        "",
        "class of what the handler raised",
        _from("error_type", "delivery", "dlq"),
    ),
    Field(
        "error_place",
        _STRING,
        "",
        "file and line of that, the innermost of the application's code",
        _from("error_place", "delivery", "dlq"),
    ),
    Field(
        "tx_id",
        _STRING,
        "",
        "the transaction",
        _from("transaction_id", "delivery", "send", *_TRANSACTIONS),
    ),
    Field("size", _INT, "bytes", "length of the body", _from("size", "delivery", "send")),
    Field("messages", _INT, _MESSAGES, "how many", _from("messages", *_BATCHES)),
    Field(
        "redelivered_messages",
        _INT,
        _MESSAGES,
        "how many of them the broker flagged as redelivered",
        _from("redelivered", "recv.batch"),
    ),
    Field("trigger", _STRING, "", "why the ACK was written", _from("trigger", "ack.batch")),
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
        "why: dead letter, lost socket, dropped ACK; of `log.gap`: overflow, unencodable",
        _from("reason", "dlq", "dlq.failed", "conn.closed", "conn.lost", "ack.dropped")
        | _from("", "log.gap"),
    ),
    Field("tx_sends", _INT, _MESSAGES, "sends in it", _from("sends", *_TRANSACTIONS)),
    Field(
        "tx_acks",
        _INT,
        _MESSAGES,
        "acknowledgements in it",
        _from("acknowledgements", *_TRANSACTIONS),
    ),
    Field("ack_mode", _STRING, "", "acknowledge mode", _from("ack_mode", "sub.open")),
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
    Field("broker", _STRING, "", "the broker's address", _from("", "conn.up"), Origin.BY_WRITER),
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
        "free text, only if the application asked for it",
        {"dlq": "error_message", "conn.lost": "detail", "broker.error": "message"},
        Origin.OPT_IN,
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
    """List the fields that a line of `kind` may have, in the order of the line."""
    return tuple(field for field in FIELDS if not field.sources or kind in field.sources)


def markdown() -> str:
    """Write the schema as SCHEMA.md shows it."""
    lines = [
        "# The event log, line by line",
        "",
        (
            "Made from `schema.py` by `python -m jmsx_eventlog`. One JSON object a line; a field"
            " without a value is left out."
        ),
        "",
        "| kind | meaning |",
        "|---|---|",
        *(f"| `{kind.name}` | {kind.meaning} |" for kind in KINDS),
        "",
        "| field | type | unit | in | meaning |",
        "|---|---|---|---|---|",
    ]
    for field in FIELDS:
        kinds = ", ".join(f"`{kind}`" for kind in field.sources) or "every kind"
        lines.append(
            f"| `{field.name}` | {field.type} | {field.unit or '-'} | {kinds} | {field.meaning} |"
        )
    return "\n".join(lines) + "\n"
