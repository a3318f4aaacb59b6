"""Files that appear whole."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jmsx.files import appearing


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


def test_no_other_file_is_touched(tmp_path: Path) -> None:
    """As `.env` beside `env`, a link that somebody planted, and what another writer of the same file has begun."""
    (tmp_path / ".env").write_text("secret", encoding="utf-8")
    (tmp_path / ".page").symlink_to(".env")
    put(tmp_path / "env", "new")
    put(tmp_path / "page", "new")
    with appearing(tmp_path / "env") as first, appearing(tmp_path / "env") as second:
        first.write_text("first", encoding="utf-8")
        second.write_text("second", encoding="utf-8")
    assert (tmp_path / ".env").read_text("utf-8") == "secret"
    assert (tmp_path / ".page").is_symlink()
    assert (tmp_path / "env").read_text("utf-8") == "first"
    assert {path.name for path in tmp_path.iterdir()} == {".env", ".page", "env", "page"}


def test_the_longest_name_and_its_ending(tmp_path: Path) -> None:
    """A name may have 255 bytes; pictures are drawn by the ending of theirs."""
    for name in (251 * "a" + ".png", "a." + 253 * "b"):
        put(tmp_path / name, "new")
        assert (tmp_path / name).read_text("utf-8") == "new"
    with appearing(tmp_path / "a.png") as unfinished:
        unfinished.touch()
        assert unfinished.suffix == ".png"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode_and_owner(tmp_path: Path, mode: int) -> None:
    """And nobody else sees what is not whole."""
    page = tmp_path / "page"
    page.touch()
    page.chmod(mode)
    if os.geteuid() == 0:
        os.chown(page, 12, 34)
    before = page.stat()
    with appearing(page) as unfinished:
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
        unfinished.touch()
    after = page.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


@pytest.mark.parametrize("which", ["umask 027", "umask 077", "umask 002"])
def test_a_new_file_has_the_mode_that_files_have(tmp_path: Path, which: str) -> None:
    """By the umask, which only a process of its own may change."""
    code = "import pathlib, jmsx.files\nwith jmsx.files.appearing(pathlib.Path('page')) as f: f.touch()"
    script = f'{which}; touch other; exec "$0" -c "$1"'
    subprocess.run(["/bin/sh", "-c", script, sys.executable, code], cwd=tmp_path, check=True)
    assert (tmp_path / "page").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_of_the_system_leads_to_the_file_itself(tmp_path: Path) -> None:
    """As /dev/stdout, whose file the shell has open."""
    page = tmp_path / "page"
    with page.open("w", encoding="utf-8") as opened:
        (tmp_path / "out").symlink_to(f"/dev/fd/{opened.fileno()}")
        put(tmp_path / "out", "new")
        assert os.fstat(opened.fileno()).st_ino == page.stat().st_ino
    assert page.read_text("utf-8") == "new"


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EXDEV, errno.EPERM])
def test_what_cannot_be_renamed_over_is_written_itself(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a single file that is mounted into a container."""
    page = tmp_path / "page"
    page.write_text("an older one", encoding="utf-8")
    before = page.stat()

    def refuse(source: object, target: object) -> None:
        raise OSError(code, os.strerror(code), str(source), None, str(target))

    monkeypatch.setattr(os, "rename", refuse)
    put(page, "new")
    assert page.read_text("utf-8") == "new"
    assert page.stat().st_ino == before.st_ino
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_in_a_folder_that_takes_no_file_it_is_written_itself(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before there was anything beside it."""
    page = tmp_path / "page"
    page.touch()

    def refuse(path: object, *_: object) -> int:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with appearing(page) as unfinished:
        assert unfinished == page


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """What write() raises names none, and a machine has many disks."""
    with pytest.raises(OSError, match="No space left") as full:
        put(Path("/dev/full"), "new")
    assert full.value.filename == "/dev/full"
    code = (
        "import pathlib, resource, jmsx.files\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "with jmsx.files.appearing(pathlib.Path('page')) as f: f.write_text('x' * 20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "OSError: [Errno 27] File too large: 'page'"
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_itself_stays(tmp_path: Path) -> None:
    """There is nothing to replace."""
    (tmp_path / "page").symlink_to("page")
    with pytest.raises(OSError, match="symbolic links"):
        put(tmp_path / "page", "new")
    assert (tmp_path / "page").is_symlink()
