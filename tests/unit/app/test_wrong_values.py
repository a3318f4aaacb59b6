"""What no option can be is refused where it is said, by an error of jmsx: never by Python's own, and never later."""

from __future__ import annotations

import inspect
import math
import sqlite3
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    App,
    ArtemisRedeliveryPolicy,
    CircuitBreaker,
    ConfigurationError,
    DatabaseStore,
    HealthLimits,
    MemoryStore,
    Message,
    PrefetchPolicy,
    RateLimit,
    ReconnectPolicy,
    RedeliveryPolicy,
    RedeliveryPolicyMap,
    Retry,
    TlsOptions,
)
from jmsx.app.registration import ConsumerKeywords
from jmsx.app.sender import SendKeywords
from jmsx.config.options import ConnectionKeywords, ConnectionOptions
from jmsx.errors import InvalidDestinationError, JmsxError, MessageFormatError
from jmsx.jms.consumer import MessageConsumer
from jmsx.jms.destination import Destination
from jmsx.jms.producer import MessageProducer
from jmsx.jms.session import Session
from jmsx.testing import harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

URL = "stomp://localhost:61613"
KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])

#: Of each kind of value one that somebody may give by mistake.
VALUES: tuple[Any, ...] = (
    1, -1, 0, 10**30, 1.5, math.nan, math.inf, -math.inf, "", "x", b"x", [], [1], {}, {"a": 1}, {1: 2}, (), (1, 2),
    None, True, object(), int, timedelta(seconds=-1), 1j, "a\0b", "\ud800", "x\ny",
)  # fmt: skip


def raw(calls: Iterator[tuple[str, Callable[[], object]]]) -> list[str]:
    """Those that end in an error that is none of jmsx's."""
    found = []
    for words, call in calls:
        try:
            call()
        except JmsxError:
            pass
        except Exception as error:  # noqa: BLE001 - it is what we look for
            found.append(f"{words}: {type(error).__name__}: {error}")
    return found


def handler(message: Message) -> None:
    """Of whatever comes."""
    del message


def decorated(given: dict[str, Any]) -> None:
    """A consumer with these settings."""
    App(URL).consumer(**given)(handler)


def shown(given: dict[str, Any]) -> str:
    """A message, as a log shows it."""
    return repr(Message(**given))


def sent(producer: MessageProducer, given: dict[str, Any]) -> None:
    """A message, sent."""
    producer.send(Message(**given), destination="queue://q")


def closed(make: Callable[..., MessageConsumer], given: dict[str, Any]) -> None:
    """A consumer, made and closed."""
    make(**given).close()


def test_of_an_app_and_a_connection() -> None:
    """Every option."""

    def calls() -> Iterator[tuple[str, Callable[[], object]]]:
        for name in (*ConnectionKeywords.__annotations__, "url", "health", "watch", "observers"):
            for value in VALUES:
                given: dict[str, Any] = {"url": URL, name: value}
                yield f"App({name}={value!r})", partial(App, **given)
        for name in ConnectionKeywords.__annotations__:
            for value in VALUES:
                given = {name: value}
                yield f"{name}={value!r}", partial(ConnectionOptions.of, **given)
        for name in inspect.signature(RedeliveryPolicy).parameters:
            for value in VALUES:
                yield f"{name}={value!r}", partial(RedeliveryPolicy, **{name: value})

    assert raw(calls()) == []


def test_of_what_options_are_made_of() -> None:
    """Every option of the objects that an app and its consumers are given."""
    made: dict[Callable[..., object], dict[str, Any]] = {
        ArtemisRedeliveryPolicy: {},
        CircuitBreaker: {},
        DatabaseStore: {"connect": partial(sqlite3.connect, ":memory:")},
        HealthLimits: {},
        MemoryStore: {},
        PrefetchPolicy: {},
        RateLimit: {},
        ReconnectPolicy: {},
        RedeliveryPolicyMap: {},
        Retry: {},
        TlsOptions: {},
    }

    def calls() -> Iterator[tuple[str, Callable[[], object]]]:
        for make, needed in made.items():
            for name in inspect.signature(make).parameters:
                for value in VALUES:
                    given = {**needed, name: value}
                    yield f"{make}({name}={value!r})", partial(make, **given)

    assert raw(calls()) == []


def test_of_a_consumer() -> None:
    """Every setting of the decorator."""

    def calls() -> Iterator[tuple[str, Callable[[], object]]]:
        for name in (
            "source",
            "mode",
            "redelivery",
            "name",
            "dedupe",
            *ConsumerKeywords.__annotations__,
        ):
            for value in VALUES:
                given: dict[str, Any] = {"source": "queue://q", name: value}
                yield f"{name}={value!r}", partial(decorated, given)

    assert raw(calls()) == []


@KINDS
def test_of_what_is_sent(kind: str) -> None:
    """By an app and by a producer, and what a message has."""
    app = App()
    with harness(app, kind), app.connect() as connection:
        session = connection.create_session()
        producer = session.create_producer()

        def calls() -> Iterator[tuple[str, Callable[[], object]]]:
            for value in VALUES:
                for name in ("to", "body", *SendKeywords.__annotations__):
                    given: dict[str, Any] = {"to": "queue://q", name: value}
                    yield f"send({name}={value!r})", partial(app.send, **given)
                for name in inspect.signature(MessageProducer.send).parameters:
                    if name not in ("self", "others"):
                        given = {"message": "x", "destination": "queue://q", name: value}
                        words = f"producer.send({name}={value!r})"
                        yield words, partial(producer.send, **given)
                for name in inspect.signature(Message).parameters:
                    given = {name: value}
                    words = f"Message({name}={value!r})"
                    yield words, partial(shown, given)
                    yield words, partial(sent, producer, given)

        assert raw(calls()) == []


@KINDS
def test_of_a_session(kind: str) -> None:
    """What its consumers, browsers and durable subscriptions are asked for by."""
    app = App()
    with harness(app, kind), app.connect(client_id="c") as connection:
        session = connection.create_session()

        def calls() -> Iterator[tuple[str, Callable[[], object]]]:
            for value in VALUES:
                for name in inspect.signature(Session.create_consumer).parameters:
                    if name != "self":
                        given: dict[str, Any] = {"destination": "queue://q", name: value}
                        words = f"create_consumer({name}={value!r})"
                        yield words, partial(closed, session.create_consumer, given)
                for name in inspect.signature(Session.create_durable_consumer).parameters:
                    if name != "self":
                        given = {"topic": "topic://t", "subscription": "s", name: value}
                        words = f"create_durable_consumer({name}={value!r})"
                        yield (
                            words,
                            partial(closed, session.create_durable_consumer, given),
                        )
                yield f"unsubscribe({value!r})", partial(session.unsubscribe, value)
                words = f"create_browser(selector={value!r})"
                yield words, partial(session.create_browser, "queue://q", selector=value)

        assert raw(calls()) == []


@pytest.mark.parametrize("value", [0, "", b"", False, [], [1], [("a", 1)]])
def test_properties_are_a_mapping(value: Any) -> None:
    """Also where it is empty: it cannot mean that there are none."""
    with pytest.raises(MessageFormatError, match="a mapping of names to values"):
        Message("x", properties=value)
    with pytest.raises(ConfigurationError, match="a mapping of names to values"):
        App(URL).send("queue://q", "x", properties=value)


@pytest.mark.parametrize("value", [5, 1.5, True, [1], object()])
def test_a_body_is_refused_where_it_is_said(value: Any) -> None:
    """In the words that `send()` had for it."""
    with pytest.raises(MessageFormatError, match="send str, bytes, a mapping or None"):
        Message(value)
    message = Message("x")
    with pytest.raises(MessageFormatError, match="send str, bytes, a mapping or None"):
        message.body = value


@pytest.mark.parametrize("value", ["", " ", "a\0b", "a\nb", "\ud800"])
def test_names_name_something(value: str) -> None:
    """In frames, logs and metrics."""
    app = App(URL, client_id="c")
    for given in ({"name": value}, {"durable": value}):
        with pytest.raises(ConfigurationError, match=r"name|durable"):
            app.consumer("topic://t", **given)(handler)  # type: ignore[call-overload]  # the wrong value is what is tested


def test_a_selector_is_read_at_the_door() -> None:
    """Not when the app starts."""
    with pytest.raises(JmsxError, match="NUL"):
        App(URL).consumer("queue://q", selector="a\0b")(handler)


@pytest.mark.parametrize(
    "spelt", ["temp-queue://made.up", "/temp-queue/made.up", "temp-topic:made.up"]
)
def test_a_temporary_destination_that_nobody_made_is_refused(spelt: str) -> None:
    """On Classic each connection has its own, so it would be one that nobody reads."""
    app = App()
    with harness(app, "classic"), app.connect() as connection:
        producer = connection.create_session().create_producer()
        for to in (spelt, Destination(spelt), f"queue://a,{spelt}" if "://" in spelt else spelt):
            with pytest.raises(InvalidDestinationError, match="nobody reads"):
                app.send(to, "x")
            with pytest.raises(InvalidDestinationError, match="nobody reads"):
                producer.send("x", destination=to)
        with pytest.raises(InvalidDestinationError, match="nobody reads"):
            app.send("queue://q", "x", reply_to=spelt)


@KINDS
def test_a_reply_address_is_sent_to_whoever_says_it(kind: str) -> None:
    """As the message tells it, or as the text of that, from another connection; and by its own session."""
    app = App()
    with harness(app, kind), app.connect() as asker, app.connect() as other:
        asker.start()
        session = asker.create_session()
        answers = session.create_temporary_queue()
        reader = session.create_consumer(answers)
        app.send("queue://q", "question", reply_to=answers)
        other.start()
        question = other.create_session().create_consumer("queue://q").receive(5.0)
        assert question is not None
        assert question.reply_to is not None
        app.send(question.reply_to, "one")
        app.send(str(question.reply_to), "two")
        session.create_producer().send("three", destination=str(answers))
        got = [reader.receive(5.0) for _ in range(3)]
        assert [one and one.text for one in got] == ["one", "two", "three"]
