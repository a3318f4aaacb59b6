"""Where the broker's jars are kept, and what is asked for."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from jmsx_broker.artefacts import (
    COORDINATES,
    cache_folder,
    cache_root,
    classic_libraries,
    is_cached,
    is_complete,
    ivy_module,
    maven_project,
)


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({"HOME": "/h"}, "linux", "/h/.cache/jmsx"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Caches/jmsx"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "linux", "/x/jmsx"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "", "JMSX_CACHE": ""}, "linux", "/h/.cache/jmsx"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "JMSX_CACHE": "/j"}, "linux", "/j"),
    ],
    ids=["linux", "macos", "xdg", "empty is unset", "own"],
)
def test_cache_root(environment: dict[str, str], platform: str, expected: str) -> None:
    """The user's own wish comes first, then the platform's custom."""
    assert Path(expected) == cache_root(environment, platform)


def test_folder_is_complete_with_all_and_incomplete_without_one(tmp_path: Path) -> None:
    """One missing jar is enough to fetch again."""
    fill(tmp_path)
    assert is_complete(tmp_path)
    next(tmp_path.iterdir()).unlink()
    assert not is_complete(tmp_path)


def test_complete_cache_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a whole folder in the cache no tool is looked for: there is none on this PATH."""
    monkeypatch.setenv("JMSX_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert not is_cached()
    folder = cache_folder({"JMSX_CACHE": str(tmp_path)})
    fill(folder)
    assert is_cached()
    assert folder == classic_libraries(Path("no-java"))


def test_maven_is_asked_for_every_coordinate() -> None:
    """The generated pom.xml is well-formed and names each dependency once, in order."""
    names = "{http://maven.apache.org/POM/4.0.0}"
    project = ET.fromstring(maven_project())  # noqa: S314 - our own text
    assert list(COORDINATES) == [
        tuple(entry.findtext(names + name) for name in ("groupId", "artifactId", "version"))
        for entry in project.iter(f"{names}dependency")
    ]


def test_ivy_is_asked_for_every_coordinate() -> None:
    """The generated ivy.xml is well-formed and names each dependency once, in order."""
    module = ET.fromstring(ivy_module())  # noqa: S314 - our own text
    assert list(COORDINATES) == [
        tuple(entry.get(name) for name in ("org", "name", "rev"))
        for entry in module.iter("dependency")
    ]


def fill(folder: Path) -> None:
    """Put an empty file for each coordinate into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for _, name, version in COORDINATES:
        (folder / f"{name}-{version}.jar").touch()
