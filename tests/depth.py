"""
How deep a run looks where there is always more to try: drawn programs, seeds, the steps at which a signal may come,
the bytes at which a stream may be cut.

A run over `tests/unit` or `tests/property` answers somebody who has just changed a line, and tries a part. Every other
run tries all there is: CI's, and one of named files or tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

#: Set for a run that tries a part, before any test is imported; worker processes inherit it.
_VARIABLE = "JMSX_TESTS_TRY_A_PART"


def try_all() -> None:
    """Have this run, and the worker processes that it starts, try all, whoever started it."""
    os.environ.pop(_VARIABLE, None)


def try_a_part() -> None:
    """Have this run, and the worker processes that it starts, try a part."""
    os.environ[_VARIABLE] = "1"


def some(whole: Sequence[T]) -> Sequence[T]:
    """What to try of `whole`: some of each part of it, or all."""
    return whole[::4] if _VARIABLE in os.environ else whole


def rounds(whole: int) -> int:
    """How many rounds or examples to try, where a whole run tries `whole`."""
    return len(some(range(whole)))
