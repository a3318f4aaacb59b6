"""Times that an app is given, and whether anybody can wait so long."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app import App
from jmsx.errors import ConfigurationError
from jmsx.testing import FakeBrokerServer, harness

if TYPE_CHECKING:
    from jmsx.core.events import Event, Source


@pytest.mark.parametrize(
    "limit", [math.nan, -math.inf, -1, -(10**400), True, None, "soon", "-5s", [], 1j]
)
def test_a_time_to_drain_that_makes_no_sense(limit: Any) -> None:
    """It is refused before anything is stopped: with NaN a drain would never end."""
    app = App("stomp://localhost:1")
    app.consumer("queue://q")(lambda _message: None)
    with harness(app):
        for call in (app.stop, app.run, lambda limit: asyncio.run(app.serve(limit))):
            with pytest.raises(ConfigurationError, match="drain_timeout"):
                call(limit)
        assert app.ready().ok


@pytest.mark.parametrize("limit", [5, math.inf, 1e300, 10**400, timedelta.max, "9999999999d"])
def test_any_time_to_drain(limit: Any) -> None:
    """It is no longer than it takes."""
    app = App()
    app.consumer("queue://q")(lambda _message: None)
    with harness(app) as mq:
        mq.send("queue://q", "x")
        app.stop(limit)


@pytest.mark.parametrize("setting", ["watch", "broker_stats"])
def test_a_time_that_no_thread_can_wait(setting: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever looks now and then looks never, and does not die of it."""
    died: list[object] = []
    with FakeBrokerServer("classic") as server:
        every: dict[str, Any] = {setting: 1e18}
        keepers = [Keeper()] if setting == "broker_stats" else []
        app = App(server.url, observers=keepers, **every)
        app.consumer("queue://q")(lambda _message: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading, "excepthook", died.append)
            with app:
                time.sleep(0.1)
    assert died == []
    assert "OverflowError" not in caplog.text


class Keeper:
    """An observer that wants the broker's counts."""

    keeps_counts = True

    def observe(self, event: Event, source: Source) -> None:
        """Take no note."""

    def close(self) -> None:
        """Nothing is open."""
