"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jmsx import App, ConfigurationError, Connection
from jmsx.core.durations import bounded, seconds, timeout_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2, 2.0),
        (0.5, 0.5),
        (timedelta(minutes=2), 120.0),
        ("90s", 90.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5 h", 5400.0),
        ("2min", 120.0),
        ("1d 2h", 93600.0),
        (0, 0.0),
    ],
)
def test_what_is_meant(given: object, expected: float) -> None:
    """Seconds, always."""
    assert seconds("delay", given) == pytest.approx(expected)


@pytest.mark.parametrize(
    "given",
    ["", "soon", "1", "1x", "1h soon", "-1s", "1s-", -1, float("nan"), None, True, [1], -(10**309)],
)
def test_what_means_nothing(given: object) -> None:
    """Is refused by its name; a text without unit too, for Java's would be milliseconds."""
    with pytest.raises(ConfigurationError, match="delay"):
        seconds("delay", given)


@pytest.mark.parametrize("given", [10**309, 2**63, float("inf"), "9" * 400 + "s"])
def test_what_no_broker_can_be_told(given: object) -> None:
    """However long it is, it is refused by its name."""
    with pytest.raises(ConfigurationError, match="delay"):
        bounded("delay", given)


@pytest.mark.parametrize(
    ("given", "expected"), [(None, None), (-1, -1.0), (float("inf"), float("inf")), ("2s", 2.0)]
)
def test_how_long_a_caller_waits(given: object, expected: float | None) -> None:
    """Less than 0 is not at all."""
    assert timeout_of("timeout", given) == expected


@pytest.mark.parametrize("given", [float("nan"), 10**400, -(10**400), True, b"1s"])
def test_no_time_to_wait(given: object) -> None:
    """No comparison with it is true, or no clock can add it; the error shows no endless digits."""
    with pytest.raises(ConfigurationError, match="timeout must be seconds, or None for ever"):
        timeout_of("timeout", given)


def test_who_waits_says_how_long() -> None:
    """At every door where a caller waits."""
    app = App("stomp://localhost:1")
    with pytest.raises(ConfigurationError, match="timeout must be seconds"):
        app.wait(float("nan"))
    with (
        Connection("stomp://localhost:1") as connection,
        pytest.raises(ConfigurationError, match="timeout must be seconds"),
    ):
        connection.stop(float("nan"))
