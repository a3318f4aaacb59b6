"""How much comes before it is acknowledged: bytes of whole frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side


def _full(side: Side, count: int, size: int) -> Client:
    """A client, and so many messages of so many bytes (plus their headers: less than 400) in the queue."""
    client = side.open()
    client.put("~", *(f"{number:02}{'.' * (size - 2)}" for number in range(count)))
    return client


def _body(number: int, size: int) -> str:
    return f"{number:02}{'.' * (size - 2)}"


def window_default(side: Side) -> None:
    """10,240 bytes: four of 3,000, since the last may go beyond it."""
    client = _full(side, 8, 3000)
    client.subscribe("~")
    client.ack(_body(0, 3000))
    client.see()
    client.ack(_body(2, 3000))
    client.see()


def window_default_individual(side: Side) -> None:
    """The same; each ACK gives back its own bytes only."""
    client = _full(side, 8, 3000)
    client.subscribe("~", ack="client-individual")
    client.ack(_body(1, 3000))
    client.see()


def windows(side: Side) -> None:
    """0 and 1 let one come, -1 all, other negatives none; it may be told in Classic's header."""
    for name, value in (
        ("consumer-window-size", "0"), ("consumer-window-size", "1"), ("consumer-window-size", "-1"),
        ("consumer-window-size", "-2"), ("consumer-window-size", "2500"), ("activemq.prefetchSize", "2500"),
    ):  # fmt: skip
        client = _full(side, 4, 1000)
        client.subscribe("~", **{name: value})
        client.cut()
        side.renew()


def window_before_classics(side: Side) -> None:
    """The own header wins."""
    client = _full(side, 3, 1000)
    client.subscribe("~", **{"consumer-window-size": "0", "activemq.prefetchSize": "-1"})


def window_of_one(side: Side) -> None:
    """The next one comes for each ACK or NACK."""
    client = _full(side, 4, 100)
    client.subscribe("~", **{"consumer-window-size": "0"})
    client.ack(_body(0, 100))
    client.see()
    client.ack(_body(1, 100), "NACK")
    client.see()


def window_counts_repeated_headers(side: Side) -> None:
    """A header that comes twice counts twice: 3 x 900 bytes fit, 3 x 1,800 do not."""
    client = side.open()
    client.put("~", "a", "b", "c", foo="." * 900)
    client.subscribe("~", **{"consumer-window-size": "2300"})
    client.put("~2", "d", "e", "f", timestamp="." * 900, redelivered="." * 900)
    client.subscribe("~2", "t", **{"consumer-window-size": "2300"})


def window_auto(side: Side) -> None:
    """Without limit; a limit that is asked for is never renewed, and the rest never comes."""
    client = _full(side, 5, 3000)
    client.subscribe("~", ack="auto")
    side.renew()
    client = _full(side, 5, 1000)
    client.subscribe("~", ack="auto", **{"consumer-window-size": "2000"})
    client.see()


def window_is_each_subscriptions_own(side: Side) -> None:
    """One that is full leaves the rest to the other."""
    client = _full(side, 4, 1000)
    client.subscribe("~", "one", **{"consumer-window-size": "0"})
    client.subscribe("~", "two", **{"consumer-window-size": "-1"})
    client.ack(_body(0, 1000))
    client.put("~", "x", "y")
    client.see()


WINDOWS: list[Callable[[Side], None]] = [
    window_default,
    window_default_individual,
    windows,
    window_before_classics,
    window_of_one,
    window_counts_repeated_headers,
    window_auto,
    window_is_each_subscriptions_own,
]
