"""The Java client is compiled on the spot, which takes a JDK; a newcomer may have a JRE only."""

from __future__ import annotations

import os

import pytest

from jmsx.errors import ConfigurationError
from jmsx_broker.java import find_java


def _has_compiler() -> bool:
    try:
        return (find_java().resolve().parent / "javac").exists()
    except ConfigurationError:
        return False


#: Skips a test where there is no `javac`; in CI it runs, and fails.
NEEDS_JDK = pytest.mark.skipif(
    "CI" not in os.environ and not _has_compiler(),
    reason="the Java client needs javac (a JDK), and there is a JRE only",
)
