"""Find adapters by entry point, so that the library imports none of them."""

from __future__ import annotations

import contextlib
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The extra of a module that more than one adapter may want; of others it is called as their adapter is.
_OF_MODULE: Final = {"typer": "cli", "rich": "cli"}


def load(group: str, name: str) -> Any:
    """
    The object that is registered as `name` in the entry point group `group`.

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
    """Around the imports of an adapter `package`: what is missing is told with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jmsx"):
            raise
        raise ModuleNotFoundError(_advice(package, error, package), name=error.name) from error


def _advice(name: str, error: ModuleNotFoundError, package: str) -> str:
    if str(error).startswith(f"{package} needs"):
        return str(error)
    missing = (error.name or "").partition(".")[0]
    extra = _OF_MODULE.get(missing) or package.removeprefix("jmsx_")
    return f"{name} needs the package {missing}; install it with: pip install 'jmsx[{extra}]'"


def names(group: str) -> list[str]:
    """The registered names of the entry point group `group`, sorted."""
    return sorted(_registered(group).names)


@cache  # every new link asks, and what is installed is read from the disk
def _registered(group: str) -> EntryPoints:
    return entry_points(group=group)
