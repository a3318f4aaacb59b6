"""Artemis' redelivery policy: its own formula, and a count of attempts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jmsx.core.policy import (
    UNLIMITED,
    ArtemisRedeliveryPolicy,
)
from jmsx.errors import ConfigurationError


def test_defaults_are_those_of_artemis() -> None:
    """Source: `AddressSettings.java:54-64,963-992`."""
    assert ArtemisRedeliveryPolicy() == ArtemisRedeliveryPolicy(
        redelivery_delay=0.0,
        multiplier=1.0,
        collision_avoidance_factor=0.0,
        max_redelivery_delay=None,
        max_delivery_attempts=10,
    )


@pytest.mark.parametrize(
    ("given", "delays"),
    [
        pytest.param({}, [0, 0, 0], id="defaults: at once"),
        pytest.param({"redelivery_delay": 2.5}, [2.5, 2.5, 2.5], id="fixed, the first one too"),
        pytest.param(
            {"redelivery_delay": 5, "multiplier": 2, "max_redelivery_delay": 15},
            [5, 10, 15, 15],
            id="upstream: undelivered-messages.adoc",
        ),
        pytest.param(
            {"redelivery_delay": 0.1, "multiplier": 2, "max_redelivery_delay": 1},
            [0.1, 0.2, 0.4, 0.8, 1, 1],
            id="upstream: MultipliedDelayedMessageTest",
        ),
        pytest.param(
            {"redelivery_delay": 0.1, "multiplier": 2},
            [0.1, 0.2, 0.4, 0.8, 1, 1],
            id="the cap is ten delays",
        ),
        pytest.param(
            {"redelivery_delay": 5, "max_redelivery_delay": 2},
            [2, 2],
            id="the cap is of the first too",
        ),
        pytest.param(
            {"redelivery_delay": 0.003, "multiplier": 1.5},
            [0.003, 0.004, 0.006, 0.010, 0.015],
            id="truncated once, from the whole power",
        ),
        pytest.param(
            {"redelivery_delay": 0.01, "multiplier": 0.5},
            [0.01, 0.005, 0.002, 0.001, 0],
            id="shrinking",
        ),
    ],
)
def test_delays_of_artemis(given: dict[str, Any], delays: list[float]) -> None:
    """`delay * multiplier ** (n - 1)`, truncated to a millisecond, and capped; `QueueImpl.java:4064-4083`."""
    artemis = ArtemisRedeliveryPolicy(**given)
    assert [artemis.delay(n) for n in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(
    ("given", "draw", "delay"),
    [
        pytest.param({}, 1.0, 1.15, id="up, the first one too"),
        pytest.param({}, -1.0, 0.85, id="down"),
        pytest.param({"redelivery_delay": 0.007}, 1.0, 0.008, id="7 + 1.05 ms"),
        pytest.param(
            {"redelivery_delay": 0.007}, -1.0, 0.006, id="7 - 1.05 ms: what is added truncates"
        ),
        pytest.param(
            {"max_redelivery_delay": 1.1}, 1.0, 1.1, id="before the cap, which it never exceeds"
        ),
        pytest.param({"max_redelivery_delay": 1}, -1.0, 0.85, id="below the cap"),
    ],
)
def test_collision_avoidance_of_artemis(given: dict[str, Any], draw: float, delay: float) -> None:
    """Chance is drawn once for each delay, before the cap, and does not compound."""
    fields = {"redelivery_delay": 1.0, "collision_avoidance_factor": 0.15, **given}
    chance = iter([draw])
    assert ArtemisRedeliveryPolicy(**fields).delay(1, lambda: next(chance)) == delay


def test_no_draw_without_a_factor() -> None:
    """Chance that is not asked for is not drawn."""
    assert ArtemisRedeliveryPolicy(redelivery_delay=1).delay(1, lambda: 1 / 0) == 1


@pytest.mark.parametrize("redelivery", [64, 2000, 10**6])
def test_growing_of_artemis_ends_at_the_cap(redelivery: int) -> None:
    """Neither the power nor the product overflows, and 0 stays 0."""
    assert ArtemisRedeliveryPolicy(redelivery_delay=0.1, multiplier=2).delay(redelivery) == 1
    assert ArtemisRedeliveryPolicy(multiplier=2).delay(redelivery) == 0


@pytest.mark.parametrize("attempts", [1, 2, 10])
def test_artemis_counts_deliveries(attempts: int) -> None:
    """N attempts in all: the N-th failure is the last."""
    artemis = ArtemisRedeliveryPolicy(max_delivery_attempts=attempts)
    assert [artemis.exhausted(n) for n in range(1, attempts + 1)] == [False] * (attempts - 1) + [
        True
    ]
    assert artemis.maximum_redeliveries == attempts - 1
    assert (artemis.pre_dispatch_check, artemis.non_blocking) == (True, True)


def test_artemis_without_a_limit() -> None:
    """-1 never gives up."""
    artemis = ArtemisRedeliveryPolicy(max_delivery_attempts=UNLIMITED)
    assert not artemis.exhausted(10**9)
    assert artemis.maximum_redeliveries == UNLIMITED


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"max_delivery_attempts": 0}, "max_delivery_attempts must be -1 .* not 0"),
        ({"max_delivery_attempts": -2}, "max_delivery_attempts must be -1 .* not -2"),
        ({"redelivery_delay": -1}, "redelivery_delay must be 0 or more"),
        ({"redelivery_delay": math.inf}, "redelivery_delay must be a number that is finite"),
        ({"max_redelivery_delay": -1}, "max_redelivery_delay must be 0 or more"),
        ({"multiplier": 0}, "multiplier must be more than 0"),
        ({"multiplier": math.nan}, "multiplier must be a number that is finite"),
        ({"collision_avoidance_factor": 1.1}, r"collision_avoidance_factor must be in 0\.\.1"),
    ],
)
def test_nonsense_is_refused_as_well(fields: dict[str, Any], complaint: str) -> None:
    """The error names the field and the value."""
    with pytest.raises(ConfigurationError, match=complaint):
        ArtemisRedeliveryPolicy(**fields)
