"""
Turns bytes of segments into columns: each line is either valid and goes into `Events`, or goes into the quarantine.

Validity is defined by `jmsx_eventlog.schema.fault_of`, line by line: the exact path. It is slow, so only odd lines take
it; others are read column by column. Each of the two faster paths may be trusted only for lines that are not odd.

- By shape: a writer names the members of a kind in one order, so the lines are a table whose cells end at the commas.
  Each cell must be exactly what its name and type demand, to the last byte; then the line is surely valid. The last
  cell is all that follows the last comma needed, so a text in it may have commas.
- By a parser of JSON, kind by kind, for what is left: lines of rare shapes, and texts with a comma. A line is odd if
  it does not begin as the writer begins lines, has a backslash, lacks what its kind requires, has a number or a word
  out of bounds, or does not have as many members, and as many texts among them, as were read from it: the parser makes
  text of a number where a text is asked for, and takes the first of two members of one name.

All three give the same columns. CPU time a line, with one thread, at a load of 15 and lines of 331 bytes as
`tests.benchmarks.segments` writes them: 1.8 us by shape, 2.6 us by the parser, 8.7 us by the exact path.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate
from operator import add
from typing import IO, TYPE_CHECKING, Any, Final

import orjson
import polars as pl

from jmsx_eventlog.schema import (
    KINDS,
    REQUIRED,
    VERSION,
    FieldType,
    Kind,
    fault_of,
    fields_of,
    limits_of,
)
from jmsx_report.events import NAMES, SCHEMAS, coded
from jmsx_report.texts import are_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_BEGINNING: Final = f'{{"v":{VERSION},"kind":"%s","writer":"'
_KNOWN: Final = ("v", "kind")  #: members that the beginning of a line tells
#: The most frequent kinds come first: each kind costs a pass over the lines that are left.
_COMMON: Final = ("delivery", "send", "recv.batch", "ack.batch")
_IN_TURN: Final = (*_COMMON, *(kind for kind in SCHEMAS if kind not in _COMMON))
#: Lines that the parser refuses are halved until so few are left, which then take the exact path.
_FEW: Final = 256
#: The least number of lines of a kind that are read by shape, which has a fixed cost.
_MANY: Final = 2000
#: How many shapes of a kind are looked for in a batch, and how many lines are sampled for each.
_SHAPES: Final = 4
_SAMPLE: Final = 16
#: Contents of at least about this size are split into lines separately: joining them first takes longer.
_LARGE_BYTES: Final = 1024 * 1024
#: Characters that JSON escapes; a text without them is written unchanged.
_UNLIKE_A_TEXT: Final = r'["\\\x00-\x1f]'


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be read of one segment."""

    path: str  #: below the folder of the log
    data: bytes  #: whole lines; a last one without its line feed is torn
    first: int = 0  #: lines of the segment that come before these


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of some segments, in their order."""

    lines: pl.DataFrame  #: line (counts from 0 over all segments), text
    #: segment (its path), start (its first line), first (lines of it that are not here, before that): one row each.
    starts: pl.DataFrame
    #: kind -> its good lines, with their `line`, in no order; NAMES are Categorical.
    frames: Mapping[str, pl.DataFrame]
    aside: pl.DataFrame  #: line, why

    def numbered(self) -> pl.DataFrame:
        """Return the valid lines of all kinds, in order: line, segment, writer, seq, ts_us."""
        frames = [
            frame.select("line", "writer", "seq", "ts_us") for frame in self.frames.values()
        ] or [coded(_NO_LINES)]
        return self.located(pl.concat(frames).sort("line"))

    def located(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add `segment` to rows that are sorted by `line`."""
        return rows.join_asof(
            self.starts.set_sorted("start"), left_on="line", right_on="start", coalesce=False
        )


def read(contents: Sequence[Content]) -> Reading:
    """Read lines and judge each by itself."""
    wholes = [_whole(content.data) for content in contents]
    sizes = [len(one) for one in wholes]
    texts, ends = _texts(wholes)
    lines = texts.alias("text").to_frame().with_row_index("line")
    del wholes  # as much memory as all lines
    found: dict[str, list[pl.DataFrame]] = {}
    rest, odd = lines, []
    for kind in _IN_TURN:
        if rest.height <= _FEW:
            break  # so few lines take the exact path, whatever their kind
        begins = rest["text"].str.starts_with(_BEGINNING % kind)
        if begins.any():
            shaped, others = _by_shape(kind, rest.filter(begins))
            parsed, doubtful = _by_parser(kind, others)
            found[kind] = [*shaped, *parsed]
            odd.append(doubtful)
            rest = rest.filter(~begins)
    exact, aside = _exact(pl.concat([rest, *odd]))
    for kind, frame in exact.items():
        found.setdefault(kind, []).append(frame)
    frames = {kind: _together(several) for kind, several in found.items() if several}
    return Reading(
        lines=lines,
        starts=_starts(contents, sizes, ends),
        frames={kind: _without_options(frame) for kind, frame in frames.items()},
        aside=aside,
    )


def _texts(wholes: Sequence[bytes]) -> tuple[pl.Series, pl.Series]:
    """Return the lines, and where each ends in bytes; a line that is not UTF-8 becomes empty, and so invalid."""
    size = sum(map(len, wholes))
    if not size:
        return pl.Series(dtype=pl.String), pl.Series(dtype=pl.Int64)
    several = wholes if size >= _LARGE_BYTES * len(wholes) else [b"".join(wholes)]
    files: list[IO[bytes]] = [io.BytesIO(one) for one in several if one]
    try:
        texts = pl.read_lines(files).to_series()
    except pl.exceptions.ComputeError:
        pass
    else:
        ends = (texts.str.len_bytes().cast(pl.Int64) + 1).cum_sum()
        if ends[-1] == size:
            return texts.rechunk(), ends
    lines = b"".join(several).split(b"\n")[:-1]
    ends = pl.Series([len(line) + 1 for line in lines], dtype=pl.Int64).cum_sum()
    return pl.Series(map(_decoded, lines), dtype=pl.String), ends


def _whole(data: bytes) -> bytes:
    """Return `data` with a line feed at its end, even after a torn last line."""
    return data + b"\n" if data and not data.endswith(b"\n") else data


def _starts(contents: Sequence[Content], sizes: Iterable[int], ends: pl.Series) -> pl.DataFrame:
    """Return segment, start, first, as in `Reading`; `sizes` of the contents, and where lines end, are in bytes."""
    begins = pl.Series([0, *accumulate(sizes)][:-1], dtype=pl.Int64)
    return pl.DataFrame(
        {
            "segment": [content.path for content in contents],
            "start": ends.search_sorted(begins, side="right"),
            "first": [content.first for content in contents],
        },
        {"segment": pl.String, "start": pl.UInt32, "first": pl.Int64},
    )


def _decoded(line: bytes) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return ""


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _by_shape(kind: str, lines: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    """Read lines that begin as those of `kind`, shape by shape: frames of good ones; and all others."""
    good: list[pl.DataFrame] = []
    for _ in range(_SHAPES):
        if lines.height < _MANY:
            break
        sample = lines["text"].gather_every(lines.height // _SAMPLE)
        shape = Counter(_shape(kind, text) for text in sample).most_common(1)[0][0]
        if shape is None:
            break
        frame, lines = _of_shape(kind, shape, lines)
        if frame.height:
            good.append(frame)
    return good, lines


def _shape(kind: str, text: str) -> tuple[str, ...] | None:
    """Return the names of the members of a valid line in their order; None: it is invalid, or has unknown members."""
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    known = fault_of(members) is None and members.keys() <= SCHEMAS[kind].keys()
    return tuple(members) if known else None


def _of_shape(
    kind: str, shape: tuple[str, ...], lines: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read those of `lines` that have the members of `shape`, each in its cell and of its type; and give all others."""
    rules = _RULES[kind]
    last = _cell(shape[-1])
    table = (
        lines.with_columns(_split(shape))
        .unnest("cells")
        .with_columns(last.str.ends_with("}").alias("closed"), last.str.head(-1))
    )
    again = _come_again([name for name in shape if name in rules.texts], rules, table)
    table = table.with_columns(_cell(name).cast(pl.Categorical) for name in again)
    seen = table.select(_cell(name).unique().implode().alias(name) for name in again)
    places = seen.select(pl.all().to_physical())
    inside = [
        pl.lit(_inside(name, seen[name][0], places[name][0], rules.words.get(name)))
        .gather(_cell(name).to_physical())
        .alias(name)
        for name in again
    ]
    cut, typed, good, columns = _steps(kind, shape, again)
    # Step by step: otherwise intermediate results that several columns need would be computed for each of them.
    read = (
        table.lazy()
        .with_columns(*inside, *cut)
        .with_columns(typed)
        .with_columns(good)
        .select(columns)
        .collect()
    )
    sound = read.drop_in_place("good")
    for name in shape:
        if name in rules.texts and name not in again and not are_plain(read[name].filter(sound)):
            sound &= ~read[name].str.contains(_UNLIKE_A_TEXT)
    if sound.all():
        return coded(read), lines.clear()
    return coded(read.filter(sound)), lines.filter(~sound)


def _cell(name: str) -> pl.Expr:
    return pl.col(f"{name} cell")


@lru_cache
def _split(shape: tuple[str, ...]) -> pl.Expr:
    """Split `text` into a cell for each member, NAME cell."""
    # The last cell has all that follows: in a line with more commas it is not what it must be.
    cells = pl.col("text").str.splitn(",", len(shape))
    return cells.struct.rename_fields([f"{name} cell" for name in shape]).alias("cells")


@lru_cache
def _steps(
    kind: str, shape: tuple[str, ...], again: tuple[str, ...]
) -> tuple[list[pl.Expr], list[pl.Expr], pl.Expr, list[pl.Expr]]:
    """
    Return the expressions that turn cells into columns, in four steps; made once, since there are some 150.

    The content of the cells `again` is known already. The content of the others is cut out, numbers are converted, and
    the line is tested, provided that all its texts are `texts.are_plain`.
    """
    rules = _RULES[kind]
    names = [name for name in shape if name not in _KNOWN]  # the beginning of the line told those
    cells = {name: _cell(name) for name in names}
    unlike = [name for name in names if name in rules.texts and name not in again]
    numbers = [name for name in names if name in rules.limits]
    truths = [name for name in names if name not in rules.texts and name not in numbers]
    read = {name: pl.col(f"{name} read") for name in numbers}
    # `tail` of a negative length drops so many characters from the beginning, faster than a slice.
    cut = [
        *(cells[name].str.tail(-len(_before(name))).str.head(-1).alias(name) for name in unlike),
        *(cells[name].str.tail(-len(f'"{name}":')).alias(name) for name in numbers),
        *((cells[name] == f'"{name}":true').alias(name) for name in truths),
    ]
    typed = [
        pl.col(name).cast(SCHEMAS[kind][name], strict=False).alias(f"{name} read")
        for name in numbers
    ]
    sound = [
        pl.col("closed"),
        *(pl.col(name).is_not_null() for name in again),
        *(_is_text(name, cells[name]) for name in unlike),
        *(cells[name].str.starts_with(f'"{name}":') for name in numbers),
        # JSON has no plus and no leading zero.
        *((pl.col(name) >= "1") | (pl.col(name) == "0") for name in numbers),
        *(read[name].is_between(*rules.limits[name]) for name in numbers),
        *((cells[name] == f'"{name}":false') | pl.col(name) for name in truths),
    ]
    known = {"v": VERSION, "kind": kind}
    columns = [
        read.get(name, pl.col(name)).alias(name)
        if name in cells
        else pl.lit(known.get(name), pl.Categorical if name in NAMES else of).alias(name)
        for name, of in SCHEMAS[kind].items()
    ]
    good = pl.all_horizontal(sound).fill_null(value=False).alias("good")
    return cut, typed, good, [*columns, pl.col("line"), pl.col("good")]


def _before(name: str) -> str:
    return f'"{name}":"'


def _is_text(name: str, cell: pl.Expr) -> pl.Expr:
    """Return whether it is a text, whatever is between its quotes."""
    before = _before(name)
    return (
        cell.str.starts_with(before)
        & (cell.str.len_bytes() > len(before))
        & cell.str.ends_with('"')
    )


def _come_again(texts: Sequence[str], rules: _Rules, lines: pl.DataFrame) -> tuple[str, ...]:
    """Return those of `texts` whose cells have few distinct values, and those with fixed words."""
    few = lines.head(_FEW).select(_cell(name).n_unique().alias(name) for name in texts)
    return tuple(name for name in texts if few[name][0] < _FEW // 2 or name in rules.words)


def _inside(
    name: str, seen: pl.Series, places: pl.Series, words: Iterable[str] | None
) -> pl.Series:
    """
    Return the text between the quotes of each distinct cell in `seen`, at its number in `places`; null: it is odd.

    So each distinct cell is looked at once and not on each line, and names stay Categorical for the partials.
    """
    before = _before(name)
    text = f"(?:{'|'.join(map(re.escape, words))})" if words else r'[^"\\\x00-\x1f]*'
    sound = re.compile(f'{before}{text}"')
    inside = {
        place: cell[len(before) : -1] if sound.fullmatch(cell) else None
        for place, cell in zip(places, seen.cast(pl.String), strict=True)
        if cell is not None
    }
    texts = map(inside.get, range(max(inside, default=0) + 1))
    return pl.Series(texts, dtype=pl.String).cast(pl.Categorical if name in NAMES else pl.String)


def _by_parser(kind: str, lines: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    """Read lines that begin as those of `kind`: return frames of lines that are surely valid, and all other lines."""
    if lines.height <= _FEW:
        return [], lines
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
        return [coded(frame)], lines.clear()
    return [coded(frame.filter(~odd))], lines.filter(odd)


def _halved(kind: str, lines: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame]:
    middle = lines.height // 2
    (good, odd), (more, others) = (
        _by_parser(kind, half) for half in (lines[:middle], lines[middle:])
    )
    return [*good, *more], pl.concat([odd, others])


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the schema says about the fields of one kind, as the faster paths need it."""

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
#: The columns of `numbered` without rows.
_NO_LINES: Final = pl.DataFrame(
    schema={"line": pl.UInt32, "writer": pl.String, "seq": pl.Int64, "ts_us": pl.Int64}
)


def _odd(kind: str, parsed: pl.DataFrame, text: pl.Series) -> pl.Series:
    """Return which lines of `text` are odd: the parser's result `parsed` cannot be trusted for them."""
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
    """Read line by line: return frames of the valid lines by kind, and the invalid lines with the reasons."""
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
        kind: coded(pl.DataFrame(members, {**SCHEMAS[kind], "line": pl.UInt32}, orient="row"))
        for kind, members in good.items()
    }
    return frames, pl.DataFrame(aside, {"line": pl.UInt32, "why": pl.String}, orient="row")


def _without_options(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with destinations without their options, such as `?consumer.prefetchSize=1`."""
    if "dest" not in frame.columns:
        return frame
    named = frame["dest"].unique().cast(pl.String)
    if not named.str.contains("?", literal=True).any():
        return frame
    return coded(frame.with_columns(pl.col("dest").cast(pl.String).str.split("?").list.first()))
