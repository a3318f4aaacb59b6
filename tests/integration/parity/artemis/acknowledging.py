"""ACK and NACK: what they settle, what they name, and what is an ERROR."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side


def _rest(side: Side) -> None:
    """What is left, as a new client sees it."""
    side.wait(0.3)
    side.open().subscribe("~")


def _holding(side: Side, mode: str = "client") -> Client:
    client = side.open()
    client.put("~", "a", "b", "c", "d")
    client.subscribe("~", ack=mode)
    return client


def cumulative(side: Side) -> None:
    """All before it go too; an older one then is an ERROR."""
    client = _holding(side)
    client.ack("b")
    client.ack("a")
    client.see()
    _rest(side)


def individual(side: Side) -> None:
    """One by one, in any order, each once."""
    client = _holding(side, "client-individual")
    for body in ("c", "a", "a"):
        client.ack(body)
    client.see()
    _rest(side)


def unknown_mode(side: Side) -> None:
    """Is `client`."""
    client = _holding(side, "individual")
    client.ack("c")
    client.ask("UNSUBSCRIBE", id="s")
    _rest(side)


def auto(side: Side) -> None:
    """Settled by itself, even if the client dies at once; there is nothing to acknowledge."""
    client = _holding(side, "auto")
    client.ask("ACK", id=client.message_ids["a"])
    client.see()
    _rest(side)


def nack(side: Side) -> None:
    """Settles too, cumulatively where ACK does; nothing becomes a dead letter."""
    client = _holding(side)
    client.ack("b", "NACK")
    client.ask("UNSUBSCRIBE", id="s")
    client.subscribe("~", "t", ack="client-individual")
    client.ack("d", "NACK")
    client.ask("DISCONNECT")
    _rest(side)


def ack_after_unsubscribe(side: Side) -> None:
    """An ERROR; the message is not settled."""
    client = _holding(side)
    client.ask("UNSUBSCRIBE", id="s")
    client.ack("a")
    client.see()
    _rest(side)


def ack_of_another_connection(side: Side) -> None:
    """An ERROR."""
    client, other = _holding(side), side.open()
    other.ask("ACK", id=client.ack_ids["a"])
    client.ack("a")
    client.ask("UNSUBSCRIBE", id="s")
    _rest(side)


def bad_acks(side: Side) -> None:
    """Each ends its connection."""
    for command in ("ACK", "NACK"):
        for headers in ({}, {"id": "x"}, {"id": "a,b"}, {"id": "1"}, {"message-id": "1,1"}):
            client = side.open()
            client.ask(command, **headers)
            client.see()


def new_ids_for_every_subscription(side: Side) -> None:
    """The part after the comma stays, the part before does not."""
    client = _holding(side)
    client.ask("UNSUBSCRIBE", id="s")
    client.subscribe("~", "t")
    client.ack("a")
    other = side.open()
    client.ask("UNSUBSCRIBE", id="t")
    other.subscribe("~")
    other.ack("b")


def two_subscriptions_to_a_topic(side: Side) -> None:
    """Each acknowledges its own copy."""
    client = side.open()
    for name in ("s", "t"):
        client.subscribe("~", name, **{"subscription-type": "MULTICAST"})
    client.put("~", "a", **{"destination-type": "MULTICAST"})
    client.see()
    client.ack("a")
    client.ack("a")


ACKNOWLEDGING: list[Callable[[Side], None]] = [
    cumulative,
    individual,
    unknown_mode,
    auto,
    nack,
    ack_after_unsubscribe,
    ack_of_another_connection,
    bad_acks,
    new_ids_for_every_subscription,
    two_subscriptions_to_a_topic,
]
