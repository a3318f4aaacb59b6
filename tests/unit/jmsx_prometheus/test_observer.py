"""The observer: each event moves the numbers that it should, and only those."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry

from jmsx.core.events import SETTLED, AckTrigger, Event, Outcome, TransactionOutcome
from jmsx.observe import Observer
from jmsx_prometheus import PrometheusObserver
from jmsx_prometheus.buckets import BACK_OFF_SECONDS
from tests.dashboards.stories import (
    ACK_DROPPED,
    ACKNOWLEDGED,
    AT,
    DEAD_LETTER_FAILED,
    DEAD_LETTERED,
    DESTINATION,
    ENDED,
    LINK_OPENED,
    RECEIVED,
    REDELIVERY,
    SENT,
    SOURCE,
    SUBSCRIBED,
    TRANSACTION,
    WALL,
    lifetime,
    stand_still,
)


def _told(*events: Event) -> PrometheusObserver:
    observer = PrometheusObserver(clock=stand_still)
    for event in events:
        observer.observe(event, SOURCE)
    return observer


def test_is_an_observer_with_a_registry_of_its_own() -> None:
    """The entry point builds it without arguments, and the global registry stays as it was."""
    before = list(REGISTRY.collect())
    observer = PrometheusObserver()
    assert isinstance(observer, Observer)
    assert [family.name for family in REGISTRY.collect()] == [family.name for family in before]


def test_shared_registry_refuses_a_second_one() -> None:
    """Two observers in one registry would show each series twice."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusObserver(registry)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("jmsx_buffer_wait_seconds", 0.25),
        ("jmsx_process_duration_seconds", 0.5),
        ("jmsx_ack_delay_seconds", 0.125),
        ("jmsx_delivery_latency_seconds", 2.25),
        ("jmsx_end_to_end_latency_seconds", 2.875),
    ],
)
def test_one_delivery_has_one_time_of_each_kind(name: str, expected: float) -> None:
    """The parts of a message's time are what its timestamps say."""
    observer = _told(ENDED)
    assert observer.value(f"{name}_count") == 1
    assert observer.value(f"{name}_sum") == pytest.approx(expected, abs=1e-3)


def test_last_settled_is_wall_time() -> None:
    """A gauge of time is in seconds since the epoch, though events are monotonic."""
    observer = _told(replace(ENDED, at=AT + 0.5))
    assert observer.value("jmsx_last_settled_timestamp_seconds") == WALL + 0.5


def test_wall_clock_is_read_again() -> None:
    """A wall clock that was set right is followed within a second of events."""
    readings = iter([(AT, WALL), (AT + 2, WALL + 102)])
    observer = PrometheusObserver(clock=lambda: next(readings))
    observer.observe(ENDED, SOURCE)
    observer.observe(replace(ENDED, at=AT + 2), SOURCE)
    assert observer.value("jmsx_last_settled_timestamp_seconds") == WALL + 102


def test_message_from_the_future_counts_as_0() -> None:
    """A sender whose clock is ahead makes no negative latency, and is counted."""
    observer = _told(replace(ENDED, sent_ms=int((WALL + 5) * 1000)))
    assert observer.value("jmsx_negative_latency_messages_total") == 1
    assert observer.value("jmsx_delivery_latency_seconds_sum") == 0
    assert observer.value("jmsx_end_to_end_latency_seconds_count") == 1


def test_without_a_timestamp_there_is_no_latency() -> None:
    """Nothing is made up where the broker does not say when a message was sent."""
    observer = _told(replace(ENDED, sent_ms=None))
    assert observer.value("jmsx_delivery_latency_seconds_count") == 0
    assert observer.value("jmsx_end_to_end_latency_seconds_count") == 0


def test_later_attempts_have_no_waiting_time() -> None:
    """What passed since the first delivery is back-off, not the broker's or the buffer's doing."""
    observer = _told(replace(ENDED, attempt=2))
    assert observer.value("jmsx_buffer_wait_seconds_count") == 0
    assert observer.value("jmsx_delivery_latency_seconds_count") == 0
    assert observer.value("jmsx_end_to_end_latency_seconds_count") == 1


@pytest.mark.parametrize("outcome", list(Outcome))
def test_delivery_counts_by_fate(outcome: Outcome) -> None:
    """Each fate counts as processed, and as settled only when the broker has nothing left to do."""
    observer = _told(replace(ENDED, outcome=outcome))
    assert observer.value("jmsx_processed_messages_total") == 1
    assert observer.value("jmsx_processed_messages_total", outcome=outcome.value) == 1
    settled = observer.value(
        "jmsx_settled_messages_total", outcome=outcome.value, ack_mode="client"
    )
    assert settled == (outcome in SETTLED)
    unknown = outcome in {
        Outcome.EXPIRED,
        Outcome.RELEASED,
        Outcome.ABANDONED,
        Outcome.DUPLICATE,
    }
    assert observer.value("jmsx_process_duration_seconds_count") == (not unknown)


def test_attempts_are_kept_apart_by_their_end() -> None:
    """Seven attempts that end in the dead letter queue, before an eighth is seen, are no success after seven."""
    dead = replace(ENDED, attempt=8, outcome=Outcome.DEAD_LETTERED)
    observer = _told(replace(ENDED, attempt=3), dead, replace(DEAD_LETTERED, attempts=7))
    assert observer.totals("jmsx_delivery_attempts_sum", "outcome") == {
        ("settled",): 3,
        ("dead_lettered",): 7,
    }


def test_errors_count_by_class_up_to_20() -> None:
    """An application that raises a new class each time does not fill Prometheus."""
    observer = _told(*(replace(ENDED, error_type=f"E{number}") for number in range(25)))
    by_type = observer.totals("jmsx_handler_errors_total", "error_type")
    assert len(by_type) == 21
    assert by_type["__other__",] == 5
    assert observer.value("jmsx_label_overflow_total", label="error_type") == 5
    assert observer.value("jmsx_process_duration_seconds_count", result="error") == 25


def test_ack_frames_and_their_messages() -> None:
    """One frame for many messages is one frame."""
    observer = _told(
        replace(ACKNOWLEDGED, messages=65, trigger=AckTrigger.THRESHOLD),
        replace(ACKNOWLEDGED, messages=3, trigger=AckTrigger.IDLE),
    )
    assert observer.value("jmsx_ack_frames_total", trigger="threshold") == 1
    assert observer.value("jmsx_ack_frames_total") == 2
    assert observer.value("jmsx_ack_batch_messages_sum") == 68


def test_failures_count() -> None:
    """Redeliveries by mode, dead letters by reason, and what went wrong with either."""
    observer = _told(
        REDELIVERY, replace(REDELIVERY, delay=0.0), DEAD_LETTERED, DEAD_LETTER_FAILED, ACK_DROPPED
    )
    assert observer.value("jmsx_redeliveries_total", mode="client_delayed") == 1
    assert observer.value("jmsx_redeliveries_total", mode="client_immediate") == 1
    assert observer.value("jmsx_redelivery_delay_seconds_sum") == 1
    assert observer.value("jmsx_dead_lettered_messages_total", reason="max_redeliveries") == 1
    assert observer.value("jmsx_dead_letter_failures_total") == 1
    assert observer.value("jmsx_ack_dropped_messages_total", reason="stale_epoch") == 2


def test_transactions_and_sends() -> None:
    """By outcome, with their durations; only a confirmed send has one."""
    observer = _told(
        TRANSACTION,
        replace(TRANSACTION, outcome=TransactionOutcome.IN_DOUBT),
        SENT,
        replace(SENT, outcome="unconfirmed"),
    )
    assert observer.totals("jmsx_transactions_total", "outcome") == {
        ("committed",): 1,
        ("rolled_back",): 0,
        ("in_doubt",): 1,
    }
    assert observer.totals("jmsx_transaction_messages_sum", "kind") == {
        ("send",): 4,
        ("acknowledgement",): 6,
    }
    assert observer.value("jmsx_sent_messages_total") == 2
    assert observer.value("jmsx_send_duration_seconds_sum") == 0.25


def test_known_series_start_at_0() -> None:
    """`increase()` sees the first dead letter only when 0 was there before it."""
    observer = _told(LINK_OPENED, SUBSCRIBED)
    assert observer.totals("jmsx_dead_lettered_messages_total", "reason")["rejected",] == 0
    assert observer.totals("jmsx_settled_messages_total", "outcome")["committed",] == 0
    assert observer.totals("jmsx_disconnects_total", "reason")["heartbeat",] == 0
    assert observer.totals("jmsx_transactions_total", "outcome")["in_doubt",] == 0


def _scraped(observer: PrometheusObserver, sample: str, **labels: str) -> float | None:
    return observer.registry.get_sample_value(sample, labels)


def test_a_counter_is_at_0_for_one_scrape_before_it_counts() -> None:
    """The first failing send to a destination is one more than the 0 before it; who asks here is told at once."""
    observer = _told(LINK_OPENED)
    sent, failed = "jmsx_sent_messages_total", {"destination": DESTINATION, "outcome": "error"}
    assert _scraped(observer, sent, **failed) is None

    observer.observe(replace(SENT, outcome="error"), SOURCE)

    assert observer.value(sent, **failed) == 1
    assert [_scraped(observer, sent, **failed) for _ in range(3)] == [0, 1, 1]
    observer.observe(replace(SENT, outcome="error"), SOURCE)
    assert _scraped(observer, sent, **failed) == 2


def test_the_first_scrape_shows_what_was_counted_before_it() -> None:
    """Whoever looks once, as at the end of a run, sees the numbers as they are."""
    assert _scraped(_told(TRANSACTION), "jmsx_transactions_total", outcome="committed") == 1


def test_destinations_and_consumers_are_bounded() -> None:
    """What is one too many is counted together, exactly."""
    observer = PrometheusObserver(clock=stand_still, maximum_destinations=3, maximum_consumers=2)
    for number in range(10):
        changed = replace(RECEIVED, destination=f"queue://{number}", consumer=f"c{number}")
        observer.observe(changed, SOURCE)
    observer.observe(replace(RECEIVED, destination="queue://9", consumer="c9"), SOURCE)
    observer.observe(replace(RECEIVED, destination="temp-queue://ID:x"), SOURCE)
    received = observer.totals("jmsx_received_messages_total", "destination")
    assert received == {
        ("queue://0",): 1,
        ("queue://1",): 1,
        ("queue://2",): 1,
        ("__other__",): 8,
        ("__temp__",): 1,
    }
    assert observer.value("jmsx_label_overflow_total", label="destination") == 8


def test_one_consumer_has_a_bounded_number_of_series() -> None:
    """A consumer costs Prometheus at most 260 series, whatever happens to it."""
    observer = PrometheusObserver(clock=stand_still)
    for event, source in lifetime():
        observer.observe(event, source)
    samples = [sample for family in observer.collect() for sample in family.samples]
    assert 100 < sum("consumer" in sample.labels for sample in samples) <= 260


@pytest.mark.parametrize(
    ("name", "labels"),
    [("jmsx_settled_total", {}), ("jmsx_settled_messages_total", {"reason": "x"})],
)
def test_asking_for_what_nobody_exports_is_an_error(name: str, labels: dict[str, str]) -> None:
    """A test that asks for the wrong name must not be told 0."""
    with pytest.raises(KeyError):
        PrometheusObserver().value(name, **labels)


def test_numbers_outlive_close() -> None:
    """The last scrape and the demo's summary come after the end."""
    observer = _told(ENDED)
    observer.close()
    assert observer.value("jmsx_processed_messages_total", destination=DESTINATION) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["queue://a", "queue://b", "topic://c"]),
            st.sampled_from(["one", "two"]),
            st.sampled_from(Outcome),
            st.sampled_from(["client", "transacted"]),
        ),
        max_size=60,
    )
)
def test_counters_are_the_event_log(deliveries: list[tuple[str, str, Outcome, str]]) -> None:
    """Whatever order and mixture: each counter is the number of its events."""
    observer = _told(
        *(
            replace(
                ENDED, destination=destination, consumer=consumer, outcome=outcome, ack_mode=mode
            )
            for destination, consumer, outcome, mode in deliveries
        )
    )
    expected = Counter(
        (destination, consumer, outcome.value) for destination, consumer, outcome, _ in deliveries
    )
    counted = observer.totals("jmsx_processed_messages_total", "destination", "consumer", "outcome")
    assert {key: count for key, count in counted.items() if count} == expected
    settled = observer.totals("jmsx_settled_messages_total", "ack_mode", "outcome")
    expected_settled = Counter(
        (mode, outcome.value) for _, _, outcome, mode in deliveries if outcome in SETTLED
    )
    assert {key: count for key, count in settled.items() if count} == expected_settled


def test_a_failure_tells_where_why_by_what_and_when() -> None:
    """A failed delivery, a dead letter, one that was refused, a dropped ACK and a refused send, each once."""
    observer = _told(
        replace(ENDED, outcome=Outcome.ROLLED_BACK, error_type="ValueError"),
        replace(ENDED, outcome=Outcome.DEAD_LETTERED, error_type="ValueError"),
        replace(DEAD_LETTERED, at=AT + 1),
        DEAD_LETTER_FAILED,
        replace(ACK_DROPPED, messages=2),
        replace(SENT, outcome="error"),
    )
    told = observer.totals("jmsx_failures_total", "reason", "error_type")
    assert told == {
        ("handler_error", "ValueError"): 1,
        ("max_redeliveries", "ValueError"): 1,
        ("dead_letter_refused", ""): 1,
        ("acknowledgement_dropped", ""): 2,
        ("send_refused", ""): 1,
    }
    last = observer.totals("jmsx_last_failure_timestamp_seconds", "reason")
    assert last["max_redeliveries",] == WALL + 1


def test_duplicates_are_suppressed_or_delivered() -> None:
    """What the broker delivers again after another's hands may have been done; a message that we retry was not."""
    again = replace(ENDED, redelivered=True)
    observer = _told(
        replace(again, outcome=Outcome.DUPLICATE),
        again,
        replace(again, attempt=2),
        replace(again, outcome=Outcome.RELEASED),
    )
    assert observer.totals("jmsx_duplicate_messages_total", "action") == {
        ("suppressed",): 1,
        ("delivered",): 1,
    }


@pytest.mark.parametrize("delay", [0.2, 1, 2, 4, 5, 8, 16, 25, 30, 60, 64, 125, 300, 625, 900])
def test_back_off_is_shown_within_a_quarter(delay: float) -> None:
    """A constant delay of a usual policy: its median and 99th percentile, as Prometheus would interpolate."""
    below = max((bound for bound in BACK_OFF_SECONDS if bound < delay), default=0.0)
    above = min(bound for bound in BACK_OFF_SECONDS if bound >= delay)
    for quantile in (0.5, 0.99):
        shown = below + (above - below) * quantile
        assert abs(shown - delay) <= 0.25 * delay
