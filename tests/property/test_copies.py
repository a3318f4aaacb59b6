"""Dead letters that were moved by a copy and not read, against a plain count key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import rounds
from tests.unit.jmsx_report.logs import MINUTE, ORDERS, SECOND, SENDER, START, WORKER, told
from tests.unit.jmsx_report.test_copies import CLERK, DLQ, dies, has, moved, shop

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What may become of a dead letter, and whether a copy of it is not missed then.
_CLAIMS = {"read": True, "again": True, "moved": True, "sent": True, "given_back": False}
_DEAD = st.lists(
    st.tuples(
        st.integers(0, 40),  # seconds after the start: a few buckets
        st.integers(1, 3),  # times that it died
        st.lists(st.sampled_from(sorted(_CLAIMS)), max_size=3),
    ),
    max_size=12,
)


@pytest.mark.timeout(600)  # some hundred reports
@settings(max_examples=rounds(25), deadline=None)
@given(_DEAD, st.integers(1, 4), st.integers(60, 140))
def test_copies_are_missed_that_a_look_at_every_key_misses(
    dead: Sequence[tuple[int, int, list[str]]], units: int, idle: int
) -> None:
    """Whatever became of them, and however the log is cut; `idle`: seconds after the start that the clerk has none."""
    log = shop()
    missed = 0
    for second, times, fates in dead:
        at = START + second * SECOND
        made = dies(log, at)
        for again in range(1, times):
            log.deliver(WORKER, made, at, outcome="dead_lettered")
            moved(log, made, at, msg_id=f"again-{again}")
        back = at
        for fate in fates:
            if fate == "read":
                log.deliver(CLERK, made, at + SECOND, DLQ)
            elif fate == "again":
                log.deliver(CLERK, made, at + SECOND, DLQ, "rolled_back")
            elif fate == "given_back":
                back = at + 5 * SECOND
                log.deliver(CLERK, made, back, DLQ, "released", start_us=None, end_us=None)
            elif fate == "moved":
                log.deliver(WORKER, made, at + SECOND)
            else:
                log.send(SENDER, at + SECOND, msg_key=made)
        settled_at_home = times + fates.count("moved")
        sent = 1 + fates.count("sent")
        # Who died or was sent there more than once was moved back, as often as either tells.
        back_home = max(settled_at_home, sent) - 1
        claims = fates.count("read") + fates.count("again") + back_home
        if back + MINUTE <= START + idle * SECOND:
            missed += max(0, times - claims)
    has(log, START + idle * SECOND)
    for writer in (SENDER, WORKER, CLERK):
        log.closes(writer, START + 10 * MINUTE)

    summary = told(log, units=units)
    assert summary["unclaimed"] == missed
    assert summary["destinations"].get(ORDERS, {}).get("unclaimed", 0) == 0
