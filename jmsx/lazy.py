"""Packages whose public names are imported when they are first asked for."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def on_demand(
    package: str,
    homes: Mapping[str, str],
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    `__getattr__` and `__dir__` of a `package`: `homes` are the modules of its public names, imported within `around()`.

    Hide them from type checkers (`if not TYPE_CHECKING`), which would take a name that is not there for Any.
    """
    known = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with around():
            value = known[name] = getattr(import_module(homes[name]), name)
        return value

    def names() -> list[str]:
        return sorted({*known, *homes})

    return get, names
