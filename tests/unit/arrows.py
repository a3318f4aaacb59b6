"""A table of states as jmsx/DESIGN.md shows it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import IntEnum

S = TypeVar("S", bound="IntEnum")
G = TypeVar("G", bound="IntEnum")


def printed(arrows: Mapping[tuple[S, G], S]) -> str:
    """The arrows that lead on, one line for each state and where it leads."""
    some = sorted((state, to, given) for (state, given), to in arrows.items() if to is not state)
    lines = []
    for (state, to), given in groupby(some, key=lambda arrow: arrow[:2]):
        inputs = " | ".join(one.name.lower() for _, _, one in given)
        lines.append(f"{state.name:10} ── {inputs} ─▶ {to.name}")
    return "\n".join(lines)
