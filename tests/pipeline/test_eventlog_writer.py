"""The event log on a healthy disk: nothing missing, in order, in segments, at the right time."""

from __future__ import annotations

import math
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.events import DeliveryEnded, MessageDeadLettered
from jmsx.errors import ConfigurationError
from jmsx.observe import Observer
from jmsx_eventlog import EventLog
from tests.pipeline.lines import lines, of_kind, segments
from tests.pipeline.simulator import EPOCH, SOURCE, Clock, delivery, open_log, seeded, sent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SOON = 10.0  # seconds; what a loaded machine may take for what needs milliseconds


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for another thread to make `condition` true."""
    deadline = time.monotonic() + _SOON
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def _deliveries(count: int) -> list[DeliveryEnded]:
    chance = seeded(1)
    return [
        delivery(f"{number:032x}", "queue://orders", float(number), chance)
        for number in range(count)
    ]


def test_it_is_an_observer(tmp_path: Path) -> None:
    """An event log can be given wherever an observer is asked for."""
    log = EventLog(tmp_path, service="shop")
    log.close()

    assert isinstance(log, Observer)


def test_durations_as_they_are_everywhere(tmp_path: Path) -> None:
    """Seconds, a timedelta or a text; what is none, or another `sync` than there is, is refused by its name."""
    log = EventLog(
        tmp_path,
        service="shop",
        segment_seconds="1min",
        patience_seconds="500ms",
        close_seconds=timedelta(seconds=2),
    )
    log.close()
    assert (log._settings.segment_seconds, log._settings.close_seconds) == (60.0, 2.0)
    assert log._limits == (65_536, 0.5)
    for name in ("segment_seconds", "patience_seconds", "close_seconds"):
        wrong: Any = {name: "soon"}
        with pytest.raises(ConfigurationError, match=f"{name}='soon' is no duration"):
            EventLog(tmp_path, service="shop", **wrong)
    sync: Any = "allways"
    with pytest.raises(ConfigurationError, match="sync must be one of always, interval, none"):
        EventLog(tmp_path, service="shop", sync=sync)


def test_seq_has_no_gap_across_threads_and_segments(tmp_path: Path) -> None:
    """Four threads write at once into many small segments; every line has the next number."""
    log = open_log(tmp_path, Clock(), segment_bytes=50_000)
    events = _deliveries(500)

    def observe_all() -> None:
        for event in events:
            log.observe(event, SOURCE)

    threads = [threading.Thread(target=observe_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()

    found = lines(tmp_path)
    assert [line["seq"] for line in found] == list(range(2000 + 2))
    assert [found[0]["kind"], found[-1]["kind"]] == ["log.open", "log.close"]
    assert (log.records, log.dropped, log.errors) == (2002, 0, 0)
    assert {log.writer} == {line["writer"] for line in found}
    assert all(path.stat().st_size <= 50_000 for path in segments(tmp_path))
    assert len(segments(tmp_path)) > 1
    assert segments(tmp_path, ".open") == []


def test_a_segment_is_named_after_its_hour_writer_and_first_line(tmp_path: Path) -> None:
    """Readers find segments by day and hour (UTC) of their first line."""
    clock = Clock()
    log = open_log(tmp_path, clock)
    log.close()

    hour = time.strftime("date=%Y-%m-%d/hour=%H", time.gmtime(clock.wall()))
    expected = [f"{hour}/{log.writer}-000000000000.jsonl"]
    assert expected == [str(path.relative_to(tmp_path)) for path in segments(tmp_path)]


def test_an_old_segment_is_closed_though_nothing_happens(tmp_path: Path) -> None:
    """After `segment_seconds` a reader sees what was written; the next line opens a new segment."""
    clock = Clock()
    log = open_log(tmp_path, clock, segment_seconds=60.0)
    wait_until(lambda: log.records)
    assert segments(tmp_path) == []

    clock.now += 61
    wait_until(lambda: segments(tmp_path))
    log.close()

    assert [
        lines(path.parent, log.writer)[n]["seq"] for n, path in enumerate(segments(tmp_path))
    ] == [0, 1]
    assert len(segments(tmp_path)) == 2


def test_monotonic_seconds_become_microseconds_of_the_epoch(tmp_path: Path) -> None:
    """Every instant of a delivery is the wall clock less what has gone by since."""
    clock = Clock(now=5000.0)
    log = open_log(tmp_path, clock)
    story = _deliveries(1)[0]
    log.observe(story, SOURCE)
    log.close()

    [line] = of_kind(lines(tmp_path), "delivery")
    instants = {
        "ts_us": story.at,
        "recv_us": story.received_at,
        "start_us": story.started_at,
        "end_us": story.ended_at,
    }
    assert {name: round((EPOCH + at) * 1e6) for name, at in instants.items()} == pytest.approx(
        {name: line[name] for name in instants}, abs=1
    )
    assert round(story.at * 1e6) == line["mono_us"]
    assert story.sent_ms is not None
    assert story.sent_ms * 1000 == line["sent_us"]


@pytest.mark.parametrize("with_text", [False, True])
def test_error_text_is_written_only_if_asked_for(tmp_path: Path, with_text: bool) -> None:
    """What an exception said may name a person; its class does not."""
    log = open_log(tmp_path, Clock(), with_text=with_text)
    log.observe(
        MessageDeadLettered(
            at=1.0,
            consumer="c",
            destination="queue://orders",
            message_id="ID:1",
            message_key="k",
            attempts=7,
            reason="max_redeliveries",
            error_type="ValueError",
            error_message="no account of Ms Doe",
            dead_letter_destination=None,
            by_copy=False,
        ),
        SOURCE,
    )
    log.close()

    [line] = of_kind(lines(tmp_path), "dlq")
    assert line["error_type"] == "ValueError"
    assert with_text == ("Ms Doe" in str(line))


@pytest.mark.parametrize(
    "odd",
    [
        {"correlation_id": object()},
        {"started_at": math.inf},
        {"ended_at": math.nan},
        {"sent_ms": 10**30},
        {"received_at": None},
    ],
    ids=["object", "infinite", "not a number", "too great", "no time"],
)
def test_what_json_cannot_carry_is_told_as_a_gap(tmp_path: Path, odd: dict[str, object]) -> None:
    """An event with a value of a strange type costs one line, not the log; broken text is repaired."""
    log = open_log(tmp_path, Clock())
    chance = seeded(1)
    log.observe(delivery("a", "queue://orders", 1.0, chance, **odd), SOURCE)
    log.observe(delivery("b", "queue://orders", 1.0, chance, correlation_id="caf\udce9"), SOURCE)
    log.observe(delivery("c", "queue://orders", 1.0, chance, correlation_id='},{"v":1'), SOURCE)
    log.close()

    found = lines(tmp_path)
    [gap], kept = of_kind(found, "log.gap"), of_kind(found, "delivery")
    assert (gap["dropped_kind"], gap["dropped"], gap["reason"]) == ("delivery", 1, "unencodable")
    assert [(line["msg_key"], line["corr_id"]) for line in kept] == [
        ("b", "caf?"),
        ("c", '},{"v":1'),
    ]
    assert [line["seq"] for line in found] == list(range(len(found)))


def test_an_event_of_no_kind_is_told_as_a_gap(tmp_path: Path) -> None:
    """A class that the schema does not know costs its own events, not the log."""

    class Stranger:
        at = 1.0

    stranger: Any = Stranger()
    log = open_log(tmp_path, Clock())
    log.observe(sent("a", "queue://orders", 1.0), SOURCE)
    log.observe(stranger, SOURCE)
    log.observe(sent("b", "queue://orders", 1.0), SOURCE)
    log.close()
    log.observe(stranger, SOURCE)

    found = lines(tmp_path)
    [gap] = of_kind(found, "log.gap")
    assert (gap["dropped_kind"], gap["dropped"], gap["reason"]) == ("Stranger", 1, "unencodable")
    assert [line["msg_key"] for line in of_kind(found, "send")] == ["a", "b"]
    assert log.dropped_by_kind() == {"Stranger": 2}


def test_events_after_close_are_counted(tmp_path: Path) -> None:
    """A late event raises nothing and is not forgotten."""
    log = open_log(tmp_path, Clock())
    log.close()
    log.close()

    log.observe(sent("k", "queue://orders", 1.0), SOURCE)

    assert log.dropped == 1


def test_a_directory_that_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    """A wrong path is a wrong setting: told when the log is made, not found out later."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigurationError, match="no event log in"):
        EventLog(tmp_path / "file", service="shop")
