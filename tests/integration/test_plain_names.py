"""What the names are that plain STOMP clients write, who may go on beside jmsx while a program moves in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import stomp

from jmsx import Connection
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker


class Plain(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py ships no types
    """A program that uses stomp.py."""

    def __init__(self, broker: Broker) -> None:
        self.got: list[str] = []
        self.receipts: list[str] = []
        host, port = broker.url.removeprefix("stomp://").split(":")
        self.connection = stomp.Connection12([(host, int(port))])
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)

    def on_message(self, frame: Any) -> None:
        """Keep it."""
        self.got.append(frame.body)

    def on_receipt(self, frame: Any) -> None:
        """Keep it."""
        self.receipts.append(frame.headers["receipt-id"])

    def subscribe(self, name: str) -> None:
        """Until the broker has said that it is."""
        self.connection.subscribe(name, id=name, ack="auto", headers={"receipt": name})
        assert eventually(lambda: name in self.receipts)

    def send(self, name: str, *bodies: str) -> None:
        """Without saying of which kind the destination is."""
        for body in bodies:
            self.connection.send(name, body)


def test_a_queue_s_name_of_a_plain_client_on_artemis(artemis_broker: Broker) -> None:
    """An address of that name: who reads it before jmsx does gets all beside it, and who comes later shares."""
    plain = Plain(artemis_broker)
    with Connection(artemis_broker.url) as connection:
        connection.start()
        session = connection.create_session()

        def received(name: str) -> Iterator[str]:
            while (message := consumers[name].receive(1.0)) is not None:
                yield message.text

        plain.send("/queue/unread", "gone")
        plain.subscribe("/queue/before")
        consumers = {
            name: session.create_consumer(f"queue://{name}")
            for name in ("/queue/unread", "/queue/before", "before", "/queue/after")
        }
        plain.subscribe("/queue/after")
        plain.send("/queue/before", "a")
        plain.send("/queue/after", "b", "c")
        told = {name: list(received(name)) for name in consumers}
        assert told.pop("/queue/unread") == []
        assert told.pop("before") == []
        assert told.pop("/queue/before") == ["a"]
        assert "a" in plain.got
        assert sorted(plain.got + told.pop("/queue/after")) == ["a", "b", "c"]
    plain.connection.disconnect()
