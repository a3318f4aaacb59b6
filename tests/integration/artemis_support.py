"""What the tests of Artemis share: its management, asked without jmsx, and what lies in its queues."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Self

from jmsx.core.frames import Frame
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from jmsx_broker import Broker


class Console:
    """The broker's management over a connection of its own; a context manager."""

    def __init__(self, broker: Broker) -> None:
        self._wire = Wire(broker.url, timeout=30)
        self._answers = f"test.answers.{uuid.uuid4().hex}"
        listen = {"destination": self._answers, "subscription-type": "MULTICAST", "ack": "auto"}
        self._wire.request(Frame("SUBSCRIBE", {"id": "answers", **listen}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def ask(self, resource: str, operation: str, *arguments: Any) -> Any:
        """The one value of the answer; an AssertionError if the broker refused."""
        headers = {
            "destination": "activemq.management",
            "reply-to": self._answers,
            "_AMQ_ResourceName": resource,
            "_AMQ_OperationName": operation,
        }
        self._wire.send(Frame("SEND", headers, json.dumps(arguments).encode()))
        answer = self._wire.receive("MESSAGE")
        value = json.loads(answer.body or b"null")
        assert answer.headers["_AMQ_OperationSucceeded"] == "true", value
        return value[0] if value else None

    def queues(self, field: str, value: str) -> list[dict[str, str]]:
        """The queues whose `field` (NAME, ADDRESS) contains `value`."""
        wanted = json.dumps({"field": field, "operation": "CONTAINS", "value": value})
        found: list[dict[str, str]] = json.loads(self.ask("broker", "listQueues", wanted, 1, 1000))[
            "data"
        ]
        return found

    def sizes(self) -> dict[str, int]:
        """How many messages lie in each queue of the broker that is not empty."""
        return {
            queue["name"]: int(queue["messageCount"])
            for queue in self.queues("NAME", "")
            if int(queue["messageCount"])
        }

    def holds(self, expected: dict[str, int]) -> bool:
        """Whether these queues, and no others, soon hold messages; a count may lag behind a RECEIPT."""
        return eventually(lambda: self.sizes() == expected, 5)

    def create_queue(self, name: str, address: str, **settings: Any) -> None:
        """A queue as an administrator would make it; `_` stands for `-` in the names of settings."""
        given = {key.replace("_", "-"): value for key, value in settings.items()}
        self.ask("broker", "createQueue", json.dumps({"name": name, "address": address, **given}))
