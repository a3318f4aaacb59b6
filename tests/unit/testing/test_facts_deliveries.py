"""jmsx_classic/BROKER.md on the fake broker: redelivery, acknowledgements, dead letters and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.talk import MODES, TX, UNEXPECTED_ACK, Talk, holding, left

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

# -- redelivery ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "DISCONNECT", "death"])
def test_what_was_not_acknowledged_comes_back(broker: FakeBroker, end: str) -> None:
    """At the head, in order, redelivered, whether the application saw it or not."""
    client = holding(broker, "a", "b", "c")
    client.ack("a")
    client.put("/queue/q", *"d")
    client.bodies()
    if end == "death":
        client.die()
    else:
        assert client.ask(end, {"id": "s"}) == "RECEIPT"
    Talk(broker).put("/queue/q", "e")
    assert left(broker, "/queue/q") == ["b R", "c R", "d R", "e"]


def test_counter_grows_by_one_per_life(broker: FakeBroker) -> None:
    """After three deaths only `JMSXDeliveryCount = 4` matches."""
    Talk(broker).put("/queue/q", "a")
    for _ in range(3):
        client = Talk(broker)
        client.subscribe("/queue/q")
        client.die()
    for count in (1, 2, 3, 5):
        assert Talk(broker).subscribe("/queue/q", selector=f"JMSXDeliveryCount = {count}") == []
    assert Talk(broker).subscribe("/queue/q", selector="JMSXDeliveryCount = 4") == ["a R"]


def test_partition_by_count(broker: FakeBroker) -> None:
    """Subscriptions of one connection with selectors on the count get exactly theirs."""
    client = Talk(broker)
    for id_, selector in (("1", "= 1"), ("2", "= 2"), ("n", "> 2")):
        client.subscribe("/queue/q", id_, selector=f"JMSXDeliveryCount {selector}")
    for count in "1234":
        client.put("/queue/q", count, JMSXDeliveryCount=count)
    assert [(m.headers["subscription"], m.body) for m in client.messages] == [
        ("1", b"1"), ("2", b"2"), ("n", b"3"), ("n", b"4"),
    ]  # fmt: skip


def test_send_sets_the_counter(broker: FakeBroker) -> None:
    """JMSXDeliveryCount is not shown, but is selectable and means redelivered."""
    Talk(broker).put("/queue/q", "a", JMSXDeliveryCount="4")
    client = Talk(broker)
    assert client.subscribe("/queue/q", selector="JMSXDeliveryCount = 4") == ["a R"]
    assert "JMSXDeliveryCount" not in client.messages[0].headers


@pytest.mark.parametrize("mode", MODES)
def test_ack_in_open_transaction_then_death(broker: FakeBroker, mode: str) -> None:
    """The message is back, counter raised, in the original order."""
    client = holding(broker, "a", "b", "c", mode=mode)
    client.tell("BEGIN", TX)
    client.ack("b", **TX)
    client.die()
    assert Talk(broker).subscribe("/queue/q", selector="JMSXDeliveryCount = 2") == [
        "a R",
        "b R",
        "c R",
    ]


def test_two_small_windows_change_the_order(broker: FakeBroker) -> None:
    """What a dying consumer had goes behind what was given back before."""
    holding(broker, "a", "b", "c").die()
    client = Talk(broker)
    client.subscribe("/queue/q", activemq_prefetchSize="1")
    client.die()
    assert left(broker, "/queue/q") == ["b R", "c R", "a R"]


# -- the end of a subscription ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "back"), [("client", ["a R", "b R"]), ("client-individual", ["b R"])]
)
def test_unsubscribe_in_open_transaction(broker: FakeBroker, mode: str, back: list[str]) -> None:
    """In client mode the ACK is lost, though COMMIT succeeds."""
    client = holding(broker, "a", "b", mode=mode)
    client.tell("BEGIN", TX)
    client.ack("a", **TX)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert client.ask("COMMIT", TX) == "RECEIPT"
    assert left(broker, "/queue/q") == back


def test_ack_after_unsubscribe_means_nothing(broker: FakeBroker) -> None:
    """On 1.2 it gets a RECEIPT and is ignored."""
    client = holding(broker, "a")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert client.ack("a") == "RECEIPT"
    assert left(broker, "/queue/q") == ["a R"]


def test_repeated_subscription_id(broker: FakeBroker) -> None:
    """Both consumers run; the older one cannot be unsubscribed any more."""
    client = Talk(broker)
    client.put("/queue/q", "a", "b", "c")
    for expected in ("a", "b"):
        assert client.subscribe("/queue/q", activemq_prefetchSize="1") == [expected]
    assert client.ask("UNSUBSCRIBE", {"id": "s"}) == "RECEIPT"
    assert client.ask("UNSUBSCRIBE", {"id": "s"}) == "No subscription matched."
    assert len(broker.queue("q").in_flight) == 1


# -- acknowledgements ---------------------------------------------------------------------------


def test_ack_is_cumulative_or_not(broker: FakeBroker) -> None:
    """In client mode up to the message, in client-individual only it."""
    for mode, back in (("client", ["c R"]), ("client-individual", ["a R", "c R"])):
        client = Talk(broker)
        client.put(f"/queue/{mode}", "a", "b", "c")
        client.subscribe(f"/queue/{mode}", ack=mode)
        client.ack("b")
        client.die()
        assert left(broker, f"/queue/{mode}") == back


def test_ack_twice_in_transaction(broker: FakeBroker) -> None:
    """The second is an ERROR; COMMIT acknowledges once."""
    client = holding(broker, "a", "b", mode="client-individual")
    client.tell("BEGIN", TX)
    assert client.ack("a", **TX) == "RECEIPT"
    assert client.ack("a", **TX) == UNEXPECTED_ACK
    assert client.ask("COMMIT", TX) == "RECEIPT"
    client.die()
    assert left(broker, "/queue/q") == ["b R"]


def test_unknown_ack_id(broker: FakeBroker) -> None:
    """An ERROR, and the connection lives."""
    client = holding(broker, "a")
    assert client.ask("ACK", {"id": "nonsense"}) == UNEXPECTED_ACK
    assert client.ack("a") == "RECEIPT"
    assert client.ack("a") == UNEXPECTED_ACK


# -- dead letters -------------------------------------------------------------------------------


def test_nack_makes_a_dead_letter(broker: FakeBroker) -> None:
    """Same id and headers, with where it came from; never expires, not redelivered, no cause."""
    client = Talk(broker)
    kept = {
        "priority": "7", "type": "T", "foo": "bar", "correlation-id": "cc", "reply-to": "/queue/x", "timestamp": "55",
    }  # fmt: skip
    expires = str(broker.now_ms() + 1000)
    client.put("/queue/q", "a", expires=expires, JMSXGroupID="g", **kept)
    client.subscribe("/queue/q")
    message_id = client.messages[0].headers["message-id"]
    assert "JMSXGroupID" not in client.messages[0].headers
    assert client.ack("a", "NACK") == "RECEIPT"
    client.subscribe("/queue/ActiveMQ.DLQ", "dlq")
    assert client.messages[-1].headers == {
        "destination": "/queue/ActiveMQ.DLQ", "message-id": message_id, "persistent": "true", "expires": "0",
        "original-destination": "/queue/q", "originalExpiration": expires, "subscription": "dlq",
        "ack": client.ack_id("a"), **kept,
    }  # fmt: skip
    assert len(broker.queue("q")) == 0


@pytest.mark.parametrize("mode", MODES)
def test_nack_is_single(broker: FakeBroker, mode: str) -> None:
    """Only the third of three dies."""
    client = holding(broker, "a", "b", "c", mode=mode)
    client.ack("c", "NACK")
    client.die()
    assert left(broker, "/queue/q") == ["a R", "b R"]
    assert left(broker, "/queue/ActiveMQ.DLQ") == ["c"]


def test_nack_of_non_persistent_message_deletes_it(broker: FakeBroker) -> None:
    """RECEIPT, and it is gone."""
    client = Talk(broker)
    client.ask("SEND", {"destination": "/queue/q"}, "np")
    client.subscribe("/queue/q")
    assert client.ack("np", "NACK") == "RECEIPT"
    client.die()
    assert left(broker, "/queue/q") == left(broker, "/queue/ActiveMQ.DLQ") == []


def test_nack_of_a_dead_letter_deletes_it(broker: FakeBroker) -> None:
    """RECEIPT, and it is gone."""
    client = holding(broker, "a")
    client.ack("a", "NACK")
    client.subscribe("/queue/ActiveMQ.DLQ", "dlq")
    assert client.ack("a", "NACK") == "RECEIPT"
    client.die()
    assert left(broker, "/queue/ActiveMQ.DLQ") == []


def test_nack_of_what_was_sent_to_the_dead_letter_queue_deletes_it(broker: FakeBroker) -> None:
    """A dead letter queue has no dead letter queue."""
    client = Talk(broker)
    client.put("/queue/ActiveMQ.DLQ", "a")
    client.subscribe("/queue/ActiveMQ.DLQ")
    assert client.ack("a", "NACK") == "RECEIPT"
    assert len(broker.queue("ActiveMQ.DLQ")) == 0


def test_one_message_dies_once(broker: FakeBroker) -> None:
    """Two subscriptions NACK the same message: the audit keeps one dead letter."""
    clients = [Talk(broker, **{"client-id": name}) for name in "ab"]
    for client in clients:
        client.subscribe("/topic/t", activemq_subscriptionName="n")
    clients[0].put("/topic/t", "x")
    for client in clients:
        client.collect()
        assert client.ack("x", "NACK") == "RECEIPT"
    assert left(broker, "/queue/ActiveMQ.DLQ") == ["x"]


# -- topics, schedules, bad numbers -------------------------------------------------------------


def test_durable_is_never_redelivered(broker: FakeBroker) -> None:
    """It comes again without the flag."""
    client = Talk(broker, **{"client-id": "me"})
    client.subscribe("/topic/t", activemq_subscriptionName="n")
    client.die()
    Talk(broker).put("/topic/t", "b", "c")
    for _ in range(2):
        client = Talk(broker, **{"client-id": "me"})
        assert client.subscribe("/topic/t", activemq_subscriptionName="n") == ["b", "c"]
        client.die()


def test_scheduled_message_comes_late(broker: FakeBroker) -> None:
    """After its delay, under its own id, with scheduledJobId."""
    client = Talk(broker)
    client.subscribe("/queue/q")
    client.put("/queue/q", "a", AMQ_SCHEDULED_DELAY="800", JMSXDeliveryCount="3")
    assert broker.next_timer() == 0.8
    broker.handle_timer(0.79)
    assert client.bodies() == []
    broker.handle_timer(0.8)
    assert client.bodies() == ["a R"]
    headers = client.messages[0].headers
    assert headers["scheduledJobId"] == headers["message-id"]
    assert "AMQ_SCHEDULED_DELAY" not in headers


def test_scheduled_in_transaction(broker: FakeBroker) -> None:
    """Only after COMMIT, whence the delay counts; never after ABORT. With an ACK it is a retry on the broker."""
    client = holding(broker, "a", "b")
    for body, end in (("a", "COMMIT"), ("b", "ABORT")):
        again = {"destination": "/queue/q", "AMQ_SCHEDULED_DELAY": "100", "JMSXDeliveryCount": "2"}
        client.tell("BEGIN", TX)
        client.tell("ACK", {"id": client.ack_id(body), **TX})
        client.tell("SEND", {**again, **TX}, f"{body} again")
        broker.handle_timer(broker.now + 5.0)
        assert client.bodies() == []
        assert client.ask(end, TX) == "RECEIPT"
        broker.handle_timer(broker.now + 0.2)
        assert client.bodies() == (["a again R"] if end == "COMMIT" else [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expires", "abc"), ("priority", "x"), ("timestamp", " 5"), ("JMSXGroupSeq", "y"), ("JMSXDeliveryCount", "q"),
        ("AMQ_SCHEDULED_DELAY", "-5"), ("AMQ_SCHEDULED_DELAY", "x"), ("", "x"),
    ],
)  # fmt: skip
def test_bad_numbers_close_the_socket(broker: FakeBroker, name: str, value: str) -> None:
    """Without an ERROR."""
    client = Talk(broker)
    assert client.ask("SEND", {"destination": "/queue/q", name: value}, "x") == "CLOSED"
    assert client.errors() == []
    assert len(broker.queue("q")) == 0
