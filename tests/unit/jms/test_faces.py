"""What the objects of JMS show: its calls and documented fields, and none of what they are made of."""

from __future__ import annotations

from typing import Final

import pytest

from jmsx import (
    Connection,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    QueueBrowser,
    Session,
    TemporaryQueue,
)
from jmsx.errors import IllegalStateError
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer

#: By class: what its objects show without an underscore, attributes too.
FACES: Final = {
    Connection: "abort close create_session options set_exception_listener start stop",
    Session: "close commit create_browser create_consumer create_durable_consumer create_producer create_queue"
    " create_shared_consumer create_shared_durable_consumer create_temporary_queue create_temporary_topic create_topic"
    " mode recover rollback transacted unsubscribe",
    MessageConsumer: "close destination receive receive_no_wait set_listener",
    MessageProducer: "close disable_message_timestamp persistent priority send time_to_live",
    QueueBrowser: "close queue",
    Message: "acknowledge body correlation_id delivery_count destination expiration group_id group_sequence identity"
    " json key message_id original_destination persistent priority properties readable redelivered reply_to text"
    " timestamp type",
    Queue: "address is_temporary is_topic name told uri",
    TemporaryQueue: "address check delete deleted is_temporary is_topic name owner public public_epoch told uri",
}


@pytest.fixture(scope="module")
def shown() -> dict[type, object]:
    """One object of each class."""
    with FakeBrokerServer() as broker, Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        consumer, producer = session.create_consumer("queue://a"), session.create_producer()
        producer.send("x", destination="queue://a")
        objects = (
            connection,
            session,
            consumer,
            producer,
            session.create_browser("queue://a"),
            consumer.receive(10),
            session.create_queue("a"),
            session.create_temporary_queue(),
        )
        return {face: each for each in objects for face in FACES if isinstance(each, face)}


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_the_face_is_jms(kind: type, shown: dict[type, object]) -> None:
    """Who adds a name here means it for applications."""
    names = sorted(name for name in dir(shown[kind]) if not name.startswith("_"))
    assert names == FACES[kind].split()


def test_a_selector_stands_where_java_has_it() -> None:
    """Behind the destination, and behind the name of a durable subscription."""
    with FakeBrokerServer() as broker, Connection(broker.url, client_id="c") as connection:
        connection.start()
        session = connection.create_session()
        prices = session.create_durable_consumer("topic://p", "prices", "colour = 'red'")
        session = connection.create_session()
        producer = session.create_producer()
        for colour in ("blue", "red"):
            coloured = Message(colour, properties={"colour": colour})
            producer.send(coloured, destination="queue://a")
            producer.send(coloured, destination="topic://p")
        browser = session.create_browser("queue://a", "colour = 'red'")
        assert [message.body for message in browser] == ["red"]
        for consumer in (prices, session.create_consumer("queue://a", "colour = 'red'")):
            message = consumer.receive(10)
            assert message is not None
            assert message.body == "red"


@pytest.mark.parametrize("wholly", [False, True])
def test_a_session_that_is_closed_while_it_is_browsed(*, wholly: bool) -> None:
    """By us: nobody says that the broker has closed the connection."""
    with FakeBrokerServer() as broker, Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        for text in "ab":
            session.create_producer(Queue("a")).send(Message(text))
        shown = iter(session.create_browser("queue://a"))
        assert next(shown).body == "a"
        (connection if wholly else session).close()
        with pytest.raises(IllegalStateError, match="The Session is closed"):
            next(shown)


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_each_call_is_documented(kind: type) -> None:
    """For who asks help()."""
    calls = [getattr(kind, name, None) for name in FACES[kind].split()]
    assert all(call.__doc__ for call in calls if call is not None)


def test_neighbours_get_the_link(shown: dict[type, object]) -> None:
    """By a function, since it is no part of the face."""
    session = shown[Session]
    assert isinstance(session, Session)
    assert link_of(session).dialect.name == "classic"
