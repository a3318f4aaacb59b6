"""Copies that become dead letters, on a real broker: what may and may not be settled while one is on its way."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    PrefetchPolicy,
    Queue,
    Reject,
    TransactionRolledBackError,
)
from jmsx.app import App
from jmsx.core.events import (
    DeadLetterFailed,
    Outcome,
)
from jmsx.core.frames import Frame
from jmsx.testing import FakeBrokerServer
from jmsx_broker import ClassicBroker, classic_recipe
from jmsx_broker.wire import Wire
from jmsx_classic import DIALECT as CLASSIC
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AUTO,
    CLIENT,
    DEAD_LETTERS,
    INDIVIDUAL,
    NO_RETRY,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    put,
    settles,
    text,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Session
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@contextlib.contextmanager
def old_and_dead(
    broker: Broker, queue: Queue, diary: Diary
) -> Iterator[tuple[Connection, Session]]:
    """
    A transacted session holds `old` and `new`; `poison`, which came between them, has become a dead letter by copy.

    It is over its limit, for another consumer had it and is gone.
    """
    put(broker, queue, "poison", "old")
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(Connection(broker.url, prefetch_policy=PrefetchPolicy.all(1)))
        other.start()
        assert text(other.create_session(CLIENT).create_consumer(queue).receive(5)) == "poison"
        dead = f"{queue.uri}.dead"
        connection = stack.enter_context(
            Connection(broker.url, dead_letter=dead, redelivery_policy=NO_RETRY, observers=[diary])
        )
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(5)) == "old"
        other.abort()
        waiting = Call(lambda: consumer.receive(20))
        assert eventually(lambda: bodies(broker, f"{queue.name}.dead") == ["poison"])
        assert eventually(lambda: len(diary.dead()) == 1)  # its receipt is here
        put(broker, queue, "new")
        assert text(waiting.join(5).value) == "new"
        yield connection, session


# Inside a transaction ------------------------------------------------------------------------------------------------


def test_a_copy_settles_nothing_of_an_open_transaction(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """The ACK behind the copy would have covered `old`, which is received and not committed."""
    with old_and_dead(classic_broker, queue, diary) as (connection, _):
        connection.abort()
    assert settles(classic_broker, queue, size=3)
    assert sorted(bodies(classic_broker, queue)) == ["new", "old", "poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1, Outcome.ABANDONED: 2}


def test_a_commit_settles_a_dead_letter_too(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """After the commit all are settled, the dead one is in its dlq once, and each delivery ended once."""
    with old_and_dead(classic_broker, queue, diary) as (_, session):
        session.commit()
        assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, f"{queue.name}.dead") == ["poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1, Outcome.COMMITTED: 2}


# A link that is cut --------------------------------------------------------------------------------------------------


def test_a_single_ack_of_an_open_transaction_loses_its_place_with_its_link(
    classic_broker: Broker, queue: Queue
) -> None:
    """
    Classic gives a message back behind later ones, if its single ACK stands in a transaction that dies with the link.

    What the link had goes to the other consumer before its transactions are rolled back; until then that message
    counts as acknowledged. So copies of two messages, each in a transaction with the ACK of its original, are promised
    no order where the link is lost between ACK and COMMIT.
    """
    put(classic_broker, queue, "0", "1", "2")
    where = {"destination": f"/queue/{queue.name}"}
    with Wire(classic_broker.url) as first, Wire(classic_broker.url) as second:
        first.send(Frame("SUBSCRIBE", {**where, "id": "s", "ack": "client-individual"}))
        oldest, *_ = (first.receive("MESSAGE") for _ in range(3))
        second.request(Frame("SUBSCRIBE", {**where, "id": "s", "ack": "client"}))
        first.send(Frame("BEGIN", {"transaction": "t"}))
        first.request(Frame("ACK", {"id": oldest.headers["ack"], "transaction": "t"}))
        first.close()
        again = [second.receive("MESSAGE").body for _ in range(3)]
        assert again == [b"1", b"2", b"0"]


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("frame", ["BEGIN", "SEND", "ACK", "COMMIT"])
@pytest.mark.parametrize("case", ["named", "what NACK would delete", "individual", "transacted"])
def test_a_link_that_is_cut_while_a_dead_letter_is_copied(
    classic_broker: Broker, queue: Queue, frame: str, case: str, *, behind: bool
) -> None:
    """
    Each is in its dlq once, whatever came to the broker, and nothing else is settled.

    They are there in their order, save behind a link that took one of two single ACKs along with its transaction: the
    broker itself may give their messages in another one then (the test above).
    """
    mode = {"individual": INDIVIDUAL, "transacted": TRANSACTED}.get(case, AUTO)
    named = case != "what NACK would delete"
    dead = f"{queue.name}.dead" if named else DEAD_LETTERS
    options: dict[str, Any] = {"dead_letter": f"queue://{dead}"} if named else {}
    put(classic_broker, queue, "held")
    bad = [f"bad {queue.name} {n}" for n in range(2)]
    put(classic_broker, queue, *bad, persistent=str(named).lower())
    put(classic_broker, queue, "good")
    seen: list[str] = []

    def handle(message: Message) -> None:
        seen.append(message.text)
        if message.text.startswith("bad"):
            raise Reject
        if mode is INDIVIDUAL and message.text == "good":
            message.acknowledge()

    with Proxy(classic_broker.url) as proxy:
        proxy.cut_beside(rf"{frame}\n[^\0]*transaction:jmsx-dead", behind=behind)
        with Connection(f"failover:({proxy.url})", **options) as connection:
            connection.start()
            session = connection.create_session(mode)
            consumer = session.create_consumer(queue)
            if mode is TRANSACTED:
                assert text(consumer.receive(5)) == "held"
                session.commit()
                assert [text(consumer.receive(5)) for _ in bad] == bad
                session.rollback(Reject("no"))
                assert text(consumer.receive(10)) == "good"
                session.commit()
            else:
                consumer.set_listener(handle)
            left = ["held"] if mode is INDIVIDUAL else []
            assert settles(classic_broker, queue, size=len(left), inflight=len(left))
            assert proxy.sprung.is_set()
    assert bodies(classic_broker, queue) == left
    dead_bodies = [body for body in bodies(classic_broker, dead) if queue.name in body]
    half_done = (frame, behind) in {("ACK", True), ("COMMIT", False)}
    if mode is INDIVIDUAL and half_done:
        dead_bodies.sort()
    assert dead_bodies == bad


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("frame", ["NACK", "SEND", "COMMIT"])
@pytest.mark.parametrize("mode", [INDIVIDUAL, TRANSACTED], ids=["individual", "transacted"])
def test_a_link_that_is_cut_while_some_are_copied_and_some_are_not(
    classic_broker: Broker, queue: Queue, frame: str, mode: AcknowledgeMode, *, behind: bool
) -> None:
    """What the broker keeps is given it by NACK, and what it would delete is copied: each is there once."""
    bad = [f"bad {queue.name} {n}" for n in range(4)]
    with Connection(classic_broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for number, body in enumerate(bad):
            producer.send(Message(body), persistent=number % 2 == 0)
    with Proxy(classic_broker.url) as proxy:
        ours = "" if frame == "NACK" else r"[^\0]*transaction:jmsx-dead"
        proxy.cut_beside(rf"{frame}\n{ours}", behind=behind)
        app = App(proxy.url, redelivery_policy=NO_RETRY)

        @app.consumer(queue, name="read", mode=mode, batch=4, batch_timeout=0.5)
        def fail(_messages: list[Message]) -> None:
            raise Reject

        with app:
            assert settles(classic_broker, queue, size=0)
        assert proxy.sprung.is_set()
    assert sorted(one for one in bodies(classic_broker, DEAD_LETTERS) if queue.name in one) == bad


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("frame", [r"SEND\n[^\0]*\.dead", "ACK", "COMMIT"])
@pytest.mark.parametrize("single", [False, True], ids=["cumulative", "single"])
def test_a_link_that_is_cut_while_a_transaction_is_open_beside_a_copy(
    classic_broker: Broker, queue: Queue, frame: str, *, single: bool, behind: bool
) -> None:
    """The copy is there once: its transaction has the ACK of the original, whatever the application has sent."""
    put(classic_broker, queue, "poison")
    out, dead = fresh_queue(), f"{queue.name}.dead"
    options: dict[str, Any] = {
        "dead_letter": f"queue://{dead}",
        "redelivery_policy": NO_RETRY,
        "transacted_individual_ack": single,
    }
    with Proxy(classic_broker.url) as proxy, Connection(classic_broker.url) as other:
        other.start()
        assert text(other.create_session(CLIENT).create_consumer(queue).receive(5)) == "poison"
        with Connection(f"failover:({proxy.url})", **options) as connection:
            connection.start()
            session = connection.create_session(TRANSACTED)
            consumer, producer = session.create_consumer(queue), session.create_producer(out)
            producer.send(Message("undone"))
            proxy.cut_beside(rf"{frame}[^\0]*\n", behind=behind)
            other.abort()
            waiting = Call(lambda: consumer.receive(20))
            assert eventually(proxy.sprung.is_set)
            put(classic_broker, queue, "good")
            assert text(waiting.join(20).value) == "good"
            with pytest.raises(TransactionRolledBackError):
                session.commit()
            put(classic_broker, queue, "better")
            assert text(consumer.receive(10)) == "better"
            producer.send(Message("done"))
            session.commit()
            assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, dead) == ["poison", "good"]
    assert bodies(classic_broker, out) == ["done"]


def test_transactions_of_the_application_beside_those_of_copies(
    classic_broker: Broker, queue: Queue
) -> None:
    """Each is done once, whichever is open when the other ends."""
    out, rounds = fresh_queue(), 30
    put(classic_broker, queue, *(f"{kind} {n}" for n in range(rounds) for kind in ("bad", "good")))
    with Connection(classic_broker.url, dead_letter=f"queue://{queue.name}.dead") as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer, producer = session.create_consumer(queue), session.create_producer(out)
        for n in range(rounds):
            assert text(consumer.receive(5)) == f"bad {n}"
            session.rollback(Reject("no"))
            producer.send(Message(f"undone {n}" if n % 3 == 0 else f"early {n}"))
            if n % 3 == 0:
                session.rollback()
            elif n % 3 == 1:
                session.commit()
            assert text(consumer.receive(5)) == f"good {n}"
            producer.send(Message(f"late {n}"))
            session.commit()
        assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, f"{queue.name}.dead") == [f"bad {n}" for n in range(rounds)]
    expected = [
        f"{kind} {n}"
        for n in range(rounds)
        for kind in ("early", "late")
        if n % 3 or kind == "late"
    ]
    assert bodies(classic_broker, out) == expected


# Closing behind a copy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_closing_right_behind_a_copy(
    classic_broker: Broker, queue: Queue, diary: Diary, mode: AcknowledgeMode
) -> None:
    """The message is in the dlq once, and not in the queue; a second look finds nothing more."""
    dead = f"{queue.name}.dead"
    put(classic_broker, queue, "poison")
    options: dict[str, Any] = {"dead_letter": f"queue://{dead}", "redelivery_policy": NO_RETRY}
    for _ in range(2):
        with Connection(classic_broker.url, observers=[diary], **options) as connection:
            connection.start()
            consumer = connection.create_session(mode).create_consumer(queue)
            if mode is TRANSACTED:
                consumer.receive(1)  # and never committed: closing is a failure like a rollback
            else:
                called = threading.Event()

                def fail(_message: Message, called: threading.Event = called) -> None:
                    called.set()
                    raise ValueError

                consumer.set_listener(fail)
                called.wait(1)
    assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, dead) == ["poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1}


def test_stopping_right_behind_a_copy(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """The same with an app, whose handler rejects while it is stopped."""
    dead = f"{queue.name}.dead"
    app = App(classic_broker.url, observers=[diary])
    began, stopping = threading.Event(), threading.Event()

    @app.consumer(queue, dead_letter=f"queue://{dead}")
    def refuse(_message: Message) -> None:
        began.set()
        stopping.wait(5)
        raise Reject

    put(classic_broker, queue, "poison")
    app.start()
    assert began.wait(5)
    stop = Call(app.stop)
    assert eventually(lambda: not app._service.workers[0]._connection._links.started)
    stopping.set()
    assert stop.join(10).error is None
    assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, dead) == ["poison"]
    assert diary.outcomes() == {Outcome.DEAD_LETTERED: 1}


def test_a_copy_that_is_refused_while_closing(diary: Diary) -> None:
    """The original stays in the queue and is reported as given back; closing does not hang."""
    with FakeBrokerServer() as server:
        queue = fresh_queue()
        with Connection(server.url) as sender:
            sender.create_session().create_producer(queue).send(Message("poison"))
        options: dict[str, Any] = {"dead_letter": "queue://dead", "redelivery_policy": NO_RETRY}
        connection = Connection(server.url, observers=[diary], **options)
        connection.start()
        consumer = connection.create_session(TRANSACTED).create_consumer(queue)
        assert text(consumer.receive(5)) == "poison"
        with server.broker() as broker:
            broker.refuse_next("SEND", "Usage Manager Memory Limit reached")
        assert within(5, connection.close).error is None
        with server.broker() as broker:
            assert [message.body for message in broker.queue(queue.name).browse()] == [b"poison"]
            assert broker.queue("dead").browse() == []
    assert diary.outcomes() == {Outcome.RELEASED: 1}
    assert sum(isinstance(event, DeadLetterFailed) for event in diary.events) == 1


def test_a_copy_that_is_larger_than_the_broker_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is nearly as large as `maxFrameSize` leaves its queue all the same, and what is behind it is handled."""
    limit = 64 * 1024
    monkeypatch.setattr(classic_recipe, "_MAX_FRAME_SIZE", limit)
    queue, named, seen = fresh_queue(), fresh_queue(), []
    with ClassicBroker() as broker:
        app = App(broker.url, redelivery=NO_RETRY, dead_letter=named.uri, broker_stats=0)

        @app.consumer(queue)
        def refuse(message: Message) -> None:
            seen.append(message.properties["room"])
            if message.properties["room"]:
                raise ValueError("no" * 500)

        with app:
            for room in (2_000, 400, 0):
                body = b"x" * (limit - room if room else 1)
                app.send(queue, body, properties={"room": room})
            assert eventually(lambda: 0 in seen, 40)
            assert eventually(lambda: broker.statistics(queue.name).size == 0)
        assert seen == [2_000, 400, 0]
        (copy,) = broker.browse(named.name)
        assert copy.headers["jmsx_exception"] == "ValueError"
        assert broker.statistics("ActiveMQ.DLQ").size == 1


def test_what_no_copy_has_room_for_though_jmsx_has_not_sent_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is asked whether it holds it as persistent, and then keeps it; the link ended over it for ever."""
    limit = 64 * 1024
    monkeypatch.setattr(classic_recipe, "_MAX_FRAME_SIZE", limit)
    queue, seen = fresh_queue(), list[int]()
    with ClassicBroker() as broker:
        put(broker, queue, "x" * (limit - 150), "x")
        app = App(broker.url, redelivery=NO_RETRY, broker_stats=0)

        @app.consumer(queue)
        def refuse(message: Message) -> None:
            seen.append(len(message.body or ""))
            if seen[-1] > 1:
                raise ValueError

        with app:
            assert eventually(lambda: 1 in seen, 40)
            assert settles(broker, queue, size=0)
        assert seen == [limit - 150, 1]
        assert [len(one) for one in bodies(broker, DEAD_LETTERS)] == [limit - 150]


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("header length", b"SEND\ndestination:/queue/q\nk:" + b"x" * 10_300),
        (
            "number of headers",
            b"SEND\ndestination:/queue/q\n" + b"".join(b"k%d:v\n" % n for n in range(1100)),
        ),
        ("command length", b"S" * 1100),
        ("data length", b"SEND\ndestination:/queue/q\ncontent-length:2000000000"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_each_limit_of_a_frame_is_told_in_the_same_words(
    classic_broker: Broker, name: str, frame: bytes
) -> None:
    """By their beginning jmsx knows that its own frame was too large (BROKER.md C53)."""
    with socket.create_connection(
        ("127.0.0.1", urlsplit(classic_broker.url).port or 0), timeout=10
    ) as plug:
        plug.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + frame + b"\n\nx\0")
        told = plug.makefile("r", encoding="utf-8").read()
    first, *_ = re.findall("^message:(.*)$", told, re.MULTILINE)
    assert first == f"The maximum {name} was exceeded"
    assert CLASSIC.reading.breaks_limit(first)
