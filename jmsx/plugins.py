"""Find adapters by entry point, so that the library imports none of them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from jmsx.errors import ConfigurationError


def load(group: str, name: str) -> Any:
    """
    The object that is registered as `name` in the entry point group `group`.

    Raises ConfigurationError naming what is missing, with the command that installs it.
    """
    for entry in _registered(group).select(name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{name} needs the package {error.name}; install it with: pip install 'jmsx[all]'"
            ) from error
    known = ", ".join(names(group)) or "none"
    raise ConfigurationError(f"no {group.removeprefix('jmsx.')} named {name!r}; known: {known}")


def names(group: str) -> list[str]:
    """The registered names of the entry point group `group`, sorted."""
    return sorted(_registered(group).names)


@cache  # every new link asks, and what is installed is read from the disk
def _registered(group: str) -> EntryPoints:
    return entry_points(group=group)
