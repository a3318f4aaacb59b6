"""Where a message goes: addresses, routing types, queues on addresses, duplicates, delays, the end of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side

MULTICAST = {"destination-type": "MULTICAST"}
TOPIC = {"subscription-type": "MULTICAST"}


def send_to_nobody(side: Side) -> None:
    """A RECEIPT, and without a routing type the message is gone."""
    client = side.open()
    client.ask("SEND", b"lost", destination="~")
    client.put("~", "kept")
    client.ask("SEND", b"kept too", destination="~")
    client.put("~", "lost", **MULTICAST)
    client.subscribe("~")


def topic(side: Side) -> None:
    """A copy for all who are there; ANYCAST to a topic goes to a queue of its name."""
    one, two = side.open(), side.open()
    one.subscribe("~", **TOPIC)
    two.subscribe("~", selector="n = '1'", **TOPIC)
    one.put("~", "a", n="1", **MULTICAST)
    one.put("~", "b", n="2", **MULTICAST)
    one.put("~", "c", n="1")
    for client in (one, two):
        client.see()
    two.subscribe("~", "queue")
    two.subscribe("~", "trap", **TOPIC)


def topic_by_default(side: Side) -> None:
    """A SUBSCRIBE without a type makes one."""
    client = side.open()
    client.ask("SUBSCRIBE", destination="~", ack="client")
    client.ask("SEND", b"a", destination="~")
    client.see()


def topic_and_queue(side: Side) -> None:
    """What says no type goes to both."""
    client = side.open()
    client.subscribe("~", "t", **TOPIC)
    client.subscribe("~", "q")
    client.put("~", "a", **MULTICAST)
    client.put("~", "b")
    client.ask("SEND", b"c", destination="~")
    client.see()


def qualified_names(side: Side) -> None:
    """A queue on an address of another name."""
    client = side.open()
    client.put("~a::~q", "a")
    client.subscribe("~a::~q")
    client.put("~a", "b")
    client.put("~q", "c")
    client.see()
    client.subscribe("~m::~n", "m", **TOPIC)
    client.put("~m", "d", **MULTICAST)
    client.put("~m", "e")
    client.put("~m::~n", "f", **MULTICAST)
    client.see()


def duplicates(side: Side) -> None:
    """One per id and address; the others are dropped with a RECEIPT."""
    client = side.open()
    client.put("~", "a", "b", _AMQ_DUPL_ID="1")
    client.put("~", "c", _AMQ_DUPL_ID="2")
    client.put("~other", "d", _AMQ_DUPL_ID="1")
    client.subscribe("~")
    client.subscribe("~other", "o")


def delayed(side: Side) -> None:
    """What is due comes before all that waits, behind a first one that holds the only place of its consumer."""
    client = side.open()
    client.subscribe("~", **{"consumer-window-size": "0"})
    client.put("~", "now", AMQ_SCHEDULED_DELAY="-5")
    client.see()
    client.put("~", "late", AMQ_SCHEDULED_DELAY="200")
    client.put("~", "later", AMQ_SCHEDULED_TIME=side.now_ms(0.4))
    client.put("~", "next", AMQ_SCHEDULED_DELAY="-5")
    client.put("~", "fake", _AMQ_SCHED_DELIVERY=side.now_ms(600))
    side.wait(1.5)
    client.see()
    for body in ("now", "later", "late"):
        client.ack(body)
        client.see()


def priorities(side: Side) -> None:
    """The highest first, always."""
    client = side.open()
    for priority in ("1", "9", "4", "0", "9"):
        client.put("~", f"p{priority}", priority=priority)
    client.subscribe("~")
    client.ask("UNSUBSCRIBE", id="s")
    client.put("~", "more", priority="8")
    client.subscribe("~")


def expired(side: Side) -> None:
    """Moved when its turn comes, with a new id and its story."""
    client = side.open()
    client.put("~", "a", expires=side.now_ms(0.2), probe="~", _AMQ_DUPL_ID="1")
    client.put("~", "b", expires=side.now_ms(600))
    side.wait(0.4)
    client.subscribe("~")
    client.subscribe("ExpiryQueue", "e", selector="probe = '~'")
    client.ack("a")


def destroying(side: Side) -> None:
    """The management address: the end of a queue, which nobody may read."""
    client = side.open()
    client.subscribe("~answers", "answers", ack="auto")
    client.subscribe("~")
    destroy = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "destroyQueue"}
    queue = f'["{side.real_name("~")}"]'.encode()
    _ask(client, queue, **destroy)
    client.ask("UNSUBSCRIBE", id="s")
    _ask(client, queue, **destroy)
    _ask(client, queue, **destroy)


def _ask(client: Client, arguments: bytes, **headers: str) -> None:
    client.ask(
        "SEND", arguments, destination="activemq.management", reply__to="~answers", **headers
    )
    client.see()


ADDRESSING: list[Callable[[Side], None]] = [
    send_to_nobody,
    topic,
    topic_by_default,
    topic_and_queue,
    qualified_names,
    duplicates,
    delayed,
    priorities,
    expired,
    destroying,
]
