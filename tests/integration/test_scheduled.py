"""Redelivery by the broker's own scheduler, on both brokers."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

import jmsx
from jmsx import AcknowledgeMode as Mode
from tests.integration.broker_support import eventually
from tests.integration.liar import ARTEMIS, CONNECTED, Liar
from tests.integration.proxy import Proxy
from tests.integration.support import Outcome, fresh_queue, of_an_attempt_that_tells, settles

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

POLICY = jmsx.RedeliveryPolicy(
    maximum_redeliveries=2,
    initial_redelivery_delay=0.6,
    redelivery_delay=0.6,
    mode="scheduled",
)
DEAD_LETTERS = {"classic": "ActiveMQ.DLQ", "artemis": "DLQ"}


@pytest.mark.parametrize("kind", ["classic", "artemis"])
@pytest.mark.parametrize(
    "mode", [Mode.AUTO_ACKNOWLEDGE, Mode.SESSION_TRANSACTED], ids=["auto", "transacted"]
)
def test_failed_message_waits_at_the_broker(
    kind: str, mode: Mode, request: pytest.FixtureRequest
) -> None:
    """Others go on meanwhile, it comes back counted and with all its properties, and is dead after its limit."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    queue = fresh_queue()
    seen: list[tuple[str, int, float]] = []
    with jmsx.Connection(broker.url, redelivery_policy=POLICY) as connection:
        connection.start()
        session = connection.create_session(mode)

        def handle(message: Any) -> None:
            assert message.properties["colour"] == "red"
            seen.append((message.text, message.delivery_count, time.monotonic()))
            if message.text.startswith("bad"):
                if mode is Mode.AUTO_ACKNOWLEDGE:
                    raise ValueError("bad")
                session.rollback(ValueError("bad"))
            elif mode is Mode.SESSION_TRANSACTED:
                session.commit()

        session.create_consumer(queue).set_listener(handle)
        producer = connection.create_session().create_producer(queue)
        poison = f"bad {queue.name}"
        for body in (poison, "good"):
            producer.send(jmsx.Message(body, properties={"colour": "red"}))
        assert eventually(lambda: len(seen) >= 2, 10)
        assert [body for body, _, _ in seen[:2]] == [poison, "good"]
        assert eventually(lambda: len(seen) >= 4, 10)
        assert eventually(
            lambda: (
                [one.body.decode() for one in broker.browse(DEAD_LETTERS[kind])].count(poison) == 1
            ),
            10,
        )
    bad = [(count, at) for body, count, at in seen if body == poison]
    assert [count for count, _ in bad] == [1, 2, 3]
    assert all(after - before >= 0.5 for (_, before), (_, after) in itertools.pairwise(bad))
    assert len(seen) == 4
    assert eventually(lambda: broker.statistics(queue.name).size == 0, 5)


@pytest.mark.parametrize("kind", ["classic", "artemis"])
@pytest.mark.parametrize("word", [b"SUBSCRIBE", b"AMQ_SCHEDULED_DELAY"])
def test_a_link_that_is_cut_while_the_broker_is_asked(
    kind: str, word: bytes, request: pytest.FixtureRequest
) -> None:
    """The consumer is made all the same, on the next link."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    with (
        Proxy(broker.url) as proxy,
        jmsx.Connection(f"failover:({proxy.url})", redelivery_policy=POLICY) as connection,
    ):
        connection.start()
        session = connection.create_session(Mode.AUTO_ACKNOWLEDGE)
        proxy.cut_at(word, to_broker=True, passed=0.0)
        queue = fresh_queue()
        consumer = session.create_consumer(queue)
        session.create_producer(queue).send(jmsx.Message("here"))
        message = consumer.receive(10)
        assert message is not None
        assert message.text == "here"


def _impatient(url: str) -> jmsx.Connection:
    """A connection that asks for the broker's scheduler, and waits 1 s for each answer."""
    return jmsx.Connection(
        f"failover:({url})",
        reconnect=jmsx.ReconnectPolicy(startup_timeout=15.0),
        redelivery_policy=POLICY,
        request_timeout=1.0,
    )


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_link_that_is_silent_while_the_broker_is_asked(
    kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """That is no answer: it is asked again, on another link."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    with (
        Proxy(broker.url) as proxy,
        _impatient(proxy.url) as connection,
    ):
        connection.start()
        session = connection.create_session(Mode.AUTO_ACKNOWLEDGE)
        made = Outcome(lambda: session.create_consumer(fresh_queue()))
        time.sleep(0.3)  # it has asked, and will have its answer half a second later
        with proxy.held():
            time.sleep(1.3)
        assert made.join(20).error is None
    assert "redelivery stays local" not in caplog.text


@pytest.mark.parametrize("greeting", [CONNECTED, ARTEMIS], ids=["classic", "artemis"])
def test_a_scheduler_that_gives_nothing_back(
    greeting: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a broker that answers all the same nothing is left to it, and the consumer is made."""
    with (
        Liar(lambda client: client.obey(greeting=greeting)) as liar,
        _impatient(liar.url) as connection,
    ):
        connection.start()
        session = connection.create_session(Mode.AUTO_ACKNOWLEDGE)
        assert Outcome(lambda: session.create_consumer(fresh_queue())).join(20).error is None
    assert "redelivery stays local" in caplog.text
    assert ("schedulerSupport" in caplog.text) == (greeting == CONNECTED)  # its name on Classic
    assert "connection lost" not in caplog.text


@pytest.mark.parametrize("body", ["text", {"n": 1}], ids=["text", "map"])
@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_link_that_is_cut_under_the_handler(
    kind: str, body: Any, request: pytest.FixtureRequest
) -> None:
    """The count goes on, also on Classic's next link, which brings a map without its body."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")

    def attempt() -> tuple[list[tuple[Any, int]], str]:
        queue, dead = fresh_queue(), fresh_queue()
        seen: list[tuple[Any, int]] = []
        with (
            Proxy(broker.url) as proxy,
            jmsx.Connection(
                f"failover:({proxy.url})", redelivery_policy=POLICY, dead_letter=str(dead)
            ) as connection,
        ):
            connection.start()
            session = connection.create_session(Mode.AUTO_ACKNOWLEDGE)

            def handle(message: jmsx.Message) -> None:
                seen.append((message.body, message.delivery_count))
                if len(seen) == 2:
                    proxy.cut()
                raise ValueError("bad")

            session.create_consumer(queue).set_listener(handle)
            with jmsx.Connection(broker.url) as sending:
                sending.create_session().create_producer(queue).send(
                    jmsx.Message(body, properties={"of": queue.name})
                )
            buried = eventually(lambda: broker.statistics(dead.name).size == 1, 30)
        if not buried:
            settles(broker, queue, size=0)  # or Artemis keeps what the cut link had
        (letter,) = broker.browse(dead.name)
        return seen, letter.headers["jmsx_delivery_count"]

    assert of_an_attempt_that_tells(attempt) == ([(body, 1), (body, 2), (body, 3)], "3")


def test_what_expires_does_so_however_often_it_is_delayed(broker: Broker) -> None:
    """Its expiry stays what its sender said; Classic would begin its time to live anew at each redelivery."""
    queue, seen, timestamps = fresh_queue(), list[tuple[float, float]](), list[float]()
    policy = jmsx.RedeliveryPolicy(
        maximum_redeliveries=-1,
        initial_redelivery_delay=0.6,
        redelivery_delay=0.6,
        mode="scheduled",
    )
    with jmsx.Connection(broker.url, redelivery_policy=policy) as connection:
        connection.start()

        def fail(message: jmsx.Message) -> None:
            seen.append((message.expiration, time.time()))
            timestamps.append(message.timestamp or 0.0)
            raise ValueError

        connection.create_session().create_consumer(queue, listener=fail)
        sent = jmsx.Message("a")
        connection.create_session().create_producer(queue).send(sent, time_to_live=3.0)
        time.sleep(5.5)
    assert len(seen) > 1
    assert {expiration for expiration, _ in seen} == {sent.expiration}
    assert max(at for _, at in seen) < sent.expiration + 0.2
    assert min(timestamps) == pytest.approx(sent.timestamp, abs=0.1)


def test_a_time_to_live_goes_on_during_a_delay(broker: Broker) -> None:
    """JMS 2.0, JMSExpiration: from the sending on, so what is delayed for longer never comes."""
    queue = fresh_queue()
    with jmsx.Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        sent = jmsx.Message("late")
        producer.send("never", delivery_delay=1.0, time_to_live=0.5)
        producer.send(sent, delivery_delay=1.0, time_to_live=20.0)
        came = consumer.receive(10)
        assert came is not None
        assert (came.text, came.expiration) == ("late", sent.expiration)
        assert came.timestamp == pytest.approx(sent.timestamp, abs=0.1)
        assert consumer.receive(1.5) is None
