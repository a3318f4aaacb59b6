"""The valid lines of a batch as columns: one narrow frame for each kind, because kinds share few fields."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

import polars as pl

from jmsx_eventlog.schema import KINDS, FieldType, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)

_TYPES: Final[Mapping[FieldType, type[pl.DataType]]] = {
    FieldType.STRING: pl.String,
    FieldType.INT: pl.Int32,
    FieldType.LONG: pl.Int64,
    FieldType.BOOLEAN: pl.Boolean,
}

#: kind -> the columns of its frame: the fields that the kind may have.
SCHEMAS: Final[Mapping[str, Mapping[str, type[pl.DataType]]]] = {
    kind.name: {field.name: _TYPES[field.type] for field in fields_of(kind.name)} for kind in KINDS
}

#: The line by itself is invalid.
UNREADABLE: Final = "unreadable"
#: An earlier line has the same number and time but another content: one of them was changed.
CONTRADICTION: Final = "contradiction"
#: An earlier line has the same number but another time: two processes write under one name.
NAMESAKE: Final = "namesake"
#: A segment without a line.
EMPTY: Final = "empty"

#: Tables about the segments of a batch, besides their events.
ABOUT: Final[Mapping[str, Mapping[str, type[pl.DataType]]]] = {
    # Ranges of consecutive numbers among the lines of a segment that were read at once, and how many `times` each was
    # found; low and high are included.
    "ranges": {
        "segment": pl.String,
        "writer": pl.String,
        "low": pl.Int64,
        "high": pl.Int64,
        "first_us": pl.Int64,
        "last_us": pl.Int64,
        "times": pl.Int64,
    },
    # How many lines each segment has; of these `aside` are in the quarantine, and `repeated` are in earlier segments.
    "files": {
        "segment": pl.String,
        "lines": pl.Int64,
        "aside": pl.Int64,
        "repeated": pl.Int64,
    },
    # The lines in the quarantine: `what` is one of the words above, `why` says it in words; lines are numbered from 1,
    # and 0 is the segment as a whole.
    "quarantine": {"path": pl.String, "line": pl.Int64, "what": pl.String, "why": pl.String},
}

#: Columns with few distinct texts in many lines: as Categorical they are grouped faster.
NAMES: Final = ("writer", "session_id", "dest", "consumer", "subscription", "outcome")
#: Made once: some fifty of them are asked for in every batch.
_NONE: Final = {kind: pl.DataFrame(schema=schema) for kind, schema in SCHEMAS.items()}


def _coded(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    return frame.with_columns(*_as_codes(frame), kind=pl.lit(kind, pl.Categorical))


@cache
def _coded_schema(kind: str) -> pl.Schema:
    return _coded(_NONE[kind], kind).schema


class Events:
    """
    The valid lines of one batch, by kind, each (writer, seq) once; and tables about the segments.

    The names of `frames` (NAMES) are texts, or Categorical already.
    """

    def __init__(
        self,
        frames: Mapping[str, pl.DataFrame] | None = None,
        about: Mapping[str, pl.DataFrame] | None = None,
    ) -> None:
        self._frames = frames or {}
        self._about = about or {}
        self._made: dict[object, pl.DataFrame] = {}

    @classmethod
    def joined(cls, several: Sequence[Events]) -> Events:
        """Put events of several batches together, in their order."""
        if len(several) == 1:
            return several[0]
        frames: dict[str, list[pl.DataFrame]] = {}
        for events in several:
            for kind, frame in events._frames.items():  # noqa: SLF001 - another instance of this class
                frames.setdefault(kind, []).append(frame)
        about = {what: pl.concat(events.about(what) for events in several) for what in ABOUT}
        # A large segment is read in several pieces.
        files = about["files"].group_by("segment", maintain_order=True).sum()
        return cls(
            {kind: pl.concat(of_kind) for kind, of_kind in frames.items()},
            {**about, "files": files},
        )

    def of(self, kind: str) -> pl.DataFrame:
        """Return the lines of `kind`, with all columns that it may have, as texts; no rows where there are none."""
        return named(self._of(kind))

    def lack(self, kind: str) -> bool:
        """Return whether there are no lines of `kind`."""
        return not self._of(kind).height

    def _of(self, kind: str) -> pl.DataFrame:
        frame = self._frames.get(kind)
        return _NONE[kind] if frame is None else frame

    def coded(self, kind: str) -> pl.DataFrame:
        """Return the lines of `kind` with their names (writer, dest and the like) as Categorical: see `named`."""
        if kind not in self._made:
            frame = self._of(kind)
            # If any Categorical frame stayed, even an empty one, Polars would keep the names of all batches.
            self._made[kind] = (
                _coded(frame, kind) if frame.height else pl.DataFrame(schema=_coded_schema(kind))
            )
        return self._made[kind]

    def once(self, of: Callable[[Events], pl.DataFrame]) -> pl.DataFrame:
        """Return the result of `of` on these events: computed once, for several partials."""
        if of not in self._made:
            self._made[of] = of(self)
        return self._made[of]

    def kinds(self, *among: str) -> Sequence[str]:
        """Return those kinds `among` of which there are lines; if of none, the first, for its columns."""
        return [kind for kind in among if not self.lack(kind)] or among[:1]

    def every_kind(self) -> Sequence[str]:
        """Return the kinds of which there are lines; for an empty batch any one kind."""
        return self.kinds(*self._frames) or [KINDS[0].name]

    def about(self, what: str) -> pl.DataFrame:
        """Return the rows of `ranges`, `files` or `quarantine`, as ABOUT has them."""
        rows = self._about.get(what)
        return pl.DataFrame(schema=ABOUT[what]) if rows is None else rows


def every_line(events: Events) -> pl.DataFrame:
    """Return kind, writer, seq, ts_us, mono_us of each line; kinds and writers are Categorical."""
    columns = ["kind", "writer", "seq", "ts_us", "mono_us"]
    return pl.concat(events.coded(kind)[columns] for kind in events.every_kind())


def coded(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with their names as Categorical."""
    codes = _as_codes(rows)
    return rows.with_columns(codes) if codes else rows


def _as_codes(rows: pl.DataFrame) -> list[pl.Expr]:
    schema = rows.schema
    texts = [name for name in NAMES if schema.get(name) == pl.String]
    return [pl.col(texts).cast(pl.Categorical)] if texts else []


#: All Categorical columns, as texts.
_AS_TEXTS: Final = pl.col(pl.Categorical).cast(pl.String)


def named(rows: Rows) -> Rows:
    """Return `rows` with their Categorical columns as texts; for few rows."""
    return rows.with_columns(_AS_TEXTS)
