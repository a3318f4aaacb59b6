"""How long to wait before an unreachable store is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds before the store is tried again: the first pause, and the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0


def pauses() -> Iterator[float]:
    """Yield, without end, the seconds before each next try: each pause is twice the one before, up to the longest."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)
