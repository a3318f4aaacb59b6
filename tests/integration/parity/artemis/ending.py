"""What comes back when a subscription or a connection ends, and with which flags; for dead sockets see `dying`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side

INDIVIDUAL = {"ack": "client-individual"}


def _holding(side: Side, queue: str, *bodies: str, **headers: str) -> Client:
    client = side.open()
    client.put(queue, *bodies)
    client.subscribe(queue, **headers)
    return client


def _look(side: Side, queue: str) -> None:
    side.wait(0.3)
    client = side.open()
    client.subscribe(queue)
    client.ask("UNSUBSCRIBE", id="s")


def unsubscribe(side: Side) -> None:
    """Nothing was an attempt, however often."""
    client = _holding(side, "~", "a", "b", "c")
    for name in ("t", "u"):
        client.ask("UNSUBSCRIBE", id=chr(ord(name) - 1))
        client.subscribe("~", name)
    client.ack("a")
    client.ask("UNSUBSCRIBE", id="u")
    _look(side, "~")


def disconnect(side: Side) -> None:
    """The oldest was an attempt."""
    client = _holding(side, "~", "a", "b", "c")
    client.ask("DISCONNECT")
    client.see()
    _look(side, "~")
    client = side.open()
    client.subscribe("~")
    client.tell("DISCONNECT")
    client.see()
    _look(side, "~")


def disconnect_after_some_acks(side: Side) -> None:
    """The oldest of what is left."""
    client = _holding(side, "~", "a", "b", "c", "d", **INDIVIDUAL)
    client.ack("a")
    client.ack("c")
    client.ask("DISCONNECT")
    _look(side, "~")


def disconnect_with_two_subscriptions(side: Side) -> None:
    """The oldest of each."""
    client = _holding(side, "~1", "a", "b")
    client.put("~2", "c", "d")
    client.subscribe("~2", "t")
    client.ask("DISCONNECT")
    _look(side, "~1")
    _look(side, "~2")


def unsubscribe_and_disconnect(side: Side) -> None:
    """The clean way: nothing was an attempt."""
    client = _holding(side, "~", "a", "b")
    client.ask("UNSUBSCRIBE", id="s")
    client.ask("DISCONNECT")
    _look(side, "~")


def error(side: Side) -> None:
    """As DISCONNECT in 1.2; in 1.1 nothing ends."""
    client = _holding(side, "~", "a", "b")
    client.ask("ACK", id="1,1")
    client.see()
    _look(side, "~")


def order(side: Side) -> None:
    """What comes back goes to its old place."""
    client = _holding(side, "~", "a", "b", "c", "d", "e", **INDIVIDUAL)
    client.ack("b")
    other = side.open()
    other.put("~", "f", "g")
    client.see()
    client.ask("UNSUBSCRIBE", id="s")
    other.put("~", "h")
    _look(side, "~")


def order_with_selector(side: Side) -> None:
    """Behind older messages that nobody wanted."""
    client = side.open()
    for body in "abcde":
        client.put("~", body, wanted=str(body in "bd").lower())
    client.subscribe("~", selector="wanted = 'true'")
    client.ask("UNSUBSCRIBE", id="s")
    _look(side, "~")


def order_with_priorities(side: Side) -> None:
    """Within its priority."""
    client = side.open()
    for body, priority in (("a4", "4"), ("b9", "9"), ("c4", "4"), ("d9", "9")):
        client.put("~", body, priority=priority)
    client.subscribe("~")
    client.ask("DISCONNECT")
    _look(side, "~")


def delayed_message_comes_back(side: Side) -> None:
    """It has no place of its own: before all others."""
    client = side.open()
    client.put("~", "late", AMQ_SCHEDULED_DELAY="200")
    client.put("~", "a", "b", "c")
    client.subscribe("~", **INDIVIDUAL)
    side.wait(0.4)
    client.see()
    client.ack("a")
    client.ask("UNSUBSCRIBE", id="s")
    _look(side, "~")


def topic_ends(side: Side) -> None:
    """Nothing is kept without a durable subscription."""
    for end in ("UNSUBSCRIBE", "DISCONNECT"):
        client = side.open()
        topic = {"subscription-type": "MULTICAST"}
        client.subscribe("~", **topic)
        client.put("~", "a", **{"destination-type": "MULTICAST"})
        client.see()
        client.ask(end, id="s")
        side.wait(0.3)
        client = side.open()
        client.subscribe("~", **topic)
        client.cut()
        side.renew()


ENDING: list[Callable[[Side], None]] = [
    unsubscribe,
    disconnect,
    disconnect_after_some_acks,
    disconnect_with_two_subscriptions,
    unsubscribe_and_disconnect,
    error,
    order,
    order_with_selector,
    order_with_priorities,
    delayed_message_comes_back,
    topic_ends,
]
