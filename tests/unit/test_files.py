"""Files that appear whole."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx.files import appearing

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, text: str) -> None:
    """Write a file as commands do."""
    with appearing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def put_half(path: Path) -> None:
    """Begin to write a file, and be interrupted."""
    with appearing(path) as unfinished:
        unfinished.write_text("ne", encoding="utf-8")
        raise KeyboardInterrupt


def test_a_file_appears_at_the_end_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    """Until then who reads has what was there."""
    page = tmp_path / "page.html"
    put(page, "old")
    with appearing(page) as unfinished:
        unfinished.write_text("new", encoding="utf-8")
        assert page.read_text("utf-8") == "old"
    assert page.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("earlier", [None, "old"])
def test_what_fails_leaves_what_was_there(tmp_path: Path, earlier: str | None) -> None:
    """And nothing beside it."""
    page = tmp_path / "page.html"
    if earlier is not None:
        put(page, earlier)
    with pytest.raises(KeyboardInterrupt):
        put_half(page)
    assert [path.read_text("utf-8") for path in tmp_path.iterdir()] == (
        [] if earlier is None else [earlier]
    )


def test_errors_tell_of_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """Nobody knows the name that it has before it is whole."""
    with pytest.raises(FileNotFoundError) as failed:
        put(tmp_path / "no" / "page.html", "new")
    assert failed.value.filename == str(tmp_path / "no" / "page.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        put(tmp_path / "folder", "new")
    assert refused.value.filename == str(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_stays_and_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """As /dev/null is, which root would take from the whole machine."""
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to("far/page.html")
    put(tmp_path / "near", "new")
    assert (tmp_path / "near").is_symlink()
    assert (tmp_path / "far" / "page.html").read_text("utf-8") == "new"
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=put, args=(tmp_path / "pipe", "new"))
    writer.start()
    assert (tmp_path / "pipe").read_text("utf-8") == "new"
    writer.join()
    assert (tmp_path / "pipe").is_fifo()
