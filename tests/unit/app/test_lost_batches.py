"""Batches whose link is lost while they are gathered: no handler has had them, so all comes again, and is done once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import AcknowledgeMode, App, Message, ReconnectPolicy, RedeliveryPolicy
from jmsx.testing import harness

if TYPE_CHECKING:
    from pathlib import Path

TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
MODES = pytest.mark.parametrize("mode", [INDIVIDUAL, TRANSACTED], ids=["individual", "transacted"])
NEVER_AGAIN = RedeliveryPolicy(maximum_redeliveries=0)


@KINDS
@MODES
@pytest.mark.parametrize("most", [3, 10], ids=["filled by the next link", "not filled"])
def test_messages_of_the_next_link_are_done_once(
    kind: str, mode: AcknowledgeMode, most: int
) -> None:
    """They do not join what came on the lost one: what is given back with that would be done, and come again."""
    app, calls = App(reconnect=ReconnectPolicy(initial_delay=0.01)), list[list[str]]()

    @app.consumer("queue://in", mode=mode, batch=most, batch_timeout="30s", name="work")
    def work(messages: list[Message]) -> None:
        calls.append([message.text for message in messages])
        for message in messages:
            app.send("queue://out", message.text)

    with harness(app, kind) as mq:
        mq.send("queue://in", "a")
        mq.advance("10s")
        mq.drop_connections()
        mq.advance("1s")
        mq.send("queue://in", "b")
        mq.send("queue://in", "c")
        mq.advance("2min")
        assert [message.text for message in mq.messages("queue://out")] == ["a", "b", "c"]
        assert calls == [["a", "b", "c"]]
        assert not mq.messages("queue://in")
        assert not mq.dead_letters()


@KINDS
@MODES
@pytest.mark.parametrize("most", [3, 10])
def test_what_another_session_got_instead_doubles_nothing(
    kind: str, mode: AcknowledgeMode, most: int
) -> None:
    """What a session gathers on its next link is not done in a transaction that its lost messages have ended."""
    app = App(reconnect=ReconnectPolicy(initial_delay=0.01))

    @app.consumer(
        "queue://in", mode=mode, batch=most, batch_timeout="30s", name="work", concurrency=2
    )
    def work(messages: list[Message]) -> None:
        for message in messages:
            app.send("queue://out", message.text)

    with harness(app, kind) as mq:
        for text in "ab":
            mq.send("queue://in", text)
        mq.advance("10s")
        app._service.workers[0].renew("a test")
        mq.advance("1s")
        for text in "cdefgh":
            mq.send("queue://in", text)
        mq.advance("2min")
        assert sorted(message.text for message in mq.messages("queue://out")) == list("abcdefgh")


@KINDS
@MODES
def test_what_no_handler_has_had_is_not_buried(
    kind: str, mode: AcknowledgeMode, tmp_path: Path
) -> None:
    """A ledger has counted it as handed out, but nobody has died with it."""
    app = App(
        reconnect=ReconnectPolicy(initial_delay=0.01),
        redelivery_policy=NEVER_AGAIN,
        ledger=str(tmp_path / "ledger.db"),
    )
    calls: list[list[str]] = []

    @app.consumer("queue://in", mode=mode, batch=10, batch_timeout="30s", name="work")
    def work(messages: list[Message]) -> None:
        calls.append([message.text for message in messages])

    with harness(app, kind) as mq:
        mq.send("queue://in", "a")
        mq.send("queue://in", "b")
        for _ in range(3):
            mq.advance("10s")
            mq.drop_connections()
        mq.advance("2min")
        assert not mq.dead_letters()
        assert calls == [["a", "b"]]
