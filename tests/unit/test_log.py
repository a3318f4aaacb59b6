"""The log lines a person reads."""

from __future__ import annotations

from jmsx.log import Seldom


def test_a_flood_of_lines() -> None:
    """One in ten seconds, with the number of those in between; after a pause the next one at once."""
    seldom = Seldom(10.0)
    assert [seldom.due(now) for now in (0.0, 0.0, 1.0, 9.9, 10.0, 11.0, 50.0, 60.0)] == [
        0, None, None, None, 3, None, 1, 0,
    ]  # fmt: skip
