"""What runs add up to: rows of writers that no two runs have in common are added up by no query."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from polars.testing import assert_frame_equal

from jmsx_report.additive import added
from jmsx_report.books import PARTIALS as AUDITED
from jmsx_report.merge import Totals, sums
from jmsx_report.registry import PARTIALS, SHARED
from jmsx_report.reports import run
from jmsx_report.segments import Segment
from jmsx_report.store import Part, Store
from tests.benchmarks.segments import write
from tests.unit.jmsx_report.logs import MINUTE, ORDERS, SENDER, WORKER, Log, ended, events, trade

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from jmsx_report.additive import Partial

APART = [name for name, partial in PARTIALS.items() if partial.apart]


def _twice() -> Log:
    """A log that says everything twice, as the lines of a process do whose log was copied into itself."""
    log = ended(trade())
    shown = {"broker": "b:61613", "ahead_us": 5, "within_us": 9}
    log.line(SENDER, "broker.clock", log.lines[-1]["ts_us"], **shown)
    log.line(WORKER, "sub.close", log.lines[-1]["ts_us"], dest=ORDERS, consumer="c")
    planned = {"msg_key": "k", "next_attempt": 2, "delay_us": 5, "blocking": True}
    at = log.lines[-1]["ts_us"]
    log.line(WORKER, "redelivery.scheduled", at, dest=ORDERS, consumer="c", **planned)
    for line in list(log.lines):
        rest = {name: line[name] for name in line if name not in ("kind", "writer", "seq", "ts_us")}
        log.line(line["writer"], line["kind"], line["ts_us"] + 10 * MINUTE, **rest)
    for line in log.lines:
        line |= {"mono_us": MINUTE, "sent_us": line["ts_us"], "recv_us": line["ts_us"]}
    return log


@pytest.mark.parametrize("name", APART)
def test_each_key_of_a_batch_comes_once(name: str) -> None:
    """Where rows of several batches are not always added up: also of what a writer should say only once."""
    made = PARTIALS[name].of(events(_twice().lines))
    assert made.height > 0
    assert not made.select(PARTIALS[name].keys).is_duplicated().any()


@pytest.mark.parametrize(
    "cut", [pytest.param(True, id="writers meet"), pytest.param(False, id="each by itself")]
)
def test_runs_add_up(tmp_path: Path, *, cut: bool) -> None:
    """To what all their rows are when they are added up, whether writers have lines in several runs or not."""
    lines = ended(trade()).lines
    several = (
        [lines[::2], lines[1::2]]
        if cut
        else [[line for line in lines if line["writer"] == one] for one in ("shop", "work")]
    )
    store = Store(tmp_path / "partials")
    store.open()
    try:
        for number, of_one in enumerate(several):
            unit = events(of_one)
            store.commit(_parts(number), {name: one.of(unit) for name, one in PARTIALS.items()})
        totals = Totals(store.runs())
        for partial in PARTIALS.values():
            expected = added(partial, sums(partial, totals.runs))
            found = totals.of([partial])[partial.name].select(expected.columns)
            if "histogram" not in "".join(partial.adds):  # the same in any order
                assert_frame_equal(found, expected, check_row_order=False)
    finally:
        store.close()


@pytest.fixture
def added_up(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each partial was added up."""
    counts, add = Counter[str](), Totals._added

    def counted(totals: Totals, partial: Partial) -> pl.DataFrame:
        counts[partial.name] += 1
        return add(totals, partial)

    monkeypatch.setattr(Totals, "_added", counted)
    return counts


def test_sums_are_kept_until_they_are_forgotten(tmp_path: Path, added_up: Counter[str]) -> None:
    """Those of partials that a report uses several times, but for the others; who asks again gets the same rows."""
    store = Store(tmp_path / "partials")
    store.open()
    try:
        unit = events(ended(trade()).lines)
        store.commit(_parts(0), {name: one.of(unit) for name, one in PARTIALS.items()})
        totals = Totals(store.runs())
        kept = {one.name for one in AUDITED} & SHARED
        assert kept
        assert kept < SHARED

        before = totals.of(PARTIALS.values())
        totals.of(PARTIALS.values())
        assert {name for name, times in added_up.items() if times == 1} == SHARED
        totals.forget(but=AUDITED)
        after = totals.of(PARTIALS.values())

        assert {name for name, times in added_up.items() if times == 1} == kept
        assert {name for name, times in added_up.items() if times == 2} == SHARED - kept
        assert before.keys() == PARTIALS.keys()
        for name in SHARED:
            assert_frame_equal(after[name], before[name], check_row_order=False)
    finally:
        store.close()


def test_a_report_adds_up_each_partial_once(tmp_path: Path, added_up: Counter[str]) -> None:
    """What both the tables and the audit read is kept for the audit."""
    write(tmp_path / "events", events=200, segments=4, hours=1)
    run(tmp_path / "events", tmp_path / "out", engine=map)

    assert {one.name for one in AUDITED} <= added_up.keys()
    assert {name for name, times in added_up.items() if times > 1} == set()


def _parts(number: int) -> list[Part]:
    return [Part(Segment(f"{number}.jsonl", 1, 1))]
