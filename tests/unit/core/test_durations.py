"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jmsx import ConfigurationError
from jmsx.core.durations import bounded, seconds


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
