"""Imports on demand: of adapters, found by entry point, and of the public names of packages."""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.metadata import EntryPoints

#: The extra that installs a module which several adapters need; otherwise the extra has the adapter's name.
_OF_MODULE: Final = {"typer": "cli", "rich": "cli"}


def load(group: str, name: str) -> Any:
    """
    Return the object that is registered as `name` in the entry point group `group`.

    Raises ConfigurationError naming what is missing, with the command that installs it.
    """
    for entry in _registered(group).select(name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            package = entry.value.partition(":")[0].partition(".")[0]
            raise ConfigurationError(_advice(name, error, package)) from error
    known = ", ".join(names(group)) or "none"
    raise ConfigurationError(f"no {group.removeprefix('jmsx.')} named {name!r}; known: {known}")


@contextlib.contextmanager
def needing(package: str) -> Iterator[None]:
    """Wrap the imports of an adapter `package`: the error for a missing module has the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jmsx"):
            raise
        raise ModuleNotFoundError(_advice(package, error, package), name=error.name) from error


@contextlib.contextmanager
def command_needing(package: str) -> Iterator[None]:
    """Do as `needing` for the imports of an adapter's command, but raise ConfigurationError, whose text is printed."""
    try:
        with needing(package):
            yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jmsx"):
            raise
        raise ConfigurationError(str(error)) from error


def _advice(name: str, error: ModuleNotFoundError, package: str) -> str:
    if str(error).startswith(f"{package} needs"):
        return str(error)
    missing = (error.name or "").partition(".")[0]
    extra = _OF_MODULE.get(missing) or package.removeprefix("jmsx_")
    return f"{name} needs the package {missing}; install it with: pip install 'jmsx[{extra}]'"


def names(group: str) -> list[str]:
    """Return the registered names of the entry point group `group`, sorted."""
    return sorted(_registered(group).names)


@cache  # every new link asks
def _registered(group: str) -> EntryPoints:
    found: EntryPoints = _installed().select(group=group)
    return found


@cache  # read from the disk, which takes as long for one group as for all
def _installed() -> Any:  # Python 3.11 returns another class than later ones
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms, and `import jmsx` asks for no adapter

    return entry_points()


def on_demand(
    package: str,
    homes: Mapping[str, str],
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Return `__getattr__` and `__dir__` for `package`, which import its public names when they are first used.

    `homes` has the module of each name; the module is imported within `around()`. Hide both functions from type
    checkers (`if not TYPE_CHECKING`), which would else take a name that does not exist for Any.
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
