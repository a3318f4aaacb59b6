"""What the audit is asked for, and what it may conclude from gaps, clocks, and the broker's counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial as bound
from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl

import jmsx_report
from jmsx_report import local
from jmsx_report.flows import BUCKET_US
from tests.benchmarks.segments import write
from tests.pipeline.simulator import SOURCE, Clock, open_log, sent
from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START
from tests.pipeline.situations.shop import Shop
from tests.pipeline.situations.unsettled import stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from jmsx_report.store import Part

A = TypeVar("A")
T = TypeVar("T")
ORDERS = "queue://orders"


def small(**options: Any) -> Shop:
    """A shop with one queue that trades for two hours."""
    return Shop(1, queues=(ORDERS,), **({"messages": 60} | options))


def judged(shop: Shop, folder: Path, **options: Any) -> dict[str, Any]:
    """Ship the logs of the shop, and report them."""
    shop.ship(folder / "events")
    return dict(jmsx_report.report(folder / "events", folder / "out", engine=map, **options).audit)


def at(true_us: int) -> datetime:
    """An instant as a person gives it."""
    return datetime.fromtimestamp(true_us / SECOND, UTC)


def test_the_engine_does_the_second_look_too(tmp_path: Path) -> None:
    """Segments with keys that are in doubt are read again by whoever read them."""
    shop = small().trade(lost=1)
    shop.ship(tmp_path / "events")
    looked: list[object] = []

    def engine(job: Callable[[A], T], todo: Iterable[A]) -> Iterator[T]:
        for one in todo:
            if isinstance(job, bound) and job.func is not local.make:
                looked.append(job.func)
            yield job(one)

    audit = jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=engine).audit

    assert audit["unaccounted"] == 1
    assert local._look in looked


def test_a_second_look_reads_the_segments_that_are_in_doubt(tmp_path: Path) -> None:
    """A run may be of thousands of segments: only those are read again that have lines of the buckets in doubt."""
    write(tmp_path / "events", events=2_000, segments=32, hours=4, pairs=2)
    doubtful = sorted((tmp_path / "events").rglob("host1-20-*.jsonl"))[3]
    lines = doubtful.read_text().splitlines(keepends=True)
    lost = next(line for line in lines if '"outcome":"acknowledged"' in line)
    doubtful.write_text("".join(line for line in lines if line != lost))
    bucket_us = int(json.loads(lost)["msg_key"][:12], 16) * 1000 // BUCKET_US * BUCKET_US
    looked = set[str]()

    def engine(job: Callable[[A], T], todo: Iterable[A]) -> Iterator[T]:
        for one in todo:
            if isinstance(job, bound) and job.func is local._look:
                looked.update(part.segment.path for part in cast("list[Part]", one))
            yield job(one)

    audit = jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=engine).audit

    assert audit["unaccounted"] == 1
    assert looked == {
        str(path.relative_to(tmp_path / "events"))
        for path in (tmp_path / "events").rglob("*.jsonl")
        if any(
            bucket_us <= int(line["msg_key"][:12], 16) * 1000 < bucket_us + BUCKET_US
            for line in map(json.loads, path.read_text().splitlines())
            if "msg_key" in line
        )
    }
    assert len(looked) < 8


def test_a_plan_counts_that_is_in_another_segment_than_what_failed(tmp_path: Path) -> None:
    """What waits for its redelivery is not lost, wherever the log was cut between its failure and that plan."""
    shop = small().trade()
    message = shop.send(ORDERS, counted=False)
    shop._failed(message, shop.consumers[ORDERS][0], 1, 20_000, delay_us=10 * HOUR)
    shop.ship(tmp_path / "events")
    path, lines, at = next(
        (path, lines, at)
        for path in (tmp_path / "events").rglob("*.jsonl")
        for lines in [path.read_text().splitlines(keepends=True)]
        for at, line in enumerate(lines)
        if "redelivery.scheduled" in line and message.key in line
    )
    path.write_text("".join(lines[:at]))
    writer = path.name.rpartition("-")[0]
    path.with_name(f"{writer}-{json.loads(lines[at])['seq']:012}.jsonl").write_text(
        "".join(lines[at:])
    )

    audit = jmsx_report.report(tmp_path / "events", tmp_path / "out", engine=map).audit

    assert (audit["in_flight"], audit["unaccounted"]) == (1, 0)


def test_keys_that_tell_no_time_are_of_the_period_by_their_hour(tmp_path: Path) -> None:
    """Keys of somebody else that were lost in the first hour are not of a report of the second."""
    shop = small().trade()
    for number in range(200):  # so many that each key of the second hour is beside some of them
        shop.now = START + 10 * MINUTE + number
        shop.send(ORDERS, key=f"of-the-first-hour-{number}")
    shop.now = START + HOUR + 10 * MINUTE
    shop.send(ORDERS, key="of-the-second-hour")

    whole = judged(shop, tmp_path)
    second = judged(shop, tmp_path, since=at(START + HOUR))

    assert whole["unaccounted"] == 201
    assert second["unaccounted"] == 1
    assert [row["msg_key"] for row in second["lost"]] == ["of-the-second-hour"]


def test_what_is_not_audited_is_not_counted_after_the_horizon(tmp_path: Path) -> None:
    """Messages to a topic that nobody keeps are none of those that are not judged yet."""
    shop = small().trade()
    for process in shop.fleet.processes:
        process.ends = "living"
    shop.now += 5 * MINUTE
    for _ in range(7):
        shop.now += SECOND
        shop.send("topic://news", counted=False)

    audit = judged(shop, tmp_path)

    later = [
        line
        for sender in shop.senders
        for _, _, line in sender.noted
        if line["kind"] == "send" and line["ts_us"] > audit["horizon"]
    ]
    assert "topic://news" in {line["dest"] for line in later}
    assert audit["since"] == sum(line["dest"] == ORDERS for line in later)


def test_a_gap_explains_by_the_clock_that_is_set_right(tmp_path: Path) -> None:
    """What a sender whose clock is ahead sent before the end of a gap may have been settled in it: no proof."""
    shop = Shop(1, messages=120, queues=(ORDERS,), skews=(7200, 7200, 0, 0), segment_lines=20)
    shop.trade()
    segments = shop.fleet.segments()
    reader = shop.consumers[ORDERS][0]
    (gone, *_) = [one for one in segments if one.writer == reader.writer and one.first > 0]
    for segment in segments:
        if segment is not gone:
            segment.write(tmp_path / "events")

    audit = jmsx_report.report(tmp_path / "events", tmp_path / "out", engine=map).audit

    assert audit["unaccounted"] > 0
    assert audit["verdict"] == "unverifiable"


def test_expiry_is_proven_only_where_all_that_came_is_in_the_log(tmp_path: Path) -> None:
    """What the broker counted as expired may have been of other senders, where there are any."""

    def told(folder: str, others: int) -> dict[str, Any]:
        shop = small().trade()
        for number in range(5):
            shop.now = START + number * 3 * MINUTE + 11 * SECOND
            shop.send(ORDERS, expires_us=shop.now + 2 * SECOND)
        sent = shop.books.exact()[ORDERS]["sent"]
        stats(shop.senders[0], START, ORDERS)
        stats(
            shop.senders[0],
            shop.fleet.closed,
            ORDERS,
            enqueued=sent + others,
            dequeued=sent + others,
            expired=5,
        )
        return judged(shop, tmp_path / folder)

    alone, shared = told("alone", 0), told("shared", 5)

    assert alone["expired_at_broker"] == shared["expired_at_broker"] == 5
    assert not [reason for reason in alone["reasons"] if "expired by now" in reason]
    assert [reason for reason in shared["reasons"] if "expired by now" in reason]


def test_the_brokers_counts_begin_with_the_period(tmp_path: Path) -> None:
    """What a foreign consumer took in the first hour is nothing to the messages of the second."""
    shop = small().trade()
    shop.now = START + 10 * MINUTE
    shop.send(ORDERS, counted=False)
    counted = sorted(
        line["ts_us"]
        for sender in shop.senders
        for _, _, line in sender.noted
        if line["kind"] == "send"
    )
    for told in (START, START + HOUR, shop.fleet.closed):
        through = sum(one < told for one in counted)
        stats(shop.senders[0], told, ORDERS, enqueued=through, dequeued=through)

    whole = judged(shop, tmp_path)
    second = judged(shop, tmp_path, since=at(START + HOUR))

    assert whole["verdict"] == "unverifiable"
    assert second["verdict"] == "balanced", second["reasons"]


def test_what_waits_of_later_messages_is_nothing_to_the_period(tmp_path: Path) -> None:
    """The queue was empty after the period; what lies there in the end was sent later."""
    shop = small().trade()
    shop.now = shop.fleet.closed - SECOND
    shop.send(ORDERS, counted=False)
    sent = shop.books.exact()[ORDERS]["sent"]
    stats(shop.senders[0], START, ORDERS)
    stats(shop.senders[0], START + HOUR, ORDERS, enqueued=sent // 2, dequeued=sent // 2)
    stats(shop.senders[0], shop.fleet.closed, ORDERS, enqueued=sent + 1, dequeued=sent, size=1)

    whole = judged(shop, tmp_path)
    first = judged(shop, tmp_path, until=at(START + HOUR))

    assert whole["verdict"] != "balanced"
    assert first["verdict"] == "balanced", first["reasons"]


def test_a_gap_is_in_the_period_by_the_clock_that_is_set_right(tmp_path: Path) -> None:
    """A reader whose clock is behind lost lines in the second hour; by its own clock that was long before."""
    shop = Shop(1, messages=120, queues=(ORDERS,), skews=(0, 0, -7200, -7200), segment_lines=20)
    shop.trade()
    reader = shop.consumers[ORDERS][0]
    segments = shop.fleet.segments()
    mine = [one for one in segments if one.writer == reader.writer]
    for segment in segments:
        if segment is not mine[-2]:
            segment.write(tmp_path / "events")

    audit = jmsx_report.report(
        tmp_path / "events", tmp_path / "out", engine=map, since=at(START + HOUR)
    ).audit

    assert audit["unaccounted"] > 0
    assert audit["verdict"] == "unverifiable"


def test_latencies_by_a_wrong_clock_are_marked(tmp_path: Path) -> None:
    """By how much it is proven to be wrong, in each row that compares it with the broker's."""
    for folder, skew in (("right", 0), ("behind", -5)):
        shop = Shop(1, messages=60, queues=(ORDERS,), skews=(0, 0, skew, skew)).trade()
        judged(shop, tmp_path / folder)
    tables = {
        folder: pl.read_parquet(tmp_path / folder / "out" / "tables" / "delivery_latency")
        for folder in ("right", "behind")
    }

    assert set(tables["right"]["clock_off_us"]) == {0}
    for row in tables["behind"].rows(named=True):
        assert 4.9 * SECOND < row["clock_off_us"] <= 5 * SECOND
        assert -5 * SECOND <= row["queue_mean_us"] < 0


def test_the_summary_and_the_table_say_the_same_of_the_end_of_a_log(tmp_path: Path) -> None:
    """Closed, or not: it lives, or it was killed."""
    shop = small().trade()
    first, second, *_ = shop.fleet.processes
    first.ends = "killed"
    second.ends = "living"
    shop.ship(tmp_path / "events")
    audit = jmsx_report.report(tmp_path / "events", tmp_path / "out", engine=map).audit
    table = pl.read_parquet(tmp_path / "out" / "tables" / "event_log_health")

    ended = {one["writer"]: one["ended"] for one in audit["completeness"]["writers"]}
    assert dict(table.select("writer", "ended").iter_rows()) == ended
    assert sorted(ended.values()) == ["closed", "closed", "open", "open"]


def test_who_wrote_in_yesterdays_log_is_missed_in_todays(tmp_path: Path) -> None:
    """A folder for each day, and one for their reports; to make the report again changes nothing."""
    yesterday = [open_log(tmp_path / "yesterday", Clock()) for _ in range(2)]
    for number, one in enumerate(yesterday):
        one.observe(sent(f"{number:032}", "topic://news", 1001.0), SOURCE)
        one.close()
    today = open_log(tmp_path / "today", Clock(now=1000.0 + 86400))
    today.observe(sent("1" * 32, "topic://news", 87401.0), SOURCE)
    today.close()

    def roster(day: str) -> list[str]:
        audit = jmsx_report.run(tmp_path / day, tmp_path / "out", engine=map).audit
        return [one["says"] for one in audit["findings"] if one["what"] == "roster"]

    assert roster("yesterday") == []
    missed = roster("today")
    assert len(missed) == 1
    assert "service shop: 1 of the 2 processes of the day before are heard of" in missed[0]
    assert roster("today") == missed


def test_a_period_has_both_ends_of_messages_whose_keys_tell_no_time(tmp_path: Path) -> None:
    """The clock of a sender is of 1970: when a message was sent it says, and when it was received the others."""
    shop = small(skews=(-START // SECOND, 0, 0, 0)).trade()

    audit = judged(shop, tmp_path, until=at(START + HOUR))

    assert audit["sent"] > audit["settled"] > 0
    assert (audit["verdict"] == "suspect", audit["unaccounted"], audit["unsent"]) == (False, 0, 0)
