"""Counters are exact while many threads count and somebody scrapes."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from jmsx_prometheus import PrometheusObserver
from tests.dashboards.stories import ENDED, SOURCE, working_hours

if TYPE_CHECKING:
    from collections.abc import Iterator

_THREADS = 8
_ROUNDS = 100  #: of each thread, at least
_SCRAPES = 6  #: while they count, however busy the machine is
_MOMENTS = 20  #: scrapes while one thread tells the same again and again
#: Seconds after which Python lets another thread go on; by default 5 ms, with which an observer without its lock passed
#: one run in three, and with this one none of eight.
_TURN = 0.0001


@pytest.fixture(autouse=True)
def _threads_take_turns_quickly() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    yield
    sys.setswitchinterval(before)


def _work(observer: PrometheusObserver, number: int, seen: threading.Event) -> int:
    """Count for so many rounds, and until the scrapes are done; how many it were."""
    source = replace(SOURCE, session_id=f"s{number}")
    rounds = 0
    while rounds < _ROUNDS or not seen.is_set():
        for event in working_hours():
            observer.observe(event, source)
        rounds += 1
    return rounds


def _repeat(observer: PrometheusObserver, seen: threading.Event) -> None:
    while not seen.is_set():
        observer.observe(ENDED, SOURCE)


def test_no_event_is_lost_between_threads() -> None:
    """Each counter is a multiple of one round, and no scrape ever shows one going back."""
    alone = PrometheusObserver()
    for event in working_hours():
        alone.observe(event, SOURCE)
    observer = PrometheusObserver()
    seen = threading.Event()
    with ThreadPoolExecutor(_THREADS) as threads:
        workers = [threads.submit(_work, observer, number, seen) for number in range(_THREADS)]
        try:
            scrapes = [_counters(observer) for _ in range(_SCRAPES)]
        finally:
            seen.set()
    rounds = sum(worker.result() for worker in workers)
    scrapes.append(_counters(observer))
    assert scrapes[-1] == {key: count * rounds for key, count in _counters(alone).items()}
    for before, after in pairwise(scrapes):
        assert all(after[key] >= count for key, count in before.items())


def test_one_scrape_is_one_moment() -> None:
    """Settled and processed of one delivery are never seen apart: a scrape is one copy under the lock."""
    observer, done = PrometheusObserver(), threading.Event()
    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(1) as threads:
        threads.submit(_repeat, observer, done)
        try:
            while len(seen) < _MOMENTS or seen[-1] == (0, 0):
                counters = _counters(observer)
                processed = sum(n for (name, *_), n in counters.items() if "processed" in name)
                settled = sum(n for (name, *_), n in counters.items() if "settled" in name)
                seen.append((processed, settled))
        finally:
            done.set()
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
