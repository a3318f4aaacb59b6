"""Which broker the fake is like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jmsx.testing import FakeBroker
from jmsx.testing.manners import ARTEMIS, CLASSIC, MANNERS, AddressSettings


def test_by_name_or_by_values() -> None:
    """Classic unless told otherwise."""
    assert FakeBroker().manners is CLASSIC
    assert {name: FakeBroker(name).manners for name in MANNERS} == dict(MANNERS)
    own = replace(ARTEMIS, window=1)
    assert FakeBroker(own).manners is own


def test_unknown_name() -> None:
    """The error says which there are."""
    with pytest.raises(ValueError, match="'rabbit'; there are classic, artemis"):
        FakeBroker("rabbit")


@pytest.mark.parametrize(
    ("address", "attempts"),
    [("x", 10), ("a", 1), ("a.b", 2), ("a.b.c", 2), ("a.b.c.d", 4), ("ab", 10), ("z", 5), ("z.y", 5)],
)  # fmt: skip
def test_settings_of_an_address(address: str, attempts: int) -> None:
    """The longest match."""
    numbers = {"a": 1, "a.b.#": 2, "a.b.c.d": 4, "z.#": 5}
    settings = {name: AddressSettings(max_delivery_attempts=n) for name, n in numbers.items()}
    assert replace(ARTEMIS, settings_of=settings).match(address).max_delivery_attempts == attempts
