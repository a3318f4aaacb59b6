"""What comes of nothing is made once, and is what would have been made of it each time."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from collections import defaultdict
from typing import Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from jmsx_report.additive import added
from jmsx_report.batch import events_of
from jmsx_report.events import SCHEMAS, Events
from jmsx_report.lines import Content
from jmsx_report.nothing import of_lines, of_rows
from jmsx_report.registry import PARTIALS
from tests.pipeline.specimens import GOLDEN

#: Those whose functions look at lines of some kinds only.
_OF_LINES: Final = {
    name: partial.of for name, partial in PARTIALS.items() if hasattr(partial.of, "__wrapped__")
}


@functools.cache
def _kinds() -> dict[str, Events]:
    """The golden lines, full of values, each kind by itself."""
    lines: dict[str, bytes] = defaultdict(bytes)
    for path in sorted(GOLDEN.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            kind = line.partition(b'"kind":"')[2].partition(b'"')[0].decode()
            lines[kind] += line
    return {kind: events_of([Content(kind, data)]) for kind, data in lines.items()}


@pytest.mark.parametrize("name", _OF_LINES)
def test_no_kind_is_forgotten(name: str) -> None:
    """Of lines of any one kind comes the same, whether they are looked at or told to be of no use."""
    of, kinds = _OF_LINES[name], _kinds()
    assert kinds.keys() == SCHEMAS.keys()

    for events in kinds.values():
        assert_frame_equal(of(events), inspect.unwrap(of)(events), check_row_order=False)


def test_most_partials_look_at_some_kinds_only() -> None:
    """So that this module looks at them at all."""
    assert len(_OF_LINES) > len(PARTIALS) / 2


@pytest.mark.parametrize("name", PARTIALS)
def test_a_sum_of_no_rows_has_the_same_columns(name: str) -> None:
    """Where nothing is to be added up nothing is asked, and the types are those of a sum."""
    partial = PARTIALS[name]
    none = partial.of(Events())

    assert added(partial, none).schema == none.group_by(partial.keys).agg(partial.sums).schema


def test_of_no_rows_it_is_made_once() -> None:
    """And of some rows each time."""
    asked = []

    @of_rows
    def doubled(rows: pl.DataFrame, by: int) -> pl.DataFrame:
        asked.append(by)
        return rows.select(pl.col("n") * by)

    some = pl.DataFrame({"n": [1]})
    assert [doubled(some.clear(), 2).height, doubled(some.clear(), 3).height] == [0, 0]
    assert [doubled(some, 2).item(), doubled(some, 3).item()] == [2, 3]
    assert asked == [2, 2, 3]


def test_of_no_such_lines_it_is_made_once() -> None:
    """And of some each time."""
    asked = []

    @of_lines("dlq")
    def dead(events: Events) -> pl.DataFrame:
        asked.append(events)
        return events.of("dlq").select("writer")

    some = Events({"dlq": pl.DataFrame([{}], schema=dict(SCHEMAS["dlq"]))})
    others = Events({"send": pl.DataFrame([{}], schema=dict(SCHEMAS["send"]))})
    assert [dead(one).height for one in (Events(), others, some, some)] == [0, 0, 1, 1]
    assert len(asked) == 3


def test_names_of_a_batch_are_let_go() -> None:
    """Polars numbers Categorical names for the whole process, and anew when no frame with any is left."""
    code = (
        "import polars as pl\n"
        "from jmsx_report.events import SCHEMAS, Events\n"
        "from jmsx_report.registry import PARTIALS\n"
        "line = pl.DataFrame([{'writer': 'shop-1'}], schema=dict(SCHEMAS['send']))\n"
        "[partial.of(events) for events in (Events(), Events({'send': line})) for partial in PARTIALS.values()]\n"
        "print(*pl.Series(['other'], dtype=pl.Categorical).to_physical())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
