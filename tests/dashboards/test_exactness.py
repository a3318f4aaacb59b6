"""Counters are exact while many threads count and somebody scrapes."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

from jmsx_prometheus import PrometheusObserver
from tests.dashboards.stories import ENDED, SOURCE, working_hours

_THREADS = 8
_ROUNDS = 400


def _work(observer: PrometheusObserver, number: int) -> None:
    source = replace(SOURCE, session_id=f"s{number}")
    for _ in range(_ROUNDS):
        for event in working_hours():
            observer.observe(event, source)


def _repeat(observer: PrometheusObserver, times: int) -> None:
    for _ in range(times):
        observer.observe(ENDED, SOURCE)


def test_no_event_is_lost_between_threads() -> None:
    """Each counter is a multiple of one round, and no scrape ever shows one going back."""
    alone = PrometheusObserver()
    for event in working_hours():
        alone.observe(event, SOURCE)
    observer = PrometheusObserver()
    scrapes = []
    with ThreadPoolExecutor(_THREADS) as threads:
        workers = [threads.submit(_work, observer, number) for number in range(_THREADS)]
        while not all(worker.done() for worker in workers):
            scrapes.append(_counters(observer))
    for worker in workers:
        worker.result()
    scrapes.append(_counters(observer))
    expected = {key: count * _THREADS * _ROUNDS for key, count in _counters(alone).items()}
    assert scrapes[-1] == expected
    assert len(scrapes) > 2
    for before, after in pairwise(scrapes):
        assert all(after[key] >= count for key, count in before.items())


def test_one_scrape_is_one_moment() -> None:
    """Settled and processed of one delivery are never seen apart: a scrape is one copy under the lock."""
    observer = PrometheusObserver()
    with ThreadPoolExecutor(2) as threads:
        worker = threads.submit(_repeat, observer, 100_000)
        seen = []
        while not worker.done():
            counters = _counters(observer)
            processed = sum(n for (name, *_), n in counters.items() if "processed" in name)
            settled = sum(n for (name, *_), n in counters.items() if "settled" in name)
            seen.append((processed, settled))
    assert len(seen) > 2
    assert all(processed == settled for processed, settled in seen)


def _counters(observer: PrometheusObserver) -> Counter[tuple[str, ...]]:
    """All counters and bucket counts, without sums of floats."""
    counters: Counter[tuple[str, ...]] = Counter()
    for family in observer.collect():
        for sample in family.samples:
            if sample.name.endswith(("_total", "_bucket", "_count")):
                labels = (f"{name}={value}" for name, value in sorted(sample.labels.items()))
                counters[sample.name, *labels] = int(sample.value)
    return counters
