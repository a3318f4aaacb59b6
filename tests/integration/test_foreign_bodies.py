"""Bodies of programs that are not jmsx: Java's kinds of messages, and STOMP clients that know no kinds."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import stomp
import stompman

from jmsx import Connection, Message, Queue, ReconnectPolicy
from jmsx.app import App
from jmsx.core.events import LinkClosed
from jmsx.core.frames import Frame
from jmsx.core.policy import RedeliveryMode
from jmsx.errors import (
    ConnectionFailedError,
    MessageNotReadableError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.jms.session import link_of
from jmsx.jms.translation import is_bodiless
from jmsx_broker import ClassicBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AUTO,
    CLIENT,
    DEAD_LETTERS,
    DUPS_OK,
    INDIVIDUAL,
    NO_RETRY,
    QUICK,
    TRANSACTED,
    Diary,
    take,
)
from tests.jdk import NEEDS_JDK, run_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx import AcknowledgeMode
    from jmsx.core.delivery import Delivery
    from jmsx.core.frames import MessageFrame
    from jmsx_broker import ArtemisBroker, Broker

pytestmark = pytest.mark.broker


def java(
    broker: ClassicBroker | ArtemisBroker, queue: Queue, *kinds: str, delivery: str = "persistent"
) -> None:
    """Let the ActiveMQ Java client send a message of each kind."""
    run_peer("BodyPeer", broker.openwire_url, queue.name, delivery, *kinds)


def received(broker: Broker, queue: Queue, count: int) -> list[Message]:
    """The next messages."""
    with Connection(broker.url) as connection:
        connection.start()
        return take(connection.create_session().create_consumer(queue), count)


@NEEDS_JDK
def test_what_classic_does_not_carry(classic_broker: ClassicBroker, queue: Queue) -> None:
    """A StreamMessage comes without a body; it is no empty text."""
    java(classic_broker, queue, "text", "stream", "bytes", "map")
    text, stream, octets, content = received(classic_broker, queue, 4)
    assert text.text == "Zürich 😀"
    assert (stream.properties["kind"], stream.readable) == ("stream", False)
    with pytest.raises(MessageNotReadableError, match="StreamMessage"):
        _ = stream.text
    assert octets.body == "Zürich".encode()
    with pytest.raises(MessageNotReadableError, match=r"take message\.body"):
        _ = octets.text
    assert content.body == {"a": 1, "b": 2}


@NEEDS_JDK
def test_an_object_of_a_class_that_classic_trusts(
    classic_broker: ClassicBroker, queue: Queue
) -> None:
    """It is a text of XML, which nothing tells from a text; without translation it is unreadable."""
    java(classic_broker, queue, "trusted")
    (thing,) = received(classic_broker, queue, 1)
    assert (thing.properties["kind"], thing.body) == ("trusted", "<string>x</string>")
    java(classic_broker, queue, "trusted")
    plain = Queue(f"{queue.name}?consumer.transformation=none")
    (thing,) = received(classic_broker, plain, 1)
    assert (thing.properties["kind"], thing.readable) == ("trusted", False)


@NEEDS_JDK
def test_what_artemis_does_not_carry(artemis_broker: ArtemisBroker, queue: Queue) -> None:
    """An ObjectMessage and a MapMessage come without, or with a part of their inside."""
    java(artemis_broker, queue, "text", "object", "bytes", "map")
    text, thing, octets, content = received(artemis_broker, queue, 4)
    assert text.text == "Zürich 😀"
    assert octets.body == "Zürich".encode()
    for message, kind in ((thing, "object"), (content, "map")):
        assert (message.properties["kind"], message.readable) == (kind, False)
        with pytest.raises(MessageNotReadableError, match="ObjectMessage"):
            _ = message.body


@NEEDS_JDK
def test_a_message_without_a_body_is_sent_on(
    broker: ClassicBroker | ArtemisBroker, queue: Queue
) -> None:
    """For the sake of its properties: a Java text without characters looks as this; the next reader is told, too."""
    java(broker, queue, "empty")
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        onward = session.create_queue(f"{queue.name}.onward")
        (message,) = take(session.create_consumer(queue), 1)
        assert (message.readable, is_bodiless(message)) == (False, True)
        session.create_producer(onward).send(message)
        session.commit()
        (again,) = take(session.create_consumer(onward), 1)
        session.commit()
    assert again.properties["kind"] == "empty"
    assert not again.readable


@NEEDS_JDK
def test_a_listener_that_cannot_read_makes_a_dead_letter(
    classic_broker: ClassicBroker, queue: Queue
) -> None:
    """The policy goes on from the error; the broker's own dead letter has the body still."""
    java(classic_broker, queue, "stream", "text")
    with Connection(classic_broker.url, redelivery_policy=QUICK) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        for _ in range(3):
            (message,) = take(consumer, 1)
            with pytest.raises(MessageNotReadableError) as raised:
                _ = message.text
            session.rollback(raised.value)
        (message,) = take(consumer, 1)
        assert message.text == "Zürich 😀"
        session.commit()


@NEEDS_JDK
@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED], ids=str)
def test_object_messages_where_maps_are_not_read(
    classic_broker: ClassicBroker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """They are unreadable, nothing comes twice, and the original is in the dead letter queue whole."""
    java(classic_broker, queue, "text", "object", "text", "map")
    with Connection(classic_broker.url, redelivery_policy=NO_RETRY) as connection:
        connection.start()
        session = connection.create_session(mode)
        session.create_producer(queue).send(Message({"a": 1}))
        consumer = session.create_consumer(Queue(f"{queue.name}?consumer.transformation=none"))
        ids = []
        for readable in (True, False, True, False, False):
            (message,) = take(consumer, 1)
            assert (message.readable, message.redelivered) == (readable, False)
            ids.append(message.message_id)
            if mode is TRANSACTED:
                session.commit() if readable else session.rollback()
            elif mode is CLIENT:
                message.acknowledge() if readable else session.recover()
        assert consumer.receive(0.5) is None
    assert eventually(lambda: classic_broker.statistics(queue.name).size == 0)
    dead = [one.headers["message-id"] for one in classic_broker.browse(DEAD_LETTERS)]
    ended = [] if mode is AUTO else [ids[1], ids[3], ids[4]]
    assert [one for one in dead if one in ids] == ended


@NEEDS_JDK
@pytest.mark.parametrize("mode", [RedeliveryMode.LOCAL, RedeliveryMode.SCHEDULED])
@pytest.mark.parametrize("dlq", ["", "queue://dlqs"])
def test_classic_keeps_whole_what_it_does_not_carry(
    classic_broker: ClassicBroker, queue: Queue, mode: RedeliveryMode, dlq: str
) -> None:
    """Also where copies are wanted, or a later redelivery: a copy would have no body, and be all that is left."""
    java(classic_broker, queue, "stream", "text")
    options: dict[str, Any] = {"dead_letter": dlq} if dlq else {}
    policy = replace(QUICK, mode=mode)
    with Connection(classic_broker.url, redelivery_policy=policy, **options) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        ids = set()
        for _ in range(3):
            (message,) = take(consumer, 1)
            ids.add(message.message_id)
            session.rollback()
        (message,) = take(consumer, 1)
        assert message.text == "Zürich 😀"
        session.commit()
    dead = [one.headers for one in classic_broker.browse(DEAD_LETTERS)]
    (letter,) = [one for one in dead if one["message-id"] in ids]
    assert (letter["kind"], "jmsx_death_reason" in letter) == ("stream", False)  # the original
    assert len(ids) == 1


@NEEDS_JDK
@pytest.mark.parametrize("mode", [RedeliveryMode.LOCAL, RedeliveryMode.SCHEDULED])
def test_a_copy_of_what_artemis_does_not_carry_says_so(
    artemis_broker: ArtemisBroker, queue: Queue, mode: RedeliveryMode
) -> None:
    """A copy cannot have what STOMP does not carry; whoever reads it is told, and it is not sent back to the queue."""
    java(artemis_broker, queue, "object")
    policy = NO_RETRY if mode is RedeliveryMode.LOCAL else QUICK
    dlqs = f"queue://{queue.name}.dead"
    with Connection(
        artemis_broker.url, redelivery_policy=replace(policy, mode=mode), dead_letter=dlqs
    ) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        ids = set()
        for _ in range(1 + policy.maximum_redeliveries):
            (message,) = take(consumer, 1)
            ids.add(message.message_id)
            session.rollback()
        assert len(ids) == 1  # it was never sent back as a copy
        (letter,) = take(session.create_consumer(session.create_queue(f"{queue.name}.dead")), 1)
        assert not letter.readable
        session.commit()


@NEEDS_JDK
@pytest.mark.parametrize("body", ["", None, "\x01x", "x", b"", {"a": 1}], ids=repr)
def test_what_java_set_is_all_that_goes_on(
    artemis_broker: ArtemisBroker, queue: Queue, body: str | bytes | dict[str, int] | None
) -> None:
    """A message under the properties of a Java program's is a jmsx message, and can be read."""
    java(artemis_broker, queue, "text")
    with Connection(artemis_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        (message,) = take(consumer, 1)
        assert dict(message.properties) == {"kind": "text"}
        session.create_producer(queue).send(Message(body, properties=message.properties))
        (forwarded,) = take(consumer, 1)
        assert forwarded.body == body
        assert dict(forwarded.properties) == {"kind": "text"}


def test_a_duplicate_id_is_the_message_s_own(artemis_broker: ArtemisBroker, queue: Queue) -> None:
    """It can be set; what is made from the message that came, and goes back, is no duplicate to be dropped."""
    with Connection(artemis_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        for _ in range(2):
            producer.send(Message("a", properties={"_AMQ_DUPL_ID": "1", "n": "2"}))
        (message,) = take(consumer, 1)
        assert dict(message.properties) == {"n": "2"}
        producer.send(Message("b", properties=message.properties))
        assert [one.text for one in take(consumer, 1)] == ["b"]


def address(broker: Broker) -> tuple[str, int]:
    """Host and port."""
    parts = urlsplit(broker.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def target(broker: Broker, queue: Queue) -> str:
    """As STOMP clients name the queue there."""
    return f"/queue/{queue.name}" if isinstance(broker, ClassicBroker) else queue.name


def by_stomp_py(broker: Broker, queue: Queue, body: str) -> None:
    """Send with stomp.py, which gives each body its length."""
    client = stomp.Connection12([address(broker)])
    client.connect(wait=True)
    client.send(target(broker, queue), body, headers={"destination-type": "ANYCAST"})
    client.disconnect()


def by_stompman(broker: Broker, queue: Queue, body: str) -> None:
    """Send with stompman, which does so too."""
    host, port = address(broker)

    async def send() -> None:
        servers = [stompman.ConnectionParameters(host, port, login="", passcode="")]
        async with stompman.Client(servers) as client:
            headers = {"destination-type": "ANYCAST"}
            await client.send(
                body.encode(), target(broker, queue), add_content_length=True, headers=headers
            )

    asyncio.run(send())


@pytest.mark.parametrize("send", [by_stomp_py, by_stompman])
def test_texts_of_other_stomp_clients(
    broker: Broker, queue: Queue, send: Callable[[Broker, Queue, str], None]
) -> None:
    """They are read as the texts that they are, and `body` is what came."""
    send(broker, queue, '{"city": "Zürich"}')
    (message,) = received(broker, queue, 1)
    assert message.body == '{"city": "Zürich"}'.encode()
    assert message.text == '{"city": "Zürich"}'
    assert message.json() == {"city": "Zürich"}


@NEEDS_JDK
def test_a_stomp_clients_map_behind_an_object_message(
    classic_broker: ClassicBroker, queue: Queue
) -> None:
    """Nothing of it tells that it has a body, where none is translated; nor of an empty text that it has none."""
    java(classic_broker, queue, "object")
    where = {"destination": f"/queue/{queue.name}", "transformation": "jms-map-xml"}
    with Wire(classic_broker.url) as wire:
        for body in (b"<map><entry><string>a</string><int>1</int></entry></map>", b""):
            wire.request(Frame("SEND", where, body))
    policy = ReconnectPolicy(initial_delay=0.01)
    with Connection(classic_broker.url, reconnect=policy) as connection:
        connection.start()
        session = connection.create_session(CLIENT)
        blind = session.create_consumer(Queue(f"{queue.name}?consumer.transformation=none"))
        assert [one.readable for one in take(blind, 3)] == [False] * 3
        blind.close()
        thing, content, text = take(session.create_consumer(queue), 3)
        assert (thing.properties["kind"], thing.readable) == ("object", False)
        assert (content.body, text.body) == ({"a": 1}, "")


@NEEDS_JDK
@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED, INDIVIDUAL, DUPS_OK], ids=str)
def test_an_object_message_stops_nothing(
    classic_broker: ClassicBroker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """The broker ends the link at the first one, and then no more; it is unreadable, and maps are read."""
    kinds = ("text", "object", "map", "text", "stream", "object", "object", "map", "text")
    java(classic_broker, queue, *kinds)
    handed: dict[str, int] = {}
    kept: dict[str, object] = {}
    diary = Diary()
    policy = ReconnectPolicy(initial_delay=0.01)
    with Connection(
        classic_broker.url, redelivery_policy=QUICK, reconnect=policy, observers=[diary]
    ) as connection:
        connection.start()
        connection.create_session().create_producer(queue).send(Message({"a": 1, "b": 2}))
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        while len(kept) < len(kinds) + 1:
            (message,) = take(consumer, 1)
            name = message.message_id
            assert name is not None
            handed[name] = handed.get(name, 0) + 1
            kept[name] = message.body if message.readable else None
            if mode is TRANSACTED:
                with suppress(TransactionInDoubtError, TransactionRolledBackError):  # of the link
                    session.commit() if message.readable else session.rollback()
            else:
                message.acknowledge()
        assert consumer.receive(0.5) is None
    content = {"a": 1, "b": 2}
    text = "Zürich 😀"
    told = [text, None, content, text, None, None, None, content, text, content]
    assert list(kept.values()) == told
    first, *others = kept
    assert handed[first] <= 2  # its acknowledgement may have died with the link
    tries = 3 if mode is TRANSACTED else 1
    assert [handed[one] for one in others] == [
        1 if kept[one] is not None else tries for one in others
    ]
    closed = [event.reason for event in diary.events if isinstance(event, LinkClosed)]
    assert closed.count("io") == 1
    assert eventually(lambda: classic_broker.statistics(queue.name).size == 0)
    dead = {one.headers["message-id"] for one in classic_broker.browse(DEAD_LETTERS)}
    lost = {name for name, body in kept.items() if body is None}
    assert dead & kept.keys() == (lost if mode is TRANSACTED else set())


@NEEDS_JDK
def test_an_app_goes_on_behind_object_messages(classic_broker: ClassicBroker, queue: Queue) -> None:
    """Those that were idle when it came, too; objects are dead letters, whole, and maps are handled."""
    seen: list[object] = []
    app = App(
        classic_broker.url,
        reconnect=ReconnectPolicy(initial_delay=0.01),
        redelivery_policy=NO_RETRY,
    )
    app.consumer(queue, name="read")(lambda message: seen.append(message.body))
    app.start()
    try:
        for _ in range(2):
            java(classic_broker, queue, "object", "map", "object", "text")
            assert eventually(lambda: classic_broker.statistics(queue.name).size == 0, 20)
        assert app.ready().ok
    finally:
        app.abort()
    assert seen == [{"a": 1, "b": 2}, "Zürich 😀"] * 2
    dead = [one.headers for one in classic_broker.browse(DEAD_LETTERS)]
    letters = [one for one in dead if one.get("kind") == "object" and queue.name in str(one)]
    assert len(letters) == 4
    assert not [one for one in letters if "jmsx_death_reason" in one]  # the originals, once each


@NEEDS_JDK
@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED], ids=str)
def test_each_unread_message_is_one_dead_letter(
    classic_broker: ClassicBroker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """The original where the broker keeps it, and a copy, which has no body, where it would delete it."""
    kinds = ("object", "text", "stream")
    java(classic_broker, queue, *kinds)
    java(classic_broker, queue, *kinds, delivery="volatile")

    def refuse(message: Message) -> None:
        message.text  # noqa: B018 - it raises

    app = App(classic_broker.url, reconnect=ReconnectPolicy(initial_delay=0.01))
    app.consumer(queue, name="read", mode=mode, redelivery=QUICK)(refuse)
    app.start()
    try:
        assert eventually(lambda: classic_broker.statistics(queue.name).size == 0, 20)
    finally:
        app.stop()
    letters = sorted(
        (one.headers.get("kind", ""), one.headers["persistent"], "jmsx_death_reason" in one.headers)
        for one in classic_broker.browse(DEAD_LETTERS)
        if queue.name in str(one.headers)
    )
    assert letters == [
        (kind, "true", copy) for kind in ("object", "stream") for copy in (False, True)
    ]


@NEEDS_JDK
@pytest.mark.parametrize("idle", [0.0, 3.0], ids=["at once", "idle"])
def test_a_plain_connection_reads_behind_an_object_message(
    classic_broker: ClassicBroker, queue: Queue, idle: float
) -> None:
    """It has no failover; but that the broker ends the link is for what jmsx asks of it."""
    lost: list[object] = []
    with Connection(classic_broker.url) as connection:
        connection.set_exception_listener(lost.append)
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        time.sleep(idle)  # the link is quiet for long, or new
        java(classic_broker, queue, "object", "map", "text")
        thing, content, text = take(consumer, 3)
        assert (thing.readable, content.body, text.text) == (False, {"a": 1, "b": 2}, "Zürich 😀")
        assert consumer.receive(0.5) is None
        session.create_producer(queue).send(Message("on"))
        assert [one.text for one in take(consumer, 1)] == ["on"]
    assert lost == []


def test_a_plain_connection_stays_lost(classic_broker: ClassicBroker, queue: Queue) -> None:
    """A network that cuts it is no reason to open another."""
    with Proxy(classic_broker.url) as proxy, Connection(proxy.url) as connection:
        lost: list[object] = []
        connection.set_exception_listener(lost.append)
        connection.start()
        session = connection.create_session()
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        for number in range(3):
            producer.send(Message(f"{number}"))
        assert len(take(consumer, 3)) == 3
        proxy.cut()
        with pytest.raises(ConnectionFailedError, match="is gone"):
            consumer.receive(10)
        assert eventually(lambda: len(lost) == 1)


@NEEDS_JDK
def test_maps_are_translated_again_when_nothing_else_came(
    classic_broker: ClassicBroker, queue: Queue
) -> None:
    """A link that died for another reason makes maps slow for a moment only, and repeats nothing."""
    diary = Diary()
    policy = ReconnectPolicy(initial_delay=0.01)
    with (
        Proxy(classic_broker.url) as proxy,
        Connection(proxy.url, reconnect=policy, observers=[diary]) as connection,
    ):
        connection.start()
        session = connection.create_session()
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        producer.send(Message("first"))
        assert take(consumer, 1)[0].text == "first"
        time.sleep(0.1)  # the ACK is read
        proxy.cut()
        assert eventually(lambda: any(isinstance(one, LinkClosed) for one in diary.events))
        for number in range(40):
            producer.send(Message({"n": number}))
        assert [one.body for one in take(consumer, 40)] == [{"n": number} for number in range(40)]

        def closed() -> list[str]:
            assert consumer.receive(0.05) is None  # while somebody waits, nothing is in his hands
            return [event.reason for event in diary.events if isinstance(event, LinkClosed)]

        assert eventually(lambda: closed()[-1] == "closed")
        ends = closed()
    # The cut may meet the next link, too, when that comes before all of them are reset.
    assert set(ends[:-1]) == {"io"}


def test_looking_for_a_body_holds_nobody_up(classic_broker: ClassicBroker, queue: Queue) -> None:
    """The broker may take its time to answer: the session sends, and its heart-beats go on, meanwhile."""
    diary = Diary()
    policy = ReconnectPolicy(initial_delay=0.01)
    asked, answer = threading.Event(), threading.Event()
    with (
        Proxy(classic_broker.url) as proxy,
        Connection(proxy.url, reconnect=policy, observers=[diary]) as connection,
        ThreadPoolExecutor() as threads,
    ):
        connection.start()
        session = connection.create_session()
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        producer.send(Message("first"))
        assert take(consumer, 1)[0].text == "first"
        time.sleep(0.1)  # the ACK is read
        hand_outs = link_of(session).engine.hand_outs
        look = hand_outs.look

        def look_late(delivery: Delivery) -> MessageFrame | None:
            asked.set()
            answer.wait(10)
            return look(delivery)

        hand_outs.look = look_late
        proxy.cut()
        assert eventually(lambda: any(isinstance(one, LinkClosed) for one in diary.events))
        producer.send(Message({"n": 1}))  # which comes as it is, without its body
        received = threads.submit(consumer.receive, 10)
        try:
            assert asked.wait(5)
            threads.submit(producer.send, Message("meanwhile")).result(5)
        finally:
            answer.set()
        message = received.result(10)
        assert message is not None
        assert message.body == {"n": 1}
        assert take(consumer, 1)[0].text == "meanwhile"
