"""When a failed message is delivered again: every delay to the millisecond."""

from __future__ import annotations

import math
from datetime import timedelta
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from jmsx.core.policy import (
    UNLIMITED,
    ArtemisRedeliveryPolicy,
    RedeliveryPolicy,
)
from jmsx.errors import ConfigurationError

LONGEST = (2**63 - 1) / 1000  #: seconds: a Java long of milliseconds


def policy(**fields: Any) -> RedeliveryPolicy:
    """A policy with these fields, in ActiveMQ's short words."""
    words = {
        "initial": "initial_redelivery_delay",
        "delay": "redelivery_delay",
        "multiplier": "back_off_multiplier",
        "exponential": "use_exponential_back_off",
        "cap": "maximum_redelivery_delay",
        "factor": "collision_avoidance_factor",
        "avoid": "use_collision_avoidance",
        "most": "maximum_redeliveries",
    }
    return RedeliveryPolicy(**{words[name]: value for name, value in fields.items()})


def test_defaults_are_those_of_activemq() -> None:
    """Source: `RedeliveryPolicy.java:35-48`."""
    assert RedeliveryPolicy() == RedeliveryPolicy(
        maximum_redeliveries=6,
        initial_redelivery_delay=1.0,
        redelivery_delay=1.0,
        back_off_multiplier=5.0,
        use_exponential_back_off=False,
        maximum_redelivery_delay=None,
        collision_avoidance_factor=0.15,
        use_collision_avoidance=False,
        pre_dispatch_check=True,
    )


@pytest.mark.parametrize(
    ("given", "delays"),
    [
        pytest.param({}, [1, 1, 1, 1], id="defaults"),
        pytest.param(
            {"initial": 0, "delay": 0.5, "multiplier": 2, "exponential": True},
            [0, 0.5, 1, 2, 4],
            id="upstream 1 and 5: exponential, initial 0",
        ),
        pytest.param(
            {"initial": 0, "delay": 0.5, "multiplier": 2},
            [0, 0.5, 0.5, 0.5],
            id="upstream 1 and 6: the same, fixed",
        ),
        pytest.param(
            {"initial": 0.042, "delay": -0.1, "multiplier": 2, "exponential": True},
            [0.042, 0.084, 0.168, 0.336],
            id="upstream 2: delay ignored when initial > 0",
        ),
        pytest.param(
            {"initial": 0, "delay": -0.1, "multiplier": 2, "exponential": True},
            [0, -0.1, -0.1],
            id="upstream 2: next(0), and a negative delay never grows",
        ),
        pytest.param(
            {"initial": 0.123, "delay": -0.1, "multiplier": 2, "exponential": True},
            [0.123, 0.246],
            id="upstream 2: next(123)",
        ),
        pytest.param(
            {"initial": 0.042, "delay": -0.1, "multiplier": 2},
            [0.042, -0.1, -0.1],
            id="upstream 2: not exponential",
        ),
        pytest.param({"initial": 0.5}, [0.5, 1, 1, 1], id="upstream 3: initial, then delay"),
        pytest.param(
            {"initial": 0.01, "delay": 0.05, "multiplier": 2, "exponential": True, "cap": 1.0},
            [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1],
            id="upstream 4: cap",
        ),
        pytest.param(
            {"initial": LONGEST, "delay": 0.05, "multiplier": 2, "exponential": True, "cap": 1.0},
            [LONGEST, 1],
            id="upstream 4: next(MAX_LONG)",
        ),
        pytest.param(
            {"initial": 0.1, "delay": 0.3, "exponential": True, "cap": 0.2},
            [0.1, 0.3, 0.3],
            id="the cap is never below the fixed delay",
        ),
        pytest.param({"initial": 2, "delay": 3, "cap": 1}, [2, 3, 3], id="no cap on fixed delays"),
        pytest.param(
            {"initial": 2, "multiplier": 2, "exponential": True, "cap": 1.5},
            [2, 1.5, 1.5],
            id="no cap on the first",
        ),
        pytest.param(
            {"initial": 0, "delay": 3, "multiplier": 2, "exponential": True, "cap": 1},
            [0, 3, 3],
            id="no cap on the step from 0",
        ),
        pytest.param(
            {"initial": 1, "multiplier": 2, "exponential": True, "cap": 2},
            [1, 2, 2],
            id="at the cap is not over it",
        ),
        pytest.param(
            {"initial": 1, "multiplier": 2, "exponential": True, "cap": -1},
            [1, 2, 4, 8, 16],
            id="a cap of -1 is none, as in Java",
        ),
        pytest.param(
            {"initial": 1, "delay": 0, "multiplier": 2, "exponential": True, "cap": 0},
            [1, 0, 0],
            id="a cap of 0 is one",
        ),
        pytest.param(
            {"initial": 5, "delay": 2, "multiplier": 1, "exponential": True},
            [5, 2, 2],
            id="a multiplier of 1 does not grow",
        ),
        pytest.param(
            {"initial": 0.001, "delay": 1, "multiplier": 1.9, "exponential": True},
            [0.001, 0.001, 0.001],
            id="each step truncates: 1.9 ms is 1 ms",
        ),
        pytest.param(
            {"initial": 0.003, "multiplier": 1.5, "exponential": True},
            [0.003, 0.004, 0.006, 0.009, 0.013],
            id="each step truncates, and the next starts there",
        ),
        pytest.param(
            {"initial": 0.001, "multiplier": 2, "exponential": True},
            [2**n / 1000 for n in range(40)],
            id="1 ms x2: 1 to 512 ms and beyond",
        ),
    ],
)
def test_delays(given: dict[str, Any], delays: list[float]) -> None:
    """Redelivery number 1, 2, 3 … waits so many seconds (`RedeliveryPolicy.java:101-123`)."""
    assert [policy(**given).delay(n) for n in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize("delay", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
def test_delays_as_people_write_them(delay: Any) -> None:
    """They are seconds then, and two policies that say the same are the same."""
    policy = RedeliveryPolicy(
        initial_redelivery_delay=delay, redelivery_delay=delay, maximum_redelivery_delay=delay
    )
    assert policy == RedeliveryPolicy(
        initial_redelivery_delay=90.0, redelivery_delay=90.0, maximum_redelivery_delay=90.0
    )
    assert [policy.delay(1), policy.delay(2)] == [90.0, 90.0]
    artemis = ArtemisRedeliveryPolicy(redelivery_delay=delay, max_redelivery_delay=delay)
    assert artemis == ArtemisRedeliveryPolicy(redelivery_delay=90.0, max_redelivery_delay=90.0)
    assert artemis.delay(1) == 90.0


@pytest.mark.parametrize(
    ("name", "delay"),
    [
        ("initial_redelivery_delay", "soon"),
        ("redelivery_delay", timedelta(seconds=-1)),
        ("maximum_redelivery_delay", "-1s"),
        ("initial_redelivery_delay", b"1s"),
    ],
)
def test_delays_that_are_none(name: str, delay: Any) -> None:
    """They are refused by name."""
    with pytest.raises(ConfigurationError, match=name):
        RedeliveryPolicy(**{name: delay})


def test_misconfiguration_burns_eleven_deliveries_in_a_second() -> None:
    """A 1 ms delay that doubles: ten redeliveries are over after 1.023 s."""
    given = policy(initial=0.001, multiplier=2, exponential=True, most=10)
    assert sum(given.delay(n) for n in range(1, 11)) == pytest.approx(1.023, abs=1e-9)
    assert not given.exhausted(10)
    assert given.exhausted(11)


@pytest.mark.parametrize("redelivery", [64, 65, 200, 2000])
def test_growing_ends_where_a_java_long_does(redelivery: int) -> None:
    """It neither overflows nor wraps around to a negative delay."""
    given = policy(initial=0.001, multiplier=2, exponential=True, most=UNLIMITED)
    assert given.delay(redelivery) == pytest.approx(LONGEST, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "draws", "delays"),
    [
        pytest.param({}, [1.0], [1, 1.15, 1.15], id="fixed, up; never the first"),
        pytest.param({}, [-1.0], [1, 0.85, 0.85], id="fixed, down"),
        pytest.param({}, [0.5], [1, 1.075], id="half of it"),
        pytest.param(
            {"multiplier": 2, "exponential": True}, [1.0], [1, 2.3, 5.29], id="it compounds"
        ),
        pytest.param(
            {"multiplier": 2, "exponential": True},
            [1.0, -1.0],
            [1, 2.3, 3.91],
            id="a draw for each step",
        ),
        pytest.param(
            {"multiplier": 2, "exponential": True, "cap": 3},
            [1.0],
            [1, 2.3, 3.45, 3.45],
            id="after the cap, which it may exceed",
        ),
        pytest.param(
            {"initial": 0, "delay": 0.5, "multiplier": 2, "exponential": True, "factor": 0.2},
            [1.0],
            [0, 0.6, 1.44],
            id="also the step from 0",
        ),
        pytest.param({"delay": 0.007}, [0.5], [1, 0.007], id="truncated to 7 ms"),
        pytest.param({"delay": 0.007}, [1.0], [1, 0.008], id="truncated to 8 ms"),
    ],
)
def test_collision_avoidance(
    given: dict[str, Any], draws: list[float], delays: list[float]
) -> None:
    """Chance is drawn for each step but the first, after the cap, and compounds (`RedeliveryPolicy.java:101-123`)."""
    avoiding = policy(avoid=True, **given)
    told = []
    for n in range(1, len(delays) + 1):
        chance = cycle(draws)
        told.append(avoiding.delay(n, partial(next, chance)))
    assert told == delays


def test_chance_that_nobody_gave_is_none() -> None:
    """Then the delay is the middle of its range."""
    assert policy(avoid=True).delay(2) == 1.0


def test_no_draw_without_collision_avoidance() -> None:
    """Whoever asks for no chance gets none, whatever is drawn."""
    assert policy(exponential=True, multiplier=2).delay(3, lambda: 1.0) == 4.0


@pytest.mark.parametrize(
    ("most", "last_kept"),
    [(0, 0), (1, 1), (6, 6), (UNLIMITED, 10**9)],
)
def test_exhausted_after_the_last_redelivery(most: int, last_kept: int) -> None:
    """Poison is a counter above the maximum: `maximum_redeliveries` + 1 deliveries; -1 is never."""
    assert not policy(most=most).exhausted(last_kept)
    assert policy(most=most).exhausted(last_kept + 1) is (most != UNLIMITED)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"most": -2}, "maximum_redeliveries must be -1 .* not -2"),
        ({"initial": -0.001}, "initial_redelivery_delay must be 0 or more"),
        ({"factor": -0.1}, r"collision_avoidance_factor must be in 0\.\.1"),
        ({"factor": 1.1}, r"collision_avoidance_factor must be in 0\.\.1"),
        ({"factor": math.nan}, "collision_avoidance_factor must be a number that is finite"),
        ({"initial": math.nan}, "initial_redelivery_delay must be a number that is finite"),
        ({"initial": math.inf}, "initial_redelivery_delay must be a number that is finite"),
        ({"delay": math.inf}, "redelivery_delay must be a number that is finite"),
        ({"cap": -2}, "maximum_redelivery_delay must be 0 or more"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, Any], complaint: str) -> None:
    """The error names the field and the value."""
    with pytest.raises(ConfigurationError, match=complaint):
        policy(**fields)


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_factor_may_be_at_its_ends(factor: float) -> None:
    """None of the delay, or all of it."""
    assert policy(factor=factor).collision_avoidance_factor == factor
