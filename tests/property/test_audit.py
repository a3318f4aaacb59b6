"""The audit by fingerprints against a plain count key by key."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jmsx_report.flows import bucket
from tests.depth import rounds
from tests.unit.jmsx_report.logs import HOUR, MINUTE, SECOND, START, Log, key, told

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUEUES = ("queue://a", "queue://b")
_DONE = ("acknowledged", "committed")
_MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 40),  # seconds after the start: a few buckets
        st.sampled_from(_QUEUES),
        st.sampled_from(["confirmed", "confirmed", "confirmed", "unconfirmed", None]),
        st.lists(
            st.sampled_from(
                ["acknowledged", "committed", "duplicate", "dead_lettered", "rolled_back"]
            ),
            max_size=3,
        ),
        st.booleans(),  # whether its key tells a time
        # how long it is planned to wait for its redelivery
        st.sampled_from([None, None, SECOND, HOUR]),
    ),
    max_size=30,
)


def bucket_of(name: str) -> int:
    """Where the audit puts a key that tells no time."""
    put: int = pl.select(bucket(pl.lit(name), pl.lit(None, pl.Int64))).item()
    return put


def repeated(fates: Sequence[str]) -> list[str]:
    """The number in which a message counts that was done twice, or was done and died then."""
    done = [place for place, fate in enumerate(fates) if fate in _DONE]
    if len(done) == 1 and "dead_lettered" in fates[done[0] :]:
        return ["dead_after_done"]
    return ["duplicates"] * (len(done) > 1)


def left_at(messages: Sequence[Any], closing: int | None) -> dict[str, float]:
    """When each queue has no reader any more, which closes in that second, but behind all that it did; or never."""
    left = dict.fromkeys(_QUEUES, inf if closing is None else START + closing * SECOND)
    for second, queue, _, fates, _, _ in messages:
        left[queue] = max(left[queue], START + (second + 1) * SECOND if fates else 0)
    return left


def closes(log: Log, at: int) -> None:
    """Each queue's reader is closed."""
    for queue in _QUEUES:
        told_of = {"session_id": "w-1", "epoch": 1, "dest": queue, "consumer": "c"}
        log.line("w", "sub.close", at, **told_of)


@pytest.mark.timeout(600)  # some hundred reports: a minute and a half of a processor
@settings(max_examples=rounds(25), deadline=None)
@given(_MESSAGES, st.integers(1, 4), st.none() | st.integers(0, 120))
@example([(0, _QUEUES[0], "confirmed", ["acknowledged", "dead_lettered"], False, None)], 1, None)
@example([(0, _QUEUES[0], "confirmed", [], False, HOUR)], 1, None)
@example([(9, _QUEUES[0], "confirmed", [], True, None)], 1, 68)
@example([(9, _QUEUES[0], "confirmed", [], True, None)], 1, 69)
def test_fingerprints_find_what_a_look_at_every_key_finds(
    messages: Sequence[tuple[int, str, str | None, list[str], bool, int | None]],
    units: int,
    closing: int | None,
) -> None:
    """Whatever was sent, settled, lost and repeated, however the log is cut, and if its readers close: that second."""
    log = Log().opens("s").opens("w")
    for queue in _QUEUES:
        log.reads("w", queue)
    truth: Counter[str] = Counter()
    sent_here: set[int] = set()  #: buckets of keys without a time that somebody here sent
    #: what repeats a message, and its bucket if it is foreign
    repeats: list[tuple[str, int | None]] = []
    left = left_at(messages, closing)
    for number, (second, queue, sent, fates, timed, wait) in enumerate(messages):
        at = START + second * SECOND
        made = key(at, number) if timed else f"other-{number}"
        if sent is not None and not timed:
            sent_here.add(bucket_of(made))
        if sent is not None:
            log.send("s", at, queue, sent, msg_key=made)
        for fate in fates:
            log.deliver("w", made, at + SECOND, queue, fate)
        if wait is not None:
            log.plan("w", made, at + SECOND, wait, dest=queue, blocking=False)
        settled = sum(fate != "rolled_back" for fate in fates)
        done = sum(fate in _DONE for fate in fates)
        truth["sent"] += sent == "confirmed" or (sent == "unconfirmed" and settled > 0)
        truth["settled"] += settled
        truth["done"] += done
        # A key that tells no time is as old as the hour.
        since = (at if timed else START) + MINUTE
        untouched = not fates and wait is None
        due = "in_flight" if wait == HOUR else "unaccounted"
        due = "awaiting_reader" if untouched and since > left[queue] else due
        truth[due] += sent == "confirmed" and not settled
        truth["unanswered"] += sent == "unconfirmed" and not settled and wait != HOUR
        known = timed or sent is not None
        truth["unsent"] += timed and sent is None and settled > 0
        truth["foreign"] += 0 if known else settled
        repeats += [(what, None if known else bucket_of(made)) for what in repeated(fates)]
    if closing is not None:
        closes(log, START + closing * SECOND)
    for writer in ("s", "w"):
        log.closes(writer, START + MINUTE)

    summary = told(log, units=units)
    names = (
        "sent",
        "settled",
        "done",
        "unaccounted",
        "in_flight",
        "awaiting_reader",
        "unanswered",
        "duplicates",
        "dead_after_done",
        "unsent",
        "foreign",
    )
    # Only those are looked at that share a bucket with a key which somebody here sent.
    truth.update(what for what, place in repeats if place is None or place in sent_here)
    assert {name: summary[name] for name in names} == {name: truth[name] for name in names}
    wrong = truth["unaccounted"] or truth["duplicates"]
    doubts = ("dead_after_done", "unanswered", "unsent", "foreign", "awaiting_reader")
    # Where nothing is settled, all that was sent is on its way, or nothing was sent: that proves nothing.
    doubt = any(truth[one] for one in doubts) or not truth["sent"] or not truth["settled"]
    assert summary["verdict"] == ("suspect" if wrong else "unverifiable" if doubt else "balanced")
