"""Where a message goes on the fake Artemis, and who gets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.testing.artemis.talk import DURABLE, MULTICAST, TOPIC, ArtemisTalk, left

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker


def send(client: ArtemisTalk, destination: str, body: str, **headers: str) -> None:
    """Send without a routing type."""
    assert client.ask("SEND", {"destination": destination, **headers}, body) == "RECEIPT"


def test_unknown_name_without_type_loses_the_message(broker: FakeBroker) -> None:
    """A RECEIPT, an address, and no queue; once there is one it is found."""
    client = ArtemisTalk(broker)
    send(client, "q", "lost")
    client.put("q", "kept")
    send(client, "q", "kept too")
    assert left(broker, "q") == ["kept", "kept too"]


def test_copies_for_all_who_are_there(broker: FakeBroker) -> None:
    """With their selectors; what comes before them is gone."""
    one, two = ArtemisTalk(broker), ArtemisTalk(broker)
    one.put("t", "early", **MULTICAST)
    one.subscribe("t", **TOPIC)
    two.subscribe("t", selector="n = '1'", **TOPIC)
    one.put("t", "a", n="1", **MULTICAST)
    one.put("t", "b", n="2", **MULTICAST)
    assert (one.bodies(), two.bodies()) == (["a", "b"], ["a"])


def test_topic_that_is_also_a_queue_is_a_trap(broker: FakeBroker) -> None:
    """An ANYCAST SEND makes it one; whoever subscribes to the topic then reads the queue."""
    client = ArtemisTalk(broker)
    client.put("t", "a", **MULTICAST)
    client.put("t", "for the queue")
    assert client.subscribe("t", **TOPIC) == ["for the queue"]


def test_qualified_names(broker: FakeBroker) -> None:
    """Address and queue; the queue gets what the address gets, not what its name gets."""
    client = ArtemisTalk(broker)
    client.put("a::q", "one")
    client.put("a", "two")
    client.put("q", "three")
    assert broker.queue("a::q") is broker.queue("q")
    assert left(broker, "a::q") == ["one", "two"]


def test_delayed_messages_come_first(broker: FakeBroker) -> None:
    """At their time, and before all that waits."""
    client = ArtemisTalk(broker)
    client.put("q", "late", AMQ_SCHEDULED_DELAY="1500")
    client.put("q", "now", "then")
    assert left(broker, "q") == ["now", "then"]
    broker.handle_timer(1.49)
    assert left(broker, "q") == ["now", "then"]
    broker.handle_timer(1.5)
    assert left(broker, "q") == ["late", "now", "then"]


def test_priorities(broker: FakeBroker) -> None:
    """The highest first."""
    client = ArtemisTalk(broker)
    for priority in ("1", "9", "4", "9"):
        client.put("q", f"p{priority}", priority=priority)
    assert left(broker, "q") == ["p9", "p9", "p4", "p1"]


@pytest.mark.parametrize("priority", ["10", "-1"])
def test_priority_that_is_none_is_said(broker: FakeBroker, priority: str) -> None:
    """A real broker gives a RECEIPT and loses it."""
    with pytest.raises(NotImplementedError, match="no way to lose"):
        ArtemisTalk(broker).put("q", "a", priority=priority)


def test_expired(broker: FakeBroker) -> None:
    """Moved when it would be given out."""
    client = ArtemisTalk(broker)
    client.put("q", "a", expires=str(broker.now_ms() + 500))
    broker.handle_timer(1.0)
    assert left(broker, "q") == []
    assert left(broker, "ExpiryQueue") == ["a"]


# -- subscriptions ------------------------------------------------------------------------------


def test_durable_subscription(broker: FakeBroker) -> None:
    """It keeps messages, and its first selector, until it is removed by name."""
    client = ArtemisTalk(broker, **{"client-id": "me"})
    client.subscribe("t", **DURABLE)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.put("t", "a", **MULTICAST)
    assert client.subscribe("t", selector="x = '1'", **DURABLE) == ["a"]
    assert client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscription-name": "n"}) == "RECEIPT"
    assert client.subscribe("t", **DURABLE) == []


def test_durable_subscription_is_shared(broker: FakeBroker) -> None:
    """Between connections of one client id."""
    one, two = (ArtemisTalk(broker, **{"client-id": "me"}) for _ in range(2))
    one.subscribe("t", **DURABLE)
    two.subscribe("t", **DURABLE)
    one.put("t", "a", "b", **MULTICAST)
    assert (one.bodies(), two.bodies()) == (["a"], ["b"])


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "DISCONNECT"])
def test_subscription_without_a_name_goes(broker: FakeBroker, end: str) -> None:
    """With its consumer."""
    client = ArtemisTalk(broker)
    client.subscribe("t", **TOPIC)
    client.ask(end, {"id": "s"})
    ArtemisTalk(broker).put("t", "a", **MULTICAST)
    reader = ArtemisTalk(broker)
    reader.subscribe("answers", ack="auto")
    assert told(reader, "listQueues", equals("ADDRESS", "t"), 1, 10)["data"] == []


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [("n > 4", False), ("convert_string_expressions:n > 4", True), ("n = '5'", True), ("n + 1 = 6", False)],
)  # fmt: skip
def test_selectors_compare_strings(broker: FakeBroker, selector: str, *, wanted: bool) -> None:
    """All properties are strings; what cannot be evaluated matches nothing."""
    client = ArtemisTalk(broker)
    client.put("q", "a", n="5")
    assert client.subscribe("q", selector=selector) == (["a"] if wanted else [])


@pytest.mark.parametrize(
    ("selector", "message"),
    [("", "Selector cannot be empty"), ("a = = 1", 'Invalid selector "a = = 1"')],
)
def test_bad_selectors(broker: FakeBroker, selector: str, message: str) -> None:
    """An ERROR that does not say for which receipt."""
    client = ArtemisTalk(broker)
    assert (
        client.ask("SUBSCRIBE", {"destination": "q", "id": "s", "selector": selector}) == "CLOSED"
    )
    assert client.errors() == [message]


# -- groups -------------------------------------------------------------------------------------


def test_groups_stick(broker: FakeBroker) -> None:
    """Until their consumer is gone."""
    one, two = ArtemisTalk(broker), ArtemisTalk(broker)
    one.subscribe("q")
    two.subscribe("q")
    for number, group in enumerate("xyxy"):
        one.put("q", f"{group}{number}", JMSXGroupID=group)
    assert (one.bodies(), two.bodies()) == (["x0", "x2"], ["y1", "y3"])
    two.die()
    assert one.bodies() == ["y1 R", "y3 R"]


def test_busy_group_stops_what_is_behind(broker: FakeBroker) -> None:
    """Even if somebody else is free."""
    client = ArtemisTalk(broker)
    client.subscribe("q", "one", **{"consumer-window-size": "0"})
    client.put("q", "x1", JMSXGroupID="x")
    assert client.subscribe("q", "two") == ["x1"]
    client.put("q", "x2", JMSXGroupID="x")
    client.put("q", "free")
    assert client.bodies() == []
    client.ack("x1")
    assert client.bodies() == ["x2", "free"]


def test_a_group_is_offered_to_nobody_else_whatever_its_consumer_wants(broker: FakeBroker) -> None:
    """
    What its filter does not take waits until it is gone, and then comes behind what it gives back.

    Source: QueueImpl.deliver, ServerConsumerImpl.handle.
    """
    client = ArtemisTalk(broker)
    client.subscribe("q", "narrow", selector="k = '1'")
    client.put("q", "x1", JMSXGroupID="x", k="1")
    assert client.subscribe("q", "whole") == ["x1"]
    client.put("q", "x2", JMSXGroupID="x", k="2")
    client.put("q", "free", k="2")
    assert client.bodies() == ["free"]
    client.ask("UNSUBSCRIBE", {"id": "narrow"})
    assert client.bodies() == ["x1", "x2"]


# -- management ---------------------------------------------------------------------------------


def test_lists(broker: FakeBroker) -> None:
    """What is set for an address, and the queues and addresses of a name, as texts."""
    client = ArtemisTalk(broker)
    client.subscribe("answers", ack="auto")
    client.subscribe("q", "reader")
    client.put("q", "a")
    assert told(client, "getAddressSettingsAsJSON", "q") == {
        "maxDeliveryAttempts": 10,
        "redeliveryDelay": 0,
        "deadLetterAddress": "DLQ",
        "expiryAddress": "ExpiryQueue",
    }
    (queue,) = told(client, "listQueues", equals("NAME", "q"), 1, 10)["data"]
    assert (queue["address"], queue["routingType"], queue["filter"]) == ("q", "ANYCAST", "")
    assert (queue["messageCount"], queue["consumerCount"]) == ("1", "1")
    assert told(client, "listQueues", equals("ADDRESS", "nothing"), 1, 10)["data"] == []
    (address,) = told(client, "listAddresses", equals("NAME", "q"), 1, 10)["data"]
    assert address["routingTypes"] == '["ANYCAST"]'


def equals(field: str, value: str) -> str:
    """The filter of a list."""
    return json.dumps({"field": field, "operation": "EQUALS", "value": value})


def told(client: ArtemisTalk, operation: str, *arguments: object) -> Any:
    """What the broker's management answers to `answers`, as it is meant."""
    client.bodies()
    question = {"reply-to": "answers", "_AMQ_ResourceName": "broker"}
    body = json.dumps(arguments)
    send(client, "activemq.management", body, **question, _AMQ_OperationName=operation)
    (answer,) = [text for text in client.bodies() if text.startswith("[")]
    return json.loads(json.loads(answer)[0])


def test_other_management_is_said(broker: FakeBroker) -> None:
    """No test passes because nobody answered."""
    question = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "listSessions"}
    with pytest.raises(NotImplementedError, match="no management of broker: listSessions"):
        send(ArtemisTalk(broker), "activemq.management", "[]", **question)
