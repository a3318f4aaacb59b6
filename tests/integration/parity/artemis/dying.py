"""Dead letters, and dead sockets as far as chance leaves anything to compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Side


def _attempts(side: Side, queue: str, times: int) -> None:
    for _ in range(times):
        client = side.open()
        client.subscribe(queue)
        client.ask("DISCONNECT")
        side.wait(0.3)


def dead_letter(side: Side) -> None:
    """After three attempts the oldest is dead: a copy under a new id, which tells where it was."""
    client = side.open()
    headers = {
        "probe": "~", "correlation__id": "c", "type": "T", "reply__to": "r", "priority": "7", "JMSXGroupID": "g",
        "expires": side.now_ms(600), "_AMQ_DUPL_ID": "1",
    }  # fmt: skip
    client.put("~", "a", **headers)
    client.ask("SEND", b"b", destination="~", probe="~")
    _attempts(side, "~", 3)
    client.subscribe("~")
    client.subscribe("DLQ", "dlq", selector="probe = '~'")
    client.ack("a")


def unsubscribe_is_no_attempt(side: Side) -> None:
    """It can go on for ever."""
    client = side.open()
    client.put("~", "a")
    for name in "stuvw":
        client.subscribe("~", name)
        client.ask("UNSUBSCRIBE", id=name)
    client.subscribe("~")


def dead_letters_duplicate_id(side: Side) -> None:
    """The dead letter address has seen it then, and the queue has not forgotten it."""
    client = side.open()
    client.put("~", "a", probe="~", _AMQ_DUPL_ID="~")
    _attempts(side, "~", 3)
    client.put("~", "b", _AMQ_DUPL_ID="~")
    client.put("DLQ", "c", probe="~", _AMQ_DUPL_ID="~")
    client.put("DLQ", "d", probe="~", _AMQ_DUPL_ID="~too")
    client.subscribe("~")
    client.subscribe("DLQ", "dlq", selector="probe = '~'")
    client.ack("d")


def dead_letter_of_a_dead_letter(side: Side) -> None:
    """It dies like any other, and goes to where it was: with the story of its last death."""
    client = side.open()
    client.put("~", "a", probe="~")
    _attempts(side, "~", 3)
    reader = side.open()
    selector = {"selector": "probe = '~'"}
    for _ in range(3):
        reader = side.open()
        reader.ask("SUBSCRIBE", id="s", destination="DLQ", ack="client", **selector)
        reader.see(0.3)
        reader.ask("DISCONNECT")
        side.wait(0.1)
    client.subscribe("DLQ", "dlq", **selector)
    client.ack("a")


def dead_letter_of_a_topic(side: Side) -> None:
    """A durable subscription's queue has its name there."""
    name = {"subscription-type": "MULTICAST", "durable-subscription-name": "n"}
    for _ in range(4):
        client = side.open(client__id="~")
        client.subscribe("~", **name)
        if not client.ack_ids:
            client.put("~", "a", probe="~", **{"destination-type": "MULTICAST"})
            client.see()
        client.ask("DISCONNECT")
        side.wait(0.3)
    client = side.open()
    client.subscribe("DLQ", "dlq", selector="probe = '~'")
    client.ack("a")


def socket_dies(side: Side) -> None:
    """The one message in flight was an attempt, and comes first again."""
    client = side.open()
    client.put("~", "a", "b")
    client.subscribe("~", **{"consumer-window-size": "0"})
    client.cut()
    client = side.open()
    client.subscribe("~")
    client.ack("b")


DYING: list[Callable[[Side], None]] = [
    dead_letter,
    unsubscribe_is_no_attempt,
    dead_letters_duplicate_id,
    dead_letter_of_a_dead_letter,
    dead_letter_of_a_topic,
    socket_dies,
]
