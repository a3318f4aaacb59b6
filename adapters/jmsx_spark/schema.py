"""The event log's table of fields, as Spark sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from jmsx_eventlog.schema import FIELDS, FieldType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_TYPES: Final[dict[FieldType, DataType]] = {
    FieldType.STRING: StringType(),
    FieldType.INT: IntegerType(),
    FieldType.LONG: LongType(),
    FieldType.BOOLEAN: BooleanType(),
}

#: What the tables are made from. Only these are parsed: 42 columns cost twice as much as 5.
_NEEDED: Final = frozenset(
    {
        *("kind", "writer", "seq", "ts_us", "session_id", "epoch"),
        *("dest", "consumer", "msg_key", "attempt", "redelivered", "outcome", "error_type"),
        *("sent_us", "recv_us", "start_us", "end_us"),
        *("messages", "next_attempt", "delay_us", "reason", "attempts"),
        *("dropped", "dropped_kind"),
    }
)


def event_schema(names: frozenset[str] | None = None) -> StructType:
    """Make the schema of an event line: of all fields, or of those in `names`."""
    return StructType(
        [
            StructField(field.name, _TYPES[field.type])
            for field in FIELDS
            if names is None or field.name in names
        ]
    )


#: The schema that the report reads with.
REPORT_SCHEMA: Final = event_schema(_NEEDED)
