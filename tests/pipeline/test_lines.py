"""Lines that are not as they should be: the fast path must come to what the schema says of each line by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest

from jmsx_eventlog.schema import fault_of
from jmsx_report import batch, segments
from jmsx_report import lines as reading
from jmsx_report.batch import each, events_of
from jmsx_report.events import SCHEMAS
from jmsx_report.lines import Content, Reading, read
from jmsx_report.partial import partials

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEND: Final[dict[str, Any]] = {
    "v": 1,
    "kind": "send",
    "writer": "w",
    "seq": 0,
    "ts_us": 1_790_000_000_000_000,
    "dest": "queue://a",
    "msg_key": "k",
    "outcome": "confirmed",
}


def line(**members: Any) -> bytes:
    """A line as the writer makes it, with `members` in place of its own; None: without it."""
    kept = {name: value for name, value in {**_SEND, **members}.items() if value is not None}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False).encode()


_ODD: Final = {
    "no JSON": b"{",
    "text behind it": line() + b" x",
    "two in one line": line() + line(),
    "no UTF-8": b"\xff\xfe",
    "empty": b"",
    "only spaces": b"   ",
    "an array": b"[1]",
    "no kind": line(kind=None),
    "unknown kind": line(kind="sent"),
    "no version": line(v=None),
    "newer": line(v=2),
    "version as text": line(v="1"),
    "version as float": line().replace(b'"v":1', b'"v":1.0'),
    "seq as text": line(seq="7"),
    "seq as float": line(seq=1.5),
    "seq as bool": line(seq=True),
    "seq below zero": line(seq=-1),
    "seq too great": line(seq=2**63),
    "seq far too great": line(seq=10**40),
    "no seq": line(seq=None),
    "seq null": line().replace(b'"seq":0', b'"seq":null'),
    "dest as number": line(dest=5),
    "dest as bool": line(dest=True),
    "dest as object": line(dest={"a": "b"}),
    "dest as list": line(dest=["a"]),
    "dest as number, and a text more": line(dest=5, more="x"),
    "dest as list, and a text more": line(dest=["a"], more="x"),
    "dest null": line().replace(b'"queue://a"', b"null"),
    "no key": line(msg_key=None),
    "key of digits": line(msg_key="12345"),
    "key of an exponent": line(msg_key="1e5"),
    "key with an escape": line(msg_key='say "x"\\'),
    "key with a surrogate": line().replace(b'"k"', b'"\\ud800"'),
    "key with a NUL": line(msg_key="a\0b"),
    "a colon in a text": line(msg_key='":"a'),
    "unknown outcome": line(outcome="fine"),
    "outcome of another kind": line(outcome="acknowledged"),
    "a time in the far future": line(ts_us=2**62),
    "size of 33 bits": line(size=2**32),
    "a field of a later release": line(colour="red"),
    "a field that is null": line().replace(b"}", b',"size":null}'),
    "a member twice": line().replace(b"}", b',"dest":"queue://b"}'),
    "kind twice": line().replace(b"}", b',"kind":"delivery"}'),
    "spaces": line().replace(b":", b": "),
    "another order": json.dumps(dict(reversed(_SEND.items())), separators=(",", ":")).encode(),
    "destination with options": line(dest="queue://a?consumer.prefetchSize=1"),
    "a carriage return": line() + b"\r",
    "byte order mark": b"\xef\xbb\xbf" + line(),
}


def expected(text: bytes) -> tuple[dict[str, Any] | None, bool]:
    """What the schema says of a line by itself: its members, if it is good."""
    try:
        members = json.loads(text.decode())
        text.decode().encode()
        json.dumps(members, ensure_ascii=False).encode()
    except ValueError:
        return None, False
    return members, fault_of(members) is None


def rows_of(texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """Read one segment of `texts`, and give the rows of all kinds."""
    frames = read([Content("a.jsonl", b"".join(text + b"\n" for text in texts))]).frames
    return [row for frame in frames.values() for row in frame.rows(named=True)]


@pytest.mark.parametrize("odd", _ODD.values(), ids=_ODD.keys())
def test_an_odd_line_among_good_ones_is_judged_by_the_schema(odd: bytes) -> None:
    """It is put aside alone, or its members are what JSON says; its neighbours are what they were."""
    members, good = expected(odd)

    found = read(
        [Content("a.jsonl", b"".join(text + b"\n" for text in (line(seq=100), odd, line(seq=102))))]
    )

    rows = {row["line"]: row for frame in found.frames.values() for row in frame.rows(named=True)}
    assert set(rows) == ({0, 1, 2} if good else {0, 2})
    assert found.aside["line"].to_list() == ([] if good else [1])
    assert (rows[0]["seq"], rows[2]["seq"]) == (100, 102)
    if good:
        assert members is not None
        told = {name: members.get(name) for name in SCHEMAS[members["kind"]]}
        told["dest"] = str(told["dest"]).partition("?")[0]
        assert {name: rows[1][name] for name in told} == told


@pytest.mark.parametrize("odd", _ODD.values(), ids=_ODD.keys())
def test_both_paths_say_the_same(odd: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fast path shut, the same lines give the same rows."""
    texts = [line(seq=100), odd, line(seq=102, size=3)]
    fast = rows_of(texts)
    monkeypatch.setattr(reading, "_BEGINNING", "nothing begins so %s")

    assert sorted(rows_of(texts), key=lambda row: row["line"]) == sorted(
        fast, key=lambda row: row["line"]
    )


def _read_both_ways(
    texts: list[bytes], few: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Reading, Reading]:
    """What is read of them by shape, if so many are enough for that, and by the exact path alone."""
    monkeypatch.setattr(reading, "_MANY", 20)
    monkeypatch.setattr(reading, "_FEW", few)
    segment = Content("a.jsonl", b"".join(text + b"\n" for text in texts))
    found = read([segment])
    monkeypatch.setattr(reading, "_BEGINNING", "nothing begins so %s")
    return found, read([segment])


@pytest.mark.parametrize("few", [2, 256], ids=["each text", "few names"])
@pytest.mark.parametrize("odd", _ODD.values(), ids=_ODD.keys())
def test_an_odd_line_is_not_read_by_shape(
    odd: bytes, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among so many good lines that they are read by shape, it comes to the same as all of them by the exact path."""
    texts = [line(seq=number) for number in range(60)]
    texts[30] = odd
    found, expected = _read_both_ways(texts, few, monkeypatch)

    assert found.aside.rows() == expected.aside.rows()
    assert {
        kind: frame.sort("line").rows() for kind, frame in found.frames.items() if frame.height
    } == {kind: frame.sort("line").rows() for kind, frame in expected.frames.items()}


_CELLS: Final = {
    "a comma behind": line() + b",",
    "commas behind": line()[:-1] + b"},,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,}",
    "few commas behind": line()[:-1] + b"},,}",
    "an empty cell": line().replace(b',"dest"', b',,"dest"'),
    "a comma in a text": line(msg_key="a,b"),
    "many commas in a text": line(msg_key="," * 60),
    "a plus": line().replace(b'"seq":0', b'"seq":+5'),
    "a leading zero": line().replace(b'"seq":0', b'"seq":05'),
    "minus zero": line().replace(b'"seq":0', b'"seq":-0'),
    "a space": line().replace(b'"seq":0', b'"seq":0 '),
    "a control character": line().replace(b'"k"', b'"a\x01"'),
    "a tab": line().replace(b'"k"', b'"\t"'),
    "a vertical tab": line().replace(b'"k"', b'"\x0b"'),
    "a line separator": line(msg_key="\u2028\x85"),
    "a quote that ends a text": line().replace(b'"k"', b'"k"a"'),
    "two braces": line() + b"}",
    "another name": line().replace(b'"seq"', b'"sec"'),
    "a name without quotes": line().replace(b'"seq"', b"seq"),
    "an equals sign": line().replace(b'"seq":', b'"seq"='),
    "not ASCII": line(dest="queue://caf\u00e9 \U0001f600"),
}


@pytest.mark.parametrize("few", [2, 256], ids=["each text", "few names"])
@pytest.mark.parametrize("odd", _CELLS.values(), ids=_CELLS.keys())
def test_a_cell_is_what_it_must_be_to_the_last_byte(
    odd: bytes, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for what only a reader by shape could take for a line."""
    test_an_odd_line_is_not_read_by_shape(odd, few, monkeypatch)


@pytest.mark.parametrize("few", [2, 256], ids=["each text", "few names"])
@pytest.mark.parametrize(
    "cell", ['"a,b"', '"a","size":7', '"a",7', '"a","b"', '"a","', '"a,', '","']
)
def test_the_last_cell_has_all_that_is_behind_its_comma(
    cell: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text may have commas; whatever else is there makes a line another one, or none."""
    texts = [line(seq=number, tx_id=f"t{number % 40}") for number in range(60)]
    texts[30] = line(seq=30, tx_id="?").replace(b'"?"', cell.encode())
    found, expected = _read_both_ways(texts, few, monkeypatch)

    assert found.aside.rows() == expected.aside.rows()
    assert found.frames["send"].sort("line").rows() == expected.frames["send"].sort("line").rows()


def test_truth_values_are_read_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """True, false, and what is neither."""
    words = ["true", "false", "True", "null", "1", '"true"', "truefalse"]
    told = [
        line(kind="dlq", consumer="c", reason="rejected", outcome=None, by_copy=True).replace(
            b"true", word.encode()
        )
        for word in words + ["true"] * 30
    ]
    monkeypatch.setattr(reading, "_MANY", 20)

    found = read([Content("a.jsonl", b"".join(text + b"\n" for text in told))])

    dead = found.frames["dlq"].sort("line")
    assert dead["by_copy"].to_list() == [True, False, None, *[True] * 30]
    assert found.aside["line"].to_list() == [2, 4, 5, 6]


def test_good_lines_are_read_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the slower paths is asked where all is as a writer writes it."""
    texts = [line(seq=number, size=number % 3, msg_key=f"{number:032x}") for number in range(3000)]
    asked: list[int] = []

    def by_parser(_: str, lines: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame]:
        asked.append(lines.height)
        return [], lines

    monkeypatch.setattr(reading, "_by_parser", by_parser)

    found = read([Content("a.jsonl", b"".join(text + b"\n" for text in texts))])

    assert asked == [0]
    assert found.frames["send"]["msg_key"].to_list() == [f"{number:032x}" for number in range(3000)]
    assert found.frames["send"]["size"].to_list() == [number % 3 for number in range(3000)]


_LAST: Final = {
    "whole": line(seq=3) + b"\n",
    "torn": line(seq=3),
    "none": b"",
    "an empty line": b"\n",
    "a carriage return": line(seq=3) + b"\r\n",
    "no UTF-8": b"\xff\n" + line(seq=3) + b"\n",
}


@pytest.mark.parametrize("last", _LAST.values(), ids=_LAST.keys())
def test_large_segments_are_split_as_small_ones(
    last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself or joined, whatever one of them ends with: the same lines of the same segments."""
    contents = [
        Content("a.jsonl", line(seq=0) + b"\n" + last),
        Content("b.jsonl", last),
        Content("c.jsonl", line(seq=1) + b"\n" + line(seq=2) + b"\n"),
    ]
    joined = read(contents)
    monkeypatch.setattr(reading, "_LARGE_BYTES", 1)
    apart = read(contents)

    assert apart.lines.rows() == joined.lines.rows()
    assert apart.starts.rows() == joined.starts.rows()
    assert apart.aside.rows() == joined.aside.rows()
    assert apart.numbered().rows() == joined.numbered().rows()


def test_refused_lines_do_not_take_their_neighbours_along() -> None:
    """One line that the parser refuses among thousands: all others are still read, and only it is put aside."""
    texts = [line(seq=number) for number in range(5000)]
    texts[1234] = line(seq="1234")

    found = read([Content("a.jsonl", b"".join(text + b"\n" for text in texts))])

    assert found.aside.rows() == [(1234, "seq of send is '1234'")]
    assert found.frames["send"].height == 4999


def test_the_quarantine_names_path_and_line() -> None:
    """Lines count from 1 in their own segment; an empty segment is line 0; a torn end is no JSON."""
    good = line() + b"\n"

    events = events_of(
        [
            Content("a.jsonl", good + b"x\n"),
            Content("b.jsonl", b""),
            Content("c.jsonl", b"y\n" + line(seq=5) + b"\n" + line()[:-9]),
        ]
    )

    assert sorted(events.about("quarantine").rows()) == [
        ("a.jsonl", 2, "unreadable", "no JSON"),
        ("b.jsonl", 0, "empty", "an empty segment"),
        ("c.jsonl", 1, "unreadable", "no JSON"),
        ("c.jsonl", 3, "unreadable", "no JSON"),
    ]
    assert events.about("files").rows() == [
        ("a.jsonl", 2, 1, 0),
        ("b.jsonl", 0, 0, 0),
        ("c.jsonl", 3, 2, 0),
    ]


def test_a_number_that_comes_twice_counts_once() -> None:
    """The same line again is left out; another line of that number is put aside, and the first one stays."""
    other = [line(seq=1, dest="queue://b"), line(seq=1, ts_us=7)]
    texts = [line(seq=0), line(seq=1), line(seq=1), *other, line(seq=2)]

    events = events_of([Content("a.jsonl", b"".join(text + b"\n" for text in texts))])

    assert events.of("send").select("seq", "dest").rows() == [
        (0, "queue://a"),
        (1, "queue://a"),
        (2, "queue://a"),
    ]
    assert events.about("quarantine").rows() == [
        ("a.jsonl", 4, "contradiction", "seq 1 of w has another content in the same segment"),
        ("a.jsonl", 5, "namesake", "seq 1 of w has another content in the same segment"),
    ]
    assert events.about("ranges").select("low", "high").rows() == [(0, 2)]


def test_what_an_earlier_segment_has_is_taken_from_there() -> None:
    """Half of a segment shipped again counts once, and what differs is put aside with the name of the other."""
    first = Content("a.jsonl", b"".join(line(seq=number) + b"\n" for number in range(4)))
    again = [line(seq=2), line(seq=3, dest="queue://b"), line(seq=4), line(seq=1, ts_us=7)]
    second = Content("b.jsonl", b"".join(text + b"\n" for text in again))

    events = events_of([second], {"b.jsonl": [first]})

    assert events.of("send")["seq"].to_list() == [4]
    assert events.about("quarantine").rows() == [
        ("b.jsonl", 2, "contradiction", "seq 3 of w has another content in a.jsonl"),
        ("b.jsonl", 4, "namesake", "seq 1 of w has another content in a.jsonl"),
    ]
    assert events.about("ranges").select("low", "high").rows() == [(1, 4)]


def test_who_added_the_last_line_of_a_dead_writer_is_no_namesake() -> None:
    """Two copies of a segment were recovered, or one that its writer still wrote to."""
    recovered = [line(kind="log.recovered", seq=1, ts_us=at) for at in (5, 9)]
    for one, two in (recovered, (recovered[0], line(seq=1)), (line(seq=1), recovered[0])):
        first = Content("a.jsonl", line(seq=0) + b"\n" + one + b"\n")

        events = events_of([Content("b.jsonl", two + b"\n")], {"b.jsonl": [first]})

        assert events.about("quarantine")["what"].to_list() == ["contradiction"]


def test_lines_of_any_order_give_the_same_ranges() -> None:
    """Numbers are gathered whatever order they lie in, by writer."""
    numbers = [(1, "b"), (5, "a"), (0, "b"), (4, "a"), (9, "a")]
    data = b"".join(line(seq=seq, writer=writer) + b"\n" for seq, writer in numbers)

    ranges = events_of([Content("a.jsonl", data)]).about("ranges")

    assert sorted(ranges.select("writer", "low", "high").rows()) == [
        ("a", 4, 5),
        ("a", 9, 9),
        ("b", 0, 1),
    ]
    assert ranges.schema["low"] == pl.Int64


@pytest.mark.parametrize(
    "texts",
    [
        [*(line(seq=number) for number in range(50)), b"x", line(seq=50), b"y"],
        [*(line(seq=number) for number in range(50)), line(seq=3), line(seq=4, dest="queue://b")],
        [line(seq=number) for number in range(49, -1, -1)],
        [*(line(seq=number) for number in range(50)), line(seq=50)[:-5]],
    ],
    ids=["odd lines", "lines that come again", "backwards", "torn"],
)
def test_a_segment_in_pieces_is_the_segment(
    texts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large segment is read piece by piece: lines are counted on, and what comes again in another piece is found."""
    segment = Content("a.jsonl", b"\n".join(texts) + b"\n" * (not texts[-1].endswith(b'"')))
    whole = partials([([segment], None)])
    monkeypatch.setattr(segments, "BATCH_BYTES", 1000)

    pieces = partials([([segment], None)])

    for name in ("flows", "files", "quarantine", "counts"):
        rows = pieces[name].select(whole[name].columns)
        assert sorted(rows.rows(), key=repr) == sorted(whole[name].rows(), key=repr), name


def test_few_lines_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bounds the memory of a worker."""
    segment = Content("a.jsonl", b"".join(line(seq=number) + b"\n" for number in range(500)))
    monkeypatch.setattr(segments, "BATCH_BYTES", 4000)
    monkeypatch.setattr(batch, "LOOKED_AT_BYTES", 1)

    read_at_once = list(each(lambda events: events.of("send").height, [([segment], None)]))

    assert sum(read_at_once) == 500
    assert len(read_at_once) > 10
