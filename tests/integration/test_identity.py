"""Which message it is, on both real brokers: keys that were copied, and messages that went back unseen."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jmsx
from jmsx import Connection, Destination, Message, Queue, RedeliveryPolicy, Topic
from jmsx.app import App
from jmsx.core.frames import Frame
from jmsx.jms.translation import identity_of
from jmsx.stores import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore
from jmsx_broker import ArtemisBroker, ClassicBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AUTO,
    CLIENT,
    NO_RETRY,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    reading_maps,
    take,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx.core.modes import AcknowledgeMode
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

#: Whatever a body may be; a map with both an emoji and a `<` in it is spoilt by Classic itself (6.1.8).
BODIES = [
    "x", "", None, b"bytes", b"", b"\0\1", "ünï 名 😀 \r\n\t ", "a\0b", "x" * 1_000_000, "<map></map>", " <map/>",
    {"a": 1, "ü": 2.5, "z": "t <&> \n\t  ", "b": True, "n": None, "by": b"\0\xff", "l": 2**40, "e": "", "f": 1e300},
    {"😀": -0.0, "sp": "  ", "i": -5}, {},
]  # fmt: skip


def sent_by_jmsx(broker: Broker, queue: Destination) -> dict[str, str]:
    """The headers of a message that jmsx sent, as a consumer of any client sees them; it is taken away."""
    with Connection(broker.url) as connection:
        connection.create_session().create_producer(queue).send(Message("the first"))
    wire_name = queue.name if "artemis" in type(broker).__name__.lower() else f"/queue/{queue.name}"
    with Wire(broker.url, timeout=30) as wire:
        wire.request(
            Frame("SUBSCRIBE", {"id": "1", "destination": wire_name, "ack": "auto"} | ROUTED)
        )
        headers = dict(wire.receive("MESSAGE").headers)
        assert eventually(lambda: broker.statistics(queue.name).size == 0, 10)
        wire.request(Frame("UNSUBSCRIBE", {"id": "1"}))  # else Artemis gives it more while it dies
        return headers


#: Says on Artemis that a queue is meant; Classic takes no notice.
ROUTED = {"destination-type": "ANYCAST", "subscription-type": "ANYCAST"}


def forward(broker: Broker, headers: dict[str, str], *texts: str) -> None:
    """Send these texts, each with all the headers of another message, as forwarders and splitters do."""
    left = {"content-length", "receipt"}  # stomp.py makes the first itself
    head = {name: value for name, value in headers.items() if name not in left}
    with Wire(broker.url, timeout=30) as wire:
        for one in texts:
            wire.request(Frame("SEND", {**head, **ROUTED, "persistent": "true"}, one.encode()))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "database"])
def test_three_messages_with_one_copied_key_are_three(
    broker: Broker, kind: str, tmp_path: Path
) -> None:
    """A store that knows what was done lets each of them through, and a ledger counts each by itself."""
    queue, seen = fresh_queue(), []
    shop = DatabaseStore(lambda: sqlite3.connect(tmp_path / "shop.db"))
    shop.create_table()
    stores: dict[str, IdempotencyStore] = {
        "memory": MemoryStore(),
        "sqlite": SqliteStore(tmp_path / "x.db"),
        "database": shop,
    }
    forward(broker, sent_by_jmsx(broker, queue), "one", "two", "three")
    app = App(broker.url, ledger=tmp_path / "ledger.db", redelivery_policy=NO_RETRY)

    @app.consumer(queue, dedupe=stores[kind])
    def desk(message: Message) -> None:
        seen.append((message.text, message.delivery_count))

    with app:
        assert eventually(lambda: len(seen) == 3, 20)
    assert seen == [("one", 1), ("two", 1), ("three", 1)]


def test_their_outputs_are_three(broker: Broker) -> None:
    """Artemis drops an output whose identity it knows."""
    source, target = fresh_queue(), fresh_queue()
    forward(broker, sent_by_jmsx(broker, source), "one", "two", "three")
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(source), session.create_producer(target)
        for _ in range(3):
            message = consumer.receive(5)
            assert message is not None
            producer.send(Message(f"of {message.text}"))
            session.commit()
        reader = connection.create_session().create_consumer(target)
        assert [one.text for one in take(reader, 3)] == ["of one", "of two", "of three"]


def test_they_fail_one_by_one(broker: Broker) -> None:
    """Each has all its attempts."""
    queue, seen = fresh_queue(), []
    forward(broker, sent_by_jmsx(broker, queue), "one", "two", "three")
    app = App(
        broker.url,
        redelivery_policy=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.01),
    )

    @app.consumer(queue, concurrency=2)
    def desk(message: Message) -> None:
        seen.append((message.text, message.delivery_count))
        raise ValueError(message.text)

    with app:
        assert eventually(lambda: len(seen) == 6, 20)
    assert sorted(seen) == [(one, n) for one in ("one", "three", "two") for n in (1, 2)]


def test_a_sender_that_repeats_itself_is_recognised(broker: Broker) -> None:
    """The same frame once more, as after an error that left it open whether the broker has it."""
    queue, seen = fresh_queue(), []
    headers = sent_by_jmsx(broker, queue)
    forward(broker, headers, "the first", "the first")
    app = App(broker.url)

    @app.consumer(queue, dedupe=MemoryStore())
    def desk(message: Message) -> None:
        seen.append((message.text, message.key))

    with app:
        assert eventually(lambda: broker.statistics(queue.name).size == 0, 10)
    assert seen == [("the first", headers["jmsx_key"])]


def repeat(broker: Broker, queue: Destination, count: int) -> None:
    """Send one message, with its genuine key and digest, so many times, each with properties of its own."""
    headers = sent_by_jmsx(broker, queue)
    for number in range(count):
        forward(broker, {**headers, "number": str(number)}, "the first")


def test_outputs_of_a_sender_that_repeats_itself(broker: Broker) -> None:
    """Properties differ, or nothing: each message that the broker has brings forth its own."""
    source, target = fresh_queue(), fresh_queue()
    repeat(broker, source, 3)
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(source), session.create_producer(target)
        for message in iter(lambda: consumer.receive(1), None):
            producer.send(Message(f"of {message.properties['number']}"))
            session.commit()
    assert bodies(broker, target) == ["of 0", "of 1", "of 2"]


def test_what_is_repeated_is_counted_by_itself(broker: Broker, tmp_path: Path) -> None:
    """Four at a time, with a ledger and no redelivery allowed: none becomes a dead letter because of another one."""
    queue, seen = fresh_queue(), []
    repeat(broker, queue, 4)
    app = App(broker.url, ledger=tmp_path / "ledger.db", redelivery_policy=NO_RETRY)
    together = threading.Barrier(4)

    @app.consumer(queue, concurrency=4, prefetch=1)
    def desk(message: Message) -> None:
        together.wait(20)
        seen.append((message.properties["number"], message.delivery_count))

    with app:
        assert eventually(lambda: len(seen) == 4, 20)
        assert eventually(lambda: broker.statistics(queue.name).size == 0, 10)
    assert sorted(seen) == [(str(number), 1) for number in range(4)]


@pytest.mark.parametrize("kind", [ClassicBroker, ArtemisBroker], ids=["classic", "artemis"])
def test_a_broker_names_its_messages_for_ever(kind: type[ClassicBroker | ArtemisBroker]) -> None:
    """Over links, a kill and a restart; that is what outputs and a ledger's counts go by."""
    source, target = fresh_queue(), fresh_queue()
    with kind() as broker:
        with Connection(broker.url) as connection:
            connection.create_session().create_producer(source).send(Message("x"))
        names = set()
        for turn in range(4):
            with Connection(broker.url) as connection:
                connection.start()
                session = connection.create_session(TRANSACTED)
                consumer, producer = (
                    session.create_consumer(source),
                    session.create_producer(target),
                )
                (message,) = take(consumer, 1)
                known = identity_of(message)
                assert known is not None
                names.add(known.copy)
                producer.send(Message(f"{turn}"))
                if turn == 3:
                    session.commit()
                else:
                    session.rollback()
            if turn == 1:
                broker.kill()
                broker.start()
            elif turn == 2:
                broker.stop()
                broker.start()
        assert len(names) == 1
        assert bodies(broker, target) == ["3"]


def vouched(connection: Connection, to: Destination, source: Destination, body: Any) -> bool:
    """Whether what jmsx sends `to` one destination has its key when it comes from `source`."""
    session = connection.create_session()
    consumer = session.create_consumer(source)
    key = connection.create_session().create_producer().send(Message(body), destination=to)
    message = consumer.receive(5)
    session.close()
    return message is not None and message.key == key


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body)[:20])
def test_every_body_is_vouched_for(broker: Broker, body: Any) -> None:
    """Also where the broker puts it in another form on its way."""
    queue = fresh_queue()
    with Connection(broker.url) as connection:
        connection.start()
        assert vouched(connection, queue, queue, body)


def test_every_way_is_vouched_for(broker: Broker) -> None:
    """The broker tells another destination than the sender's, or none."""
    classic = "classic" in type(broker).__name__.lower()
    name = fresh_queue().name
    ways = [
        (Topic(name), Topic(name)),
        (Queue(f"{name}.a"), Queue(f"{name}.*")),
    ]
    if classic:
        ways += [
            (Topic(f"VirtualTopic.{name}"), Queue(f"Consumer.me.VirtualTopic.{name}")),
            (Queue(f"{name}.a,{name}.b"), Queue(f"{name}.b")),
            (Topic(f"{name}.a"), Topic(f"{name}.>")),
        ]
    else:
        ways += [
            (Queue(f"{name}::{name}"), Queue(f"{name}::{name}")),
            (Queue(name), Queue(f"{name}::{name}.p")),
        ]
    with Connection(broker.url, client_id=name) as connection:
        connection.start()
        assert [way for way in ways if not vouched(connection, *way, "x")] == []
        session = connection.create_session()
        consumer = session.create_durable_consumer(reading_maps(f"{name}.t", broker), "mine")
        producer = connection.create_session().create_producer()
        key = producer.send(Message({"a": 1.5}), destination=Topic(f"{name}.t"))
        (message,) = take(consumer, 1)
        assert message.key == key
        temporary = session.create_temporary_queue()
        key = producer.send(Message("x"), destination=temporary)
        (message,) = take(session.create_consumer(temporary), 1)
        assert message.key == key
        later = Message("x", properties={"AMQ_SCHEDULED_DELAY": 100})
        key = producer.send(later, destination=Queue(name))
        (message,) = take(session.create_consumer(Queue(name)), 1)
        assert message.key == key


@pytest.mark.parametrize("body", [b"bytes", {"a": 1, "ü": 2.5, "s": " <"}, "", "a\0b"], ids=repr)
def test_what_is_sent_back_keeps_key_and_count(broker: Broker, body: Any) -> None:
    """Redelivery by the broker's scheduler: whoever sent it, the count is believed because jmsx wrote it."""
    queue, seen = fresh_queue(), []
    done = threading.Event()
    policy = RedeliveryPolicy(
        maximum_redeliveries=2,
        initial_redelivery_delay=0.1,
        redelivery_delay=0.1,
        mode="scheduled",
    )
    app = App(broker.url, redelivery_policy=policy)

    @app.consumer(queue)
    def desk(message: Message) -> None:
        seen.append((message.body, message.key, message.delivery_count))
        if len(seen) == 3:
            done.set()
        raise ValueError

    with app:
        key = app.send(queue, body)
        assert done.wait(20)
    assert [one[1:] for one in seen] == [(key, 1), (key, 2), (key, 3)]


def test_a_forged_count_makes_no_dead_letter(broker: Broker) -> None:
    """A header that anybody may write is no count."""
    queue = fresh_queue()
    with Wire(broker.url, timeout=30) as wire:
        name = {"destination": queue.name, **ROUTED}
        if "classic" in type(broker).__name__.lower():
            name = {"destination": f"/queue/{queue.name}"}
        wire.request(
            Frame("SEND", {**name, "persistent": "true", "jmsx_redelivery_count": "9"}, b"x")
        )
    with Connection(broker.url, redelivery_policy=NO_RETRY) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        (message,) = take(session.create_consumer(queue), 1)
        assert (message.text, message.delivery_count, message.redelivered) == ("x", 1, False)
        session.commit()


# What goes back unseen -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [TRANSACTED, AUTO, CLIENT], ids=str)
def test_orderly_restarts_make_no_dead_letter(broker: Broker, mode: AcknowledgeMode) -> None:
    """With no redelivery allowed, and all that was prefetched given back three times: each is handled once, as new."""
    queue, seen = fresh_queue(), []
    with Connection(broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for number in range(20):
            producer.send(Message(str(number)))
    for turn in range(4):
        app = App(broker.url, redelivery_policy=NO_RETRY)
        enough, stop = threading.Event(), threading.Event()

        @app.consumer(queue, mode=mode)
        def desk(
            message: Message,
            turn: int = turn,
            enough: threading.Event = enough,
            stop: threading.Event = stop,
        ) -> None:
            seen.append((message.text, message.redelivered, message.delivery_count))
            if len(seen) == 4 * (turn + 1):
                enough.set()
                if turn < 3:
                    stop.wait(0.2)

        with app:
            assert enough.wait(10)
            if turn == 3:
                assert eventually(lambda: len(seen) == 20, 10)
    assert sorted(seen) == sorted((str(number), False, 1) for number in range(20))
    assert bodies(broker, queue) == []


def test_a_session_after_the_other(broker: Broker) -> None:
    """Receive one of five, commit, close; what the others had prefetched is new. The Java client does the same."""
    queue, seen = fresh_queue(), []
    with Connection(broker.url, redelivery_policy=NO_RETRY) as connection:
        connection.start()
        producer = connection.create_session().create_producer(queue)
        for number in range(5):
            producer.send(Message(str(number)))
        for _ in range(5):
            session = connection.create_session(TRANSACTED)
            (message,) = take(session.create_consumer(queue), 1)
            seen.append((message.text, message.redelivered, message.delivery_count))
            session.commit()
            session.close()
    assert seen == [(str(number), False, 1) for number in range(5)]


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_what_was_dispatched_while_its_consumer_closed_is_new(
    broker: Broker, prefetch: int
) -> None:
    """Each settled message lets the broker dispatch another one, which the session that closes then never sees."""
    queue, seen = fresh_queue(), []
    policy = RedeliveryPolicy(initial_redelivery_delay=0.0)
    query = f"?jms.prefetchPolicy.queuePrefetch={prefetch}"
    with Connection(broker.url + query, redelivery_policy=policy) as connection:
        connection.start()
        producer = connection.create_session().create_producer(queue)
        for number in range(20):
            producer.send(Message(str(number)))
        for turn in range(40):
            session = connection.create_session(TRANSACTED)
            consumer = session.create_consumer(queue)
            (message,) = take(consumer, 1)
            seen.append((message.text, message.redelivered, message.delivery_count))
            if turn % 2:
                session.commit()
            else:
                session.rollback()
            if turn % 3:
                consumer.close()
            session.close()
    each = [[(str(number), False, 1), (str(number), True, 2)] for number in range(20)]
    assert sorted(seen) == sorted(one for both in each for one in both)


def test_what_waits_behind_another_consumers_messages_is_new(broker: Broker, diary: Diary) -> None:
    """The broker has dispatched it, and it is behind 20 MB on the socket when its consumer closes."""
    queue, other = fresh_queue(), fresh_queue()
    with Connection(broker.url, observers=[diary], redelivery_policy=NO_RETRY) as connection:
        connection.start()
        producer = connection.create_session().create_producer(None)
        for text in ["0", "1"]:
            producer.send(Message(text), destination=queue)
        for _ in range(40):
            producer.send(Message("x" * 500_000), destination=other)
        session = connection.create_session()
        consumer = session.create_consumer(Queue(f"{queue.name}?consumer.prefetchSize=1"))
        assert eventually(lambda: diary.received() == 1, 10)
        session.create_consumer(other)
        assert [one.text for one in take(consumer, 1)] == ["0"]
        consumer.close()
        (message,) = take(connection.create_session().create_consumer(queue), 1)
    assert (message.text, message.redelivered, message.delivery_count) == ("1", False, 1)


def test_what_a_lost_link_had_prefetched_is_new(broker: Broker, diary: Diary) -> None:
    """In this process nobody saw it."""
    queue = fresh_queue()
    with Connection(broker.url, redelivery_policy=NO_RETRY) as connection:
        producer = connection.create_session().create_producer(queue)
        for number in range(5):
            producer.send(Message(str(number)))
    lost = Connection(broker.url, observers=[diary])
    lost.start()
    take(lost.create_session(CLIENT).create_consumer(queue), 1)
    # what only the broker knows to have sent, this process may have to take for somebody else's failure
    assert eventually(lambda: diary.received() == 5, 5)
    lost.abort()
    with jmsx.Connection(broker.url, redelivery_policy=NO_RETRY) as connection:
        connection.start()
        session = connection.create_session(CLIENT)
        messages = take(session.create_consumer(queue), 5)
        told = {one.text: (one.redelivered, one.delivery_count) for one in messages}
        messages[-1].acknowledge()
    assert told == {"0": (True, 2)} | {str(number): (False, 1) for number in range(1, 5)}
