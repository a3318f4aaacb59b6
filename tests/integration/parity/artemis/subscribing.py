"""Subscriptions: durable or not, local or not, and their selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Side

MULTICAST = {"destination-type": "MULTICAST"}
TOPIC = {"subscription-type": "MULTICAST"}
DURABLE = {**TOPIC, "durable-subscription-name": "n"}

#: For one message with n=5, f=2.5, s=it's, t=true, a-b=1, priority 7, type T, correlation id c, group g.
SELECTORS = [
    "n = 5", "n = '5'", "n > 4", "n <> 5", "t = TRUE", "s = 'it''s'", "s LIKE 'it%'", "s IN ('a', 'it''s')",
    "missing IS NULL", "missing = 1", "AMQPriority > 6", "JMSPriority > 6", "JMSType = 'T'", "JMSCorrelationID = 'c'",
    "AMQDurable = 'DURABLE'", "JMSXGroupID = 'g'", "_AMQ_GROUP_ID = 'g'", "n + 1 = 6", "n - 1 = 4", "n + 1 = '51'",
    "a-b = '1'", "hyphenated_props:a-b = '1'", "destination LIKE '%'", "AMQExpiration = 0", "TRUE",
    *(f"convert_string_expressions:{text}" for text in ("n = 5", "n > 4", "f > 2.0", "f > 2", "t = TRUE", "n <> 5")),
    "hyphenated_props:convert_string_expressions:a-b = 1",
    "convert_string_expressions:no_convert_string_expressions:n = 5",
    "1", "n >", "x y", "hyphenated_props:", "convert_string_expressions:n = = 1",
]  # fmt: skip


def selectors(side: Side) -> None:
    """Each in a subscription of its own to the same message."""
    client = side.open()
    properties = {"n": "5", "f": "2.5", "s": "it's", "t": "true", "a-b": "1"}
    standard = {"priority": "7", "type": "T", "correlation-id": "c", "JMSXGroupID": "g"}
    client.put("~", "a", **properties, **standard)
    readers = [side.open() for _ in SELECTORS]
    for reader, selector in zip(readers, SELECTORS, strict=True):
        reader.subscribe("~", selector=selector)
        reader.tell("UNSUBSCRIBE", id="s")


def selector_passes_by(side: Side) -> None:
    """What is wanted is given out, though older messages stay."""
    client = side.open()
    client.put("~", *(f"no{number}" for number in range(5)))
    client.subscribe("~", selector="k = '1'")
    client.put("~", "yes", k="1")
    client.see()
    client.subscribe("~", "all")


def repeated_id(side: Side) -> None:
    """An ERROR; without an id the destination is the id."""
    client = side.open()
    client.subscribe("~")
    client.subscribe("~")
    client = side.open()
    for _ in range(2):
        client.ask("SUBSCRIBE", destination="~", ack="client", **{"subscription-type": "ANYCAST"})
    client.see()


def no_local(side: Side) -> None:
    """Nothing that the own connection sent, unless it was in a transaction."""
    one, two = side.open(), side.open()
    for client in (one, two):
        client.subscribe("~", **TOPIC, **{"no-local": "true"})
    one.subscribe("~", "too", **TOPIC, **{"activemq.noLocal": "true"}, selector="k = '1'")
    for client in (one, two):
        client.put("~", "a", k="1", **MULTICAST)
        client.ask("BEGIN", transaction="t")
        client.put("~", "b", transaction="t", **MULTICAST)
        client.ask("COMMIT", transaction="t")
    for client in (one, two):
        client.see()


def durable(side: Side) -> None:
    """A durable subscription from birth to death."""
    sender = side.open()
    client = side.open(client__id="~")
    client.subscribe("~", **DURABLE)
    sender.put("~", "a", "b", "c", **MULTICAST)
    client.see()
    client.ack("a")
    client.ask("UNSUBSCRIBE", id="s")
    sender.put("~", "d", **MULTICAST)
    client.subscribe("~", "t", selector="x = '1'", **DURABLE)
    client.ask("DISCONNECT")
    side.wait(0.3)
    client = side.open(client__id="~")
    client.subscribe("~", "u", **DURABLE)
    client.ask("UNSUBSCRIBE", id="u", **{"durable-subscription-name": "n"})
    client.subscribe("~", "v", **DURABLE)
    sender.put("~", "e", **MULTICAST)
    client.see()


def durable_by_other_names(side: Side) -> None:
    """All three headers mean the same in SUBSCRIBE; in UNSUBSCRIBE too."""
    for name in (
        "durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName",
    ):  # fmt: skip
        client = side.open(client__id="~")
        client.subscribe("~", **TOPIC, **{name: "n"})
        client.put("~", name, **MULTICAST)
        client.see()
        client.ask("UNSUBSCRIBE", id="s")
        client.subscribe("~", "t", **DURABLE)
        client.ask("UNSUBSCRIBE", id="t", **{name: "n"})
        client.subscribe("~", "u", **DURABLE)


def durable_by_name_only(side: Side) -> None:
    """A RECEIPT, whether there is one or not; an ERROR while somebody is there, though its own consumer ends."""
    client = side.open(client__id="~")
    client.ask("UNSUBSCRIBE", **{"durable-subscription-name": "n"})
    client.subscribe("~", **DURABLE)
    client.ask("UNSUBSCRIBE", id="s")
    client.put("~", "a", **MULTICAST)
    client.ask("UNSUBSCRIBE", **{"durable-subscription-name": "n"})
    client.subscribe("~", **DURABLE)
    other = side.open(client__id="~")
    other.subscribe("~", **DURABLE)
    client.ask("UNSUBSCRIBE", id="s", **{"durable-subscription-name": "n"})
    client.see()
    other.put("~", "b", **MULTICAST)
    other.see()


def durable_without_client_id(side: Side) -> None:
    """An ERROR that does not say why; on a queue the name means nothing."""
    side.open().subscribe("~", **DURABLE)
    client = side.open(client__id="~")
    client.put("~queue", "a")
    client.subscribe("~queue", **{"durable-subscription-name": "n"})
    client.ask("UNSUBSCRIBE", id="s", **{"durable-subscription-name": "n"})


SUBSCRIBING: list[Callable[[Side], None]] = [
    selectors,
    selector_passes_by,
    repeated_id,
    no_local,
    durable,
    durable_by_other_names,
    durable_by_name_only,
    durable_without_client_id,
]
