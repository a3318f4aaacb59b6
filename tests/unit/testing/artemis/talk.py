"""A STOMP client that talks to Artemis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.testing.talk import Talk

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

ANYCAST = {"destination-type": "ANYCAST"}
MULTICAST = {"destination-type": "MULTICAST"}
TOPIC = {"subscription-type": "MULTICAST"}
DURABLE = {**TOPIC, "durable-subscription-name": "n"}
ONE_BY_ONE = {"consumer-window-size": "0"}
UNLIMITED = {"consumer-window-size": "-1"}
INDIVIDUAL = {"ack": "client-individual"}
TX = {"transaction": "t"}


class ArtemisTalk(Talk):
    """One connected client; queues, unless a header says otherwise."""

    def put(self, queue: str, *bodies: str, **headers: str) -> None:
        """Send persistent messages."""
        super().put(queue, *bodies, **{**ANYCAST, **headers})

    def subscribe(self, queue: str, id_: str = "s", **headers: str) -> list[str]:
        """Subscribe, `ack:client` unless told otherwise, and see what comes."""
        given = {"destination": queue, "id": id_, "ack": "client", "subscription-type": "ANYCAST"}
        assert self.ask("SUBSCRIBE", {**given, **headers}) == "RECEIPT"
        return self.bodies()

    def bodies(self) -> list[str]:
        """The bodies of the MESSAGEs that came since the last look, with `R` where redelivered."""
        self.collect()
        taken, self._seen = self.messages[self._seen :], len(self.messages)
        return [m.body.decode() + " R" * (m.headers["redelivered"] == "true") for m in taken]

    def message_id(self, body: str) -> str:
        """The message id of the last MESSAGE with `body`."""
        return [m.headers["message-id"] for m in self.messages if m.body.decode() == body][-1]


def left(broker: FakeBroker, queue: str) -> list[str]:
    """What a new subscriber to `queue` gets, which gives it back uncounted."""
    client = ArtemisTalk(broker)
    found = client.subscribe(queue, **UNLIMITED)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.ask("DISCONNECT")
    return found
