"""Drives inquiries: a broker that is a few dictionaries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from jmsx.core.management import Question

if TYPE_CHECKING:
    from jmsx.core.frames import Frame
    from jmsx.core.management import Inquiry
    from jmsx.errors import JmsxError

T = TypeVar("T")

QUEUE = {
    "durable": "true",
    "temporary": "false",
    "internalQueue": "false",
    "enabled": "true",
    "purgeOnNoConsumers": "false",
    "lastValue": "false",
    "ringSize": "-1",
    "autoDelete": "false",
    "filter": "",
    "routingType": "ANYCAST",
    "consumerCount": "0",
}


def queue(name: str, address: str | None = None, **told: str) -> dict[str, str]:
    """A queue as `listQueues` tells it; an ordinary anycast one unless told otherwise."""
    return {**QUEUE, "name": name, "address": address or name, **told}


@dataclass
class Broker:
    """What a broker would answer; `asked` is what it was asked."""

    queues: list[dict[str, str]] = field(default_factory=list)
    consumers: list[dict[str, str]] = field(default_factory=list)
    addresses: dict[str, list[str]] = field(default_factory=dict)  #: routing types by name
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  #: by address: of all of them
    refusals: dict[str, JmsxError] = field(default_factory=dict)  #: by operation or command
    asked: list[Question | Frame] = field(default_factory=list)

    def conduct(self, inquiry: Inquiry[T]) -> T:
        """What the inquiry comes to."""
        try:
            question = next(inquiry)
            while True:
                self.asked.append(question)
                name = question.operation if isinstance(question, Question) else question.command
                if name in self.refusals:
                    question = inquiry.throw(self.refusals[name])
                else:
                    question = inquiry.send(self._answer(question))
        except StopIteration as end:
            result: T = end.value
            return result

    @property
    def commands(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The operations that change something."""
        return [
            (one.operation, one.arguments)
            for one in self.asked
            if isinstance(one, Question) and not one.operation.startswith(("list", "get"))
        ]

    def _answer(self, question: Question | Frame) -> Any:
        if not isinstance(question, Question) or question.resource != "broker":
            return None
        if question.operation == "getAddressNames":
            return list(self.settings)
        if question.operation == "getQueueNames":
            return [one["name"] for one in self.queues]
        wanted = question.arguments[0]
        if question.operation == "getAddressSettingsAsJSON":
            return json.dumps(self.settings.get(wanted, {}))
        if not question.operation.startswith("list"):
            return None
        told = json.loads(wanted)
        key = told["field"].lower()
        found: list[dict[str, str]] = self.queues
        if question.operation == "listAddresses":
            found = [
                {"name": name, "routingTypes": json.dumps(types)}
                for name, types in self.addresses.items()
            ]
        if question.operation == "listConsumers":
            found = self.consumers
        data = [one for one in found if one[key] == told["value"]]
        return json.dumps({"data": data, "count": len(data)})
