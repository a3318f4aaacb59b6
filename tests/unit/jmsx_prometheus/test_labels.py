"""Label guards: a bounded number of values, and a count of what was replaced."""

from __future__ import annotations

import pytest

from jmsx_prometheus.labels import DestinationGuard, LabelGuard, WordGuard
from jmsx_prometheus.series import Tally


def test_first_values_keep_their_names() -> None:
    """The limit is the number of names; known ones need no room, later ones are counted together."""
    overflow = Tally()
    guard = LabelGuard(2, overflow, known=["k"])
    admitted = [guard.admit(value) for value in ("a", "b", "c", "a", "k", "d")]
    assert admitted == ["a", "b", "__other__", "a", "k", "__other__"]
    assert overflow.value == 2


@pytest.mark.parametrize(
    "destination",
    [
        "temp-queue://ID:host-1",
        "remote-temp-queue://ID:host-1",
        "remote-temp-topic://ID:host-1",
        "temp-topic://x",
        "/temp-queue/x",
        "/temp-topic/x",
        "/remote-temp-queue/x",
        "/remote-temp-topic/x",
    ],
)
def test_temporary_destinations_are_one(destination: str) -> None:
    """Their names are random: they take no room and are no overflow."""
    overflow = Tally()
    guard = DestinationGuard(0, overflow)
    assert guard.admit(destination) == "__temp__"
    assert overflow.value == 0


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("max_redeliveries", "max_redeliveries"),
        ("no such order ID:4711", "__other__"),
        ("Traceback", "__other__"),
        ("x" * 41, "__other__"),
    ],
)
def test_only_words_are_labels(reason: str, expected: str) -> None:
    """The text of an exception never becomes a label, however early it comes."""
    overflow = Tally()
    assert WordGuard(5, overflow).admit(reason) == expected
    assert overflow.value == (expected == "__other__")
