"""
Health: whether messages move, and not whether a socket is open.

Live: nothing in this process is stuck that a restart would mend. An unreachable broker does not count, since a new
process would not reach it either; nor does an empty queue, or a message that waits for its redelivery. Ready:
connected, subscribed, not draining, with a store and a ledger that can be used, and a destination that accepts dead
letters. Both reports give the reasons for each worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jmsx.app.progress import Movement
from jmsx.core.durations import Default, Seconds, seconds
from jmsx.core.option_checks import by_name
from jmsx.core.poison_frames import MANY
from jmsx.errors import ConfigurationError
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Iterable


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """
    After how long a worker counts as stuck: seconds, a timedelta, or a text such as "10min".

    Raises ConfigurationError unless both are more than 0 s.

    Args:
        handler: how long one call of a handler may take, its commit included; 10 min.
        stall: how long messages may wait here while no handler runs and no message moves; 2 min.

    """

    handler: Seconds = Default(600.0)
    stall: Seconds = Default(120.0)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            given = getattr(self, name)
            limit = seconds(f"health limit {name}", given)
            if limit <= 0:
                raise ConfigurationError(f"health limit {name} must be more than 0 s, not {given}")
            object.__setattr__(self, name, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """The state of one worker at one moment, for the health probes; times are seconds, monotonic."""

    consumer: str
    destination: str
    movement: Movement
    alive: bool  #: whether its threads run
    in_hand: int = 0  #: messages that are prefetched, or in its handler
    #: Since when it works on a message, with its handler, store and transaction; None: it does not.
    running_since: float | None = None
    #: When its handler was called, if the handler runs on the worker's own thread.
    called_at: float | None = None
    message_id: str | None = None  #: the message of that call
    stranded: int = 0  #: messages "in delivery" to no consumer that exists
    away: str | None = None  #: the store or ledger that it waits for, and why
    refusal: str = ""  #: why its last attempt to reconnect failed
    fault: str | None = None  #: what is wrong with its redelivery policy
    paused: str | None = None  #: why its handler is not called
    held_until: float = -math.inf  #: when a wait of its own ends, as for its rate limit
    handler_limit: float | None = None  #: its `timeout=` in seconds


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The answer to a health probe."""

    ok: bool
    body: dict[str, Any]  #: ready for JSON


#: The fault of a worker that has none: its messages move, or would if there were any.
_FINE: Final = ""


def live(states: Iterable[WorkerState], limits: HealthLimits, now: float) -> HealthReport:
    """Report whether no worker is stuck."""
    return _reported([(state, _stuck(state, limits, now)) for state in states], now)


def ready(
    states: Iterable[WorkerState], *, running: bool, draining: bool, now: float
) -> HealthReport:
    """Report whether messages can arrive: the app is started, not draining, and every worker is subscribed."""
    told = [(state, _missing(state, now)) for state in states]
    whole = "draining" if draining else _FINE if running else "not started"
    return _reported(told, now, whole)


def _stuck(state: WorkerState, limits: HealthLimits, now: float) -> str:
    movement = state.movement
    if not state.alive:
        return "its thread has ended"
    if state.running_since is not None:
        for since, limit, whose in (
            (state.called_at, state.handler_limit, "its timeout of "),
            (state.running_since, limits.handler, ""),
        ):
            if since is not None and limit is not None and now - since > limit:
                return f"the handler has been running for {now - since:.0f} s, longer than {whose}{limit:g} s"
        return _FINE
    # a new process would not reach it either
    if state.away is not None or state.paused is not None:
        return _FINE
    quiet = now - max(movement.moved_at, movement.due_at, state.held_until)
    if state.in_hand and quiet > limits.stall:
        waiting = counted(state.in_hand, "message")
        return f"{waiting} wait{'s' * (state.in_hand == 1)} and nothing has moved for {quiet:.0f} s"
    return _FINE


def _missing(state: WorkerState, now: float) -> str:
    ends = state.movement.poison_frames
    refusals = [each for each in state.movement.refused.values() if each.until > now]
    refused = [f"a dead letter cannot be put into {each.place}: {each.reason}" for each in refusals]
    if ends.count >= MANY:
        return (
            f"the link to {state.destination} has ended {ends.count} times in a row at a frame that cannot be read:"
            f" {ends.cause}"
        )
    away = [f"waits for its {state.away}"] if state.away else []
    if not state.movement.connected:
        tried = [state.refusal] if state.refusal else []
        return "; ".join(["not connected", *away, *tried, *refused[:1]])
    if not state.movement.subscribed:
        return "; ".join(["not subscribed", *refused[:1]])
    causes = (
        *away,
        state.paused,
        state.fault
        and f"its redelivery policy fails, and the default policy answers: {state.fault}",
        *refused,
    )
    return next((cause for cause in causes if cause), _FINE)


def _reported(told: list[tuple[WorkerState, str]], now: float, whole: str = _FINE) -> HealthReport:
    reasons = [whole] if whole else []
    reasons += [f"{state.consumer}: {why}" for state, why in told if why]
    return HealthReport(
        not reasons,
        {
            "status": "failing" if reasons else "ok",
            "reasons": reasons,
            "workers": [_row(state, why, now) for state, why in told],
        },
    )


def _row(state: WorkerState, why: str, now: float) -> dict[str, Any]:
    """Return one worker for the body of an answer."""
    movement = state.movement
    row: dict[str, Any] = {
        "consumer": state.consumer,
        "destination": state.destination,
        "connected": movement.connected,
        "subscribed": movement.subscribed,
        "in_hand": state.in_hand,
    }
    if movement.moved_at > 0:
        row["quiet_seconds"] = round(now - movement.moved_at, 3)
    if movement.due_at > now:
        row["redelivery_in_seconds"] = round(movement.due_at - now, 3)
    if state.paused is not None:
        row["paused"] = state.paused
    if state.stranded:
        row["stranded_in_broker"] = state.stranded
    if state.running_since is not None:
        row["handler_seconds"] = round(now - state.running_since, 3)
        row["message_id"] = state.message_id
    return {**row, "reason": why} if why else row
