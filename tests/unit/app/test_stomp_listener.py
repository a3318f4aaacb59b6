"""A listener of stomp.py's, as a handler."""

from __future__ import annotations

from typing import Any

import pytest
import stomp

from jmsx import App, ConfigurationError, RedeliveryPolicy
from jmsx.app.stomp_listener import handler_of
from jmsx.testing import harness


class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # it ships no types
    """As it was written for stomp.py."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, str]] = []

    def on_message(self, frame: Any) -> None:
        """Note it; one of them fails."""
        self.seen.append((frame.cmd, frame.body, frame.headers["region"]))
        if frame.body == "bad":
            raise ValueError(frame.body)


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_listener(kind: str) -> None:
    """Gets frames as it knows them, and has its messages acknowledged and delivered again."""
    policy = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=5.0)
    app, listener = App(redelivery_policy=policy), Listener()
    app.consumer("/queue/orders")(handler_of(listener))
    assert [one.name.rpartition(".")[2] for one in app.consumers] == ["Listener"]
    with harness(app, kind) as mq:
        mq.send("/queue/orders", "a", properties={"region": "EU"})
        mq.send("/queue/orders", b"\xff", properties={"region": "US"})
        mq.send("/queue/orders", "bad", properties={"region": "EU"})
        mq.advance("10s")
        assert len(mq.dead_letters()) == 1
    assert listener.seen == [
        ("MESSAGE", "a", "EU"),
        ("MESSAGE", b"\xff", "US"),
        ("MESSAGE", "bad", "EU"),
        ("MESSAGE", "bad", "EU"),
    ]


class Awaiting:
    """What stomp.py does not have."""

    async def on_message(self, frame: Any) -> None:
        """Never."""


class Old:
    """As listeners were before stomp.py 7."""

    def on_message(self, headers: Any, body: Any) -> None:
        """Never."""


@pytest.mark.parametrize(
    "listener", [Listener, print, Awaiting(), Old(), stomp.ConnectionListener()]
)
def test_what_is_no_listener(listener: Any) -> None:
    """At import."""
    with pytest.raises(ConfigurationError, match="on_message"):
        handler_of(listener)
