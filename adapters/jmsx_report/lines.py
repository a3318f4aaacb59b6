"""
Bytes of segments to columns: each line is either good, and then in `Events`, or put aside, and then in the quarantine.

What is good is said by `jmsx_eventlog.schema.fault_of`, line by line: the exact path. It is slow; so lines that the
writer wrote as it writes nearly all of them are read kind by kind with a narrow schema: the fast path. It may only be
trusted where nothing is odd. A line is odd if it does not begin as the writer begins lines, has a backslash, lacks
what its kind requires, has a number or a word out of bounds, or does not have as many members, and as many texts among
them, as were read from it: the JSON parser makes text of a number where a text is asked for, and takes the first of
two members of one name. Odd lines, and kinds that the parser refuses, go the exact path. Both give the same columns.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

import orjson
import polars as pl

from jmsx_eventlog.schema import KINDS, REQUIRED, VERSION, FieldType, fault_of, fields_of, limits_of
from jmsx_report.events import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jmsx_eventlog.schema import Kind

_BEGINNING: Final = f'{{"v":{VERSION},"kind":"%s","writer":"'
_KNOWN: Final = ("v", "kind")  #: members that the beginning of a line tells
#: The kinds that most lines are of come first: each look costs a pass over the lines that are left.
_COMMON: Final = ("delivery", "send", "recv.batch", "ack.batch")
_IN_TURN: Final = (*_COMMON, *(kind for kind in SCHEMAS if kind not in _COMMON))
#: Lines that the parser refuses are halved until so few are left, and then go the exact path.
_FEW: Final = 256


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be read of one segment."""

    path: str  #: below the folder of the log
    data: bytes  #: whole lines; a last one without its line feed is torn


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of some segments, in their order."""

    lines: pl.DataFrame  #: line (counts from 0 over all segments), text
    starts: pl.DataFrame  #: segment (its path), start (its first line): one row a segment
    frames: Mapping[str, pl.DataFrame]  #: kind -> its good lines, with their `line`
    aside: pl.DataFrame  #: line, why

    def numbered(self) -> pl.DataFrame:
        """The good lines of all kinds, in order: line, segment, writer, seq, ts_us."""
        frames = [
            frame.select("line", "writer", "seq", "ts_us") for frame in self.frames.values()
        ] or [_empty(KINDS[0].name).select("line", "writer", "seq", "ts_us")]
        return self.located(pl.concat(frames).sort("line"))

    def located(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add `segment` to rows that are sorted by `line`."""
        return rows.join_asof(
            self.starts.set_sorted("start"), left_on="line", right_on="start", coalesce=False
        )


def read(contents: Sequence[Content]) -> Reading:
    """Read lines and judge each by itself."""
    starts = []
    count = 0
    for content in contents:
        starts.append((content.path, count))
        count += content.data.count(b"\n") + (
            not content.data.endswith(b"\n") and bool(content.data)
        )
    whole = b"".join(
        content.data if content.data.endswith(b"\n") else content.data + b"\n"
        for content in contents
        if content.data
    )
    lines = _texts(whole, count).with_row_index("line")
    frames: dict[str, pl.DataFrame] = {}
    rest, odd = lines, []
    for kind in _IN_TURN:
        begins = rest["text"].str.starts_with(_BEGINNING % kind)
        if begins.any():
            frames[kind], doubtful = _fast(kind, rest.filter(begins))
            odd.append(doubtful)
            rest = rest.filter(~begins)
    exact, aside = _exact(pl.concat([rest, *odd]))
    for kind, frame in exact.items():
        frames[kind] = pl.concat([frames[kind], frame]).sort("line") if kind in frames else frame
    return Reading(
        lines=lines,
        starts=pl.DataFrame(starts, {"segment": pl.String, "start": pl.UInt32}, orient="row"),
        frames={kind: _without_options(frame) for kind, frame in frames.items()},
        aside=aside,
    )


def _texts(whole: bytes, count: int) -> pl.DataFrame:
    """Split into `count` lines; one that is not UTF-8 becomes an empty one, which is none."""
    try:
        texts = pl.read_lines(io.BytesIO(whole), name="text") if whole else pl.DataFrame()
        if texts.height == count > 0:
            return texts.rechunk()
    except pl.exceptions.ComputeError:
        pass
    return pl.DataFrame(
        {"text": [_decoded(line) for line in whole.split(b"\n")[:count]]}, {"text": pl.String}
    )


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return ""


def _fast(kind: str, lines: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read lines that begin as those of `kind`: the frame of those that are good for sure, and all others."""
    schema = {name: of for name, of in SCHEMAS[kind].items() if name not in _KNOWN}
    text = lines["text"].str.join("\n")[0].encode()
    try:
        parsed = pl.read_ndjson(io.BytesIO(text), schema=schema)
    except pl.exceptions.PolarsError:
        parsed = pl.DataFrame()
    if parsed.height != lines.height:
        return _halved(kind, lines)
    parsed = parsed.rechunk()
    known = {"v": pl.Series([VERSION], dtype=pl.Int32), "kind": pl.Series([kind])}
    frame = pl.DataFrame(
        [
            *(one.new_from_index(0, parsed.height).alias(name) for name, one in known.items()),
            *parsed.get_columns(),
            lines["line"],
        ]
    )
    odd = _odd(kind, parsed, lines["text"])
    if not odd.any():
        return frame, lines.clear()
    return frame.filter(~odd), lines.filter(odd)


def _halved(kind: str, lines: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    if lines.height <= _FEW:
        return _empty(kind), lines
    middle = lines.height // 2
    halves = [_fast(kind, lines[:middle]), _fast(kind, lines[middle:])]
    return pl.concat([good for good, _ in halves]), pl.concat([odd for _, odd in halves])


def _empty(kind: str) -> pl.DataFrame:
    return pl.DataFrame(schema={**SCHEMAS[kind], "line": pl.UInt32})


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the schema says of the fields of one kind, as the fast path asks for it."""

    texts: frozenset[str]
    required: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    limits: Mapping[str, tuple[int, int]]  #: both included


def _rules(kind: Kind) -> _Rules:
    fields = [field for field in fields_of(kind.name) if field.name not in _KNOWN]
    numbers = [field for field in fields if field.type in (FieldType.INT, FieldType.LONG)]
    return _Rules(
        texts=frozenset(field.name for field in fields if field.type is FieldType.STRING),
        required=tuple({*REQUIRED, *kind.required} - {*_KNOWN}),
        words={field.name: field.words[kind.name] for field in fields if kind.name in field.words},
        limits={field.name: (limits_of(field)[0], limits_of(field)[1] - 1) for field in numbers},
    )


_RULES: Final = {kind.name: _rules(kind) for kind in KINDS}


def _odd(kind: str, parsed: pl.DataFrame, text: pl.Series) -> pl.Series:
    """Tell which lines of `text` must not be trusted to be what they were `parsed` to."""
    rules = _RULES[kind]
    members = text.str.count_matches('":', literal=True)
    texts = text.str.count_matches('":"', literal=True)
    odd = (
        text.str.contains("\\", literal=True)
        | (members != _present(parsed, parsed.columns) + len(_KNOWN))
        | (texts != _present(parsed, rules.texts) + 1)
    )
    for name in rules.required:
        if parsed[name].null_count():
            odd |= parsed[name].is_null()
    for name, words in rules.words.items():
        odd |= ~parsed[name].is_in(words).fill_null(value=True)
    for name, (least, most) in rules.limits.items():
        numbers = parsed[name]
        ends = (numbers.min(), numbers.max())  # None: there are no numbers
        if any(isinstance(end, int) and not least <= end <= most for end in ends):
            odd |= ~numbers.is_between(least, most).fill_null(value=True)
    return odd


def _present(parsed: pl.DataFrame, names: Iterable[str]) -> pl.Series | int:
    """Count in each row the columns of `names` that have a value."""
    always, at_times = 0, []
    for name in names:
        nulls = parsed[name].null_count()
        if nulls == 0:
            always += 1
        elif nulls < parsed.height:
            at_times.append(parsed[name].is_not_null().cast(pl.UInt32))
    return reduce(add, at_times, always)


def _exact(lines: pl.DataFrame) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Read line by line: the frames of the good ones by kind, and which are put aside and why."""
    good: dict[str, list[dict[str, Any]]] = {}
    aside: list[tuple[int, str]] = []
    for line, text in lines.rows():
        try:
            members = orjson.loads(text)
        except orjson.JSONDecodeError:
            aside.append((line, "no JSON" if text else "an empty line, or none of UTF-8"))
            continue
        why = fault_of(members)
        if why is None:
            good.setdefault(members["kind"], []).append({**members, "line": line})
        else:
            aside.append((line, why))
    frames = {
        kind: pl.DataFrame(members, {**SCHEMAS[kind], "line": pl.UInt32}, orient="row")
        for kind, members in good.items()
    }
    return frames, pl.DataFrame(aside, {"line": pl.UInt32, "why": pl.String}, orient="row")


def _without_options(frame: pl.DataFrame) -> pl.DataFrame:
    """Name destinations without their options, such as `?consumer.prefetchSize=1`."""
    if "dest" not in frame.columns or not frame["dest"].str.contains("?", literal=True).any():
        return frame
    return frame.with_columns(pl.col("dest").str.split("?").list.first())
