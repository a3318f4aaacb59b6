"""`jmsx send` and `jmsx browse`, on real brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from jmsx import Connection
from jmsx.cli import exits
from jmsx.cli.commands import app
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy

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


@pytest.mark.parametrize("lines", [[], ["--lines"]], ids=["whole", "lines"])
def test_what_comes_in_is_no_text(broker: Broker, queue: Queue, lines: list[str]) -> None:
    """Such as an image, or Latin-1: it is no fault of ours."""
    command = [sys.executable, "-m", "jmsx", "send", queue.uri, *lines, "--broker", broker.url]
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    given = b"gr\xfc\xdfe\n"
    done = subprocess.run(command, input=given, capture_output=True, check=False, env=strict)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: what comes on standard input is no text in utf-8: ")


def test_a_locale_that_has_few_characters(broker: Broker, queue: Queue) -> None:
    """What it cannot write is escaped."""
    run(broker, "send", queue.uri, "ü☃")
    command = [sys.executable, "-m", "jmsx", "browse", queue.name, "--broker", broker.url]
    few = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, check=True, env=few)
    assert done.stdout.endswith(b"\t\xfc\\u2603\n")


def test_a_queue_that_is_not_there(broker: Broker, queue: Queue) -> None:
    """That is all there is to say, and looking has not made it."""
    for _ in range(2):
        done = CliRunner().invoke(app, ["browse", queue.name, "--broker", broker.url])
        assert str(done.exception) == f"there is no queue {queue.name}"


@pytest.mark.parametrize("limit", ["1", "99999999999999999999"])
def test_a_limit_that_is_never_reached(broker: Broker, queue: Queue, limit: str) -> None:
    """All is shown then."""
    run(broker, "send", queue.uri, "a")
    assert len(run(broker, "browse", queue.name, "--limit", limit).splitlines()) == 1


@pytest.mark.parametrize("json_", [[], ["--json"]], ids=["words", "json"])
@pytest.mark.parametrize("where", ["a full disk", "a pipe that nobody reads"])
def test_a_key_that_cannot_be_printed(
    broker: Broker, queue: Queue, where: str, json_: list[str]
) -> None:
    """Which message was sent is told beside it: who does not know it sends it again."""
    if where == "a full disk":
        full = os.open("/dev/full", os.O_WRONLY)
    else:
        read, full = os.pipe()
        os.close(read)
    with sending(broker, queue, *json_, stdout=full) as done:
        os.close(full)
        told = done.communicate("a\nb\n", timeout=30)[1]
    (seen,) = run(broker, "browse", queue.name, "--json").splitlines()
    assert done.returncode == 1
    assert f"message 1 was sent to {queue.uri}, with the key {json.loads(seen)['key']}" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_broker_does_not_answer(
    broker: Broker, queue: Queue, number: signal.Signals
) -> None:
    """What is in doubt is told at once."""
    with Proxy(broker.url) as proxy, sending(proxy, queue) as done:
        proxy.silence_at("SEND\n", 1, passed=True)
        assert done.stdin is not None
        assert done.stderr is not None
        done.stdin.write("a\n")
        done.stdin.close()
        eventually(lambda: not proxy.silencing)
        done.send_signal(number)
        told = done.stderr.readline()
        proxy.thaw()
        assert done.wait(30) == exits.INTERRUPTED
    assert told == f"{queue.uri} may have message 1 or not, and sent again it may be there twice\n"


def sending(
    broker: Broker | Proxy, queue: Queue, *more: str, **options: Any
) -> subprocess.Popen[str]:
    """`jmsx send --lines` as a program."""
    command = [
        sys.executable,
        "-m",
        "jmsx",
        "send",
        queue.uri,
        "--lines",
        "--broker",
        broker.url,
        *more,
    ]
    piped: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, **(piped | options))
