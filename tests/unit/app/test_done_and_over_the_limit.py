"""A message that is over its limit by a ledger, and was done: the store is asked before it becomes a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import AcknowledgeMode, App, MemoryStore, Message, RedeliveryPolicy, SqliteStore
from jmsx.core.events import MessageDeadLettered, Outcome
from jmsx.core.ledger import Entry, StoreKey
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually
from tests.integration.support import Diary

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from jmsx import IdempotencyStore

pytestmark = pytest.mark.timeout(60)

NEVER_AGAIN = RedeliveryPolicy(maximum_redeliveries=0)


class Deadly:
    """A ledger in which as many processes have died with each message as it is told."""

    deaths = 0

    def begin(self, identity: StoreKey) -> Entry | None:
        """Count one more."""
        return Entry(identity, 1 + self.deaths)

    def finish(self, entries: Iterable[Entry]) -> None:
        """Keep nothing."""

    def settle(self, entries: Iterable[Entry]) -> None:
        """Keep nothing."""

    def flush(self) -> None:
        """Write nothing."""


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (kind, mode)
        for kind in ("def", "async def", "batch")
        for mode in AcknowledgeMode
        if kind != "batch" or mode.does.in_batches is not None
    ],
)
@pytest.mark.parametrize("kept", ["memory", "file"])
def test_the_store_is_asked_first(
    server: FakeBrokerServer, tmp_path: Path, kind: str, mode: AcknowledgeMode, kept: str
) -> None:
    """What it knows is acknowledged; what it does not know is a dead letter that no handler has seen."""
    ledger, diary, calls = Deadly(), Diary(), list[str]()
    store: IdempotencyStore = (
        MemoryStore() if kept == "memory" else SqliteStore(tmp_path / "done.db")
    )
    app = App(server.url, ledger=ledger, observers=[diary], redelivery_policy=NEVER_AGAIN)

    def text(message: Message) -> str:
        return message.text

    if kind == "def":

        @app.consumer("queue://in", mode=mode, dedupe=store, dedupe_by=text)
        def note(message: Message) -> None:
            calls.append(message.text)

    elif kind == "async def":

        @app.consumer("queue://in", mode=mode, dedupe=store, dedupe_by=text)
        async def anote(message: Message) -> None:
            calls.append(message.text)

    else:

        @app.consumer(
            "queue://in", mode=mode, dedupe=store, dedupe_by=text, batch=4, batch_timeout=0.1
        )
        def note_all(messages: list[Message]) -> None:
            calls.extend(message.text for message in messages)

    with app:
        app.send("queue://in", "done")
        assert eventually(lambda: sum(diary.outcomes().values()) == 1, 10)
        ledger.deaths = 1
        for body in ("done", "deadly", "done"):
            app.send("queue://in", body)
        assert eventually(lambda: sum(diary.outcomes().values()) == 4, 10)
    assert calls == ["done"]
    assert diary.outcomes()[Outcome.DEAD_LETTERED] == 1
    (dead,) = [one for one in diary.events if isinstance(one, MessageDeadLettered)]
    assert (dead.reason, dead.attempts) == ("max_redeliveries", 1)


def test_it_is_asked_for_one_failure_only(server: FakeBrokerServer) -> None:
    """It may be the question that kills the processes; then the message must not come for ever."""
    ledger, diary, asked = Deadly(), Diary(), list[str]()
    app = App(server.url, ledger=ledger, observers=[diary], redelivery_policy=NEVER_AGAIN)

    def text(message: Message) -> str:
        asked.append(message.text)
        return message.text

    @app.consumer("queue://in", dedupe=MemoryStore(), dedupe_by=text)
    def note(_message: Message) -> None:
        """Do nothing."""

    with app:
        for ledger.deaths in range(3):
            app.send("queue://in", "abc"[ledger.deaths])
            assert eventually(lambda: sum(diary.outcomes().values()) == 1 + ledger.deaths, 10)
    assert asked == ["a", "b"]
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 1, Outcome.DEAD_LETTERED: 2}
