"""An audit of a part of the log's time: of what was sent then, whenever it was settled."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.errors import ConfigurationError
from jmsx_report import report
from jmsx_report.period import Period
from tests.unit.jmsx_report.logs import HOUR, MINUTE, SECOND, START, Log, told

if TYPE_CHECKING:
    from pathlib import Path

SENDER, WORKER = "shop", "work"


def day() -> Log:
    """One message each hour for six hours, each settled half an hour later; that of the second hour is lost."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    for hour in range(6):
        at = START + hour * HOUR + 45 * MINUTE
        made = log.send(SENDER, at)
        if hour != 1:
            log.deliver(WORKER, made, at + 30 * MINUTE)
    return log


def closed(log: Log) -> Log:
    """Both end in order."""
    return log.closes(SENDER, START + 7 * HOUR).closes(WORKER, START + 7 * HOUR)


def period(begin: int, end: int) -> Period:
    """From the full hour `begin` to that of `end`."""
    return Period(since_us=START + begin * HOUR, until_us=START + end * HOUR)


def test_what_was_sent_before_or_after_is_not_judged() -> None:
    """The loss is in the second hour only; what was settled after the end of a period counts all the same."""
    log = closed(day())
    counted = ("verdict", "sent", "settled", "unaccounted", "unsent")

    whole, second, later = (
        told(log, asked=asked) for asked in (Period(), period(1, 2), period(2, 5))
    )
    assert [whole[name] for name in counted] == ["suspect", 6, 5, 1, 0]
    assert [second[name] for name in counted] == ["suspect", 1, 0, 1, 0]
    assert [later[name] for name in counted] == ["balanced", 3, 3, 0, 0]
    assert [row["hour_us"] for row in later["hours"]] == [START + hour * HOUR for hour in (2, 3, 4)]


def test_a_period_in_which_nothing_was_sent_proves_nothing() -> None:
    """As with a log without messages."""
    assert told(closed(day()), asked=period(6, 9))["verdict"] == "unverifiable"


def test_a_gap_before_the_period_taints_nothing_of_it() -> None:
    """A line was written before the next one that is there; it cannot be about what was sent after that."""
    log = day()
    lost = next(
        line
        for line in log.lines
        if line["kind"] == "delivery" and line["ts_us"] > START + 3 * HOUR
    )
    log.lines.remove(lost)
    closed(log)

    assert lost["ts_us"] == START + 3 * HOUR + 15 * MINUTE
    assert told(log, asked=period(5, 6))["verdict"] == "balanced"
    assert told(log, asked=period(2, 3))["verdict"] == "unverifiable"
    assert told(log, asked=period(2, 3))["unaccounted"] == 1
    assert told(log, asked=Period(since_us=START + 2 * HOUR + 46 * MINUTE + SECOND))["sent"] == 3


def test_a_report_tells_of_the_whole_ten_seconds_that_it_counts(tmp_path: Path) -> None:
    """Messages are counted by ten seconds of sending; what the report says of its period is what it has counted."""
    log = closed(day())
    events, shift = tmp_path / "events", timedelta(seconds=4)
    events.mkdir()
    for writer in (SENDER, WORKER):
        lines = [line for line in log.lines if line["writer"] == writer]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (events / f"{writer}-000000000000.jsonl").write_text(text)
    third, fourth = (
        datetime.fromtimestamp((START + hour * HOUR + 45 * MINUTE) / SECOND, UTC) for hour in (2, 3)
    )

    made = report(events, tmp_path / "out", since=third + shift, until=fourth + shift)

    assert made.audit["sent"] == 2
    assert made.line.startswith("balanced from 2026-11-20 08:45:00 until 2026-11-20 09:45:10 UTC: ")


@pytest.mark.parametrize(
    ("asked", "told_of"),
    [
        ({"deadline_seconds": float("nan")}, "deadline_seconds must be 0 s or more"),
        ({"deadline_seconds": -1.0}, "deadline_seconds must be 0 s or more"),
        ({"deadline_seconds": float("inf")}, "deadline_seconds must be .* at the most"),
        ({"deadline_seconds": 1e23}, "deadline_seconds must be .* at the most"),
        ({"since": datetime(2026, 11, 22)}, "since=.* has no time zone"),  # noqa: DTZ001 - that is the fault
        ({"until": datetime(2026, 11, 22)}, "until=.* has no time zone"),  # noqa: DTZ001 - that is the fault
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    tmp_path: Path, asked: dict[str, Any], told_of: str
) -> None:
    """A deadline that is too long for a column of microseconds was none, and what was in flight was lost."""
    with pytest.raises(ConfigurationError, match=told_of):
        report(tmp_path, tmp_path / "out", **asked)
