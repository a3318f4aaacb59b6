"""When a worker that serves no health is excused for it."""

from __future__ import annotations

from jmsx.cli.supervisor import FIRST_PAUSE, LONGEST_PAUSE, STARTING, STEADY, Place


def died(place: Place, began: float, at: float) -> float:
    """Let its process have begun and died then, and start it again when that is due; returns when."""
    place.began = began
    place.forget()
    due = at + place.start_again(at)
    assert place.due == due
    return due


def test_one_that_has_not_begun() -> None:
    """It is to begin; one that ended well is not to."""
    place = Place(0)
    assert place.is_being_started(1000.0)
    place.due = None
    assert not place.is_being_started(1000.0)


def test_one_that_died_is_started_again() -> None:
    """Until it serves health, and for a minute at the most."""
    place = Place(0)
    assert died(place, 0.0, 500.0) == 500.0 + FIRST_PAUSE
    assert place.is_being_started(500.0 + STARTING - 1)
    assert not place.is_being_started(500.0 + STARTING + 1)
    place.url = "http://127.0.0.1:1"
    assert not place.is_being_started(501.0)  # it answers for itself


def test_one_that_dies_at_each_start() -> None:
    """A minute after its first death nothing excuses it, however often it began."""
    place, now, pauses = Place(0), 10.0, []
    while now < 10.0 + 5 * STARTING:
        due = died(place, now - 0.1, now)
        pauses.append(due - now)
        assert place.is_being_started(due) == (due - 10.0 < STARTING), due
        now = due + 0.1
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert max(pauses) == LONGEST_PAUSE


def test_one_that_ran_steadily_is_new() -> None:
    """What it died of before is long ago."""
    place = Place(0)
    due = died(place, 0.0, 1.0)
    again = died(place, due, due + STEADY)
    assert again - due - STEADY == FIRST_PAUSE
    assert place.is_being_started(again + STARTING / 2)
