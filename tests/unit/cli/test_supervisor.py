"""When a worker that serves no health is excused for it, and which files `--reload` looks at."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jmsx.cli.supervisor import FIRST_PAUSE, LONGEST_PAUSE, STARTING, STEADY, Place, Supervisor

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def watched(folder: Path) -> set[str]:
    """The names of the files whose change would be seen."""
    supervisor = Supervisor(
        ["true"],
        variables={},
        count=1,
        health=None,
        drain_timeout=1.0,
        reload=folder,
        announce=print,
    )
    return {os.path.relpath(name, folder) for name in supervisor._files()}


def test_the_files_that_are_watched(tmp_path: Path) -> None:
    """The program's: not what is hidden, and no virtual environment, whatever that is called."""
    for name in (
        *("shop.py", "shop/orders.py", "shop/deep/er.py", "shop/notes.txt"),
        *(".git/hook.py", "shop/.#orders.py", ".venv/a.py"),
        *("env/pyvenv.cfg", "env/lib/b.py"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert watched(tmp_path) == {"shop.py", "shop/orders.py", "shop/deep/er.py"}


def test_a_folder_that_is_gone_when_it_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a branch is checked out: that ends nothing."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "shop.py").touch()
    scandir = os.scandir

    def scan(folder: Any) -> Any:
        if os.fspath(folder).endswith("gone"):
            raise FileNotFoundError(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    assert watched(tmp_path) == {"shop.py"}
