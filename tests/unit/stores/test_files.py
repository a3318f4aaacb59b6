"""What jmsx writes is for its owner alone; what others made keeps its mode."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from jmsx.stores import SqliteStore
from jmsx.stores.files import make_folder
from jmsx.stores.ledger import DeliveryLedger
from jmsx_eventlog import EventLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o277])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the umask."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[str, int]]:
    """The name and mode of each file below, and its companions."""
    return {
        (path.name, stat.S_IMODE(path.stat().st_mode))
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_ledger_and_store_and_what_lies_beside_them(tmp_path: Path) -> None:
    """SQLite gives its log and index the mode of the file."""
    store = SqliteStore(tmp_path / "s.db")
    store.open()
    ledger = DeliveryLedger(tmp_path / "l.db")
    found = modes(tmp_path)
    ledger.close()
    store.close()

    assert {mode for _, mode in found} == {0o600}
    assert {name for name, _ in found} >= {
        "l.db",
        "l.db-wal",
        "l.db-shm",
        "s.db",
        "s.db-wal",
        "s.db-shm",
    }


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Somebody shares it with a group on purpose."""
    path = tmp_path / "l.db"
    path.touch()
    path.chmod(0o660)
    DeliveryLedger(path).close()

    assert modes(tmp_path) == {("l.db", 0o660)}


def test_segments_and_their_folders(tmp_path: Path) -> None:
    """An event log has keys, and error texts if it is told to."""
    log = EventLog(tmp_path / "deep" / "events", service="test")
    log.close()
    folders = [path for path in (tmp_path / "deep").rglob("*") if path.is_dir()]

    assert {mode for _, mode in modes(tmp_path)} == {0o600}
    assert len(folders) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "deep", *folders]} == {0o700}


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """And one that is a file is an error."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    make_folder(shared)
    (tmp_path / "file").touch()

    assert stat.S_IMODE(shared.stat().st_mode) == 0o775
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")
