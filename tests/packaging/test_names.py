"""The public names of each package."""

from __future__ import annotations

import importlib
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
