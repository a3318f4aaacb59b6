"""Processes whose threads are no threads."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import App
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [(threading, "get_ident", "gevent.thread"), (socket, "socket", "eventlet.greenio.base")],
)
def test_threads_that_were_replaced(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, package: str
) -> None:
    """Are refused, with a way out: an AttributeError from inside told nobody anything, or a send was in doubt."""
    monkeypatch.setattr(module, name, type(name, (), {"__module__": package}))
    words = f"{package.partition('.')[0]} has replaced Python's own threads .* gthread"
    with pytest.raises(ConfigurationError, match=words):
        App("stomp://nowhere").send("queue://orders", "x", timeout=1)
