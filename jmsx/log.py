"""
The log lines a person reads: structlog's, written through the standard library's logging under the name `jmsx`.

A library must not choose where its users' logs go: whoever configures `logging` has them, as `event key=value`.
"""

from __future__ import annotations

import logging
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
