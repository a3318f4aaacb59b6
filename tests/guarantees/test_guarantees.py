"""What the guide promises, row by row and broker by broker; a test is named in its row."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import jmsx
from jmsx import AcknowledgeMode as Mode
from jmsx.errors import (
    InvalidClientIdError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    UnsupportedError,
)
from jmsx.jms.session import link_of
from jmsx_broker import ArtemisBroker, ClassicBroker
from tests.guarantees.parts import (
    DEAD_LETTERS,
    MODES,
    MORTAL,
    emptied,
    headers_of_the_first,
    left,
    put,
    take,
    texts,
)
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AT_ONCE,
    KeptForNobodyError,
    fresh_queue,
    of_an_attempt_that_tells,
    stays_in_delivery,
    stranded,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx.jms.link import SessionLink
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.label)
def test_consume_is_at_least_once(
    mode: Mode, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """A crash delivers again what was not acknowledged, flagged, and nothing that was."""
    put(connection, queue, *"abcdef")
    crashing = jmsx.Connection(broker.url)
    crashing.start()
    session = crashing.create_session(mode)
    consumer = session.create_consumer(queue)
    for _ in range(2):
        message = consumer.receive(5)
        assert message is not None
        message.acknowledge()
    if mode is Mode.SESSION_TRANSACTED:
        session.commit()
    third = consumer.receive(5)
    assert third is not None
    wanted = "def" if mode is Mode.AUTO_ACKNOWLEDGE else "cdef"
    assert eventually(lambda: broker.statistics(queue.name).size == len(wanted), 5)
    crashing.abort()

    assert eventually(lambda: broker.statistics(queue.name).consumer_count == 0, 10)
    again = left(connection, queue)
    kept = stranded(broker, queue)
    assert "".join(texts(again)) in (wanted, wanted[kept:])
    # the third had been handed out, unless the broker keeps just that one
    assert all(message.redelivered for message in again if message.text == "c")


def test_what_a_killed_broker_forgot_is_flagged(kind: str, queue: jmsx.Queue) -> None:
    """An acknowledgement that it never read: the message comes again as if new, and is told as the second delivery."""
    with MORTAL[kind]() as broker, Proxy(broker.url) as proxy:
        url = f"failover:({proxy.url})?maxReconnectDelay=100"
        with jmsx.Connection(url, redelivery_policy=AT_ONCE) as connection:
            connection.start()
            consumer = connection.create_session().create_consumer(queue)
            put(connection, queue, "a", "b")
            assert eventually(lambda: broker.statistics(queue.name).inflight_count == 2, 5)
            assert told(consumer.receive(5)) == ("a", 1, False)
            assert eventually(lambda: broker.statistics(queue.name).size == 1, 5)
            with proxy.frozen():
                assert told(consumer.receive(5)) == ("b", 1, False)
                broker.kill()
                broker.start()
            again = [told(message) for message in take(consumer, 3.0)]
    assert again == [("b", 2, True)]


def told(message: jmsx.Message | None) -> tuple[str, int, bool]:
    """Text, delivery count and flag."""
    assert message is not None
    return message.text, message.delivery_count, message.redelivered


def test_receive_and_send_are_one(
    kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """A rollback undoes both, a commit does both; on Artemis what is sent carries an identity."""
    target = fresh_queue()
    put(connection, queue, "in")
    session = connection.create_session(Mode.SESSION_TRANSACTED)
    consumer, producer = session.create_consumer(queue), session.create_producer(target)
    for _ in range(2):
        assert consumer.receive(5) is not None
        producer.send(jmsx.Message("out"))
        session.rollback()
    assert left(connection, target) == []
    assert consumer.receive(5) is not None
    producer.send(jmsx.Message("out"))
    session.commit()
    session.close()
    assert ("_AMQ_DUPL_ID" in headers_of_the_first(broker, target)) is (kind == "artemis")
    assert texts(left(connection, target)) == ["out"]
    assert left(connection, queue) == []


@pytest.mark.parametrize("kept", [False, True], ids=["removed", "kept"])
def test_what_a_removed_queue_forgets(kind: str, *, kept: bool) -> None:
    """An output that was taken before the broker was started again is there once more, unless its queue was kept."""
    queue, target = fresh_queue(), fresh_queue()

    def move(url: str) -> None:
        with jmsx.Connection(url) as connection:
            connection.start()
            session = connection.create_session(Mode.SESSION_TRANSACTED)
            message = session.create_consumer(queue).receive(5)
            assert message is not None
            session.create_producer(target).send(jmsx.Message(message.text))
            session.commit()

    def taken(broker: Broker) -> list[str]:
        with jmsx.Connection(broker.url) as connection:
            connection.start()
            return texts(left(connection, target))

    settings = {"#": {"auto-delete-queues": not kept}}
    artemis = ArtemisBroker(address_settings=settings)
    with artemis if kind == "artemis" else ClassicBroker() as broker:
        with jmsx.Connection(broker.url) as connection:
            put(connection, queue, "a")
        with Proxy(broker.url) as proxy:
            proxy.cut_at(b"COMMIT" if kind == "classic" else b"ACK", to_broker=True, passed=False)
            with pytest.raises(jmsx.TransactionInDoubtError):
                move(proxy.url)
        outputs = taken(broker)
        broker.stop()
        broker.start()
        move(broker.url)
        outputs += taken(broker)
    assert outputs == ["a"] * (2 if kind == "artemis" and not kept else 1)


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
def test_outputs_of_inputs_that_come_together(
    kind: str, broker: Broker, connection: jmsx.Connection, *, named: bool
) -> None:
    """A crash between the two steps, and other company when they come again: on Artemis twice, and none is missing."""

    def attempt() -> list[str]:
        queue, target = fresh_queue(), fresh_queue()

        def move(session: jmsx.Session, count: int) -> list[str]:
            consumer, producer = session.create_consumer(queue), session.create_producer(target)
            inputs = [consumer.receive(5) for _ in range(count)]
            if None in inputs:
                session.close()
                if kind == "artemis" and stays_in_delivery(broker, queue):
                    raise KeptForNobodyError(f"one of {count} messages of {queue}")
            for message in inputs:
                assert message is not None
                name = f"{queue.name} {message.key}" if named and kind == "artemis" else None
                producer.send(message.text, dedupe_id=name)
            return [message.text for message in inputs if message is not None]

        put(connection, queue, "a", "b")
        with Proxy(broker.url) as way, jmsx.Connection(way.url) as crashing:
            crashing.start()
            session = crashing.create_session(Mode.SESSION_TRANSACTED)
            assert move(session, 2) == ["a", "b"]
            way.cut_at(b"ACK", to_broker=True, passed=False)
            with pytest.raises(jmsx.JmsxError):
                session.commit()
        assert eventually(lambda: broker.statistics(queue.name).consumer_count == 0, 10)
        put(connection, queue, "c", priority=9)
        session = connection.create_session(Mode.SESSION_TRANSACTED)
        assert sorted(move(session, 3)) == ["a", "b", "c"]
        session.commit()
        session.close()
        return sorted(texts(left(connection, target)))

    # a duplicate id of the application's is that of the same output
    twice = kind == "artemis" and not named
    assert of_an_attempt_that_tells(attempt) == (
        ["a", "a", "b", "b", "c"] if twice else ["a", "b", "c"]
    )


@pytest.mark.parametrize(
    "mode", [Mode.CLIENT_ACKNOWLEDGE, Mode.SESSION_TRANSACTED], ids=lambda mode: mode.label
)
def test_rollback_and_recover_keep_the_order(
    mode: Mode, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Whatever was delivered comes again in the order in which it came."""
    put(connection, queue, *"abcdef")
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    first = [consumer.receive(5) for _ in range(4)]
    assert [message.text for message in first if message] == list("abcd")
    if mode is Mode.SESSION_TRANSACTED:
        session.rollback()
    else:
        session.recover()
    assert texts(take(consumer)) == list("abcdef")


def test_order_over_lost_links(kind: str, broker: Broker, connection: jmsx.Connection) -> None:
    """One link had all of them when it was lost, the next one the first of them; order is the broker's affair."""

    def attempt() -> str:
        queue = fresh_queue()
        put(connection, queue, *"abcdef")
        for prefetch in (100, 1):
            lost = jmsx.Connection(broker.url)
            lost.start()
            session = lost.create_session(Mode.CLIENT_ACKNOWLEDGE)
            options = jmsx.ConsumerOptions(prefetch=prefetch)
            message = session.create_consumer(queue, options=options).receive(5)
            assert message is not None
            assert message.text == "a"
            lost.abort()
            if stays_in_delivery(broker, queue):
                raise KeptForNobodyError(f"a message of {queue}")
        return "".join(texts(left(connection, queue)))

    assert of_an_attempt_that_tells(attempt) == ("bcdefa" if kind == "classic" else "abcdef")


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.label)
def test_poison_is_dead_after_its_deliveries(
    mode: Mode, kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Exactly `1 + maximum_redeliveries` deliveries, then one dead letter."""
    policy = jmsx.RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=0.0, redelivery_delay=0.0
    )
    key = queue.name
    put(connection, queue, key, "next")
    with jmsx.Connection(broker.url, redelivery_policy=policy) as failing:
        failing.start()
        session = failing.create_session(mode)
        consumer = session.create_consumer(queue)
        deliveries = []
        for message in iter(lambda: consumer.receive(2), None):
            deliveries.append((message.text, message.delivery_count))
            if message.text == "next":
                break
            if mode is Mode.SESSION_TRANSACTED:
                session.rollback()
            elif mode is not Mode.AUTO_ACKNOWLEDGE:
                session.recover()
    if mode is Mode.AUTO_ACKNOWLEDGE:  # receive() has acknowledged it: only a listener can fail
        assert deliveries == [(key, 1), ("next", 1)]
        return
    assert deliveries == [(key, 1), (key, 2), (key, 3), ("next", 1)]
    dead = broker.browse(DEAD_LETTERS[kind])
    assert [one.body.decode() for one in dead].count(key) == 1


def _has_left(link: SessionLink, epoch: int) -> bool:
    """Whether a session goes on with a later link."""
    return link.epoch > epoch


@pytest.mark.parametrize(
    ("mode", "committing", "deliveries"),
    [
        (Mode.SESSION_TRANSACTED, False, 3),
        (Mode.SESSION_TRANSACTED, True, 5),
        (Mode.CLIENT_ACKNOWLEDGE, False, 5),
    ],
)
def test_what_a_lost_link_counts(
    broker: Broker, mode: Mode, deliveries: int, *, committing: bool
) -> None:
    """It is a failure in a transaction that had not come to its commit; with a limit of three, so often it comes."""
    policy = jmsx.RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=0.0, redelivery_delay=0.0
    )

    def attempt() -> list[int]:
        queue, counts = fresh_queue(), list[int]()
        with (
            Proxy(broker.url) as proxy,
            jmsx.Connection(
                proxy.url, redelivery_policy=policy, reconnect=jmsx.ReconnectPolicy()
            ) as failing,
        ):
            failing.start()
            session = failing.create_session(mode)
            session.create_producer(queue).send("x")
            if session.transacted:
                session.commit()
            consumer = session.create_consumer(queue)
            while len(counts) < 5 and (message := consumer.receive(3)) is not None:
                counts.append(message.delivery_count)
                epoch = link_of(session).epoch
                proxy.hang_up()
                assert eventually(partial(_has_left, link_of(session), epoch))
                if committing:
                    with pytest.raises(jmsx.TransactionRolledBackError):
                        session.commit()
        if len(counts) < deliveries and stays_in_delivery(broker, queue):
            raise KeptForNobodyError(f"the message of {queue}")
        return counts

    assert of_an_attempt_that_tells(attempt) == list(range(1, deliveries + 1))


def test_failures_on_several_connections_count_together(
    kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """Two on one, and one on the next: three are the limit, though each connection counts as in Java."""
    policy = jmsx.RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=0.0, redelivery_delay=0.0
    )
    key, counts = queue.name, []
    put(connection, queue, key)
    for deliveries in (2, 1):
        with jmsx.Connection(broker.url, redelivery_policy=policy) as failing:
            failing.start()
            session = failing.create_session(Mode.SESSION_TRANSACTED)
            consumer = session.create_consumer(queue)
            for _ in range(deliveries):
                message = consumer.receive(5)
                assert message is not None
                counts.append(message.delivery_count)
                session.rollback()
    assert counts == [1, 2, 2]
    assert left(connection, queue) == []
    dead = broker.browse(DEAD_LETTERS[kind])
    assert [one.body.decode() for one in dead].count(key) == 1


def test_what_a_selector_gives_back(
    kind: str, broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """What a consumer with a selector had in its prefetch when it closed: in its old place on Artemis."""
    producer = connection.create_session().create_producer(queue)
    for text, half in (("a", "x"), ("b", "y"), ("c", "y")):
        producer.send(jmsx.Message(text, properties={"half": half}))
    session = connection.create_session()
    session.create_consumer(queue, selector="half = 'y'")
    assert eventually(lambda: broker.statistics(queue.name).inflight_count == 2, 5)
    session.close()
    order = {"classic": ["b", "c", "a"], "artemis": ["a", "b", "c"]}
    assert texts(left(connection, queue)) == order[kind]


def test_dead_letters_that_the_broker_would_delete(
    kind: str, broker: Broker, queue: jmsx.Queue
) -> None:
    """With `dead_letter="broker"`: a message of a topic, of whose consumer nothing stays."""
    topic, key = jmsx.Topic(queue.name), queue.name
    with jmsx.Connection(
        broker.url,
        redelivery_policy=jmsx.RedeliveryPolicy(maximum_redeliveries=0),
        dead_letter=jmsx.DeadLetterStrategy.BROKER,
    ) as failing:
        failing.start()
        session = failing.create_session(Mode.SESSION_TRANSACTED)
        consumer = session.create_consumer(topic)
        put(failing, topic, key)  # type: ignore[arg-type]  # typed for queues, and works for topics
        assert consumer.receive(5) is not None
        session.rollback()
        assert consumer.receive(0.5) is None
    dead = [one.body.decode() for one in broker.browse(DEAD_LETTERS[kind])]
    assert dead.count(key) == (kind == "artemis")


def test_non_persistent_messages_are_dead_letters_too(
    kind: str, broker: Broker, connection: jmsx.Connection, queue: jmsx.Queue
) -> None:
    """Jmsx lets no broker delete a message that failed."""
    key = queue.name
    put(connection, queue, key, persistent=False)
    with jmsx.Connection(
        broker.url, redelivery_policy=jmsx.RedeliveryPolicy(maximum_redeliveries=0)
    ) as failing:
        failing.start()
        session = failing.create_session(Mode.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        assert consumer.receive(5) is not None
        session.rollback()
        assert consumer.receive(0.5) is None
    assert [one.body.decode() for one in broker.browse(DEAD_LETTERS[kind])].count(key) == 1


def test_priorities(kind: str, queue: jmsx.Queue, connection: jmsx.Connection) -> None:
    """Artemis honours them always, Classic where a policy says so."""
    put(connection, queue, "low", priority=1)
    put(connection, queue, "high", priority=8)
    wanted = ["low", "high"] if kind == "classic" else ["high", "low"]
    assert texts(left(connection, queue)) == wanted


def test_client_id(kind: str, broker: Broker) -> None:
    """Classic lets one connection have it; Artemis, over STOMP, does not look."""
    client_id = fresh_queue().name
    with jmsx.Connection(broker.url, client_id=client_id) as first:
        first.start()
        second = jmsx.Connection(broker.url, client_id=client_id)
        if kind == "classic":
            with pytest.raises(InvalidClientIdError):
                second.start()
        else:
            second.start()
        second.close()


def test_browsing(kind: str, queue: jmsx.Queue, connection: jmsx.Connection) -> None:
    """Classic shows what lies in a queue; Artemis cannot over STOMP, and jmsx says so."""
    put(connection, queue, *"ab")
    browser = connection.create_session().create_browser(queue)
    if kind == "classic":
        assert texts(list(browser)) == ["a", "b"]
    else:
        with pytest.raises(UnsupportedError, match="cannot show"):
            list(browser)


def test_bodies(queue: jmsx.Queue, connection: jmsx.Connection) -> None:
    """Text, bytes and maps come as they were sent."""
    bodies: list[Any] = [
        "text",
        "",
        "nul \0 inside",
        b"bytes",
        b"",
        {"n": 1, "t": "007", "b": b"x", "f": 0.5},
    ]
    session = connection.create_session()
    producer = session.create_producer(queue)
    for body in bodies:
        producer.send(jmsx.Message(body))
    assert [message.body for message in left(connection, queue)] == bodies


def test_commit_whose_receipt_is_lost(broker: Broker, connection: jmsx.Connection) -> None:
    """The broker has committed, nobody heard it: the error says that nobody knows."""
    target = fresh_queue()
    with Proxy(broker.url) as way:
        doubtful = jmsx.Connection(way.url)
        session = doubtful.create_session(Mode.SESSION_TRANSACTED)
        session.create_producer(target).send(jmsx.Message("out"))
        way.cut_at(b"COMMIT", to_broker=True, passed=True)
        with pytest.raises(TransactionInDoubtError, match="nobody knows"):
            session.commit()
        doubtful.abort()
    assert texts(left(connection, target)) == ["out"]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_commit_markers_clear_it_up(
    broker: Broker, connection: jmsx.Connection, *, done: bool
) -> None:
    """Whether the broker has done it or not: nobody is left in doubt, and nothing is there twice."""
    markers = jmsx.Queue("jmsx.commits")

    def attempt() -> list[str]:
        target, kept = fresh_queue(), stranded(broker, markers)
        with (
            Proxy(broker.url) as way,
            jmsx.Connection(f"failover:({way.url})", commit_markers=True) as doubtful,
        ):
            session = doubtful.create_session(Mode.SESSION_TRANSACTED)
            producer = session.create_producer(target)
            producer.send(jmsx.Message("first"))
            session.commit()
            for body in ("out", "put"):
                producer.send(jmsx.Message(body))
            assert eventually(
                lambda: link_of(session).engine.call(lambda core, _now: core.may_commit())
            )
            way.cut_at(b"COMMIT", to_broker=True, passed=done)
            try:
                with (
                    contextlib.nullcontext() if done else pytest.raises(TransactionRolledBackError)
                ):
                    session.commit()
            except TransactionInDoubtError as error:
                doubtful.abort()
                if not eventually(lambda: stranded(broker, markers) > kept, 3):
                    raise
                raise KeptForNobodyError("the broker keeps the marker") from error
            assert way.sprung.is_set()
        return texts(left(connection, target))

    assert of_an_attempt_that_tells(attempt) == ["first", "out", "put"][: 3 if done else 1]


def test_counts_with_a_ledger(
    broker: Broker, queue: jmsx.Queue, connection: jmsx.Connection, tmp_path: Path
) -> None:
    """How often a message was handed out is known after its consumers have died."""
    put(connection, queue, "a")
    counts = []
    for _ in range(3):
        crashing = jmsx.Connection(broker.url, ledger=tmp_path / "deliveries.db")
        crashing.start()
        message = crashing.create_session(Mode.CLIENT_ACKNOWLEDGE).create_consumer(queue).receive(5)
        crashing.abort()
        assert eventually(lambda: broker.statistics(queue.name).consumer_count == 0, 10)
        if message is None:  # Artemis keeps it for the last one, who is dead (README)
            assert stranded(broker, queue) == 1
            break
        counts.append(message.delivery_count)
    assert counts == [1, 2, 3][: len(counts)]


def test_a_dead_letter_that_fails_again_stays(
    kind: str, broker: Broker, connection: jmsx.Connection, queue: jmsx.Queue
) -> None:
    """It is a dead letter once more; the Java client would have it deleted."""
    key = queue.name
    dlq = jmsx.Queue(DEAD_LETTERS[kind])
    emptied(broker, dlq)  # Classic looks for what a selector wants among the first 200 only
    policy = jmsx.RedeliveryPolicy(maximum_redeliveries=0)
    sender = connection.create_session().create_producer(queue)
    sender.send(jmsx.Message(key, properties={"marker": key}))
    with jmsx.Connection(broker.url, redelivery_policy=policy) as failing:
        failing.start()
        session = failing.create_session(Mode.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        assert consumer.receive(5) is not None
        session.rollback()
        reader = session.create_consumer(dlq, selector=f"marker = '{key}'")
        assert reader.receive(5) is not None
        session.rollback()
        assert reader.receive(5) is not None
    assert [one.body.decode() for one in broker.browse(dlq.name)].count(key) == 1


def test_a_group_is_closed_by_its_sequence(
    kind: str, queue: jmsx.Queue, connection: jmsx.Connection
) -> None:
    """On Classic a negative JMSXGroupSeq closes a group; on Artemis that is refused by send()."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.send(jmsx.Message("a", group_id="g", group_sequence=1))
    last = jmsx.Message("b", group_id="g", group_sequence=-1)
    if kind == "artemis":
        with pytest.raises(UnsupportedError, match="JMSXGroupSeq"):
            producer.send(last)
        producer.send(jmsx.Message("b", group_id="g"))
    else:
        producer.send(last)
    assert texts(left(connection, queue)) == ["a", "b"]


def test_a_dead_letter_that_fails_in_the_named_queue_ends(
    kind: str, broker: Broker, connection: jmsx.Connection, queue: jmsx.Queue
) -> None:
    """Who reads the queue that `dead_letter` names gets each message once: it goes on to the broker's dead letters."""
    key = queue.name
    policy = jmsx.RedeliveryPolicy(maximum_redeliveries=0)
    connection.create_session().create_producer(queue).send(jmsx.Message(key))
    with jmsx.Connection(broker.url, dead_letter=queue.uri, redelivery_policy=policy) as failing:
        failing.start()
        session = failing.create_session(Mode.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        assert consumer.receive(5) is not None
        session.rollback()
        assert consumer.receive(1) is None
    assert [one.body.decode() for one in broker.browse(queue.name)] == []
    dlq = DEAD_LETTERS[kind]
    assert [one.body.decode() for one in broker.browse(dlq)].count(key) == 1
