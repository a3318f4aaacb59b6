"""What JMS has and STOMP, or one of the brokers, has not: the guide says so, and jmsx does not pretend."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

import pytest

import jmsx
from jmsx.core.frames import Frame
from jmsx.errors import UnsupportedError
from jmsx_broker.wire import Wire
from tests.guarantees.parts import put, take

if TYPE_CHECKING:
    from jmsx.jms.message import PropertyValue
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker


def test_what_jms_has_and_jmsx_has_not() -> None:
    """Nothing by these names, which would have to do what they say."""
    missing = {
        jmsx: ("JMSContext", "XAConnection", "ConnectionMetaData"),
        jmsx.Connection: (
            "create_connection_consumer",
            "create_shared_connection_consumer",
            "meta_data",
        ),
        jmsx.Session: ("set_message_listener", "message_listener"),
        jmsx.MessageConsumer: ("start", "stop"),
    }
    assert not [name for owner, names in missing.items() for name in names if hasattr(owner, name)]
    assert "completion_listener" not in inspect.signature(jmsx.MessageProducer.send).parameters


def test_shared_subscriptions(connection: jmsx.Connection) -> None:
    """STOMP cannot ask for one; the error tells what does the same."""
    session, topic = connection.create_session(), jmsx.Topic("t")
    with pytest.raises(UnsupportedError):
        session.create_shared_consumer(topic, "name")
    with pytest.raises(UnsupportedError):
        session.create_shared_durable_consumer(topic, "name")


@pytest.mark.parametrize("option", ["exclusive=true", "priority=5", "retroactive=true"])
def test_kinds_of_consumers(
    kind: str, queue: jmsx.Queue, connection: jmsx.Connection, option: str
) -> None:
    """Options of Classic's in a destination's name; Artemis has none, and that is told."""
    session = connection.create_session()
    wanted = session.create_queue(f"{queue.name}?consumer.{option}")
    if kind == "artemis":
        with pytest.raises(UnsupportedError, match="consumer"):
            session.create_consumer(wanted)
        return
    consumer = session.create_consumer(wanted)
    put(connection, queue, "a")
    assert [message.text for message in take(consumer)] == ["a"]


def test_who_gets_what_a_transaction_sends_to_a_topic(
    kind: str, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Artemis looks for the subscribers when the message comes, and Classic when it is committed."""
    topic = jmsx.Topic(queue.name)
    sending = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
    before = connection.create_session().create_consumer(topic)
    producer = sending.create_producer(topic)
    producer.send("a")
    time.sleep(0.5)  # in which the broker reads it: nothing answers a SEND in a transaction
    between = connection.create_session().create_consumer(topic)
    sending.commit()
    assert [message.text for message in take(before)] == ["a"]
    got = between.receive(5.0 if kind == "classic" else 1.0)
    assert (got is not None) is (kind == "classic")


def test_delivery_delay(queue: jmsx.Queue, connection: jmsx.Connection) -> None:
    """A property that both brokers know, in milliseconds."""
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    began = time.monotonic()
    session.create_producer(queue).send(jmsx.Message("a", properties={"AMQ_SCHEDULED_DELAY": 700}))
    message = consumer.receive(10)
    assert message is not None
    assert time.monotonic() - began >= 0.6


def test_types_of_properties(
    kind: str, queue: jmsx.Queue, broker: Broker, connection: jmsx.Connection
) -> None:
    """They are jmsx's own affair: what others send is text, as far as STOMP tells, and their group is hidden."""
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    properties: dict[str, PropertyValue] = {
        "n": 7,
        "x": 0.5,
        "yes": True,
        "text": "7",
        "none": None,
    }
    session.create_producer(queue).send(jmsx.Message("ours", properties=properties, group_id="g"))
    ours = consumer.receive(10)
    assert ours is not None
    assert {name: ours.properties[name] for name in properties} == properties
    assert ours.group_id == "g"
    with Wire(broker.url) as other:
        kinds = {"classic": ("/queue/", {}), "artemis": ("", {"destination-type": "ANYCAST"})}
        prefix, more = kinds[kind]
        headers = {"destination": f"{prefix}{queue.name}", "n": "7", "JMSXGroupID": "g", **more}
        other.request(Frame("SEND", headers, b"theirs"))
    theirs = consumer.receive(10)
    assert theirs is not None
    assert theirs.properties["n"] == "7"
    assert theirs.group_id is None
