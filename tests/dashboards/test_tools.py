"""Tests that need Prometheus: skipped where it is missing, failed where CI runs."""

from __future__ import annotations

import pytest

from tests.dashboards.tools import require


def test_missing_tool_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a developer's machine the reason says what to install."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install prometheus"):
        require("promtool-that-nobody-has")


def test_missing_tool_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CI runs nothing is skipped in silence."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="is not installed"):
        require("promtool-that-nobody-has")
