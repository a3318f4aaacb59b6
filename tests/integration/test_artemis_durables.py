"""Durable subscriptions on a real Artemis: what its STOMP would let pass, its management finds."""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import Connection, Message, Queue, Topic
from jmsx.errors import (
    BrokerError,
    InvalidClientIdError,
    InvalidDestinationError,
    InvalidSelectorError,
    UsageError,
)
from tests.integration.artemis_support import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import MessageConsumer, Session
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

CLIENT_ID: Final = "durables"


@pytest.fixture
def session(artemis_broker: Broker) -> Iterator[Session]:
    """A started session with a client id."""
    with Connection(artemis_broker.url, client_id=CLIENT_ID) as connection:
        connection.start()
        yield connection.create_session()


@pytest.fixture
def topic() -> Topic:
    """A topic that no other test knows; the subscription is called as it is."""
    return Topic(f"jmsx.test.{uuid.uuid4().hex[:10]}")


def send(session: Session, topic: Topic, *tints: str) -> None:
    """Messages with that body and property."""
    producer = session.create_producer(topic)
    for tint in tints:
        producer.send(Message(tint, properties={"tint": tint}))


def bodies(consumer: MessageConsumer) -> list[str]:
    """All that comes."""
    found = []
    while (message := consumer.receive(0.5)) is not None:
        found.append(message.text)
    return found


def test_unchanged_subscription_keeps_its_backlog(session: Session, topic: Topic) -> None:
    """With the selector that it was made with."""
    for tints in (["red", "blue"], ["green", "red"]):
        consumer = session.create_durable_consumer(topic, topic.name, selector="tint = 'red'")
        consumer.close()
        send(session, topic, *tints)
    consumer = session.create_durable_consumer(topic, topic.name, selector="tint = 'red'")
    assert bodies(consumer) == ["red", "red"]


@pytest.mark.parametrize("what", ["no_local", "a bare flag"])
def test_what_an_older_jmsx_made_keeps_its_backlog(
    artemis_broker: Broker, session: Session, topic: Topic, what: str
) -> None:
    """The application's choice is the same; from now on the subscription means what it means now."""
    if what == "no_local":
        former, own = "(__AMQ_CID <> '00f5633b' OR __AMQ_CID IS NULL)", []
        now: dict[str, Any] = {"no_local": True}
    else:
        former, own = "convert_string_expressions:red", ["own"]
        now = {"selector": "red"}
    session.create_durable_consumer(topic, topic.name, **now).close()
    red = {"red": True}
    with Connection(artemis_broker.url) as connection, Console(artemis_broker) as console:
        other = connection.create_session().create_producer(topic)
        other.send(Message("waited", properties=red))
        changed = {"name": f"{CLIENT_ID}.{topic.name}", "filter-string": former}
        console.ask("broker", "updateQueue", json.dumps(changed))
        consumer = session.create_durable_consumer(topic, topic.name, **now)
        session.create_producer(topic).send(Message("own", properties=red))
        other.send(Message("new", properties=red))
        assert bodies(consumer) == ["waited", *own, "new"]


@pytest.mark.parametrize("changed", ["selector", "topic"])
def test_changed_subscription_is_made_anew(session: Session, topic: Topic, changed: str) -> None:
    """Its backlog is gone, as JMS says; Artemis' STOMP would go on with the old one."""
    session.create_durable_consumer(topic, topic.name, selector="tint = 'red'").close()
    send(session, topic, "red", "blue")
    other = Topic(f"{topic.name}.other") if changed == "topic" else topic
    selector = "tint = 'blue'" if changed == "selector" else "tint = 'red'"
    consumer = session.create_durable_consumer(other, topic.name, selector=selector)
    send(session, other, "red", "blue")
    assert bodies(consumer) == (["blue"] if changed == "selector" else ["red"])


def test_subscription_in_use_is_refused(
    artemis_broker: Broker, session: Session, topic: Topic
) -> None:
    """Twice in a session, or from another process; the one that uses it goes on."""
    consumer = session.create_durable_consumer(topic, topic.name)
    with pytest.raises(UsageError, match="in use"):
        session.create_durable_consumer(topic, topic.name)
    with Connection(artemis_broker.url, client_id=CLIENT_ID) as another:
        with pytest.raises(UsageError, match="in use"):
            another.create_session().create_durable_consumer(topic, topic.name)
        send(session, topic, "red")
        assert bodies(consumer) == ["red"]
        consumer.close()
        another.create_session().create_durable_consumer(topic, topic.name).close()


def test_refused_claim_can_be_made_again(
    artemis_broker: Broker, session: Session, topic: Topic
) -> None:
    """A connection that was refused does not take the subscription for its own."""
    consumer = session.create_durable_consumer(topic, topic.name)
    with Connection(artemis_broker.url, client_id=CLIENT_ID) as another:
        eager = another.create_session()
        with pytest.raises(UsageError, match="in use"):
            eager.create_durable_consumer(topic, topic.name)
        consumer.close()
        eager.create_durable_consumer(topic, topic.name)


def test_unsubscribing(artemis_broker: Broker, session: Session, topic: Topic) -> None:
    """Not while it is in use, not twice, and never at the cost of the session."""
    consumer = session.create_durable_consumer(topic, topic.name)
    with pytest.raises(BrokerError, match="in use"):
        session.unsubscribe(topic.name)
    send(session, topic, "red")
    assert bodies(consumer) == ["red"]
    consumer.close()
    session.unsubscribe(topic.name)
    with Console(artemis_broker) as console:
        assert console.queues("NAME", topic.name) == []
    with pytest.raises(InvalidDestinationError, match="No durable subscription exists"):
        session.unsubscribe(topic.name)
    send(session, topic, "red")


def test_unsubscribing_without_client_id(artemis_broker: Broker) -> None:
    """There is no such subscription."""
    with Connection(artemis_broker.url) as connection, pytest.raises(InvalidClientIdError):
        connection.create_session().unsubscribe("any")


def test_bad_selector_costs_nothing(session: Session, topic: Topic) -> None:
    """Artemis closes the connection on it; the session's is another one."""
    consumer = session.create_consumer(topic)
    with pytest.raises(InvalidSelectorError):
        session.create_consumer(topic, selector="tint = = 'red'")
    with pytest.raises(InvalidSelectorError):
        session.create_durable_consumer(topic, topic.name, selector="tint LIKE")
    send(session, topic, "red")
    assert bodies(consumer) == ["red"]


def test_topic_that_is_a_queue_too_is_refused(session: Session, topic: Topic) -> None:
    """Its subscriber would take the messages of the queue."""
    queue = session.create_queue(topic.name)
    session.create_producer(queue).send(Message("for the queue"))
    for subscribe in (
        partial(session.create_consumer, topic),
        partial(session.create_durable_consumer, topic, topic.name),
    ):
        with pytest.raises(InvalidDestinationError, match="address of a queue too"):
            subscribe()
    assert bodies(session.create_consumer(queue)) == ["for the queue"]


def test_queue_of_another_address_is_refused(session: Session, topic: Topic) -> None:
    """What is sent to that full name would vanish."""
    session.create_consumer(session.create_queue(f"{topic.name}::q-{topic.name}")).close()
    with pytest.raises(InvalidDestinationError, match="belongs to address"):
        session.create_consumer(session.create_queue(f"other.{topic.name}::q-{topic.name}"))


def test_queue_that_is_called_like_a_subscription_is_never_touched(
    session: Session, topic: Topic
) -> None:
    """A subscription's queue is called after client and name, and so may an application's be: it keeps its messages."""
    queue = Queue(f"{CLIENT_ID}.{topic.name}")
    session.create_producer(queue).send(Message("kept"))
    with pytest.raises(InvalidDestinationError, match="is a queue"):
        session.create_durable_consumer(topic, topic.name)
    with pytest.raises(InvalidDestinationError, match="is a queue"):
        session.unsubscribe(topic.name)
    assert bodies(session.create_consumer(queue)) == ["kept"]
