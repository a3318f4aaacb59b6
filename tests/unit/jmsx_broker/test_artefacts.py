"""Where the broker's jars are kept, and what is asked for."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from jmsx.errors import ConfigurationError
from jmsx_broker.artefacts import (
    cache_folder,
    cache_root,
    is_cached,
    is_complete,
    ivy_module,
    libraries,
    maven_project,
)
from jmsx_broker.products import ARTEMIS, CLASSIC, Product

both = pytest.mark.parametrize("product", [CLASSIC, ARTEMIS], ids=lambda product: product.key)


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


@both
def test_folder_is_complete_with_all_and_incomplete_without_one(
    product: Product, tmp_path: Path
) -> None:
    """One missing jar is enough to fetch again."""
    fill(product, tmp_path)
    assert is_complete(product, tmp_path)
    next(tmp_path.iterdir()).unlink()
    assert not is_complete(product, tmp_path)


@both
def test_complete_cache_is_used_as_it_is(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a whole folder in the cache no tool is looked for: there is none on this PATH."""
    monkeypatch.setenv("JMSX_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert not is_cached(product)
    folder = cache_folder(product, {"JMSX_CACHE": str(tmp_path)})
    product = replace(product, hashes=fill(product, folder))
    assert is_cached(product)
    assert folder == libraries(product, Path("no-java"))


@both
def test_another_jar_than_the_expected_one_does_not_run(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was changed, or came from elsewhere, is named with both hashes; one too many is named."""
    monkeypatch.setenv("JMSX_CACHE", str(tmp_path))
    folder = cache_folder(product, {"JMSX_CACHE": str(tmp_path)})
    product = replace(product, hashes=fill(product, folder))
    changed = next(folder.iterdir())
    changed.write_bytes(b"other")
    right, wrong = (sha256(content).hexdigest() for content in (b"", b"other"))
    with pytest.raises(ConfigurationError, match=f"{changed} is not .* is {wrong}, .* be {right}"):
        libraries(product, Path("no-java"))
    changed.write_bytes(b"")
    (folder / "stowaway.jar").touch()
    with pytest.raises(ConfigurationError, match=r"stowaway\.jar is no part of"):
        libraries(product, Path("no-java"))


@both
def test_the_hashes_are_those_of_the_artefacts(product: Product) -> None:
    """Each coordinate is among them, and each is a SHA-256."""
    assert product.hashes.keys() >= {f"{name}-{v}.jar" for _, name, v in product.coordinates}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in product.hashes.values())


@both
def test_maven_is_asked_for_every_coordinate(product: Product) -> None:
    """The generated pom.xml is well-formed and names each dependency once, in order."""
    names = "{http://maven.apache.org/POM/4.0.0}"
    project = ET.fromstring(maven_project(product))  # noqa: S314 - the function under test made the text
    dependencies = list(project.iter(f"{names}dependency"))
    assert list(product.coordinates) == [
        tuple(entry.findtext(names + name) for name in ("groupId", "artifactId", "version"))
        for entry in dependencies
    ]
    excluded = {entry.findtext(f".//{names}exclusion/{names}groupId") for entry in dependencies}
    assert excluded == {product.excluded}


@both
def test_ivy_is_asked_for_every_coordinate(product: Product) -> None:
    """The generated ivy.xml is well-formed and names each dependency once, in order."""
    module = ET.fromstring(ivy_module(product))  # noqa: S314 - the function under test made the text
    assert list(product.coordinates) == [
        tuple(entry.get(name) for name in ("org", "name", "rev"))
        for entry in module.iter("dependency")
    ]
    excluded = [entry.get("org") for entry in module.iter("exclude")]
    assert excluded == ([product.excluded] if product.excluded else [])


def fill(product: Product, folder: Path) -> dict[str, str]:
    """Put an empty file for each artefact into `folder`; their hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    for _, name, version in product.coordinates:
        (folder / f"{name}-{version}.jar").touch()
    return {jar.name: sha256(b"").hexdigest() for jar in folder.iterdir()}
