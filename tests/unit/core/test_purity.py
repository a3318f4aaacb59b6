"""Who may know whom: the architecture, as a test."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = ROOT / "jmsx"

#: What the core may import from outside: nothing that acts.
PURE: Final = {
    "__future__", "collections", "collections.abc", "dataclasses", "difflib", "enum", "functools", "hashlib", "heapq",
    "math", "re", "typing", "urllib.parse",
}  # fmt: skip

#: What each layer may import of jmsx, and nothing else of it.
LAYERS: Final = {
    "core": {"core", "errors"},
    "drivers": {
        "core", "drivers", "errors", "clock", "foreign", "log", "observe", "options", "plugins", "process", "uri",
    },
    "jms": {
        "core", "drivers", "jms", "errors", "clock", "ledger", "memory", "log", "observe", "options", "plugins", "uri",
        "steering", "handlers", "process", "alone", "custom_policy",
    },
    "testing": {"core", "testing", "errors"},
}  # fmt: skip

FILES: Final = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside, also for the type checker."""
    return imported(path.read_text("utf-8"))


def imported(source: str) -> Iterator[str]:
    """Every module that `source` imports; its own package begins with a dot."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            if module == "jmsx":
                yield from (f"jmsx.{alias.name}" for alias in node.names)


def named(path: Path) -> str:
    """How a test about a file is called."""
    return str(path.relative_to(ROOT))


def layer(path: Path) -> str:
    """The first folder below jmsx, or the module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", [one for one in FILES if layer(one) == "core"], ids=named)
def test_core_imports_nothing_that_acts(path: Path) -> None:
    """No clock, socket, thread, random or log, so anyone can drive it."""
    outside = {module for module in imports(path) if not module.startswith("jmsx.")}
    assert outside <= PURE


@pytest.mark.parametrize("path", [one for one in FILES if layer(one) in LAYERS], ids=named)
def test_layers_look_down_only(path: Path) -> None:
    """The core knows itself, drivers no JMS face, the JMS face neither app nor command."""
    own = {module.split(".")[1] for module in imports(path) if module.startswith("jmsx.")}
    assert own <= LAYERS[layer(path)]


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_adapter_and_one_stomp(path: Path) -> None:
    """Adapters register by entry point; stomp.py is the drivers' affair; imports are absolute."""
    modules = set(imports(path))
    assert not [module for module in modules if module.startswith(("jmsx_", "adapters", "."))]
    if layer(path) != "drivers":
        assert not [module for module in modules if module.split(".")[0] == "stomp"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("import os.path as p, socket", ["os.path", "socket"]),
        ("from jmsx import clock", ["jmsx", "jmsx.clock"]),
        ("from jmsx.core import events", ["jmsx.core"]),
        ("from . import a", ["."]),
        ("from ..b import a", ["..b"]),
        ("def f():\n    import random", ["random"]),
        ("if TYPE_CHECKING:\n    from jmsx.jms.session import Session", ["jmsx.jms.session"]),
    ],
)
def test_each_form_of_import_is_seen(source: str, found: list[str]) -> None:
    """So the tests above mean something."""
    assert list(imported(source)) == found


def test_layers_are_there() -> None:
    """The tests above would pass on an empty list."""
    assert {layer(path) for path in FILES} >= {"core", "drivers", "jms", "app", "cli", "testing"}
