"""The audit by fingerprints against a plain count key by key."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jmsx_report.logs import MINUTE, SECOND, START, Log, key, told

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUEUES = ("queue://a", "queue://b")
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
    ),
    max_size=30,
)


@settings(max_examples=25, deadline=None)
@given(_MESSAGES, st.integers(1, 4))
def test_fingerprints_find_what_a_look_at_every_key_finds(
    messages: Sequence[tuple[int, str, str | None, list[str], bool]], units: int
) -> None:
    """Whatever was sent, settled, lost and repeated, and however the log is cut."""
    log = Log().opens("s").opens("w")
    for queue in _QUEUES:
        log.reads("w", queue)
    truth: Counter[str] = Counter()
    foreign_twice = 0
    for number, (second, queue, sent, fates, timed) in enumerate(messages):
        at = START + second * SECOND
        made = key(at, number) if timed else f"other-{number}"
        if sent is not None:
            log.send("s", at, queue, sent, msg_key=made)
        for fate in fates:
            log.deliver("w", made, at + SECOND, queue, fate)
        settled = sum(fate != "rolled_back" for fate in fates)
        done = sum(fate in ("acknowledged", "committed") for fate in fates)
        truth["sent"] += sent == "confirmed" or (sent == "unconfirmed" and settled > 0)
        truth["settled"] += settled
        truth["done"] += done
        truth["unaccounted"] += sent == "confirmed" and not settled
        truth["unanswered"] += sent == "unconfirmed" and not settled
        known = timed or sent is not None
        truth["duplicates"] += known and done > 1
        truth["unsent"] += timed and sent is None and settled > 0
        truth["foreign"] += 0 if known else settled
        foreign_twice += not known and done > 1
    for writer in ("s", "w"):
        log.closes(writer, START + MINUTE)

    summary = told(log, units=units)
    names = [
        "sent",
        "settled",
        "done",
        "unaccounted",
        "unanswered",
        "unsent",
        "foreign",
    ]
    # A foreign message is a duplicate, too, where a key of ours has it looked at.
    assert 0 <= summary["duplicates"] - truth["duplicates"] <= foreign_twice
    assert {name: summary[name] for name in names} == {name: truth[name] for name in names}
    wrong = truth["unaccounted"] or truth["duplicates"]
    doubt = truth["unanswered"] or truth["unsent"] or truth["foreign"] or not truth["sent"]
    assert summary["verdict"] == ("suspect" if wrong else "unverifiable" if doubt else "balanced")
