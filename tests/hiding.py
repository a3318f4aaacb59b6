"""An exception of somebody who makes it hard."""

from __future__ import annotations

from typing import Any


class HidingError(Exception):
    """Nothing that every exception has can be had of this one."""

    __module__ = "hidden"

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]  # what every exception has is hidden
        raise ValueError("no traceback")

    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # what every exception has is hidden
        raise SystemExit("no cause")

    @property
    def __context__(self) -> Any:  # type: ignore[override]  # what every exception has is hidden
        raise KeyboardInterrupt("no context")

    @property  # type: ignore[misc]  # what every exception has is hidden
    def __class__(self) -> Any:
        raise OSError("no class")

    def __len__(self) -> int:
        raise ValueError("no length")


class _Nameless(type):
    """A class that does not say what it is called."""

    @property
    def __name__(cls) -> Any:  # type: ignore[override]  # what every class has is hidden
        raise ValueError("no name")


class NamelessError(Exception, metaclass=_Nameless):
    """Not even the name of its class can be had, nor its words."""

    def __str__(self) -> str:
        raise ValueError("no words")
