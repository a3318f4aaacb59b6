"""The public names of each package."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.test_wheel import PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist_and_are_sorted(package: str) -> None:
    """What `__all__` promises can be imported, and stands where one looks for it."""
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", []))
    assert [name for name in names if not hasattr(module, name)] == []
    assert sorted(names, key=order) == names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_promised(package: str) -> None:
    """A name that users can see without an underscore is in `__all__`: nothing is public by accident."""
    module = importlib.import_module(package)
    visible = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    foreign = {"TYPE_CHECKING", "Any", "Final", "annotations", "import_module"}
    assert visible - foreign <= set(getattr(module, "__all__", []))


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, as ruff sorts `__all__` (RUF022)."""
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


def test_the_old_name_of_the_stores() -> None:
    """Programs that were written with it go on, and get the same classes."""
    old, new = importlib.import_module("jmsx.dedupe"), importlib.import_module("jmsx.stores")
    assert {name: getattr(old, name) for name in old.__all__} == {
        name: getattr(new, name) for name in new.__all__
    }


def test_public_names_have_one_home() -> None:
    """What type checkers are told of `jmsx`, what can be imported, and what is promised are the same."""
    module = importlib.import_module("jmsx")
    source = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    told = {
        alias.name: imported.module
        for block in source.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for imported in block.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert told == module._HOMES
    assert sorted(told) == sorted(module.__all__)
