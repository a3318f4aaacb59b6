"""What is found by entry point."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

from jmsx import plugins

if TYPE_CHECKING:
    import pytest


def test_the_disk_is_read_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reads all groups for each one that it is asked for."""
    read, reads = importlib.metadata.entry_points, []

    def noted(**wanted: Any) -> Any:
        reads.append(wanted)
        return read(**wanted)

    monkeypatch.setattr(importlib.metadata, "entry_points", noted)
    plugins._installed.cache_clear()
    plugins._registered.cache_clear()
    assert plugins.names("jmsx.dialects") == ["artemis", "classic"]
    assert plugins.names("jmsx.counts") == ["artemis", "classic"]
    assert plugins.names("jmsx.nothing") == []
    assert len(reads) == 1
