"""What the threads of a connection are called, and processes whose threads are no threads."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import App, Connection
from jmsx.errors import ConfigurationError
from jmsx.jms.session import link_of
from jmsx.testing.server import FakeBrokerServer

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


def test_the_thread_of_a_session_has_its_id() -> None:
    """A stack dump tells whose it is: that of each was called after the link that no session has."""
    with FakeBrokerServer() as server, Connection(server.url) as connection:
        ids = {link_of(connection.create_session()).session_id for _ in range(2)}
        names = {one.name for one in threading.enumerate()}
    assert {f"jmsx-engine-{one}" for one in ids} <= names
