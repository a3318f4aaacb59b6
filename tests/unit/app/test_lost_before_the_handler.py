"""A message whose link is lost while its store is waited for: no handler has it before it comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, App, MemoryStore, Message, ReconnectPolicy, RedeliveryPolicy
from jmsx.core.events import DeliveryEnded, Event, Outcome, Source
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from jmsx.core.ledger import StoreKey

pytestmark = pytest.mark.timeout(60)

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED
NEVER_AGAIN = RedeliveryPolicy(maximum_redeliveries=0)


class Slow(MemoryStore):
    """Has the first it is asked for wait until the link is lost, as a database does that another process has locked."""

    def __init__(self, lose: Callable[[], None]) -> None:
        super().__init__()
        self._lose: Callable[[], None] | None = lose

    def _wait(self) -> None:
        lose, self._lose = self._lose, None
        if lose is not None:
            lose()

    def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
        """As it does, but later."""
        self._wait()
        return super().once(identity, work)

    def once_each(
        self,
        identities: Sequence[StoreKey],
        work: Callable[[Any, frozenset[StoreKey]], Collection[StoreKey]],
    ) -> None:
        """As it does, but later."""
        self._wait()
        super().once_each(identities, work)


class Lost:
    """Keeps the ends of deliveries whose link was lost."""

    def __init__(self, ends: list[DeliveryEnded]) -> None:
        self._ends = ends

    def observe(self, event: Event, _source: Source) -> None:
        """Keep it, if it is one."""
        if isinstance(event, DeliveryEnded) and event.outcome is Outcome.ABANDONED:
            self._ends.append(event)

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL, TRANSACTED])
@pytest.mark.parametrize("kind", ["def", "async def", "batch"])
def test_it_is_done_once(
    server: FakeBrokerServer, tmp_path: Path, mode: AcknowledgeMode, kind: str
) -> None:
    """And by a handler that is told that somebody may have had it; nor was the first hand-out its only attempt."""
    calls = list[tuple[str, bool]]()
    lost = list[DeliveryEnded]()

    def lose() -> None:
        epoch = app._service.workers[0]._link.epoch
        server.drop_connections()
        assert eventually(lambda: app._service.workers[0]._link.epoch > epoch, 10)

    app = App(
        server.url,
        observers=[Lost(lost)],
        reconnect=ReconnectPolicy(initial_delay=0.01),
        redelivery_policy=NEVER_AGAIN,
        ledger=str(tmp_path / "ledger.db"),
    )
    store = Slow(lose)

    def note(message: Message) -> None:
        calls.append((message.text, message.redelivered))

    if kind == "def":
        app.consumer("queue://in", mode=mode, dedupe=store)(note)
    elif kind == "async def":

        @app.consumer("queue://in", mode=mode, dedupe=store)
        async def anote(message: Message) -> None:
            note(message)

    else:

        @app.consumer("queue://in", mode=mode, dedupe=store, batch=2, batch_timeout=0.02)
        def note_all(messages: list[Message]) -> None:
            for message in messages:
                note(message)

    with app:
        app.send("queue://in", "a")
        assert eventually(lambda: bool(calls), 10)
        app.send("queue://in", "b")
        assert eventually(lambda: len(calls) > 1, 10)
    assert calls == [("a", True), ("b", False)]
    assert [one.ended_at < one.started_at for one in lost] == [True]  # no handler had it
    with server.broker() as broker:
        assert not any(len(broker.queue(name)) for name in ("ActiveMQ.DLQ", "DLQ"))
