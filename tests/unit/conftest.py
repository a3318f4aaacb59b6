"""What tests of several folders look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx.drivers.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sessions did under their locks, each time by the name of the engine's operation."""
    done: list[str] = []
    real = Engine.work

    def work(self: Engine, operation: Callable[..., Any]) -> Any:
        done.append(operation.__qualname__)
        return real(self, operation)

    monkeypatch.setattr(Engine, "work", work)
    return done
