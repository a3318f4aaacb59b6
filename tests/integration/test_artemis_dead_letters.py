"""Dead letters on a real Artemis: each lies in one queue, is not lost, and the broker's own tools bring it back."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from jmsx import AcknowledgeMode, Connection, Message, Reject, Topic
from jmsx.app import App
from jmsx.core.events import LinkRestored
from jmsx.core.frames import Frame
from jmsx.jms.destination import Queue
from jmsx_broker import ArtemisBroker
from jmsx_broker.wire import Wire
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually, send
from tests.integration.support import AUTO, CLIENT, DUPS_OK, NO_RETRY, Diary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Destination, MessageConsumer, Session
    from jmsx_broker import Broker
    from jmsx_broker.artemis_recipe import Setting

pytestmark = pytest.mark.broker

CLIENT_ID: Final = "shop"

SENT: Final = (
    Message("text", properties={"n": 1, "tint": "red"}, correlation_id="c1", type="order"),
    Message(b"\x00\xff", properties={"n": 2}),
    Message({"a": 1, "b": b"\x01"}, group_id="g"),
    Message("", reply_to=Queue("answers")),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    """Addresses with every kind of place for dead letters; those without a prefix have the anycast queue DLQ."""
    settings: dict[str, dict[str, Setting]] = {
        "auto.#": {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True},
        "none.#": {"dead-letter-address": ""},
        "hole.#": {"dead-letter-address": "nowhere"},
    }
    with ArtemisBroker(address_settings=settings) as artemis:
        yield artemis


def origin(kind: str, prefix: str) -> tuple[Destination, str | None]:
    """A destination that no other test knows, and the durable subscription to read it by."""
    name = f"{prefix}{uuid.uuid4().hex[:8]}"
    if kind == "durable":
        return Topic(name), f"sub-{name}"
    return Queue(f"{name}::part-{name}" if kind == "fqqn" else name), None


def consume(session: Session, destination: Destination, durable: str | None) -> MessageConsumer:
    """A consumer of it."""
    if durable is None:
        return session.create_consumer(destination)
    return session.create_durable_consumer(destination, durable)


def dead_letter_one(
    broker: ArtemisBroker, destination: Destination, durable: str | None, dead_letter: str = "safe"
) -> None:
    """Send all of SENT, and reject each at its first delivery."""
    with Connection(broker.url, client_id=CLIENT_ID, dead_letter=dead_letter) as connection:
        connection.start()
        session = connection.create_session(CLIENT)
        consumer = consume(session, destination, durable)
        producer = session.create_producer(destination)
        for message in SENT:
            producer.send(message)
            assert consumer.receive(10) is not None
            session.recover(Reject("unreadable"))


def told(message: Message | None) -> tuple[object, ...] | None:
    """What an application sees of a message that it may care for."""
    if message is None:
        return None
    names = {"n", "tint"}
    given = {name: str(value) for name, value in message.properties.items() if name in names}
    return message.body, given, message.correlation_id, message.type, message.reply_to


@pytest.mark.parametrize("kind", ["queue", "fqqn", "durable"])
@pytest.mark.parametrize(
    ("prefix", "dead_letter", "dlq"),
    [
        ("", "safe", "DLQ"),
        ("auto.", "safe", "DLQ.{}"),
        ("none.", "safe", "jmsx.DLQ"),
        ("hole.", "safe", "jmsx.DLQ"),
        ("auto.named.", "queue://mine", "mine"),
    ],
    ids=["anycast", "auto-created", "no-address", "no-queue", "named"],
)
def test_management_brings_dead_letters_back(
    broker: ArtemisBroker, kind: str, prefix: str, dead_letter: str, dlq: str
) -> None:
    """Each copy lies in one queue, the one expected; `retryMessages` puts it back where it came from, unchanged."""
    destination, durable = origin(kind, prefix)
    with Console(broker) as console:
        assert console.holds({})
        dead_letter_one(broker, destination, durable, dead_letter)
        place = dlq.format(destination.name.partition("::")[0])
        assert console.holds({place: len(SENT)})
        assert console.ask(f"queue.{place}", "retryMessages") == len(SENT)
        home = f"{CLIENT_ID}.{durable}" if durable else destination.name.rpartition("::")[2]
        assert console.holds({home: len(SENT)})
    with Connection(broker.url, client_id=CLIENT_ID) as connection:
        connection.start()
        session = connection.create_session()
        consumer = consume(session, destination, durable)
        received = [consumer.receive(10) for _ in SENT]
        assert [told(message) for message in received] == [told(message) for message in SENT]
        home_uri = destination.uri.partition("::")[0]
        assert {str(message.destination) for message in received if message} == {home_uri}
        assert consumer.receive_no_wait() is None


def test_subscribers_of_one_topic_have_their_own_dead_letters(broker: ArtemisBroker) -> None:
    """A dead letter of one durable subscription comes back to it, and to no other."""
    topic, name = Topic(f"auto.{uuid.uuid4().hex[:8]}"), uuid.uuid4().hex[:8]
    with Connection(broker.url, client_id=CLIENT_ID) as connection, Console(broker) as console:
        connection.start()
        session = connection.create_session(CLIENT)
        both = [session.create_durable_consumer(topic, f"{name}-{which}") for which in "ab"]
        session.create_producer(topic).send(Message("poison"))
        assert [told(consumer.receive(10)) for consumer in both] == [told(Message("poison"))] * 2
        session.recover(Reject("no"))
        assert console.holds({f"DLQ.{topic.name}": 2})
        assert console.ask(f"queue.DLQ.{topic.name}", "retryMessages") == 2
        assert [told(consumer.receive(10)) for consumer in both] == [told(Message("poison"))] * 2
        assert [consumer.receive_no_wait() for consumer in both] == [None, None]
        session.recover(Reject("done"))
        assert console.holds({f"DLQ.{topic.name}": 2})
        console.ask("broker", "destroyQueue", f"DLQ.{topic.name}")


def test_queue_for_dead_letters_that_vanished_is_made_as_it_was(broker: ArtemisBroker) -> None:
    """
    The broker removes the queue that it made when it was emptied; the next copy finds it again, with its filter.

    Without the filter it would take the dead letters of every other address too.
    """
    queue = Queue(f"auto.{uuid.uuid4().hex[:8]}")
    with Connection(broker.url) as connection, Console(broker) as console:
        connection.start()
        session = connection.create_session(CLIENT)
        consumer = session.create_consumer(queue)
        for _ in range(2):
            session.create_producer(queue).send(Message("poison"))
            assert consumer.receive(10) is not None
            session.recover(Reject("no"))
            assert console.holds({f"DLQ.{queue.name}": 1})
            (dlq,) = console.queues("NAME", f"DLQ.{queue.name}")
            assert (dlq["filter"], dlq["autoDelete"], dlq["routingType"]) == (
                f"_AMQ_ORIG_ADDRESS = '{queue.name}'",
                "true",
                "MULTICAST",
            )
            console.ask("broker", "destroyQueue", dlq["name"])


def test_copy_joins_what_the_broker_itself_moved(broker: ArtemisBroker) -> None:
    """One queue has both, and one call brings both back."""
    queue = Queue(f"auto.{uuid.uuid4().hex[:8]}")
    with Console(broker) as console:
        put_and_let_the_broker_dead_letter(broker, console, queue.name)
        dead_letter_one(broker, queue, None)
        assert console.holds({f"DLQ.{queue.name}": 1 + len(SENT)})
        assert console.ask(f"queue.DLQ.{queue.name}", "retryMessages") == 1 + len(SENT)
        assert console.holds({queue.name: 1 + len(SENT)})
        console.ask("broker", "destroyQueue", queue.name)


def put_and_let_the_broker_dead_letter(broker: ArtemisBroker, console: Console, queue: str) -> None:
    """One message, moved to its dead letter address by management, as after too many attempts."""
    with Wire(broker.url) as wire:
        headers = {"destination": queue, "destination-type": "ANYCAST", "persistent": "true"}
        wire.request(Frame("SEND", headers, b"by the broker"))
    # a queue shows a message a moment after its sender has the answer
    assert console.holds({queue: 1})
    (message,) = json.loads(console.ask(f"queue.{queue}", "listMessagesAsJSON", ""))
    assert console.ask(f"queue.{queue}", "sendMessageToDeadLetterAddress", message["messageID"])
    assert console.holds({f"DLQ.{queue}": 1})


@pytest.mark.parametrize(
    ("settings", "safe"),
    [
        ({"routing_type": "MULTICAST", "durable": True}, True),
        ({"routing_type": "MULTICAST", "durable": True, "filter_string": "a = 'b'"}, False),
        ({"routing_type": "MULTICAST", "durable": False}, False),
        ({"routing_type": "ANYCAST", "durable": True, "ring_size": 1}, False),
        ({"routing_type": "ANYCAST", "durable": True}, True),
    ],
    ids=["multicast", "filters", "forgets", "ring", "anycast"],
)
def test_only_a_queue_that_keeps_copies_gets_them(
    broker: ArtemisBroker, settings: dict[str, object], *, safe: bool
) -> None:
    """What another queue on the dead letter address does with copies is nobody's guess: then it is our own."""
    with Console(broker) as console:
        console.create_queue("morgue", "nowhere", **settings)
        queue = Queue(f"hole.{uuid.uuid4().hex[:8]}")
        try:
            dead_letter_one(broker, queue, None)
            assert console.holds({"morgue" if safe else "jmsx.DLQ": len(SENT)})
        finally:
            console.ask("broker", "destroyQueue", "morgue")
        if not safe:
            assert console.ask("queue.jmsx.DLQ", "removeAllMessages") == len(SENT)


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_what_expires_in_the_prefetch_lies_with_the_others(
    artemis_broker: Broker, queue: Queue, persistent: str
) -> None:
    """Where the broker puts what expires in its own hands; it does so with every message, so does jmsx."""
    with Connection(artemis_broker.url) as connection, Console(artemis_broker) as console:
        consumer = connection.create_session().create_consumer(queue)
        head = {"destination": queue.name, "destination-type": "ANYCAST", "persistent": persistent}
        with Wire(artemis_broker.url, timeout=10) as wire:
            expires = str(int((time.time() + 2) * 1000))
            wire.request(Frame("SEND", {**head, "expires": expires}, b"late"))
        time.sleep(2.5)
        connection.start()
        assert consumer.receive(1) is None
        mine = f"_AMQ_ORIG_ADDRESS = '{queue.name}'"
        assert eventually(lambda: console.ask("queue.ExpiryQueue", "countMessages", mine) == 1)
        assert eventually(lambda: queue.name not in console.sizes())


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_what_expires_between_others_costs_no_link(
    artemis_broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """Each of the others is done once: an ACK of what an expired message's has covered would end the link."""
    diary, seen, rounds = Diary(), list[str](), 20
    app = App(artemis_broker.url, observers=[diary], watch=0)

    @app.consumer(queue, mode=mode)
    def handle(message: Message) -> None:
        seen.append(message.text)
        if message.text == "first":
            time.sleep(1.5)  # until the others have expired

    with Connection(artemis_broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        producer.send("first")
        for n in range(rounds):
            producer.send(f"late {n}", time_to_live=1)
            producer.send(f"{n}")
    with app:
        assert eventually(lambda: len(seen) > rounds, 10)
    assert seen == ["first", *map(str, range(rounds))]
    assert [one for one in diary.events if isinstance(one, LinkRestored)] == []


@pytest.mark.parametrize(
    ("size", "headers"),
    [
        pytest.param(110_000, {"content-length": "110000"}, id="bytes"),
        pytest.param(60_000, {}, id="text"),
    ],
)
@pytest.mark.parametrize(("count", "each"), [(10, 4_400), (700, 40)], ids=["few", "many"])
def test_a_large_message_with_large_headers_is_copied(
    broker: ArtemisBroker, size: int, headers: dict[str, str], count: int, each: int
) -> None:
    """The broker takes it, and not with what tells why it died: its headers are cut (jmsx_artemis/BROKER.md A52)."""
    destination, _ = origin("queue", "large.")
    properties = {f"p{number}": "." * each for number in range(count)}
    send(broker, destination.name, [b"." * size], {**properties, **headers})

    def refuse(_message: Message) -> None:
        raise ValueError("." * 12_000)

    with Connection(
        broker.url, redelivery_policy=NO_RETRY, dead_letter=f"queue://dead.{destination.name}"
    ) as connection:
        connection.start()
        connection.create_session(AUTO).create_consumer(destination).set_listener(refuse)
        dead = connection.create_session().create_consumer(Queue(f"dead.{destination.name}"))
        letter = dead.receive(10)
    assert letter is not None
    assert isinstance(letter.body, str | bytes)
    assert len(letter.body) == size
