"""Who gets which message from the fake broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.frames import Frame
from tests.unit.testing.talk import TX, Talk, left

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker


# -- who gets what ------------------------------------------------------------------------------


def test_receipt_precedes_messages(broker: FakeBroker) -> None:
    """No MESSAGE comes before the RECEIPT of its SUBSCRIBE."""
    client = Talk(broker)
    client.put("/queue/q", "a")
    headers = {"destination": "/queue/q", "id": "s", "receipt": "r"}
    client.link.feed(Frame("SUBSCRIBE", headers), broker.now)
    assert [f.command for f in client.link.take_frames()] == ["RECEIPT", "MESSAGE"]


def test_selector_passes_by_what_it_does_not_want(broker: FakeBroker) -> None:
    """What is wanted is given out, though older messages stay."""
    client = Talk(broker)
    client.put("/queue/q", "no")
    assert client.subscribe("/queue/q", selector="k = 1") == []
    client.put("/queue/q", "yes", k="1")
    assert client.bodies() == ["yes"]


def test_arithmetic_with_strings_is_said(broker: FakeBroker) -> None:
    """On a real broker it stops the whole queue, so a test should not pass."""
    client = Talk(broker)
    client.subscribe("/queue/q", selector="n - 1 = 4")
    with pytest.raises(NotImplementedError, match="n - 1 = 4"):
        client.put("/queue/q", "x", n="5")


@pytest.mark.parametrize(("unwanted", "got"), [(199, ["yes"]), (200, [])])
def test_page_of_unwanted_messages_hides_the_rest(
    broker: FakeBroker, unwanted: int, got: list[str]
) -> None:
    """No more is paged in while a whole page waits for another consumer."""
    client = Talk(broker)
    client.put("/queue/q", *("no" for _ in range(unwanted)))
    client.put("/queue/q", "yes", k="1")
    assert client.subscribe("/queue/q", selector="k = 1") == got


def test_group_sticks_to_its_consumer(broker: FakeBroker) -> None:
    """Until that is gone, or a negative sequence ends the group."""
    one, two = Talk(broker), Talk(broker)
    one.subscribe("/queue/q")
    two.subscribe("/queue/q")
    for body in "abc":
        one.put("/queue/q", body, JMSXGroupID="g")
    assert (one.bodies(), two.bodies()) == (["a", "b", "c"], [])
    one.put("/queue/q", "end", JMSXGroupID="g", JMSXGroupSeq="-1")
    one.put("/queue/q", "d", JMSXGroupID="g")
    assert (one.bodies(), two.bodies()) == (["end"], ["d"])
    two.die()
    one.put("/queue/q", "e", JMSXGroupID="g")
    assert one.bodies() == ["d R", "e"]


def test_consumers_take_turns(broker: FakeBroker) -> None:
    """One message each."""
    one, two = Talk(broker), Talk(broker)
    one.subscribe("/queue/q")
    two.subscribe("/queue/q")
    one.put("/queue/q", *"abcd")
    assert (one.bodies(), two.bodies()) == (["a", "c"], ["b", "d"])


def test_topic_forgets(broker: FakeBroker) -> None:
    """Who is not there gets nothing, and nothing comes again."""
    sender, reader = Talk(broker), Talk(broker)
    sender.put("/topic/t", "early")
    assert reader.subscribe("/topic/t", activemq_prefetchSize="1") == []
    sender.put("/topic/t", "a", "b")
    assert reader.bodies() == ["a"]
    assert reader.ack("a") == "RECEIPT"
    assert reader.bodies() == ["b"]
    assert reader.ack("b", "NACK") == "RECEIPT"
    assert len(broker.queue("ActiveMQ.DLQ")) == 0
    reader.die()
    assert left(broker, "/topic/t") == []


@pytest.mark.parametrize(
    ("end", "seen"), [("COMMIT", [["a"], ["a", "b"]]), ("ABORT", [["a"], ["a"]])]
)
def test_topic_in_transaction(broker: FakeBroker, end: str, seen: list[list[str]]) -> None:
    """The window opens at once for an ACK(tx), what is sent appears at COMMIT."""
    client = Talk(broker)
    client.subscribe("/topic/t", activemq_prefetchSize="1")
    client.tell("BEGIN", TX)
    client.tell("SEND", {"destination": "/topic/t", **TX}, "b")
    client.put("/topic/t", "a")
    first = client.bodies()
    client.ack("a", **TX)
    client.ask(end, TX)
    assert [first, first + client.bodies()] == seen


def test_no_local(broker: FakeBroker) -> None:
    """Nothing of the own connection."""
    client = Talk(broker)
    client.subscribe("/topic/t", activemq_noLocal="true")
    client.put("/topic/t", "mine")
    Talk(broker).put("/topic/t", "yours")
    assert client.bodies() == ["yours"]


def test_browser_takes_nothing(broker: FakeBroker) -> None:
    """It sees what is there, in flight or not, then an end."""
    client = Talk(broker)
    client.put("/queue/q", "a", "b")
    client.subscribe("/queue/q", activemq_prefetchSize="1")
    reader = Talk(broker)
    reader.subscribe("/queue/q", browser="true")
    assert [m.headers.get("browser", m.body.decode()) for m in reader.messages] == ["a", "b", "end"]
    assert reader.ack("a") == "RECEIPT"
    assert reader.ack("b", "NACK") == "Cannot Nack a message on a Queue Browser Subscription."
    assert len(broker.queue("q")) == 2


def test_temporary_queue_dies_with_its_link(broker: FakeBroker) -> None:
    """Others see its real name, and cannot send to it afterwards."""
    asker, replier = Talk(broker), Talk(broker)
    asker.subscribe("/temp-queue/x")
    asker.put("/queue/q", "question", **{"reply-to": "/temp-queue/x"})
    replier.subscribe("/queue/q")
    reply_to = replier.messages[0].headers["reply-to"]
    assert reply_to.startswith("/remote-temp-queue/ID:")
    replier.put(reply_to, "answer")
    assert asker.bodies() == ["answer"]
    assert asker.messages[0].headers["destination"] == "/temp-queue/x"
    asker.die()
    assert replier.ask("SEND", {"destination": reply_to}).startswith("temp-queue://ID:")


# -- durable subscriptions ----------------------------------------------------------------------


def test_durable_backlog(broker: FakeBroker) -> None:
    """What comes while nobody is there is kept, persistent ones first, and what was not acked is before it."""
    client = Talk(broker, **{"client-id": "me"})
    client.subscribe("/topic/t", activemq_subscriptionName="n")
    sender = Talk(broker)
    sender.put("/topic/t", "a", "b")
    client.collect()
    client.ack("a")
    client.die()
    sender.ask("SEND", {"destination": "/topic/t"}, "np")
    sender.put("/topic/t", "c")
    client = Talk(broker, **{"client-id": "me"})
    assert client.subscribe("/topic/t", activemq_subscriptionName="n") == ["b", "c", "np"]


def test_durable_rules(broker: FakeBroker) -> None:
    """One at a time; deleted only when nobody is there; another selector begins anew."""
    named = {"activemq.subscriptionName": "n"}
    client = Talk(broker, **{"client-id": "me"})
    client.subscribe("/topic/t", activemq_subscriptionName="n")
    again = client.ask("SUBSCRIBE", {"id": "2", "destination": "/topic/t", **named})
    assert again == "Durable consumer is in use for client: me and subscriptionName: n"
    assert client.ask("UNSUBSCRIBE", {"id": "s", **named}) == "Durable consumer is in use"
    assert client.ask("UNSUBSCRIBE", {"id": "s"}) == "RECEIPT"
    client.put("/topic/t", "kept")
    assert client.subscribe("/topic/t", "3", activemq_subscriptionName="n", selector="x = 1") == []
    client.ask("UNSUBSCRIBE", {"id": "3"})
    assert client.ask("UNSUBSCRIBE", {"id": "3", **named}) == "RECEIPT"
    assert client.ask("UNSUBSCRIBE", {"id": "3", **named}).startswith("No durable subscription")
    queue = client.ask("SUBSCRIBE", {"id": "4", "destination": "/queue/q", **named})
    assert queue == "Invalid Subscription: cannot durably subscribe to a Queue destination!"


def test_durable_nack_makes_a_dead_letter(broker: FakeBroker) -> None:
    """As from a queue, and it does not come again."""
    client = Talk(broker, **{"client-id": "me"})
    client.subscribe("/topic/t", activemq_subscriptionName="n")
    client.put("/topic/t", "a")
    assert client.bodies() == ["a"]
    client.ack("a", "NACK")
    assert client.subscribe("/queue/ActiveMQ.DLQ", "dlq") == ["a"]
    assert client.messages[-1].headers["original-destination"] == "/topic/t"
    client.die()
    client = Talk(broker, **{"client-id": "me"})
    assert client.subscribe("/topic/t", activemq_subscriptionName="n") == []


# -- expiry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["dispatch", "send"])
def test_expired_message_becomes_a_dead_letter(broker: FakeBroker, how: str) -> None:
    """With the broker's words; a non-persistent one just vanishes."""
    client = Talk(broker)
    expires = str(broker.now_ms() + (-1 if how == "send" else 1000))
    client.put("/queue/q", "old", expires=expires)
    client.ask("SEND", {"destination": "/queue/q", "expires": expires}, "np")
    broker.handle_timer(2.0)
    assert left(broker, "/queue/q") == []
    assert len(broker.queue("q")) == 0
    assert client.subscribe("/queue/ActiveMQ.DLQ") == ["old"]
    headers = client.messages[0].headers
    assert (
        headers["dlqDeliveryFailureCause"]
        == f"java.lang.Throwable: Message Expired. Expiration:{expires}"
    )
    assert headers["originalExpiration"] == expires


def test_message_lives_to_its_last_millisecond(broker: FakeBroker) -> None:
    """It expires after the moment in `expires`, not at it."""
    Talk(broker).put("/queue/q", "a", expires=str(broker.now_ms() + 1000))
    broker.handle_timer(1.0)
    assert left(broker, "/queue/q") == ["a"]
    broker.handle_timer(1.001)
    assert left(broker, "/queue/q") == []


def test_in_flight_message_does_not_expire(broker: FakeBroker) -> None:
    """It is with its consumer; after that is gone, it does."""
    client = Talk(broker)
    client.put("/queue/q", "a", expires=str(broker.now_ms() + 1000))
    client.subscribe("/queue/q")
    broker.handle_timer(100.0)
    assert len(broker.queue("q").in_flight) == 1
    client.die()
    assert left(broker, "/queue/q") == []
    assert left(broker, "/queue/ActiveMQ.DLQ") == ["a"]
