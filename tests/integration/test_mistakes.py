"""Common mistakes, made on both brokers: what the error, or the log, says to whoever made them."""

from __future__ import annotations

import socket
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, MapMessage, Message, ReconnectPolicy, RedeliveryPolicy, Retry
from jmsx.app import App
from jmsx.errors import (
    ConfigurationError,
    ConnectionFailedError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
    MessageNotWriteableError,
    SecurityError,
    SendUnconfirmedError,
)
from jmsx.plugins import needing
from jmsx_broker import ArtemisBroker, ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import fresh_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Session
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def session(broker: Broker) -> Iterator[Session]:
    """Of a connection that is started."""
    with Connection(broker.url) as connection:
        connection.start()
        yield connection.create_session()


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    """The fields of the records of one kind."""
    found = [getattr(record, "jmsx", {}) for record in caplog.records]
    return [fields for fields in found if str(fields.get("event")).startswith(event)]


def test_a_selector_that_is_none(session: Session) -> None:
    """The error says whose selector it is, on which destination, and no queue of jmsx's own."""
    queue = fresh_queue()
    with pytest.raises(InvalidSelectorError) as caught:
        session.create_consumer(queue, selector="region = = 'EU'")
    text = str(caught.value)
    assert text.startswith(
        f"the broker cannot read the selector \"region = = 'EU'\" of a consumer of {queue}: "
    )
    assert "jmsx.answers" not in text
    assert "convert_string" not in text


def test_a_connection_that_is_not_started(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """`receive()` returns None, and the log says once why; not after a `stop()`, which is no mistake."""
    queue = fresh_queue()
    with Connection(broker.url) as connection:
        session = connection.create_session()
        session.create_producer(queue).send("x")
        consumer = session.create_consumer(queue)
        assert [consumer.receive(0.1), consumer.receive(0.1)] == [None, None]
        assert len(told(caplog, "connection not started")) == 1
        assert "connection.start()" in caplog.text
        connection.start()
        message = consumer.receive(5)
        assert message is not None
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        connection.stop()
        assert consumer.receive(0.1) is None
    assert len(told(caplog, "connection not started")) == 1


def test_messages_that_are_changed(session: Session) -> None:
    """One's own is sent as it is at each send; one that came in is as it came."""
    queue = fresh_queue()
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    message = Message("x")
    for number in (1, 2):
        message.properties["number"] = number
        producer.send(message)
    seen = [consumer.receive(5), consumer.receive(5)]
    assert [one and one.properties["number"] for one in seen] == [1, 2]
    assert seen[0] is not None
    with pytest.raises(MessageNotWriteableError, match="send a new one"):
        seen[0].properties["number"] = 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"headers": {"a": "b"}}, r"'headers'; write Message\(body, properties=\{\.\.\.\}\)"),
        ({"properties": {"a": "b"}}, r"'properties'; write Message\(body, properties="),
        ({"delay": 5}, "did you mean 'delivery_delay'"),
        ({"correlation_id": "x"}, r"write Message\(body, correlation_id="),
        ({"prority": 5}, r"'prority'; did you mean 'priority'\?"),
        ({"time_to_live": -4}, "time_to_live must be seconds, 0 for ever, not -4"),
        ({"time_to_live": b"2s"}, "time_to_live must be seconds"),
        ({"time_to_live": "2"}, "time_to_live='2' is no duration; write seconds"),
        ({"time_to_live": 1e300}, "time_to_live must be seconds"),
        ({"delivery_delay": "soon"}, "delivery_delay='soon' is no duration"),
        ({"timeout": b"1s"}, "timeout must be seconds, a timedelta"),
        ({"persistent": "no"}, "persistent must be True or False, not a str"),
        ({"destinaton": "x"}, r"'destinaton'; did you mean 'destination'\?"),
        ({"priority": 11}, "priority must be a whole number from 0 to 9, not 11"),
    ],
)
def test_options_of_send(session: Session, options: dict[str, Any], text: str) -> None:
    """Nothing is sent, and the nearest is named."""
    with pytest.raises(ConfigurationError, match=text):
        session.create_producer(fresh_queue()).send("x", **options)


@pytest.mark.parametrize("timeout", [b"1s", True, float("nan"), [1], 10**400, -(10**400)])
def test_a_timeout_that_is_none(session: Session, timeout: Any) -> None:
    """A duration, or None."""
    with pytest.raises(ConfigurationError, match="timeout must be seconds, or None for ever"):
        session.create_consumer(fresh_queue()).receive(timeout)


def test_a_timeout_without_its_unit(session: Session) -> None:
    """It would be milliseconds in Java."""
    with pytest.raises(ConfigurationError, match="timeout='1' is no duration; write seconds"):
        session.create_consumer(fresh_queue()).receive("1")


@pytest.mark.parametrize("body", [{1: "x"}, {"": "x"}, {"list": [1]}, [1], 5, None])
def test_bodies_that_are_none(session: Session, body: Any) -> None:
    """An error of jmsx, whichever it is."""
    with pytest.raises(MessageFormatError):
        session.create_producer(fresh_queue()).send(body)


@pytest.mark.parametrize("body", [{"list": [1]}, [1], object()])
def test_bodies_that_are_meant_as_json(session: Session, body: Any) -> None:
    """What to write instead is said; an app sends JSON by itself (tests/unit/app/test_sent_bodies.py)."""
    with pytest.raises(MessageFormatError, match=r"json\.dumps"):
        session.create_producer(fresh_queue()).send(body)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"properties": 5}, "properties are a mapping of names to values, such as .*, not an int"),
        ({"properties": {5: "x"}}, "5 is not a property name"),
        ({"group_id": 3}, "group_id of a message must be a str, not 3"),
    ],
)
def test_messages_that_are_none(session: Session, fields: dict[str, Any], text: str) -> None:
    """An error of jmsx, which names the field."""
    with pytest.raises(MessageFormatError, match=text):
        session.create_producer(fresh_queue()).send(Message("x", **fields))


@pytest.mark.parametrize("kind", [Message, MapMessage])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"headers": {"a": "b"}},
            "unknown field of a message 'headers'; did you mean 'properties'",
        ),
        ({"corelation_id": "x"}, "did you mean 'correlation_id'"),
        ({"priority": 5}, r"write send\(message, priority=\.\.\.\)"),
        ({"ttl": 5}, r"write send\(message, time_to_live=\.\.\.\)"),
        ({"zzz": 5}, "there are body, correlation_id, group_id"),
    ],
)
def test_fields_of_a_message(kind: type[Message], fields: dict[str, Any], text: str) -> None:
    """The nearest is named, or where it is said instead."""
    with pytest.raises(ConfigurationError, match=text):
        kind({"a": 1}, **fields)


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("client", "CLIENT_ACKNOWLEDGE"),
        ("Auto_Acknowledge", "AUTO_ACKNOWLEDGE"),
        ("transacted", "SESSION_TRANSACTED"),
        ("dups-ok", "DUPS_OK_ACKNOWLEDGE"),
        ("INDIVIDUAL", "INDIVIDUAL_ACKNOWLEDGE"),
        ("x", "SESSION_TRANSACTED"),
        (17, "SESSION_TRANSACTED"),
    ],
)
def test_modes_as_text(mode: Any, name: str) -> None:
    """The nearest is named."""
    with (
        Connection("stomp://127.0.0.1:1") as connection,
        pytest.raises(ConfigurationError, match=f"such as AcknowledgeMode.{name}, not"),
    ):
        connection.create_session(mode)


def test_where_to_answer_as_text(session: Session) -> None:
    """It is spelt as destinations are everywhere."""
    queue, answers = fresh_queue(), fresh_queue()
    message = Message("x", reply_to=f"/queue/{answers.name}")
    session.create_producer(queue).send(message)
    seen = session.create_consumer(queue).receive(5)
    assert seen is not None
    assert seen.reply_to == answers
    message.reply_to = answers.uri  # type: ignore[assignment]  # as a program without type checker does
    session.create_producer(queue).send(message)
    with pytest.raises(InvalidDestinationError):
        Message("x", reply_to=5)  # type: ignore[arg-type]  # the mistake that is tested


def test_a_listener_that_takes_no_message(session: Session) -> None:
    """It is refused when it is given, and not by each message."""
    with pytest.raises(ConfigurationError, match=r"must take \(message\): too many positional"):
        session.create_consumer(fresh_queue()).set_listener(lambda: None)  # type: ignore[arg-type, misc]  # the mistake that is tested


@pytest.mark.parametrize("delay", ["soon", timedelta(days=-1), float("nan"), float("inf"), 1e30])
def test_a_retry_of_no_delay(broker: Broker, delay: Any) -> None:
    """It is the failure of that message, whose policy goes on, and of nothing else."""
    queue, calls = fresh_queue(), []
    policy = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.0)

    class Late(Retry):
        """Says so behind the back of `Retry`."""

        def __init__(self) -> None:
            super().__init__("later")
            self.delay = delay

    app = App(broker.url)

    @app.consumer(queue, redelivery=policy)
    def handle(message: Message) -> None:
        calls.append((message.text, message.delivery_count))
        if message.text == "given":
            raise Retry(delay=delay)
        if message.text == "changed":
            raise Late

    with app:
        for text in ("given", "changed", "fine"):
            app.send(queue, text)
        assert eventually(lambda: ("fine", 1) in calls, 10)
        assert app.live().ok
    assert calls == [("given", 1), ("given", 2), ("changed", 1), ("changed", 2), ("fine", 1)]


def test_a_body_that_the_broker_does_not_take(classic_broker: Broker) -> None:
    """It hangs up without a word, so the error names the size."""
    app = App(classic_broker.url)
    with pytest.raises(SendUnconfirmedError, match=r"its body has 110000000 bytes: the broker may"):
        app.send(fresh_queue(), b"x" * 110_000_000)
    app.abort()


def test_a_body_that_is_too_large(broker: Broker) -> None:
    """Refused before it is sent, with both sizes; the session goes on."""
    with Connection(broker.url, max_body_size=1000) as connection:
        producer = connection.create_session().create_producer(fresh_queue())
        with pytest.raises(
            MessageFormatError, match="1001 bytes is longer than the max_body_size of 1000"
        ):
            producer.send(b"x" * 1001)
        producer.send(b"x" * 1000)


def test_a_port_where_nobody_listens() -> None:
    """The usual port is named."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        for scheme, usual in (("stomp", 61613), ("stomp+ssl", 61614)):
            with pytest.raises(ConnectionFailedError, match=f"STOMP port, usually {usual}"):
                Connection(f"{scheme}://127.0.0.1:{port}").create_session()


@pytest.mark.parametrize("kind", [ArtemisBroker, ClassicBroker])
def test_no_credentials(kind: type[ArtemisBroker | ClassicBroker]) -> None:
    """It is said that none were given, and how to give them."""
    wrong: dict[str, Any] = {"username": "alice", "password": "x"}
    with kind(users={"alice": "secret"}) as broker:
        with pytest.raises(SecurityError, match="none were given: username="):
            Connection(broker.url).create_session()
        with pytest.raises(SecurityError, match=r"is invalid\.?$"):
            Connection(broker.url, **wrong).create_session()


def test_run_in_a_thread(broker: Broker) -> None:
    """The error says what to call there."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            App(broker.url).run()
        except IllegalStateError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert "in another one use start() and stop()" in str(raised[0])


def test_the_broker_is_back(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waited for it at the start is told when it is there, and after how long."""
    with Proxy(broker.url) as proxy:
        app = App(proxy.url, reconnect=ReconnectPolicy(initial_delay=0.2))
        app.consumer(fresh_queue())(lambda _message: None)
        with proxy.shut():
            starting = threading.Thread(target=app.start)
            starting.start()
            assert eventually(lambda: proxy.turned_away > 1, 10)
            assert told(caplog, "connected") == []
        starting.join(10)
        (line,) = told(caplog, "connected")
        app.stop()
    assert line["after_seconds"] > 0
    assert line["attempts"] > 1


def test_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package, and the extra that has it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(
            ModuleNotFoundError,
            match=r"needs the package prometheus_client; .* pip install 'jmsx\[prometheus\]'",
        ),
        needing("jmsx_prometheus"),
    ):
        import prometheus_client  # noqa: F401, PLC0415 - what is missing
