"""MapMessage goes both ways: from the Java client to jmsx, and from jmsx to the Java client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, MessageNotReadableError, Queue, Topic
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.jdk import NEEDS_JDK, run_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import ClassicBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def connection(classic_broker: ClassicBroker) -> Iterator[Connection]:
    """A started connection."""
    with Connection(classic_broker.url) as made:
        made.start()
        yield made


def java(broker: ClassicBroker, task: str, queue: Queue) -> str:
    """Run the Java peer; returns what it prints."""
    return run_peer("MapPeer", broker.openwire_url, task, queue.name)


@NEEDS_JDK
def test_a_map_from_java_arrives_whole(
    classic_broker: ClassicBroker, connection: Connection, queue: Queue
) -> None:
    """Every type that a Java map holds has its Python value."""
    java(classic_broker, "send", queue)
    message = connection.create_session().create_consumer(queue).receive(10)
    assert message is not None
    assert message.body == {
        "text": 'Zürich <&> "true"',
        "digits": "007",
        "int": -7,
        "long": 1 << 40,
        "short": 3,
        "double": 0.1,
        "truth": True,
        "char": "x",
        "bytes": b"\x00\xff",
        "nothing": None,
    }


def test_a_map_of_a_topic_is_read_by_who_asks_for_that(
    connection: Connection, queue: Queue
) -> None:
    """To have it translated costs others on the topic messages (BROKER.md C80); the rest of it can be read."""
    session, topic = connection.create_session(), Topic(queue.name)
    asks = session.create_consumer(Topic(f"{topic.name}?consumer.transformation=jms-map-xml"))
    plain = session.create_consumer(topic)
    session.create_producer(topic).send(Message({"k": 1}, properties={"colour": "red"}))
    read, bare = asks.receive(5), plain.receive(5)
    assert read is not None
    assert read.body == {"k": 1}
    assert bare is not None
    assert (bare.readable, bare.properties["colour"]) == (False, "red")
    with pytest.raises(MessageNotReadableError, match=r"\?consumer\.transformation=jms-map-xml"):
        _ = bare.body


def test_a_browser_shows_maps_among_texts(connection: Connection, queue: Queue) -> None:
    """It asks for the translation from the first map on, and shows each message once, in their order."""
    session = connection.create_session()
    bodies: list[str | dict[str, int]] = ["<a/>", "b", {"k": 1}, "", "<c/>", {"k": 2}]
    producer = session.create_producer(queue)
    for body in bodies:
        producer.send(Message(body))
    with session.create_browser(queue) as browser:
        assert [message.body for message in browser] == bodies
        assert next(iter(browser)).body == bodies[0]


def test_a_browser_that_is_closed_while_it_asks_for_the_translation(
    classic_broker: ClassicBroker,
    connection: Connection,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by another thread: it shows nothing more, and the broker has no consumer left."""
    session = connection.create_session()
    bodies: list[str | dict[str, int]] = ["a", {"k": 1}]
    for body in bodies:
        session.create_producer(queue).send(Message(body))
    browser, calls = session.create_browser(queue), link_of(session).calls
    shown, ask = iter(browser), calls.ask
    assert next(shown).body == "a"

    def ask_and_close(*asked: Any, **how: Any) -> object:
        answer = ask(*asked, **how)
        browser.close()
        return answer

    monkeypatch.setattr(calls, "ask", ask_and_close)
    assert list(shown) == []
    assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 0, 5)


@NEEDS_JDK
def test_a_map_for_java_arrives_whole(
    classic_broker: ClassicBroker, connection: Connection, queue: Queue
) -> None:
    """Java sees a MapMessage with the types that belong to the Python values."""
    content = {
        "text": "Zürich <&>",
        "digits": "007",
        "int": -7,
        "long": 1 << 40,
        "double": 0.1,
        "truth": True,
        "bytes": b"\x00\xff",
        "nothing": None,
    }
    connection.create_session().create_producer(queue).send(Message(content))
    assert java(classic_broker, "receive", queue).splitlines() == [
        "bytes byte[] [0, -1]",
        "digits String 007",
        "double Double 0.1",
        "int Integer -7",
        "long Long 1099511627776",
        "nothing null null",
        "text String Zuerich <&>",
        "truth Boolean true",
    ]


@pytest.mark.parametrize(
    "text", ["<map/>", "<map><entry><string>a</string><int>1</int></entry></map>", " <map>", "<m"]
)
def test_a_text_that_looks_like_a_map_stays_a_text(
    connection: Connection, queue: Queue, text: str
) -> None:
    """What jmsx sends as text is never read as a map."""
    session = connection.create_session()
    session.create_producer(queue).send(Message(text))
    message = session.create_consumer(queue).receive(10)
    assert message is not None
    assert message.body == text
