"""What the tests of idempotency stores take as arguments."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from jmsx.stores import sqlite_file
from tests.unit.stores.parts import Clock, Handler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def clock() -> Clock:
    """Goes when told to."""
    return Clock()


@pytest.fixture
def handler() -> Handler:
    """Does nothing, and counts it."""
    return Handler()


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    """The user's database."""
    return lambda: sqlite3.connect(tmp_path / "shop.db")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that are open wait for whoever holds their file a fifth as long as else, for tests of what comes then."""
    monkeypatch.setattr(sqlite_file, "PATIENCE", 0.1)
