"""Every gold table is, cell by cell, what SQL finds in the raw lines."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import jmsx_report
from jmsx_report.partial import partials
from jmsx_report.registry import TABLES
from tests.pipeline.situations.audit_twins import TWINS as OF_KEYS
from tests.pipeline.situations.busy import busy
from tests.pipeline.situations.judge import SITUATIONS
from tests.pipeline.situations.scene import Scene
from tests.pipeline.situations.twins import TWINS as OF_LINES
from tests.pipeline.situations.twins import Lines, differences
from tests.pipeline.units import contents, merged
from tests.pipeline.units import tables as made

if TYPE_CHECKING:
    from pathlib import Path

TWINS: Final = OF_LINES | OF_KEYS
#: Whole logs, in which every line is as the schema has it.
_LOGS = (
    "busy",
    "clean",
    "two_brokers",
    "shipped_twice",
    "lost_and_repeated",
    "transactions_rolled_back",
    "failover_to_another_broker",
    "times_of_zero",
    "no_time_from_the_broker",
    "handlers_ran_twice",
    "handlers_ran_on_without_a_link_and_succeeded",
    "done_and_then_dead",
    "waits_for_its_redelivery",
    "sent_again_and_done_twice",
    "two_readers_have_closed",
    "one_of_two_readers_is_still_there",
    "a_reader_gave_a_message_up_before_it_closed",
)
_REPEATED = {
    "busy",
    "lost_and_repeated",
    "handlers_ran_twice",
    "handlers_ran_on_without_a_link_and_succeeded",
    "done_and_then_dead",
}
#: Tables that a log leaves empty, for nothing of the kind is in it.
_EMPTY = {
    ("busy", "dead_letters"),
    *((log, "transactions") for log in _LOGS if log != "transactions_rolled_back"),
    *((log, "duplicates") for log in _LOGS if log not in _REPEATED),
}
Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=_LOGS)
def log(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lines, Tables]:
    """Write a log, and report it: its lines and its tables."""
    root: Path = tmp_path_factory.mktemp(request.param)
    (root / "events").mkdir()
    if request.param == "busy":
        busy(Scene(root / "events", 4, 4000))
    else:
        SITUATIONS[request.param].make(Scene(root / "events", 4, 600))
    tables = jmsx_report.run(root / "events", root / "out").tables
    found = {name: pl.read_parquet(folder).rows(named=True) for name, folder in tables.items()}
    return Lines(root / "events"), found


def test_each_table_has_a_twin() -> None:
    """All but the lines that are put aside, which no SQL can read."""
    assert {table.name for table in TABLES} - TWINS.keys() == {"quarantine"}


@pytest.mark.parametrize("name", TWINS)
def test_a_table_is_what_sql_finds(
    request: pytest.FixtureRequest, log: tuple[Lines, Tables], name: str
) -> None:
    """Rows, columns and cells of the table are those of its twin."""
    lines, tables = log

    assert differences(TWINS[name], lines, tables[name]) == []
    empty = (request.node.callspec.params["log"], name) in _EMPTY
    assert bool(tables[name]) is not empty


def test_a_wrong_cell_is_found(log: tuple[Lines, Tables]) -> None:
    """The comparison itself can fail: a count, a mean, a percentile, a row."""
    lines, tables = log
    twin = TWINS["delivery_latency"]
    first, *rest = tables["delivery_latency"]

    for name, value in (("n", 0), ("handler_mean_us", 1.0), ("handler_p50_us", 1.0), ("dest", "")):
        assert differences(twin, lines, [first | {name: value}, *rest])
    assert differences(twin, lines, rest)


# some 12 s of a processor, which took more than 180 s where a machine had seven times too much to do
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_however_a_log_is_cut_its_tables_are_the_same(tmp_path: Path, seed: int) -> None:
    """All segments at once, each by itself, or some together in any order: every cell is equal, to the last bit."""
    busy(Scene(tmp_path, seed, 3000))
    found = contents(tmp_path)
    chance = random.Random(seed)
    shuffled = chance.sample(found, len(found))
    some = [shuffled[begin : begin + 3] for begin in range(0, len(shuffled), 3)]
    # What is made of a segment by itself is added up in two orders: it is made of nothing else.
    each = {one.path: partials([([one], None)]) for one in found}

    whole = made([found])

    assert len(found) > 20
    for again in (
        merged(each[one.path] for one in found),
        merged(each[one.path] for one in shuffled),
        made(some),
        made([shuffled]),
    ):
        for name, table in whole.items():
            if name != "quarantine":
                assert_frame_equal(again[name], table, check_exact=True)
