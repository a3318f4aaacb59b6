"""The middleware for Django, with a stand-in for the one function of it that it calls."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, Message, RedeliveryPolicy
from jmsx.app.middleware import close_old_connections
from jmsx.testing import harness

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called, in order."""
    seen: list[str] = []

    def sync_to_async(function: Callable[[], object]) -> Any:
        return lambda: asyncio.to_thread(function)

    django, asgiref = ModuleType("django.db"), ModuleType("asgiref.sync")
    django.close_old_connections = lambda: seen.append("close")  # type: ignore[attr-defined]  # the module is a stand-in, and takes any name
    asgiref.sync_to_async = sync_to_async  # type: ignore[attr-defined]  # the module is a stand-in, and takes any name
    monkeypatch.setitem(sys.modules, "django.db", django)
    monkeypatch.setitem(sys.modules, "asgiref.sync", asgiref)
    return seen


@pytest.mark.parametrize("asynchronous", [False, True])
def test_before_and_after(closed: list[str], asynchronous: bool) -> None:
    """Each call, also one that fails."""
    app = App(
        middleware=[close_old_connections],
        redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0),
    )

    def ship(order: Message) -> None:
        closed.append(order.text)
        if order.text == "bad":
            raise ValueError

    async def aship(order: Message) -> None:
        ship(order)

    app.consumer("queue://orders")(aship if asynchronous else ship)
    with harness(app) as mq:
        mq.send("queue://orders", "bad")
        mq.send("queue://orders", "good")
    assert closed == ["close", "bad", "close", "close", "good", "close"]
