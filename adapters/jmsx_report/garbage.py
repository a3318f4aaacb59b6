"""Python's search for cycles of garbage, put off while a report makes objects by the hundred thousand."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def uncollected() -> Iterator[None]:
    """
    Let Python look for no garbage meanwhile, as a context manager or a decorator.

    It goes through all objects again whenever there are a quarter more of them. A log of 100,000 segments makes a
    million, none of them garbage that is in a cycle, and the search takes a seventh of its report. Not for what waits
    for others, which may take hours: nothing is searched for in any thread of the process.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
