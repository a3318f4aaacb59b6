"""What a handler has done in CLIENT and INDIVIDUAL: acknowledged when it returns, before it is called again."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from jmsx import App, Message
from jmsx.testing import FakeBrokerServer, harness
from tests.integration.broker_support import eventually

pytestmark = pytest.mark.timeout(60)

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
MODES = pytest.mark.parametrize("mode", ["client", "individual"])

#: Messages that are here together.
MANY = 5


def filling() -> App:
    """An app that fills the queue `in` with one commit when it is told to `begin`."""
    app = App("stomp://127.0.0.1:1")

    @app.consumer("queue://begin", mode="transacted")
    def fill(_message: Message) -> None:
        for number in range(MANY):
            app.send("queue://in", number)

    return app


def _listens(thread: threading.Thread) -> bool:
    """Whether a session's listeners are called on it."""
    return thread.name.startswith("jmsx-listener")


@KINDS
@MODES
@pytest.mark.parametrize("itself", [False, True], ids=["by the app", "by the handler"])
def test_it_is_written_before_the_next_call(kind: str, mode: str, *, itself: bool) -> None:
    """So a crash repeats the message whose handler ran, and what the broker had not read; the guide says so."""
    app = filling()
    left: list[int] = []

    @app.consumer("queue://in", mode=mode)
    def handle(message: Message) -> None:
        left.append(len(mq.messages("queue://in")))
        if itself:
            message.acknowledge()
            assert len(mq.messages("queue://in")) == left[-1] - 1

    with harness(app, kind) as mq:
        mq.send("queue://begin", "")
        assert left == list(range(MANY, 0, -1))
        assert mq.messages("queue://in") == []


@KINDS
@MODES
def test_what_was_done_before_a_failure_is_acknowledged(kind: str, mode: str) -> None:
    """What failed comes again alone, whether its mode has it recovered or rolled back."""
    app = filling()
    seen: list[str] = []

    @app.consumer("queue://in", mode=mode)
    def handle(message: Message) -> None:
        seen.append(message.text)
        if seen == ["0", "1", "2"]:
            raise ValueError

    with harness(app, kind) as mq:
        mq.send("queue://begin", "")
        mq.advance(60)
        assert sorted(seen) == ["0", "1", "2", "2", "3", "4"]
        assert mq.messages("queue://in") == []


@KINDS
@MODES
def test_a_message_takes_the_lock_once(operations: list[str], kind: str, mode: str) -> None:
    """It is settled, and the next one handed out, in one go."""
    seen: list[int] = []
    app = filling()

    @app.consumer("queue://in", mode=mode)
    def handle(_message: Message) -> None:
        seen.append(len(operations))

    with harness(app, kind) as mq:
        mq.send("queue://begin", "")
    assert {later - sooner for sooner, later in pairwise(seen)} == {1}


@KINDS
@MODES
def test_a_link_that_is_gone_for_good_is_no_failure_of_the_handler(
    caplog: pytest.LogCaptureFixture, kind: str, mode: str
) -> None:
    """It has done its work, and nobody can acknowledge that: the message comes again to whoever reads its queue."""
    handled = threading.Event()
    with FakeBrokerServer(kind) as server:
        app = App(server.url, reconnect=False)

        @app.consumer("queue://in", mode=mode)
        def handle(_message: Message) -> None:
            server.drop_connections()
            assert eventually(lambda: "connection lost" in caplog.text, 10)
            handled.set()

        app.start()
        app.send("queue://in", "1")
        assert handled.wait(10)
        assert eventually(lambda: not any(map(_listens, threading.enumerate())), 10)
        app.abort()
    assert "handler failed" not in caplog.text


@KINDS
@MODES
def test_what_was_handled_when_the_app_stops_is_acknowledged(kind: str, mode: str) -> None:
    """Also of a handler that runs then; what is behind it goes back."""
    texts = [str(number) for number in range(MANY)]
    seen: list[str] = []
    with FakeBrokerServer(kind) as server:
        app, reached = App(server.url), threading.Event()
        with App(server.url) as sender:
            for text in texts:
                sender.send("queue://in", text)

        @app.consumer("queue://in", mode=mode)
        def handle(message: Message) -> None:
            seen.append(message.text)
            if len(seen) == 2:
                reached.set()
                time.sleep(0.3)  # by then the app has begun to stop

        app.start()
        assert reached.wait(10)
        app.stop()
        assert seen == texts[:2]
        with server.broker() as broker:
            assert [one.body.decode() for one in broker.queue("in").browse()] == texts[2:]
