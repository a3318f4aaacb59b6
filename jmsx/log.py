"""
The log lines a person reads: structlog's, written through the standard library's logging under the name `jmsx`.

A library must not choose where its users' logs go: whoever configures `logging` has them, as `event key=value`.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import structlog


def logger(name: str) -> Any:
    """A structlog logger over `logging.getLogger(name)`."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class Seldom:
    """A line that could come in floods: one in `seconds` is written, and says how many were left out before it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -math.inf
        self._left_out = 0

    def due(self, now: float) -> int | None:
        """How many lines were left out since the last one; None if this one is to be left out (`now`: monotonic)."""
        if now < self._next:
            self._left_out += 1
            return None
        self._next = now + self._seconds
        left_out, self._left_out = self._left_out, 0
        return left_out
