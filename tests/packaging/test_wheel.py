"""The wheel, built and installed in an environment that has never seen this checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

#: The folders of the import packages, relative to the root.
FOLDERS: Final[list[str]] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

PACKAGES: Final = [Path(folder).name for folder in FOLDERS]

#: Run in the clean environment: where each package comes from, and what each entry point is.
LOOK_AROUND: Final = """
import importlib, importlib.metadata, importlib.util, json, sys
print(json.dumps({
    "files": {name: importlib.import_module(name).__file__ for name in sys.argv[1:]},
    "adapters": importlib.util.find_spec("adapters") is not None,
    "entries": {f"{entry.group} {entry.name}": repr(entry.load())
                for entry in importlib.metadata.distribution("jmsx").entry_points},
    "version": importlib.metadata.version("jmsx"),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the work tree with the hatchling that is installed, so without network."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """
    What LOOK_AROUND sees after the wheel was installed.

    The dependencies are lent from the environment of this test by a line in a .pth file. Lines of .pth files over there
    are not followed, so the editable jmsx of the checkout is out of sight.
    """
    home = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", str(home))
    python = home / "bin" / "python"
    uv = os.environ.get("UV", "uv")
    run(uv, "pip", "install", "--offline", "--no-deps", "--python", str(python), str(wheel))
    (site,) = home.glob("lib/python*/site-packages")
    (site / "zz_dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    told = json.loads(run(str(python), "-I", "-c", LOOK_AROUND, *PACKAGES, folder=home))
    told["site"] = str(site)
    return dict(told)


def test_every_package_comes_from_the_wheel(installed: dict[str, Any]) -> None:
    """Each import package can be imported, and from the installed wheel, not from the checkout."""
    expected = {name: f"{installed['site']}/{name}/__init__.py" for name in PACKAGES}
    assert expected == installed["files"]


def test_no_package_is_called_adapters(installed: dict[str, Any]) -> None:
    """`adapters` is a folder of the repository; as an import name it belongs to somebody else."""
    assert not installed["adapters"]


def test_entry_points_resolve(installed: dict[str, Any]) -> None:
    """Whatever pyproject.toml registers is there to be loaded."""
    groups = {
        "console_scripts": PROJECT["project"]["scripts"],
        **PROJECT["project"]["entry-points"],
    }
    expected = {f"{group} {name}" for group, entries in groups.items() for name in entries}
    assert expected == installed["entries"].keys()
    assert PROJECT["project"]["version"] == installed["version"]


def test_wheel_has_every_module_and_type_marker(wheel: Path) -> None:
    """No source file is forgotten, and type checkers are told that there are types."""
    shipped = set(zipfile.ZipFile(wheel).namelist())
    for folder in FOLDERS:
        sources = {*(ROOT / folder).rglob("*.py"), ROOT / folder / "py.typed"}
        names = {path.relative_to((ROOT / folder).parent).as_posix() for path in sources}
        assert names <= shipped


def test_wheel_has_nothing_but_packages_and_metadata(wheel: Path) -> None:
    """Tests and caches stay at home."""
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    version = PROJECT["project"]["version"]
    assert {*PACKAGES, f"jmsx-{version}.dist-info"} == tops


def test_every_adapter_is_packaged() -> None:
    """A new adapter that pyproject.toml does not know would be missing from the wheel."""
    found = {path.parent.name for path in (ROOT / "adapters").glob("jmsx_*/__init__.py")}
    assert {"jmsx", *found} == set(PACKAGES)


def run(*command: str, folder: Path = ROOT) -> str:
    """Run a command to its end; an AssertionError with all that it said if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
