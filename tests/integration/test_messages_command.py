"""`jmsx send` and `jmsx browse`, on real brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from jmsx import Connection
from jmsx.cli.commands import app

if TYPE_CHECKING:
    from jmsx import Queue
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def run(broker: Broker, *arguments: str, given: str = "") -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [*arguments, "--broker", broker.url], input=given)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_what_is_sent_can_be_seen_and_stays(broker: Broker, queue: Queue) -> None:
    """From an argument and from lines, with properties; a look takes nothing."""
    key = run(broker, "send", queue.uri, "grüße", "-p", "region=eu").strip()
    run(broker, "send", queue.uri, "--lines", given="b\nc\n")
    shown = run(broker, "browse", queue.name)
    assert [line.split("\t")[2] for line in shown.splitlines()] == ["grüße", "b", "c"]
    first = json.loads(run(broker, "browse", queue.name, "--limit", "1", "--json"))
    assert (first["key"], first["text"], first["headers"]["region"]) == (key, "grüße", "eu")
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        message = consumer.receive(5.0)
        assert message is not None
        assert (message.text, message.key, message.properties["region"]) == ("grüße", key, "eu")
        assert not message.redelivered


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["send", "queue://x", "a", "-p", "region"], "is not NAME=TEXT"),
        (["send", "queue://x", "a", "--lines"], "leave the text out"),
        (["browse", "topic://x"], "is not one queue"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(arguments: list[str], told: str) -> None:
    """Without a broker."""
    assert told in str(CliRunner().invoke(app, arguments).exception)


def test_a_queue_that_is_not_there(broker: Broker, queue: Queue) -> None:
    """That is all there is to say, and looking has not made it."""
    for _ in range(2):
        done = CliRunner().invoke(app, ["browse", queue.name, "--broker", broker.url])
        assert str(done.exception) == f"there is no queue {queue.name}"
