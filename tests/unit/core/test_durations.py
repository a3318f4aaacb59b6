"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jmsx import ConfigurationError
from jmsx.core.durations import seconds


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
    "given", ["", "soon", "1", "1x", "1h soon", "-1s", "1s-", -1, float("nan"), None, True, [1]]
)
def test_what_means_nothing(given: object) -> None:
    """Is refused by its name; a text without unit too, for Java's would be milliseconds."""
    with pytest.raises(ConfigurationError, match="delay"):
        seconds("delay", given)
