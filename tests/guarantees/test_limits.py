"""What JMS has and STOMP, or one of the brokers, has not: the guide says so, and jmsx does not pretend."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

import pytest

import jmsx
from jmsx.core.frames import Frame
from jmsx.errors import (
    InvalidDestinationError,
    InvalidSelectorError,
    MessageNotWriteableError,
    UnsupportedError,
)
from jmsx_broker.wire import Wire
from tests.guarantees.parts import DEAD_LETTERS, HOLDING, left, put, take, texts
from tests.integration.broker_support import eventually, queue_headers
from tests.integration.proxy import Proxy
from tests.integration.support import NO_RETRY, fresh_queue

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
        session.create_shared_durable_consumer(topic, "name", "rank > 3")


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


@pytest.mark.parametrize("mode", HOLDING, ids=lambda mode: mode.label)
def test_what_a_topic_keeps_for_nobody(
    mode: jmsx.AcknowledgeMode, queue: jmsx.Queue, broker: Broker, connection: jmsx.Connection
) -> None:
    """What a consumer had in hand is gone with its link; the next one brings what is sent from then on."""
    topic = jmsx.Topic(queue.name)
    producer = connection.create_session().create_producer(topic)
    with Proxy(broker.url) as proxy, jmsx.Connection(f"failover:({proxy.url})") as cut:
        cut.start()
        session = cut.create_session(mode)
        consumer = session.create_consumer(topic)
        for body in "abc":
            producer.send(body)
        assert texts(take(consumer)) == ["a", "b", "c"]
        visitors = proxy.visitors
        proxy.cut()
        assert eventually(lambda: proxy.visitors > visitors)
        if session.transacted:
            with pytest.raises(jmsx.TransactionRolledBackError):
                session.commit()
        assert take(consumer) == []
        producer.send("d")
        assert texts(take(consumer)) == ["d"]


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


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("amount > 100", "half many"),
        ("amount <> 7 AND NOT urgent", "half many"),
        ("urgent", "seven"),
        ("JMSPriority > 3 AND JMSTimestamp > 0 AND JMSXGroupID = 'g'", "seven"),
        ("JMSRedelivered = FALSE AND amount = 7", ("seven", "")),
        ("JMSDestination IS NOT NULL AND amount = 7", ("seven", "")),
        ("JMSMessageID LIKE 'ID:%' AND amount = 7", ("seven", "")),
    ],
)
def test_selectors(
    kind: str,
    queue: jmsx.Queue,
    connection: jmsx.Connection,
    selector: str,
    chosen: str | tuple[str, str],
) -> None:
    """Numbers and flags of jmsx as in Java; some headers are nothing to Artemis."""
    producer = connection.create_session().create_producer(queue)
    for text, amount, urgent in (
        ("seven", 7, True),
        ("half", 100.5, False),
        ("many", 2**40, False),
    ):
        properties: dict[str, PropertyValue] = {"amount": amount, "urgent": urgent}
        group = "g" if urgent else None
        producer.send(jmsx.Message(text, properties=properties, group_id=group))
    wanted = chosen if isinstance(chosen, str) else chosen[kind == "artemis"]
    consumer = connection.create_session().create_consumer(queue, selector=selector)
    assert texts(take(consumer)) == wanted.split()


@pytest.mark.parametrize(
    ("selector", "found"),
    [("a > 5/2", "2.4 3 '5' '5f' '0x1p3'"), ("a = 5", "'5' '5f'"), ("a = '5f'", "'5f'")],
)
def test_texts_that_are_numbers(
    queue: jmsx.Queue, connection: jmsx.Connection, selector: str, found: str
) -> None:
    """Also what only Java takes for one; whole numbers are divided as such."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    for value in (2, 2.4, 3, "5", "5f", "0x1p3", "five"):
        producer.send(jmsx.Message(repr(value), properties={"a": value}))
    assert texts(take(session.create_consumer(queue, selector=selector))) == found.split()


def test_selectors_that_calculate(
    kind: str, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """With a property: refused where it would stop everybody; else a + joins texts, and the rest works."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    for selector, found in (
        ("amount * 2 = 14", ["a"]),
        ("-amount = -7", ["a"]),
        ("-amount BETWEEN -8 AND -6.5", ["a"]),
        ("10 - -amount * 2 = 24", ["a"]),
        ("amount + 2 = 9", []),
    ):
        producer.send(jmsx.Message("a", properties={"amount": 7}))
        if kind == "classic":
            with pytest.raises(InvalidSelectorError):
                session.create_consumer(queue, selector=selector)
        else:
            consumer = session.create_consumer(queue, selector=selector)
            assert texts(take(consumer)) == found
            consumer.close()


def test_the_selector_of_a_durable_subscription(queue: jmsx.Queue, broker: Broker) -> None:
    """Its numbers are compared as they are written: in another text the broker would see another subscription."""
    topic = jmsx.Topic(queue.name)
    with jmsx.Connection(broker.url, client_id=queue.name) as owner:
        owner.start()
        session, found = owner.create_session(), {}
        producer = session.create_producer(topic)
        for name, selector in (("whole", "x > 1"), ("decimal", "x > 1.0")):
            consumer = session.create_durable_consumer(topic, name, selector=selector)
            for text, x in (("five", 5), ("half", 2.5)):
                producer.send(jmsx.Message(text, properties={"x": x}))
            found[name] = texts(take(consumer))
            consumer.close()
            session.unsubscribe(name)
    assert found == {"whole": ["five"], "decimal": ["five", "half"]}


def test_why_a_message_is_dead(kind: str, broker: Broker, queue: jmsx.Queue) -> None:
    """Classic's NACK has no cause; a copy has."""
    fresh = fresh_queue().name
    for dead_letter, place in (("safe", DEAD_LETTERS[kind]), (f"queue://{fresh}", fresh)):
        with jmsx.Connection(
            broker.url, redelivery_policy=NO_RETRY, dead_letter=dead_letter
        ) as failing:
            failing.start()
            put(failing, queue, queue.name)
            session = failing.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            consumer = session.create_consumer(queue)
            assert consumer.receive(10) is not None
            session.rollback(ValueError("no such account"))
            assert consumer.receive(0.5) is None
        (dead,) = (one for one in broker.browse(place) if one.body.decode() == queue.name)
        told = kind == "artemis" or place == fresh
        assert (dead.headers.get("jmsx_exception_message") == "no such account") is told


def test_a_queue_and_a_topic_of_one_name(
    kind: str, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """On Artemis they are one address, and over STOMP a topic's consumer would take from the queue."""
    put(connection, queue, "queued")
    session = connection.create_session()
    topic = jmsx.Topic(queue.name)
    if kind == "artemis":
        with pytest.raises(InvalidDestinationError, match="address of a queue"):
            session.create_consumer(topic)
    else:
        consumer = session.create_consumer(topic)
        session.create_producer(topic).send("told")
        assert texts(take(consumer)) == ["told"]
    assert texts(left(connection, queue)) == ["queued"]


def test_a_text_that_is_xml_of_a_map(
    kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Classic sends maps as that, and says of a text of a Java or STOMP program no more than of a map."""
    xml = "<map><entry><string>a</string><string>b</string></entry></map>"
    consumer = connection.create_session().create_consumer(queue)
    put(connection, queue, xml)
    with Wire(broker.url) as other:
        other.request(Frame("SEND", queue_headers(other, queue.name), xml.encode()))
    ours, theirs = take(consumer)
    assert ours.body == xml
    assert theirs.body == ({"a": "b"} if kind == "classic" else xml)


def test_what_can_be_set_of_a_message_that_came_in(
    queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Its body, as Java's after clearBody(), and what Java's setters of headers set; its properties cannot."""
    put(connection, queue, "a")
    (message,) = take(connection.create_session().create_consumer(queue))
    message.body, message.correlation_id = "b", "c"
    assert (message.text, message.correlation_id) == ("b", "c")
    with pytest.raises(MessageNotWriteableError):
        message.properties["p"] = 1
    came = message.message_id, message.destination, message.timestamp
    with connection.create_session() as session:
        session.create_producer(f"{queue.uri}.on").send(message)
    assert (message.message_id, message.destination, message.timestamp) == came


def test_what_no_selector_wants(kind: str, queue: jmsx.Queue, connection: jmsx.Connection) -> None:
    """On Classic a page of it hides what is behind it, as from the Java client."""
    session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    for wanted in [False] * 400 + [True]:
        producer.send(jmsx.Message("a", properties={"wanted": wanted}))
    session.commit()
    consumer = connection.create_session().create_consumer(queue, selector="wanted")
    found = consumer.receive(2.0 if kind == "classic" else 10.0)
    assert (found is None) is (kind == "classic")
