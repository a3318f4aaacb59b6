"""Partials on disk: whatever is killed when, what is there is whole, and nobody writes into another report."""

from __future__ import annotations

import errno
import pickle
import shutil
from functools import partial as bound
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from jmsx.errors import ConfigurationError
from jmsx_report import merge, reports, segments, store
from jmsx_report.flows import FLOWS
from jmsx_report.health import RANGES
from jmsx_report.local import content
from jmsx_report.partial import partials as partials_of
from jmsx_report.registry import PARTIALS
from jmsx_report.reports import read
from jmsx_report.store import Part, Store
from jmsx_spark import stream
from tests.benchmarks.segments import write
from tests.pipeline.copies import Copies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Each of these changes what is on the disk, or makes sure that it is there.
_STEPS: Final = (
    (Path, "mkdir"),
    (Path, "rename"),
    (Path, "write_text"),
    (Path, "write_bytes"),
    (pl.DataFrame, "write_parquet"),
    (shutil, "rmtree"),
)


_PARTIALS: Final = (RANGES, FLOWS)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small log have several batches, and merges, and partials in files of their own."""
    monkeypatch.setattr(segments, "BATCH_BYTES", 4_000)
    monkeypatch.setattr(store, "FEW_ROWS", 5)
    monkeypatch.setattr(store, "FAN", 2)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A log of four batches."""
    write(tmp_path / "events", events=60, segments=4, hours=1)
    return tmp_path / "events"


def opened(root: Path) -> Store:
    """Begin a report."""
    partials = Store(root)
    partials.open()
    return partials


def kept(batch: Sequence[Part], events: Path, partials: Store) -> None:
    """Do a worker's job for two partials, which are few steps to kill it at."""
    made = partials_of([([content(events, part.segment) for part in batch], None)])
    partials.commit(batch, {partial.name: made[partial.name] for partial in _PARTIALS})


def summed(events: Path, root: Path) -> list[pl.DataFrame]:
    """Bring the partials below `root` to what lies in `events`, and add them up."""
    partials = opened(root)
    try:
        job = bound(kept, events=events, partials=partials)
        read(segments.survey(events), events, partials, map, job)
        return [merge.sums(one, partials.runs()).sort(one.keys) for one in _PARTIALS]
    finally:
        partials.close()


def test_killed_at_each_step_the_next_report_is_right(events: Path, tmp_path: Path) -> None:
    """What kill -9 leaves behind, before and after each change of the disk, of a first report and of a second."""
    expected = summed(events, tmp_path / "fresh")
    last = max(events.rglob("*.jsonl"))
    left = Copies(tmp_path / "partials", tmp_path)

    with pytest.MonkeyPatch.context() as patched:
        _at_each_step(patched, tmp_path / "partials", left.take)
        last.rename(tmp_path / "last")
        summed(events, tmp_path / "partials")
        (tmp_path / "last").rename(last)
        _assert_same(summed(events, tmp_path / "partials"), expected)

    assert len(left) > 50
    for root in left:
        _assert_same(summed(events, root), expected)
        assert [path.name for path in root.rglob("unfinished-*")] == []


@pytest.mark.parametrize("few", [0, 10**6])
def test_partials_of_few_rows_are_what_they_are_in_a_file_of_their_own(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """To the last bit, with their types, whether runs are merged or not."""
    made = {
        name: rows
        for name, rows in partials_of(
            [([content(events, one) for one in segments.survey(events).segments], None)]
        ).items()
        if rows.height
    }
    monkeypatch.setattr(store, "FEW_ROWS", few)
    partials = opened(tmp_path / "partials")
    partials.commit(map(Part, segments.survey(events).segments), made)
    (run,) = partials.runs()
    partials.close()

    timed = {name for name in made if PARTIALS[name].time}
    assert timed
    assert run.few.keys() == (made.keys() - timed if few else set())
    for name, rows in made.items():
        told = run.read(name)
        assert_frame_equal(told, run.scan(name).collect(), check_exact=True)
        assert_frame_equal(told, rows, check_exact=True, check_row_order=name not in timed)


def _assert_same(left: list[pl.DataFrame], right: list[pl.DataFrame]) -> None:
    for one, other in zip(left, right, strict=True):
        assert_frame_equal(one, other, check_exact=True)


def _at_each_step(patched: pytest.MonkeyPatch, root: Path, killed_here: Callable[[], None]) -> None:
    """Call `killed_here` before and after each change of what lies below `root`."""
    within = False

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal within
            if within or str(root) not in str(arguments):  # a copy, or what a step is made of
                return real(*arguments, **options)
            within = True
            try:
                killed_here()
                done = real(*arguments, **options)
                killed_here()
            finally:
                within = False
            return done

        return step

    for owner, name in _STEPS:
        patched.setattr(owner, name, watched(getattr(owner, name)))


def test_a_worker_that_outlives_its_report_commits_nothing_into_the_next(
    events: Path, tmp_path: Path
) -> None:
    """Its working folder is gone: before it begins to write, and between its last file and the rename."""
    root = tmp_path / "partials"
    segment = segments.survey(events).segments[0]
    killed = opened(root)
    worker: Store = pickle.loads(pickle.dumps(killed))  # noqa: S301 - the test has pickled it
    worker.commit([Part(segment)], {})
    _let_go(root)

    following = opened(root)
    assert [len(run.parts) for run in following.runs()] == [1]
    with pytest.raises(ConfigurationError, match="has ended; what a process of it still made"):
        worker.commit([Part(segment, ("another",))], {})
    following.commit([Part(segment, ("one more",))], {})  # the next one's own are not refused
    following.close()

    overtaken = opened(root)
    _let_go(root)
    newest: list[Store] = []
    with pytest.MonkeyPatch.context() as patched:
        rename = Path.rename

        def overtake(path: Path, target: Path) -> Path:
            patched.undo()
            newest.append(opened(root))
            return rename(path, target)

        patched.setattr(Path, "rename", overtake)
        with pytest.raises(ConfigurationError, match="has ended"):
            overtaken.commit([Part(segment, ("a third",))], {})
    earlier = {part.earlier for run in newest[0].runs() for part in run.parts}
    newest[0].close()
    assert ("a third",) not in earlier
    assert earlier


def _let_go(root: Path) -> None:
    """Let the lock go, as the system does for a process that was killed: that of the folder becomes another's."""
    (root / "lock").unlink()


def test_a_run_that_cannot_be_read_is_made_again(events: Path, tmp_path: Path) -> None:
    """Its list is cut off, is none, or is not there: as if it had never been."""
    root = tmp_path / "partials"
    expected = summed(events, root)
    for spoilt in (b"", b"{", b"[]", b'{"segments": [[1]], "earlier": [], "rows": {}}', None):
        (first, *_) = sorted(root.rglob("run.json"))
        if spoilt is None:
            first.unlink()
        else:
            first.write_bytes(spoilt)
        _assert_same(summed(events, root), expected)


def test_one_report_at_a_time(tmp_path: Path) -> None:
    """A second one would take away what the first is writing: it is refused, and let in when the first has ended."""
    first = opened(tmp_path / "out" / "partials")
    with pytest.raises(ConfigurationError, match="another report is being made"):
        opened(tmp_path / "out" / "partials")
    first.close()
    opened(tmp_path / "out" / "partials").close()


@pytest.mark.parametrize("raised", [OSError(errno.ENOSPC, "Full", "there"), KeyboardInterrupt()])
def test_whatever_is_raised_as_a_report_begins_or_ends_others_may_begin(
    tmp_path: Path, raised: BaseException
) -> None:
    """Before and after each change of the disk; of what is in the way of a beginning the words say what to do."""
    root, told = tmp_path / "out" / "partials", list[BaseException]()
    while (error := _stopped_at(len(told), root, raised)) is not None:
        opened(root).close()
        told.append(error)

    assert len(told) > 10
    assert {error.__cause__ or error for error in told} == {raised}
    words = (
        f"no report in {root.parent}: there: Full;"
        " see that there is room and that it may be written, or choose another --out"
    )
    refused = {words} if isinstance(raised, OSError) else set[str]()
    assert {str(error) for error in told if error is not raised} == refused


def _stopped_at(step: int, root: Path, raised: BaseException) -> BaseException | None:
    """Begin and end a report that has something to take away; return what it raises, None if it has fewer steps."""
    for left in (root / store.FORMAT / "unfinished-1", root / "1-polars-0.1"):
        left.mkdir(parents=True)
    steps = count()

    def fail() -> None:
        if next(steps) == step:
            raise raised

    with pytest.MonkeyPatch.context() as patched:
        _at_each_step(patched, root, fail)
        try:
            opened(root).close()
        except (ConfigurationError, OSError, KeyboardInterrupt) as error:
            return error
    return None


@pytest.mark.parametrize("make", [reports.report, lambda *paths: next(stream(*paths))])
def test_interrupted_just_when_it_was_opened_others_may_begin(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., object]
) -> None:
    """Of a report and of a stream, before either does anything else."""

    def interrupted(partials: Store) -> None:
        begin(partials)
        raise KeyboardInterrupt

    begin = Store.open
    with monkeypatch.context() as patched:
        patched.setattr(Store, "open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(events, tmp_path / "out")
    opened(tmp_path / "out" / "partials").close()


def test_where_a_table_cannot_lie_there_is_no_report(events: Path, tmp_path: Path) -> None:
    """The file in its way is told, and what to do."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"no report in .*/out: .*/tables.*: Not a dir.*; see that"
    ):
        reports.report(events, tmp_path / "out")


def test_what_cannot_be_taken_away_is_told(tmp_path: Path) -> None:
    """A file that has the name of a folder of ours; the next report begins, for it lies with what is taken away."""
    (tmp_path / "1-polars-0.1").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"no report in .*/unfinished-.*: Not a directory; see that"
    ):
        opened(tmp_path)
    opened(tmp_path).close()


def test_partials_of_another_version_are_taken_away(tmp_path: Path) -> None:
    """Nobody would read them any more; what is not of a store stays."""
    for name in ("1-polars-0.1/run", store.FORMAT + "/unknown", "notes"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "rows.parquet").write_bytes(b"rows")
    opened(tmp_path).close()

    assert sorted(path.name for path in tmp_path.iterdir()) == [store.FORMAT, "lock", "notes"]
