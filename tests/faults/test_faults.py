"""The fault bench itself: that its accounts tell losses from kept promises, and one case of it on a real broker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.faults.__main__ import main
from tests.faults.account import Account, Delivery, Traces

#: a, b and c were sent and handled, b twice and flagged.
KEPT = Traces(
    sent={"a", "b", "c"},
    unconfirmed=set(),
    deliveries=[
        Delivery(1.0, redelivered=False, body="a"),
        Delivery(2.0, redelivered=False, body="b"),
        Delivery(7.0, redelivered=True, body="b"),
        Delivery(8.0, redelivered=False, body="c"),
    ],
    left=set(),
    stranded=0,
    dead=[],
    lifted=4.0,
)


def test_a_kept_promise() -> None:
    """Nothing lost, the duplicate flagged; the longest silence since the fault was over is what it took."""
    account = Account("x").add(KEPT)
    assert account == Account(
        "x", rounds=1, sent=3, settled=3, duplicates=1, max_recovery_seconds=3.0
    )
    assert not account.failed


@pytest.mark.parametrize(
    ("traces", "lost", "unflagged", "stuck"),
    [
        (replace(KEPT, deliveries=KEPT.deliveries[:-1]), 1, 0, 0),
        (replace(KEPT, deliveries=[*KEPT.deliveries, KEPT.deliveries[0]]), 0, 1, 0),
        (replace(KEPT, left={"c"}), 0, 0, 1),
    ],
    ids=["lost", "unflagged duplicate", "stuck"],
)
def test_a_broken_promise(traces: Traces, lost: int, unflagged: int, stuck: int) -> None:
    """It is counted, it fails the run, and a kept round after it does not cover it."""
    account = Account("x").add(traces).add(KEPT)
    assert (account.lost, account.unflagged_duplicates, account.stuck) == (lost, unflagged, stuck)
    assert account.failed


@pytest.mark.parametrize(
    "traces",
    [
        replace(KEPT, deliveries=KEPT.deliveries[:-1], dead=["c"]),
        replace(KEPT, deliveries=KEPT.deliveries[:-1], left={"c"}, stranded=1),
        replace(KEPT, sent={"a", "b"}, unconfirmed={"c"}, deliveries=KEPT.deliveries[:-1]),
    ],
    ids=["dead letter", "stranded", "never confirmed"],
)
def test_what_is_no_loss(traces: Traces) -> None:
    """A message that lies somewhere, or that its sender was told to doubt."""
    account = Account("x").add(traces)
    assert not account.failed
    assert account.settled == 2


@pytest.mark.broker
@pytest.mark.timeout(60)
def test_a_cut_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """The quickest case, as the command line runs it."""
    code = main(["--broker", "classic", "--case", "connection-cut", "--messages", "200", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0, told
    assert told["sent"] + told["unconfirmed"] >= 200
    assert told["settled"] == told["sent"]
    assert told["lost"] == told["unflagged_duplicates"] == told["stuck"] == 0
