"""Turns Python's cyclic garbage collection off while a report makes objects by the hundred thousand."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def uncollected() -> Iterator[None]:
    """
    Turn cyclic garbage collection off meanwhile; a context manager or a decorator.

    The collector goes through all objects whenever a quarter more exist. A log of 100,000 segments makes a million
    objects, none of them cyclic garbage, and the collector takes a seventh of the report's time. Do not use it around
    code that may wait for hours: it turns the collector off in all threads of the process.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
