"""What JMS users expect at the edges: fields after send(), temporary destinations, no_local, browsers."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from jmsx import AcknowledgeMode, Connection, Destination, Message, RedeliveryPolicy, Session, Topic
from jmsx.app import App
from jmsx.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidDestinationError,
    UnsupportedError,
    UsageError,
)
from jmsx_broker import ClassicBroker
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually
from tests.integration.support import take

if TYPE_CHECKING:
    from jmsx import Queue
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker


def test_what_send_sets(broker: Broker, connection: Connection, queue: Queue) -> None:
    """JMSMessageIDHeaderTest, JMSTimestampHeaderTest, JMSExpirationHeaderTest and others."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    consumer = session.create_consumer(queue)
    for number in range(3):
        sent, before = Message(str(number)), time.time()
        producer.send(sent, priority=7, time_to_live=60.0, persistent=number != 1)
        assert sent.timestamp is not None
        assert before - 0.001 <= sent.timestamp <= time.time()
        (came,) = take(consumer, 1)
        for field in ("destination", "expiration", "priority", "persistent"):
            assert getattr(sent, field) == getattr(came, field), field
        if isinstance(broker, ClassicBroker):
            assert (sent.message_id, sent.timestamp) == (came.message_id, came.timestamp)
        else:
            assert sent.message_id is None
            assert came.timestamp is not None  # the broker's


def test_an_id_that_nobody_tells(broker: Broker, queue: Queue) -> None:
    """A broker that is given a client id does not say how it calls the connection, and so its messages."""
    with Connection(broker.url, client_id=queue.name) as connection:
        connection.start()
        for mode in (AcknowledgeMode.AUTO_ACKNOWLEDGE, AcknowledgeMode.CLIENT_ACKNOWLEDGE):
            session = connection.create_session(mode)
            sent = Message("x")
            session.create_producer(queue).send(sent)
            (came,) = take(session.create_consumer(queue), 1)
            assert sent.message_id is None
            assert came.message_id
            came.acknowledge()
            session.close()


def test_an_answer_by_message_id(classic_broker: ClassicBroker, queue: Queue) -> None:
    """The requester selects by the id of its request."""
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        other = connection.create_session()
        answers = session.create_queue(f"{queue.name}.answers")
        request = Message("?", reply_to=answers)
        session.create_producer(queue).send(request)
        (asked,) = take(other.create_consumer(queue), 1)
        assert asked.reply_to is not None
        other.create_producer().send(
            Message("!", correlation_id=asked.message_id), destination=asked.reply_to
        )
        selector = f"JMSCorrelationID = '{request.message_id}'"
        assert take(session.create_consumer(answers, selector=selector), 1)[0].text == "!"


def test_a_dead_letter_is_sent_to_where_it_was(broker: Broker, queue: Queue) -> None:
    """A copy that jmsx made tells its original destination, as the broker's own do."""
    policy = RedeliveryPolicy(maximum_redeliveries=0)
    dlqs = f"queue://{queue.name}.dead"
    with Connection(broker.url, redelivery_policy=policy, dead_letter=dlqs) as connection:
        connection.start()
        session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        session.create_producer(queue).send(Message("x", properties={"n": 1}))
        session.commit()
        consumer = session.create_consumer(queue)
        take(consumer, 1)
        session.rollback()
        (letter,) = take(session.create_consumer(session.create_queue(dlqs)), 1)
        assert letter.original_destination == queue
        session.create_producer().send(letter, destination=letter.original_destination)
        session.commit()
        (again,) = take(consumer, 1)
        assert (again.text, again.properties["n"]) == ("x", 1)
        session.commit()


def test_temporary_topics(connection: Connection) -> None:
    """Each subscriber has what is sent; another session can send to it, and not read."""
    session, other = connection.create_session(), connection.create_session()
    topic = session.create_temporary_topic()
    readers = [session.create_consumer(topic) for _ in range(2)]
    session.create_producer(topic).send(Message("own"))
    other.create_producer(topic).send(Message("other"))
    assert [[one.text for one in take(reader, 2)] for reader in readers] == [["own", "other"]] * 2
    with pytest.raises(InvalidDestinationError, match="belongs to another session"):
        other.create_consumer(topic)


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_names_a_temporary_one_lets_its_own_session_read_it(
    broker: Broker, connection: Connection, queue: Queue, kind: str
) -> None:
    """Who was asked could take the answers that were meant for others, as `reply_to` names no owner."""
    session = connection.create_session()
    made = session.create_temporary_queue() if kind == "queue" else session.create_temporary_topic()
    with Connection(broker.url) as server:
        server.start()
        serving = server.create_session()
        for reader in (session, serving):
            session.create_producer(queue).send(Message("ask", reply_to=made))
            asking = reader.create_consumer(queue)
            (message,) = take(asking, 1)
            asking.close()
            assert message.reply_to is not None
            if reader is session:
                mine = session.create_consumer(message.reply_to)
            else:
                with pytest.raises(InvalidDestinationError, match="belongs to another session"):
                    serving.create_consumer(message.reply_to)
        serving.create_producer(message.reply_to).send(Message("answer"))
        assert [one.text for one in take(mine, 1)] == ["answer"]


def test_no_durable_subscription_of_a_temporary_topic(broker: Broker) -> None:
    """TemporaryDestinationTest.testDurableSubscriptionOnTemporaryTopic, and of one that came as a reply-to."""
    with Connection(broker.url, client_id=uuid.uuid4().hex) as connection:
        session = connection.create_session()
        for topic in (session.create_temporary_topic(), Destination("remote-temp-topic://x")):
            with pytest.raises(InvalidDestinationError, match="is temporary"):
                session.create_durable_consumer(topic, "s")


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_deleting_what_is_temporary(connection: Connection, kind: str) -> None:
    """JmsTempDestinationTest.testDeleteDestination and testDeleteDestinationWithSubscribersFails."""
    session, other = connection.create_session(), connection.create_session()
    made = session.create_temporary_queue() if kind == "queue" else session.create_temporary_topic()
    consumer = session.create_consumer(made)
    producer, foreign = session.create_producer(made), other.create_producer(made)
    producer.send(Message("x"))
    take(consumer, 1)
    with pytest.raises(IllegalStateError, match="A consumer is consuming from"):
        made.delete()
    consumer.close()
    made.delete()
    made.delete()
    for sender in (producer, foreign):
        with pytest.raises(InvalidDestinationError, match="it was deleted"):
            sender.send(Message("y"))
    with pytest.raises(InvalidDestinationError, match="it was deleted"):
        session.create_consumer(made)


def test_what_is_gone_with_its_session(broker: Broker, connection: Connection) -> None:
    """JmsTempDestinationTest.testPublishFailsForClosedConnection; Artemis would make a queue that nobody reads."""
    session = connection.create_session()
    with Connection(broker.url) as short:
        short.start()
        made = short.create_session().create_temporary_queue()
        session.create_producer(made).send(Message("works"))
    with pytest.raises(InvalidDestinationError, match="is gone"):
        session.create_producer(made).send(Message("x"))


@pytest.mark.parametrize("read_first", [True, False])
def test_an_answer_before_it_is_read(
    connection: Connection, broker: Broker, queue: Queue, *, read_first: bool
) -> None:
    """JmsTempDestinationTest.testTempQueueHoldsMessagesWithoutConsumers: the queue is there when it is made."""
    session = connection.create_session()
    made = session.create_temporary_queue()
    answers = session.create_consumer(made) if read_first else None
    for _ in range(3):
        session.create_producer(queue).send(Message("?", reply_to=made))
    with Connection(broker.url) as other:
        other.start()
        server = other.create_session()
        for number, request in enumerate(take(server.create_consumer(queue), 3)):
            assert request.reply_to is not None
            server.create_producer().send(Message(str(number)), destination=request.reply_to)
        answers = answers or session.create_consumer(made)
        assert [one.text for one in take(answers, 3)] == ["0", "1", "2"]
        answers.close()
        server.create_producer().send(Message("late"), destination=request.reply_to)
        again = session.create_consumer(made)
        assert take(again, 1)[0].text == "late"
        again.close()
        made.delete()
        if not isinstance(broker, ClassicBroker):
            with pytest.raises(InvalidDestinationError):
                server.create_producer().send(Message("!"), destination=request.reply_to)


def test_an_answer_to_who_is_gone(broker: Broker, connection: Connection, queue: Queue) -> None:
    """The server hears of it, and no queue of that name stays; Artemis would make one."""
    server = connection.create_session()
    consumer = server.create_consumer(queue)
    with Connection(broker.url) as client:
        client.start()
        session = client.create_session()
        made = session.create_temporary_queue()
        answers = session.create_consumer(made)
        for _ in range(2):
            session.create_producer(queue).send(Message("?", reply_to=made))
        first, second = take(consumer, 2)
        assert first.reply_to is not None
        assert second.reply_to is not None
        server.create_producer().send(Message("!"), destination=first.reply_to)
        assert take(answers, 1)[0].text == "!"
    with pytest.raises(InvalidDestinationError):
        server.create_producer().send(Message("!"), destination=second.reply_to)
    if not isinstance(broker, ClassicBroker):
        with pytest.raises(InvalidDestinationError):  # and there still is none
            server.create_producer().send(Message("!"), destination=second.reply_to)


def test_a_transacted_server_whose_clients_are_gone(broker: Broker, queue: Queue) -> None:
    """send() tells it at once, the link stays, and who waits behind them is served within seconds."""
    gone: list[str | None] = []
    app = App(broker.url)

    @app.consumer(queue.uri, mode=AcknowledgeMode.SESSION_TRANSACTED)
    def serve(request: Message, session: Session) -> None:
        assert request.reply_to is not None
        try:
            session.create_producer().send(request.text.upper(), destination=request.reply_to)
        except InvalidDestinationError:
            gone.append(request.text)

    with Connection(broker.url) as waiting:
        waiting.start()
        session = waiting.create_session()
        answers = session.create_temporary_queue()
        consumer = session.create_consumer(answers)
        with Connection(broker.url) as impatient:
            other = impatient.create_session()
            theirs = other.create_temporary_queue()
            other.create_consumer(theirs)
            for number in range(8):
                other.create_producer(queue).send(Message(str(number), reply_to=theirs))
        session.create_producer(queue).send(Message("waits", reply_to=answers))
        with app:
            answer = consumer.receive(10.0)
    assert answer is not None
    assert answer.text == "WAITS"
    assert gone == [str(number) for number in range(8)]


@pytest.mark.parametrize("end", ["delete", "close"])
def test_late_answers_do_not_stay(artemis_broker: Broker, end: str) -> None:
    """The broker would keep a queue with something in it, although nobody can ever read it."""
    with Connection(artemis_broker.url) as connection, Console(artemis_broker) as console:
        connection.start()
        session = connection.create_session()
        made = session.create_temporary_queue()
        consumer = session.create_consumer(made)
        session.create_producer(made).send(Message("late"))
        consumer.close()
        assert console.queues("ADDRESS", made.name) != []
        if end == "delete":
            made.delete()
        else:
            session.close()
        assert console.queues("ADDRESS", made.name) == []


def test_what_a_producer_sends_with(connection: Connection, queue: Queue) -> None:
    """Its own fields, as Java's setPriority and others, unless send() says otherwise."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.priority, producer.time_to_live, producer.persistent = 7, 60.0, False
    consumer = session.create_consumer(queue)
    producer.send(Message("1"))
    producer.send(Message("2"), priority=3, time_to_live=0.0, persistent=True)
    first, second = sorted(take(consumer, 2), key=lambda one: one.text)
    assert (first.priority, first.expiration > 0, first.persistent) == (7, True, False)
    assert (second.priority, second.expiration > 0, second.persistent) == (3, False, True)
    producer.priority = 10
    with pytest.raises(ConfigurationError, match="priority must be"):
        producer.send(Message("3"))


def test_a_consumer_with_a_listener(connection: Connection, queue: Queue) -> None:
    """It begins with it; what cannot be one leaves no consumer behind."""
    session = connection.create_session()
    session.create_producer(queue).send(Message("x"))
    with pytest.raises(UsageError, match="prefetch size of zero"):
        session.create_consumer(f"{queue.name}?consumer.prefetchSize=0", listener=print)
    seen: list[str] = []
    session.create_consumer(queue, listener=lambda message: seen.append(message.text))
    assert eventually(lambda: seen == ["x"], 5)


@pytest.mark.parametrize("selector", [None, "color = 'red'"])
def test_no_local_of_a_durable_consumer(broker: Broker, selector: str | None) -> None:
    """It leaves out what any session of the connection sends, and keeps the backlog of others."""
    client, topic = f"it's {uuid.uuid4().hex[:8]}", Topic(f"jmsx.{uuid.uuid4().hex[:8]}")
    red = {"color": "red"}
    with Connection(broker.url, client_id=client) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_durable_consumer(topic, "s", selector=selector, no_local=True)
        connection.create_session().create_producer(topic).send(Message("own", properties=red))
        session.create_producer(topic).send(Message("own", properties=red))
        with Connection(broker.url) as foreign:
            foreign.create_session().create_producer(topic).send(Message("a", properties=red))
        assert take(consumer, 1)[0].text == "a"
    with Connection(broker.url) as foreign:
        foreign.create_session().create_producer(topic).send(Message("b", properties=red))
    with Connection(broker.url, client_id=client) as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(topic).send(Message("own", properties=red))
        consumer = session.create_durable_consumer(topic, "s", selector=selector, no_local=True)
        assert take(consumer, 1)[0].text == "b"
        assert consumer.receive(0.3) is None


def test_another_no_local_makes_a_durable_subscription_anew(broker: Broker) -> None:
    """What waited for the old one is gone, as JMS says of another topic or selector."""
    client, topic = uuid.uuid4().hex[:8], Topic(f"jmsx.{uuid.uuid4().hex[:8]}")
    with Connection(broker.url, client_id=client) as connection:
        connection.start()
        session = connection.create_session()
        session.create_durable_consumer(topic, "s").close()
        session.create_producer(topic).send(Message("own"))
        consumer = session.create_durable_consumer(topic, "s", no_local=True)
        session.create_producer(topic).send(Message("own"))
        assert consumer.receive(0.5) is None


def test_a_browser_does_not_show_what_has_expired(
    classic_broker: ClassicBroker, queue: Queue
) -> None:
    """JmsQueueBrowserExpirationTest: ten, and then none, although the broker has not looked yet."""
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        for _ in range(10):
            session.create_producer(queue).send(Message("x"), time_to_live=1.5)
        browser = session.create_browser(queue)
        assert len(list(browser)) == 10
        time.sleep(1.6)
        assert list(browser) == []


@pytest.mark.parametrize("text", ["STOMP:\nack:17\n\nb", "ack:1\nack:2\n"])
def test_a_browser_shows_a_text_that_names_an_ack(
    classic_broker: ClassicBroker, queue: Queue, text: str
) -> None:
    """As it was sent: a browser acknowledges nothing, and is told none."""
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        for body in (text, "next"):
            producer.send(Message(body))
        assert [message.text for message in session.create_browser(queue)] == [text, "next"]


def test_closing_a_browser_ends_its_iterations(classic_broker: ClassicBroker, queue: Queue) -> None:
    """The broker has no consumer left, also where nobody iterates to the end."""
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        for number in range(3):
            session.create_producer(queue).send(Message(str(number)))
        browser = session.create_browser(queue)
        shown = iter(browser)
        assert next(shown).text == "0"
        browser.close()
        assert list(shown) == []
        assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 0, 5)


def test_durable_consumers_beside_other_consumers(broker: Broker, queue: Queue) -> None:
    """Where another session's consumers hold the client id the error says what to do, and that helps."""
    topic, name = Topic(f"{queue.name}.topic"), queue.name
    advice = "the first of them before any other consumer of the connection"
    with Connection(broker.url, client_id=name) as connection:
        first, second = connection.create_session(), connection.create_session()
        first.create_consumer(queue)
        with pytest.raises(UnsupportedError, match=advice):
            second.create_durable_consumer(topic, "one")
    with Connection(broker.url, client_id=name) as connection:
        connection.start()
        first, second = connection.create_session(), connection.create_session()
        durables = [second.create_durable_consumer(topic, one) for one in ("one", "two")]
        consumers = [*durables, first.create_consumer(queue), second.create_consumer(queue)]
        first.create_producer(topic).send("x")
        assert [take(durable, 1)[0].text for durable in durables] == ["x", "x"]
        for consumer in consumers:
            consumer.close()
        for one in ("one", "two"):
            second.unsubscribe(one)


def test_a_durable_consumer_without_client_id(broker: Broker) -> None:
    """As in Java it is no InvalidClientIdError; it says at which broker, of what, and what to do."""
    with Connection(broker.url) as connection:
        session = connection.create_session()
        with pytest.raises(
            UsageError,
            match=r"'sub' of topic://prices needs a connection to .*:\d+ with a client id",
        ):
            session.create_durable_consumer("topic://prices", "sub")
