"""The marker of tests that start a real Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker here, as only this folder needs it."""
    config.addinivalue_line("markers", "prometheus: starts a real Prometheus")
