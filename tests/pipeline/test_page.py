"""The page: words that follow the numbers, and small whatever is on it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from jmsx_report import plots, report
from jmsx_report.additive import MINUTE_US
from jmsx_report.findings import POINTS, Findings, Shown, binned, findings
from jmsx_report.histogram import HISTOGRAM
from jmsx_report.page import page
from jmsx_report.period import Period
from jmsx_report.sentences import headline, meaning, numbers_line
from jmsx_report.wording import duration, moment, name, until
from tests.benchmarks.segments import write
from tests.browser import too_wide
from tests.pipeline.nesting import assert_well_nested
from tests.pipeline.simulator import Shop
from tests.pipeline.situations.judge import chosen
from tests.pipeline.situations.scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

_DAY_US = 24 * 3_600_000_000
_START_US = 1_795_000_000_000_000 // 3_600_000_000 * 3_600_000_000
_LONG_NAME = "com.example.payments.settlements.eu-west-1.refunds"
_NUMBERS = ("sent", "settled", "done", "dead_lettered", "unaccounted", "duplicates")
_COMPLETE = {"complete": True, "auditable": True, "faults": [], "writers": []}


def _audit(**numbers: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(_NUMBERS, 0)
    return {
        "verdict": "balanced",
        "destinations": {},
        "completeness": _COMPLETE,
        **nothing,
        **numbers,
    }


def test_the_headline_holds_for_the_period_that_was_asked_for() -> None:
    """Nobody looked at what was sent after it, or before: the end of the log is not how far the verdict holds."""
    hour = 3_600_000_000
    audit = {"verdict": "balanced", "horizon": _START_US + 4 * hour}

    asked = audit | {"period": {"since_us": _START_US, "until_us": _START_US + hour}}
    assert headline(asked) == (
        f"balanced from {moment(_START_US)} until {moment(_START_US + hour)} UTC"
    )
    later = audit | {"period": {"since_us": None, "until_us": _START_US + 9 * hour}}
    assert headline(later) == f"balanced until {moment(_START_US + 4 * hour)} UTC"
    beyond = audit | {"period": {"since_us": _START_US + 5 * hour, "until_us": None}}
    assert headline(beyond) == f"balanced until {moment(_START_US + 4 * hour)} UTC"


def test_the_headline_says_up_to_when() -> None:
    """A living fleet has messages that are not judged yet."""
    audit = _audit(horizon=_START_US, since=358, sent=1358)

    assert headline(audit) == f"balanced until {moment(_START_US)} UTC; 358 messages since"
    audit_of_a_loss = {**audit, "verdict": "suspect", "since": 1}
    assert (
        headline(audit_of_a_loss)
        == f"suspect, judged until {moment(_START_US)} UTC; 1 message since"
    )
    assert meaning(audit) == "Each of the 1,000 messages that were sent was settled, once."


def test_what_is_said_of_a_suspect_log_follows_its_numbers() -> None:
    """Nothing is said to be lost where something was repeated, and the other way round."""
    repeated = meaning(_audit(verdict="suspect", duplicates=2))
    lost = meaning(_audit(verdict="suspect", unaccounted=1))
    torn = _audit(verdict="suspect", unaccounted=3, explained=2)
    torn["completeness"] = {**_COMPLETE, "auditable": False}

    assert repeated == "2 messages done more than once."
    assert lost == "1 message sent and never settled."
    assert meaning(torn) == f"{lost} Besides, the log is not whole."


def test_lost_is_what_is_proven_and_the_others_are_told_apart() -> None:
    """In words, and key by key; where a gap has room for some of them nobody knows which are lost."""
    key = {**dict.fromkeys(("dest", "subscription", "last_fate", "cause"), "x"), "last_us": None}
    known, *open_ = ({**key, "msg_key": f"key-{n}", "key_us": _START_US} for n in range(4))
    audit = _audit(
        verdict="suspect", unaccounted=4, explained=1, lost=[known], unsettled=open_, findings=[]
    )

    text = page(Findings(audit=audit, events="here"))

    assert meaning(audit) == "3 messages sent and never settled."
    assert "4 unaccounted for (1 of them perhaps not lost)" in numbers_line(audit)
    lost = text.index("<h2>Lost messages")
    apart = text.index("<h2>Messages that were not settled")
    assert lost < text.index("key-0") < apart < text.index("key-1")
    assert "for some; 2 of them are lost, and nobody knows which" in text
    assert "more in" not in text


def test_reasons_stand_above_everything_else() -> None:
    """Why it is not proven comes before the first heading."""
    audit = _audit(verdict="unverifiable", reasons=["shop: lines are missing"])

    text = page(Findings(audit=audit, events="here"))

    assert text.index("shop: lines are missing") < text.index("<h2>")
    assert "It is not proven that nothing was lost" in text


def test_how_many_repeats_are_not_shown_is_told() -> None:
    """A message was done twice, or its handler ran twice: never both, so those are different ones."""
    texts = dict.fromkeys(("msg_key", "dest", "subscription", "last_fate", "cause"), "x")
    key = {**texts, "key_us": _START_US, "last_us": _START_US}
    audit = _audit(
        verdict="suspect", duplicates=60, effect_duplicates=70, repeated=[key] * 50, findings=[]
    )

    assert "80 more in tables/duplicates (Parquet)" in page(Findings(audit=audit, events="here"))


def test_names_that_anybody_may_choose_do_no_harm() -> None:
    """Markup is text, and what cannot be seen or turns the writing round is written out."""
    assert name("a\u202eb\x00c\ud800") == "a\\u202eb\\x00c\\ud800"
    assert len(name("x" * 4000)) == 120
    rows = [{"path": "<script>", "what": "\x07", "unread": True, "why": '"><b>'}]

    text = page(Findings(audit=_audit(), events="<b>", files=Shown(rows, 1)))

    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\\x07" in text
    assert_well_nested(text)


def test_instants_are_utc_and_never_break() -> None:
    """Also those that no calendar has."""
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(None) == "-"
    assert moment(2**63 - 1) == "9,223,372,036,854,775,807 us since 1970"
    assert until(0, 60_000_000) == "1970-01-01 00:00:00 to 00:01:00 UTC"
    assert until(0, 90_000_000_000) == "1970-01-01 00:00:00 to 1970-01-02 01:00:00 UTC"
    assert duration(7_200_000_000) == "2 h"
    assert duration(999_600) == "1 s"
    assert duration(-999.7) == "-1 ms"
    assert duration(3_600_000_000 * 1234) == "1,230 h"


@pytest.mark.parametrize("buckets", [1, 2, 499, 500, 501, 8640, 259_200])
def test_a_plot_has_few_points_and_no_message_is_left_out(buckets: int) -> None:
    """However long the log is, the sums are the same."""
    told = pl.DataFrame(
        {"bucket_us": [_START_US + 10_000_000 * number for number in range(buckets)]}
    ).with_columns(sent=pl.lit(3), settled=pl.lit(2))

    width, rows = binned(told)

    assert len(rows) <= POINTS
    assert len(rows) == -(-buckets * 10_000_000 // width)
    assert sum(row["sent"] for row in rows) == 3 * buckets
    assert sum(row["settled"] for row in rows) == 2 * buckets


@pytest.mark.parametrize("seconds", [10, 90, 3600, 86_399, 30 * 86_400, 3650 * 86_400])
def test_an_axis_of_time_has_few_round_marks_and_says_the_date(seconds: int) -> None:
    """However long the log is; the date stands where it begins."""
    ends = [_START_US, _START_US + seconds * 1_000_000]

    picture = plots.flow([{"bucket_us": at, "sent": 14, "settled": 0} for at in ends], 10_000_000)

    words = _words(picture)
    assert 2 <= sum(bool(re.fullmatch(r"[\d:-]+", one)) and one > "14" for one in words) <= 12
    assert moment(_START_US)[:10] in words or seconds > 86_400
    assert {"0", "14", "sent", "settled"} <= {*words}
    _within(picture)


@pytest.mark.parametrize("most", [1, 7, 14, 999, 10**12])
def test_bars_are_measured_in_round_numbers(most: int) -> None:
    """The longest ends before the last mark, and what is counted is not cut."""
    rows = [
        {"dest": "queue://<orders>", "error_type": None, "reason": "r" * 100, "n": n}
        for n in (1, most)
    ]

    picture = plots.causes(rows)

    words = _words(picture)
    axis = [int(one.replace(",", "")) for one in words if re.fullmatch(r"[\d,]+", one)][:-2]
    assert axis[0] == 0
    assert most <= axis[-1] <= 3 * most
    assert len(axis) <= 9
    assert any(one.startswith("queue://&lt;orders&gt;") for one in words)
    assert f"{most:,}" in words
    _within(picture)


@pytest.mark.parametrize("buckets", [(-1,), (0, 2206), (500, 501), (100, 300), (300, 1500)])
def test_a_curve_lies_between_its_marks(buckets: tuple[int, ...]) -> None:
    """From a microsecond, or less, to what 64 bits hold."""
    row = {"consumer": "c" * 100, "dest": "queue://orders", "n": len(buckets)}
    row["end_to_end_histogram"] = [{"bucket": bucket, "n": 1} for bucket in buckets]

    picture = plots.latency_curves([row])

    marks = [one for one in _words(picture) if re.fullmatch(r"\S+ (us|ms|s|min|h)", one)]
    assert 2 <= len(marks) == len({*marks}) <= 14
    _within(picture)


def _words(picture: str) -> list[str]:
    return re.findall("<text[^>]*>([^<]*)", picture)


def _within(picture: str) -> None:
    """Nothing is drawn outside of the picture."""
    assert_well_nested(picture)
    _, _, wide, high = map(float, re.findall('viewBox="([^"]*)"', picture)[0].split())
    for step in re.findall(' d="([^"]*)"', picture):
        across = re.findall(r"[MLH]([-\d.]+)", step)
        up = re.findall(r"[,V]([-\d.]+)", step)
        assert all(0 <= float(one) <= wide for one in across)
        assert all(0 <= float(one) <= high for one in up)


def test_labels_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each bar again: of 20 consumers that took 1.6 s."""
    measured: list[str] = []

    def estimate(text: str) -> float:
        measured.append(text)
        return 10.0

    monkeypatch.setattr(plots, "_estimate", estimate)
    causes = [
        {"dest": f"queue://{n}", "reason": "expired", "error_type": None, "n": n} for n in range(9)
    ]
    plots.causes(causes)

    assert len(measured) == len(set(measured)) > 1


def test_a_page_of_30_days_is_small(tmp_path: Path) -> None:
    """1 MB at most, tables of 50 rows with what is left out counted, lines of 500 points."""
    text = page(_thirty_days(tmp_path))

    assert len(text.encode()) <= 1_000_000
    tables = re.findall(r"<tbody>(.*?)</tbody>", text, re.DOTALL)
    assert len(tables) >= 9
    assert max(table.count("<tr>") for table in tables) == 50
    assert "14,350 more in summary.json (hours)" in text
    assert "9,950 more in tables/quarantine (Parquet)" in text
    lines = re.findall(r' d="([^"]*)"', text)
    # The steps of a curve are two vertices each.
    assert max(len(re.findall("[MLHV]", line)) for line in lines) <= 2 * POINTS
    assert re.search(r"https?:|<script|<link|<img|@import", text.lower()) is None
    assert_well_nested(text)


def _thirty_days(tmp_path: Path) -> Findings:
    """20 destinations, a row for each minute of each, and 10,000 of all that can go wrong."""
    minutes = 30 * 1440
    minute = pl.DataFrame({"minute_us": [_START_US + n * MINUTE_US for n in range(minutes)]})
    consumers = pl.DataFrame({"dest": [f"queue://orders.{n}" for n in range(4)]})
    buckets = [{"bucket": number, "n": 1} for number in range(0, 1100, 60)]
    latency = minute.join(consumers, how="cross").with_columns(
        service=pl.lit("shop"),
        consumer=pl.lit("shop.work"),
        n=pl.lit(20),
        **{
            f"{span}_mean_us": pl.lit(5e3)
            for span in ("queue", "buffer", "handler", "ack", "end_to_end")
        },
        **{
            f"{span}_histogram": pl.lit(pl.Series([buckets], dtype=HISTOGRAM)).first()
            for span in ("end_to_end", "handler")
        },
    )
    many = pl.DataFrame({"n": range(10_000)})
    lots = {
        "delivery_latency": latency,
        "redelivery": many.select(
            hour_us=_START_US + pl.col("n") // 20 * 3_600_000_000,
            dest=pl.lit("queue://orders"),
            consumer=pl.lit("work"),
            deliveries=100,
            redelivered=1,
            ratio=0.01,
            attempts_max=3,
            succeeded_late=1,
            delay_planned_mean_us=1e6,
            delay_actual_mean_us=1e6,
            delay_late_p95_us=1e3,
        ),
        "dead_letters": many.select(
            dest=pl.lit("queue://orders"),
            reason=pl.lit("attempts"),
            error_type=pl.format("Error{}", "n"),
            error_place=pl.lit("shop.py:12"),
            n=pl.col("n"),
            share=1e-4,
            attempts_max=3,
            first_us=_START_US,
            last_us=_START_US,
            sample_keys=pl.lit(pl.Series([["0" * 32] * 5])).first(),
        ),
        "event_log_health": many.select(
            service=pl.lit("shop"),
            broker=pl.lit("broker"),
            writer=pl.format("shop-{}", "n"),
            host=pl.format("host-{}", "n"),
            version=pl.lit("0.1.0"),
            segments=1,
            lines=10,
            expected=20,
            missing=10,
            gaps=1,
            repeated=0,
            dropped=0,
            ended=pl.lit("closed"),
            first_us=_START_US,
            last_us=_START_US + 30 * _DAY_US,
        ),
        "quarantine": many.select(path=pl.lit("a.jsonl"), line="n", why=pl.lit("w" * 1000)),
        "files": many.select(
            path=pl.format("{}.gz", "n"), what=pl.lit("x"), unread=True, why=pl.lit("w" * 1000)
        ),
    }
    tables = {}
    for table, rows in lots.items():
        tables[table] = tmp_path / table
        tables[table].mkdir()
        rows.write_parquet(tables[table] / "part-00000.parquet")
    ten_seconds = pl.DataFrame(
        {"bucket": [_START_US + n * 10_000_000 for n in range(0, minutes * 6, 3)]}
    ).with_columns(kind=pl.lit("send"), outcome=pl.lit("confirmed"), n=pl.lit(7))
    key = {
        "msg_key": "0" * 32,
        "dest": "queue://orders",
        "subscription": "queue://orders",
        "key_us": _START_US,
        "last_us": _START_US,
        "last_fate": "acknowledged",
        "cause": "c" * 1000,
    }
    numbers = {**dict.fromkeys(_NUMBERS, 1_000_000), "verdict": "suspect", "reasons": ["r" * 300]}
    audit = _audit(
        verdict="suspect",
        reasons=["r" * 1000] * 50,
        unaccounted=10_000,
        duplicates=10_000,
        horizon=_START_US,
        since=10,
        findings=[{"what": "gap", "where": "w", "says": "s" * 1000}] * 500,
        hours=[
            {**numbers, "dest": f"queue://orders.{n % 20}", "hour_us": _START_US + n * MINUTE_US}
            for n in range(30 * 24 * 20)
        ],
        lost=[key] * 50,
        repeated=[key] * 50,
    )
    audit["destinations"] = {f"queue://orders.{n}": numbers for n in range(10_000)}
    audit["completeness"] = {**_COMPLETE, "complete": False, "faults": ["f" * 1000] * 10_000}
    found = findings(audit, tmp_path, tables, ten_seconds, Period(), kept=tmp_path / "kept")
    assert sum(row["sent"] for row in found.flow) == 7 * ten_seconds.height
    assert sum(row["n"] for row in found.latency.rows) == 20 * latency.height
    return replace(found, audit=audit)


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log of some hours; some messages of the first one are lost."""
    events = tmp_path_factory.mktemp("hours") / "events"
    events.mkdir()
    chosen(["lost_in_the_first_hour"])[0].make(Scene(events, 3, 240))
    return events


def test_the_page_of_a_real_log_says_of_when_and_of_whom(hours: Path, tmp_path: Path) -> None:
    """Dates, services, lost keys with their times; the summary is what the page was made of."""
    made = report(hours, tmp_path)
    text = made.report.read_text(encoding="utf-8")

    assert made.audit["verdict"] == "suspect"
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(made.audit))
    assert re.search(r"lines from <b>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d to [\d:-]+", text)
    assert "All times are UTC" in text
    for lost in made.audit["lost"]:
        assert f"<code>{lost['msg_key']}</code>" in text
        assert moment(lost["key_us"]) in text
    assert "Lost messages" in text
    assert "Repeated messages" not in text
    assert_well_nested(text)


def test_a_page_of_long_names_fits_into_a_thousand_pixels(tmp_path: Path) -> None:
    """Whatever tables it has; Chromium measures."""
    shop = Shop(tmp_path / "events", seed=11)
    shop.trade(1200, dead=30, retried=100, lost=4, expired=3)
    shop.close()
    for log in (tmp_path / "events").rglob("*.jsonl"):
        text = log.read_text().replace("queue://orders", f"queue://{_LONG_NAME}")
        log.write_text(text.replace('"consumer":"', '"consumer":"com.example.'))

    page_of_it = report(tmp_path / "events", tmp_path / "out").report.read_text()

    for head in ("Lost messages", "Redelivery", "Dead letters", "By hour", "Latency"):
        assert f"<h2>{head}" in page_of_it
    assert page_of_it.count(_LONG_NAME) >= 10
    assert too_wide(page_of_it, 1000, tmp_path) == []
    assert too_wide(page_of_it, 500, tmp_path) != []  # it can tell


def test_the_page_calls_nothing_lost_that_a_gap_may_explain(tmp_path: Path) -> None:
    """A reader was killed with its last lines: what it may have done is listed, and not as lost."""
    events = tmp_path / "events"
    write(events, events=2_000, segments=8, hours=1, pairs=1)
    consumer = max(events.rglob("host0-20-*.jsonl"))
    *whole, missing, _, closed = map(json.loads, consumer.read_text().splitlines())
    end = {"kind": "log.recovered", "seq": missing["seq"], "lost_bytes": 0}
    consumer.write_text("".join(f"{json.dumps(line)}\n" for line in [*whole, closed | end]))

    made = report(events, tmp_path / "out")
    text = made.report.read_text(encoding="utf-8")

    assert (made.audit["verdict"], made.audit["unaccounted"]) == ("unverifiable", 2)
    assert (made.audit["explained"], made.audit["lost"], len(made.audit["unsettled"])) == (2, [], 2)
    assert "Messages that were not settled" in text
    assert "Lost messages" not in text


def test_a_process_that_was_killed_as_it_began_a_segment_has_left_nothing(tmp_path: Path) -> None:
    """Its file has no name yet and no line: the log is as whole as without it."""
    events = tmp_path / "events"
    write(events, events=2_000, segments=8, hours=1, pairs=1)
    folder = next(events.glob("*/*"))
    (folder / ".host9-7-00000009-000000000000.jsonl.open.new").touch()
    assert report(events, tmp_path / "out").audit["verdict"] == "balanced"
    (folder / ".host9-8-00000009-000000000000.jsonl.open.new").write_text("{")
    assert report(events, tmp_path / "out").audit["verdict"] == "unverifiable"


def test_a_log_without_a_message_has_a_page(tmp_path: Path) -> None:
    """Nothing was sent, so nothing is proven; the page is drawn without rows."""
    events = tmp_path / "events"
    events.mkdir()
    chosen(["no_messages"])[0].make(Scene(events, 3, 240))

    made = report(events, tmp_path / "out")

    assert made.audit["verdict"] == "unverifiable"
    assert "No delivery was done" in made.report.read_text(encoding="utf-8")


def test_a_log_without_the_brokers_times_has_a_page(tmp_path: Path) -> None:
    """Nobody knows how long its messages waited, and so no bar is drawn of that."""
    events = tmp_path / "events"
    events.mkdir()
    chosen(["no_time_from_the_broker"])[0].make(Scene(events, 3, 240))

    text = report(events, tmp_path / "out").report.read_text(encoding="utf-8")

    assert "Where the time of a delivery goes" in text
    assert "nan" not in text


def test_a_period_is_judged_by_the_time_of_sending(hours: Path, tmp_path: Path) -> None:
    """After the hour of the loss all is balanced, before its end nothing of later hours is counted."""
    whole = report(hours, tmp_path / "whole").audit
    first = min(hour["hour_us"] for hour in whole["hours"] if hour["unaccounted"])
    end = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=first + 3_600_000_000)

    later = report(hours, tmp_path / "later", since=end).audit
    before = report(hours, tmp_path / "before", until=end).audit

    assert (later["verdict"], later["unaccounted"], later["unsent"]) == ("balanced", 0, 0)
    assert (before["verdict"], before["unaccounted"]) == ("suspect", whole["unaccounted"])
    assert later["sent"] + before["sent"] == whole["sent"]
    assert later["settled"] + before["settled"] == whole["settled"]


def test_a_gap_before_the_period_does_not_matter(tmp_path: Path) -> None:
    """What was missing of a log cannot be about messages that were sent later; but the other way round."""
    events = tmp_path / "events"
    events.mkdir()
    chosen(["a_gap_taints_its_hour_only"])[0].make(Scene(events, 3, 240))
    whole = report(events, tmp_path / "whole").audit
    tainted = [hour["hour_us"] for hour in whole["hours"] if hour["verdict"] != "balanced"]
    end = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=max(tainted) + 3_600_000_000)

    later = report(events, tmp_path / "later", since=end).audit
    before = report(events, tmp_path / "before", until=end).audit

    assert (whole["verdict"], later["verdict"]) == ("unverifiable", "balanced")
    assert before["verdict"] == "unverifiable"
