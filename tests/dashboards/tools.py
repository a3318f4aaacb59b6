"""Debian's Prometheus and its promtool, as tests use them."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def require(tool: str) -> str:
    """Find `tool` on the path; without it skip, but fail where CI runs."""
    found = shutil.which(tool)
    if found is not None:
        return found
    reason = f"{tool} is not installed (Debian: apt-get install prometheus)"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)


def promtool(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """
    Run promtool with `given` on its standard input; its exit code is the test's business.

    Its Go collects garbage when there is eight times as much as lives, not as much: a fifth of its processor time less.
    """
    return subprocess.run(
        [require("promtool"), *map(str, arguments)],
        input=given,
        env={**os.environ, "GOGC": "800"},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,  # the rules' tests take it ten seconds of a processor, which it shares
    )
