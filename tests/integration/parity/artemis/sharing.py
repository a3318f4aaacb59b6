"""Consumers that share a queue, and groups of messages that they must not share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Side


def in_turns(side: Side) -> None:
    """One by one, from the first again when somebody went, who must hold nothing: who gets that is chance."""
    client = side.open()
    for name in ("one", "two", "three"):
        client.subscribe("~", name, ack="client-individual")
    for body in "abcd":
        client.put("~", body)
        client.see()
    client.ack("b")
    client.ask("UNSUBSCRIBE", id="two")
    for body in "efg":
        client.put("~", body)
        client.see()


def what_one_gives_back_the_other_gets(side: Side) -> None:
    """At once, unflagged after UNSUBSCRIBE."""
    one, two = side.open(), side.open()
    one.put("~", "a", "b")
    one.subscribe("~")
    two.subscribe("~")
    one.ask("UNSUBSCRIBE", id="s")
    two.see()


def shared_durable(side: Side) -> None:
    """Two connections with one client id share one durable subscription."""
    name = {"subscription-type": "MULTICAST", "durable-subscription-name": "n"}
    one, two = side.open(client__id="~"), side.open(client__id="~")
    one.subscribe("~", **name)
    two.subscribe("~", **name)
    for body in "abc":
        one.put("~", body, **{"destination-type": "MULTICAST"})
        one.see()
        two.see()


def groups(side: Side) -> None:
    """Each sticks to one consumer, until that is gone; a new group takes a turn, an old one does not."""
    client = side.open()
    for name in ("one", "two"):
        client.subscribe("~", name, ack="client-individual")
    for number, group in enumerate("xyxxyz"):
        client.put("~", f"{group}{number}", JMSXGroupID=group)
        client.see()
    client.put("~", "free")
    client.see()
    client.ask("UNSUBSCRIBE", id="one")
    client.see()
    client.subscribe("~", "three")
    client.put("~", "x again", JMSXGroupID="x")
    client.see()


def group_ends(side: Side) -> None:
    """Not by the sequence that JMS has for it; the header that could do it is the broker's own."""
    client = side.open()
    for name in ("one", "two"):
        client.subscribe("~", name, ack="client-individual")
    for number, headers in enumerate(({}, {"JMSXGroupSeq": "-1"}, {}, {})):
        client.put("~", f"x{number}", JMSXGroupID="x", **headers)
        client.see()


def busy_group_stops_the_queue(side: Side) -> None:
    """A message whose consumer is busy holds up all behind it."""
    client = side.open()
    client.subscribe("~", "one", **{"consumer-window-size": "0"})
    client.put("~", "x1", JMSXGroupID="x")
    client.see()
    client.subscribe("~", "two", ack="client-individual")
    client.put("~", "x2", JMSXGroupID="x")
    client.put("~", "free")
    client.see()
    client.ack("x1")
    client.see()


SHARING: list[Callable[[Side], None]] = [
    in_turns,
    what_one_gives_back_the_other_gets,
    shared_durable,
    groups,
    group_ends,
    busy_group_stops_the_queue,
]
