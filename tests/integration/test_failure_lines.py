"""What the log, and the event log, tell of a handler that failed: enough to find it, and nothing that does harm."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Connection, Discard, Message, RedeliveryPolicy, Retry, Topic
from jmsx.app import App
from jmsx.core.events import DeliveryEnded
from tests.integration.broker_support import eventually
from tests.integration.support import (
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    fresh_queue,
    settles,
)

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The fields of the records of one kind, and whether they have a traceback."""
    return [
        {**record.jmsx, "traceback": record.exc_info is not None}  # type: ignore[attr-defined]  # our own extra field
        for record in caplog.records
        if getattr(record, "jmsx", {}).get("event") == event
    ]


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_a_message_that_always_fails(
    broker: Broker, mode: AcknowledgeMode, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each failure, whole at the first and the last; one for the dead letter; the place in the events."""
    queue, dead, diary = fresh_queue(), fresh_queue(), Diary()
    policy = RedeliveryPolicy(
        maximum_redeliveries=3, initial_redelivery_delay=0.05, redelivery_delay=0.0
    )
    app = App(broker.url, observers=[diary], dead_letter=dead.uri, redelivery_policy=policy)

    @app.consumer(queue, mode=mode, name="desk")
    def desk(_message: Message) -> None:
        int("no number")

    with app:
        key = app.send(queue, "x")
        assert eventually(lambda: len(diary.dead()) == 1, 10)
        assert settles(broker, queue, size=0)
    failed, (died,) = lines(caplog, "handler failed"), lines(caplog, "dead letter")
    assert [one["attempt"] for one in failed] == ["1 of 4", "2 of 4", "3 of 4", "4 of 4"]
    assert [one["again"] for one in failed] == [
        "in 0.05 s",
        "at once",
        "at once",
        "never, dead letter now",
    ]
    assert [one["traceback"] for one in failed] == [True, False, False, True]
    for one in failed:
        assert (one["consumer"], one["destination"], one["key"]) == ("desk", queue.uri, key)
        assert one["message_id"]
        assert one["error"].startswith("ValueError: invalid literal")
        assert "test_failure_lines.py:" in one["place"]
    assert (died["consumer"], died["to"], died["key"]) == ("desk", dead.uri, key)
    assert (died["attempts"], died["reason"]) == (4, "max_redeliveries")
    assert "test_failure_lines.py:" in died["place"]
    assert 'int("no number")' in caplog.text
    places = [event.error_place for event in diary.events if isinstance(event, DeliveryEnded)]
    assert all("test_failure_lines.py:" in str(place) for place in places)
    stacks = [event.error_stack for event in diary.events if isinstance(event, DeliveryEnded)]
    assert [stack is not None for stack in stacks] == [True, False, False, False]
    for stack in (stacks[0], diary.dead()[0].error_stack):
        assert re.search(r"test_failure_lines\.py:\d+ desk: ValueError$", str(stack)), stack
        assert "no number" not in str(stack)


def test_what_a_handler_says_on_purpose(
    classic_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A Retry needs no traceback; a Discard is worth a line for who wants to know."""
    caplog.set_level(logging.INFO, "jmsx")
    queue, app = fresh_queue(), App(classic_broker.url)

    @app.consumer(queue)
    def desk(message: Message) -> None:
        if message.delivery_count == 1:
            raise Retry("later", delay=0.01)
        raise Discard("old")

    with app:
        app.send(queue, "x")
        assert settles(classic_broker, queue, size=0)
    first, second = lines(caplog, "handler failed")
    assert (first["again"], second["again"]) == ("in 0.01 s", "never, it is discarded")
    assert not first["traceback"]
    assert not second["traceback"]


def test_what_is_done_with_though_it_failed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """In DUPS_OK a topic's message that a listener fails at is acknowledged with the others, and so the line says."""
    topic, seen = Topic(fresh_queue().name), list[str]()

    def fail(message: Message) -> None:
        seen.append(message.text)
        int("no number")

    with Connection(broker.url) as connection:
        session = connection.create_session(DUPS_OK)
        session.create_consumer(topic, listener=fail)
        connection.start()
        connection.create_session().create_producer(topic).send("x")
        assert eventually(lambda: len(lines(caplog, "handler failed")) == 1, 10)
    assert seen == ["x"]
    (line,) = lines(caplog, "handler failed")
    assert line["again"] == "never, it is acknowledged: so it is with topics in DUPS_OK_ACKNOWLEDGE"


class Mute(Exception):  # noqa: N818 - it says nothing
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error", [Mute(), ValueError("x" * 1_000_000), ValueError("\x1b]0;a\x07\x00\x9b2J")]
)
def test_errors_that_do_harm(
    classic_broker: Broker, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be printed, is endless, or acts on a terminal, is told all the same."""
    queue, diary = fresh_queue(), Diary()
    app = App(classic_broker.url, observers=[diary])

    @app.consumer(queue, give_up_on=(Exception,))
    def desk(_message: Message) -> None:
        raise error

    with app:
        app.send(queue, "x")
        assert eventually(lambda: len(diary.dead()) == 1, 10)
    assert len(lines(caplog, "handler failed")) == len(lines(caplog, "dead letter")) == 1
    assert len(caplog.text) < 100_000
    assert not set("\x1b\x00\x07\x9b") & set(caplog.text)
