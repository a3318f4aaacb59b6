"""Health: what counts as stuck, what as ready, and what the answers say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jmsx.app.health import HealthLimits, WorkerState, live, ready
from jmsx.app.progress import Movement
from jmsx.errors import ConfigurationError

NOW = 1000.0
LIMITS = HealthLimits(handler=60.0, stall=30.0)


def worker(
    *, alive: bool = True, running_since: float | None = None, in_hand: int = 0, **moved: Any
) -> WorkerState:
    """A worker that is connected and subscribed, unless it says otherwise."""
    movement = Movement(**{"connected": True, "subscribed": True, "moved_at": NOW - 500.0, **moved})
    return WorkerState(
        consumer="ship",
        destination="queue://orders",
        movement=movement,
        alive=alive,
        running_since=running_since,
        in_hand=in_hand,
        message_id="ID:1" if running_since is not None else None,
    )


def test_what_a_broker_keeps_for_nobody_is_told() -> None:
    """Restarting this process would not free it, so it is no failure."""
    verdict = live([replace(worker(), stranded=2), worker()], LIMITS, NOW)
    assert verdict.ok
    assert [row.get("stranded_in_broker") for row in verdict.body["workers"]] == [2, None]


LIVE = {
    "idle, and the queue is empty": (worker(), ""),
    "never anything": (worker(moved_at=float("-inf")), ""),
    "the broker is away": (worker(connected=False, subscribed=False), ""),
    "a handler runs": (worker(running_since=NOW - 60.0, in_hand=3), ""),
    "a handler runs for too long": (
        worker(running_since=NOW - 61.0, in_hand=3),
        "ship: the handler has been running for 61 s, longer than 60 s",
    ),
    "messages wait, and moved just now": (worker(in_hand=3, moved_at=NOW - 30.0), ""),
    "messages wait and nothing moves": (
        worker(in_hand=3, moved_at=NOW - 31.0),
        "ship: 3 messages wait and nothing has moved for 31 s",
    ),
    "a message waits for its redelivery": (worker(in_hand=1, due_at=NOW + 3600.0), ""),
    "its redelivery was due and did not come": (
        worker(in_hand=1, due_at=NOW - 31.0),
        "ship: 1 message waits and nothing has moved for 31 s",
    ),
    "a thread has ended": (worker(alive=False), "ship: its thread has ended"),
}


@pytest.mark.parametrize(("state", "expected"), LIVE.values(), ids=LIVE)
def test_live(state: WorkerState, expected: str) -> None:
    """Only what is stuck here, and for longer than its limit, is a reason to restart."""
    verdict = live([worker(), state], LIMITS, NOW)
    assert verdict.ok is (not expected)
    assert verdict.body["reasons"] == ([expected] if expected else [])
    assert verdict.body["status"] == ("failing" if expected else "ok")


READY = {
    "subscribed": (worker(), ""),
    "not connected": (worker(connected=False, subscribed=False), "ship: not connected"),
    "not subscribed": (worker(subscribed=False), "ship: not subscribed"),
    "stuck, but subscribed": (worker(running_since=0.0), ""),
}


@pytest.mark.parametrize(("state", "expected"), READY.values(), ids=READY)
def test_ready(state: WorkerState, expected: str) -> None:
    """A worker that is not subscribed is a reason."""
    verdict = ready([worker(), state], running=True, draining=False, now=NOW)
    assert verdict.ok is (not expected)
    assert verdict.body["reasons"] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("running", "draining", "expected"),
    [(True, True, "draining"), (False, True, "draining"), (False, False, "not started")],
)
def test_the_app_as_a_whole(*, running: bool, draining: bool, expected: str) -> None:
    """Draining and not yet started are not ready, whatever the workers say."""
    verdict = ready([worker()], running=running, draining=draining, now=NOW)
    assert not verdict.ok
    assert verdict.body["reasons"] == [expected]


def test_the_body_says_what_each_worker_does() -> None:
    """Names, counts and seconds, ready for JSON."""
    idle = worker(moved_at=NOW - 2.5, in_hand=1, due_at=NOW + 7.0)
    stuck = worker(running_since=NOW - 100.0)
    first, second = live([idle, stuck], LIMITS, NOW).body["workers"]
    assert first == {
        "consumer": "ship",
        "destination": "queue://orders",
        "connected": True,
        "subscribed": True,
        "in_hand": 1,
        "quiet_seconds": 2.5,
        "redelivery_in_seconds": 7.0,
    }
    assert second["handler_seconds"] == 100.0
    assert second["message_id"] == "ID:1"
    assert second["reason"].startswith("the handler has been running for 100 s")


@pytest.mark.parametrize("name", ["handler", "stall"])
def test_limits_that_make_no_sense(name: str) -> None:
    """Zero and less are refused, with the name."""
    with pytest.raises(ConfigurationError, match=f"{name} must be more than 0"):
        HealthLimits(**{name: 0.0})


@pytest.mark.parametrize("limit", [60, "1min", timedelta(minutes=1)])
def test_limits_as_people_write_them(limit: Any) -> None:
    """They are times as any other."""
    limits = HealthLimits(handler=limit, stall=limit)
    assert live([worker(running_since=NOW - 60.0)], limits, NOW).ok
    assert not live([worker(running_since=NOW - 61.0)], limits, NOW).ok
    assert live([worker(in_hand=1, moved_at=NOW - 60.0)], limits, NOW).ok
    assert not live([worker(in_hand=1, moved_at=NOW - 61.0)], limits, NOW).ok


@pytest.mark.parametrize("limit", ["soon", None, True, -1.0])
def test_limits_that_are_none(limit: Any) -> None:
    """They are refused by name."""
    with pytest.raises(ConfigurationError, match="health limit stall"):
        HealthLimits(stall=limit)
