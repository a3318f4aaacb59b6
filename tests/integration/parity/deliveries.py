"""Who gets which message, when, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Client, Side


def _leave_and_look(side: Side, leave: Callable[[Client], object]) -> None:
    client = side.open()
    client.put("/queue/~", "a", "b", "c")
    client.subscribe("/queue/~")
    client.ack("a")
    leave(client)
    side.wait(0.25)
    side.open().subscribe("/queue/~")


def leaving_by_unsubscribe(side: Side) -> None:
    """The rest comes back, redelivered, in order."""
    _leave_and_look(side, lambda client: client.ask("UNSUBSCRIBE", id="s"))


def leaving_by_disconnect(side: Side) -> None:
    """The same."""
    _leave_and_look(side, lambda client: client.ask("DISCONNECT"))


def leaving_by_death(side: Side) -> None:
    """The same."""
    _leave_and_look(side, lambda client: client.cut())


def counter_is_selectable(side: Side) -> None:
    """It grows by one per life of a subscription."""
    side.open().put("/queue/~", "a")
    for _ in range(3):
        client = side.open()
        client.subscribe("/queue/~")
        client.cut()
    client = side.open()
    for count in ("1", "2", "3", "4"):
        client.subscribe("/queue/~", count, selector=f"JMSXDeliveryCount = {count}")


def counts_partition(side: Side) -> None:
    """Three subscriptions with selectors on the count get exactly theirs."""
    client = side.open()
    client.subscribe("/queue/~", "1", selector="JMSXDeliveryCount = 1")
    client.subscribe("/queue/~", "2", selector="JMSXDeliveryCount = 2")
    client.subscribe("/queue/~", "n", selector="JMSXDeliveryCount > 2")
    for count in ("1", "2", "3", "4"):
        client.put("/queue/~", f"c{count}", JMSXDeliveryCount=count)
        client.see()


def nack(side: Side) -> None:
    """To the dead letter queue, alone, with its headers; a dead letter or a non-persistent one is gone."""
    client = side.open()
    headers = {
        "priority": "7", "type": "T", "probe": "~", "expires": side.now_ms(600), "JMSXGroupID": "g",
        "correlation__id": "cc", "reply__to": "/queue/x", "timestamp": "55",
    }  # fmt: skip
    client.put("/queue/~", "a", "b")
    client.put("/queue/~", "c", **headers)
    client.ask("SEND", b"np", destination="/queue/~", probe="~")
    client.subscribe("/queue/~", activemq___prefetchSize="10")
    client.ack("c", "NACK")
    client.ack("np", "NACK")
    client.subscribe("/queue/ActiveMQ.DLQ", "dlq", selector="probe = '~'")
    client.ack("c", "NACK")
    client.cut()
    side.open().subscribe("/queue/ActiveMQ.DLQ", selector="probe = '~'")
    side.open().subscribe("/queue/~")


def repeated_subscription_id(side: Side) -> None:
    """Both consumers run, one can be unsubscribed."""
    client = side.open()
    client.put("/queue/~", "a", "b", "c")
    client.subscribe("/queue/~", activemq___prefetchSize="1")
    client.subscribe("/queue/~", activemq___prefetchSize="1")
    client.ask("UNSUBSCRIBE", id="s")
    client.ask("UNSUBSCRIBE", id="s")


def prefetch(side: Side) -> None:
    """As many as asked for, and none for 0."""
    client = side.open()
    client.put("/queue/~", "a", "b", "c")
    client.subscribe("/queue/~", "none", activemq___prefetchSize="0")
    client.subscribe("/queue/~", "two", activemq___prefetchSize="2")
    client.ack("a")
    client.see()


def auto(side: Side) -> None:
    """Acknowledged before it is read."""
    client = side.open()
    client.put("/queue/~", "a", "b")
    client.subscribe("/queue/~", ack="auto", activemq___prefetchSize="1")
    client.cut()
    side.open().subscribe("/queue/~")


def durable(side: Side) -> None:
    """A durable subscription from birth to death."""
    name = {"activemq___subscriptionName": "n"}
    sender = side.open()
    client = side.open(client__id="~")
    client.subscribe("/topic/~", **name)
    sender.put("/topic/~", "a", "b")
    client.see()
    client.subscribe("/topic/~", "again", **name)
    client.ask("UNSUBSCRIBE", id="s", **name)
    client.cut()
    sender.put("/topic/~", "c")
    client = side.open(client__id="~")
    client.subscribe("/topic/~", **name)
    client.ack("b")
    client.ask("UNSUBSCRIBE", id="s")
    sender.put("/topic/~", "d")
    client.subscribe("/topic/~", "t", **name)
    client.ask("UNSUBSCRIBE", id="t")
    client.subscribe("/topic/~", "u", selector="x = 1", **name)
    client.ask("UNSUBSCRIBE", id="u")
    client.ask("UNSUBSCRIBE", id="u", **name)
    client.ask("UNSUBSCRIBE", id="u", **name)


def durable_nack(side: Side) -> None:
    """To the dead letter queue, as from a queue."""
    client = side.open(client__id="~")
    client.subscribe("/topic/~", activemq___subscriptionName="n")
    client.put("/topic/~", "a", probe="~")
    client.see()
    client.ack("a", "NACK")
    client.subscribe("/queue/ActiveMQ.DLQ", "dlq", selector="probe = '~'")


def durable_nack_twice(side: Side) -> None:
    """One dead letter of one message, though two subscriptions refused it."""
    one, two = side.open(client__id="~a"), side.open(client__id="~b")
    for client in (one, two):
        client.subscribe("/topic/~", activemq___subscriptionName="n")
    one.put("/topic/~", "a", probe="~")
    for client in (one, two):
        client.see()
        client.ack("a", "NACK")
    side.open().subscribe("/queue/ActiveMQ.DLQ", selector="probe = '~'")


def selector_starves(side: Side) -> None:
    """A page of messages that nobody wants hides what is behind it."""
    client = side.open()
    client.put("/queue/~", *("no" for _ in range(205)))
    client.put("/queue/~", "yes", k="1")
    side.wait(1.0)  # until the wake-ups of the SENDs are worked off
    client.tell("SUBSCRIBE", id="s", destination="/queue/~", ack="client", selector="k = 1")
    client.see()
    client.put("/queue/~", "yes too", k="1")
    client.see()


def nack_in_the_dead_letter_queue(side: Side) -> None:
    """Whatever is refused there is gone, dead letter or not."""
    client = side.open()
    client.put("/queue/ActiveMQ.DLQ", "a", probe="~")
    client.subscribe("/queue/ActiveMQ.DLQ", selector="probe = '~'")
    client.ack("a", "NACK")
    client.cut()
    side.open().subscribe("/queue/ActiveMQ.DLQ", selector="probe = '~'")


def topic(side: Side) -> None:
    """Everyone who is there, noLocal, and a window."""
    client, other = side.open(), side.open()
    other.put("/topic/~", "too early")
    client.subscribe("/topic/~", "one", activemq___prefetchSize="1")
    other.subscribe("/topic/~", "far", activemq___noLocal="true")
    other.put("/topic/~", "x", "y")
    client.see()
    other.see()
    client.ack("x")
    client.see()
    client.ask("SEND", b"z", destination="/topic/~")
    other.see()
    client.ack("y", "NACK")
    client.see()
    client.cut()
    side.open().subscribe("/topic/~")


def _reply_to(side: Side) -> str:
    """Where the message that was seen last wants its answer."""
    shown = side.diary[-1].headers["reply-to"]
    prefix, _, plain = shown.rpartition("/")
    return f"{prefix}/{side.real_id(plain)}"


def temporary_queue(side: Side) -> None:
    """Request and reply; it dies with its connection."""
    client, server = side.open(), side.open()
    client.subscribe("/temp-queue/x", ack="auto")
    client.put("/queue/~", "q", reply__to="/temp-queue/x")
    server.subscribe("/queue/~")
    remote = _reply_to(side)
    server.ask("SEND", b"re", destination=remote)
    client.see()
    client.cut()
    server.ask("SEND", b"re", destination=remote)


def browser(side: Side) -> None:
    """It sees what is there, then an end, and takes nothing."""
    client = side.open()
    client.put("/queue/~", "a", "b")
    client.subscribe("/queue/~", "br", browser="true", ack="auto")
    client.subscribe("/queue/~none", "br2", browser="true", ack="auto")
    client.subscribe("/queue/~")


def expiry(side: Side) -> None:
    """At once if it is over already, and when it is given out."""
    client = side.open()
    client.put("/queue/~", "old", expires=side.now_ms(-10), probe="~")
    client.ask("SEND", b"np", destination="/queue/~", expires=side.now_ms(-10), probe="~")
    client.put("/queue/~", "soon", expires=side.now_ms(1), probe="~")
    client.put("/queue/~", "late", expires=side.now_ms(600), probe="~")
    side.wait(1.5)
    client.subscribe("/queue/~")
    client.subscribe("/queue/ActiveMQ.DLQ", "dlq", selector="probe = '~'")


def groups(side: Side) -> None:
    """A group sticks to the consumer that had its first message."""
    one, two = side.open(), side.open()
    one.subscribe("/queue/~")
    two.subscribe("/queue/~")
    for body, group in (("a", "g"), ("b", "h"), ("c", "g"), ("d", "h"), ("e", "g")):
        one.put("/queue/~", body, JMSXGroupID=group)
        one.see()
        two.see()
    one.cut()
    two.see()
    two.put("/queue/~", "f", JMSXGroupID="g")
    two.see()


def round_robin(side: Side) -> None:
    """Consumers take turns."""
    one, two = side.open(), side.open()
    one.subscribe("/queue/~")
    two.subscribe("/queue/~")
    one.put("/queue/~", "a", "b", "c", "d")
    one.see()
    two.see()


def priority_does_not_sort(side: Side) -> None:
    """By default a queue is first in, first out."""
    client = side.open()
    for priority in ("1", "9", "4"):
        client.put("/queue/~", f"p{priority}", priority=priority)
    client.subscribe("/queue/~")


def given_back_by_a_small_window(side: Side) -> None:
    """What a dying consumer had goes behind what was given back before."""
    side.open().put("/queue/~", "a", "b", "c")
    for size in ("10", "1"):
        client = side.open()
        client.subscribe("/queue/~", activemq___prefetchSize=size)
        client.cut()
    side.open().subscribe("/queue/~")


def scheduled(side: Side) -> None:
    """After a delay, under its own id; in a transaction after COMMIT only."""
    client = side.open()
    client.subscribe("/queue/~")
    client.put("/queue/~", "a", AMQ_SCHEDULED_DELAY="600", JMSXDeliveryCount="3", foo="x")
    client.see()
    side.wait(2.5)
    client.see()
    client.ask("BEGIN", transaction="t")
    client.put("/queue/~", "b", AMQ_SCHEDULED_DELAY="100", transaction="t")
    client.ask("BEGIN", transaction="u")
    client.put("/queue/~", "c", AMQ_SCHEDULED_DELAY="100", transaction="u")
    side.wait(1.5)
    client.see()
    client.ask("COMMIT", transaction="t")
    client.ask("ABORT", transaction="u")
    side.wait(1.5)
    client.see()


def _expect(messages: int, client: Client) -> None:
    """So many came since the last look."""
    seen = len(client.see())
    assert seen == messages, f"{seen} messages, not {messages}"


def page_stall(side: Side) -> None:
    """Of a backlog come 200, then 200 more for a SEND, then the rest for one ACK; not for waiting."""
    client, sender = side.open(), side.open()
    sender.put("/queue/~", *(str(n) for n in range(550)))
    side.wait(1.0)  # until the wake-ups of the SENDs are worked off
    client.tell("SUBSCRIBE", id="s", destination="/queue/~", ack="client")
    _expect(200, client)
    side.wait(1.0)
    _expect(0, client)
    sender.put("/queue/~", "wake up")
    _expect(200, client)
    client.ack("0")
    _expect(151, client)


def page_stall_individual(side: Side) -> None:
    """The same in client-individual, where an ACK(tx) wakes too; a prefetch below the page is not stalled."""
    client, other = side.open(), side.open()
    client.put("/queue/~", *(str(n) for n in range(350)))
    side.wait(1.0)  # until the wake-ups of the SENDs are worked off
    client.tell("SUBSCRIBE", id="s", destination="/queue/~", ack="client-individual")
    _expect(200, client)
    client.ask("BEGIN", transaction="t")
    client.ack("7", transaction="t")
    _expect(150, client)
    client.cut()
    other.tell(
        "SUBSCRIBE", id="s", destination="/queue/~", ack="client", activemq___prefetchSize="100"
    )
    _expect(100, other)


DELIVERIES: list[Callable[[Side], None]] = [
    leaving_by_unsubscribe,
    leaving_by_disconnect,
    leaving_by_death,
    counter_is_selectable,
    counts_partition,
    nack,
    repeated_subscription_id,
    prefetch,
    auto,
    durable,
    durable_nack,
    durable_nack_twice,
    nack_in_the_dead_letter_queue,
    selector_starves,
    topic,
    temporary_queue,
    browser,
    expiry,
    groups,
    round_robin,
    priority_does_not_sort,
    given_back_by_a_small_window,
    scheduled,
    page_stall,
    page_stall_individual,
]
