"""A transacted handler that cannot send, because its link was lost: it is not the message that has failed."""

from __future__ import annotations

import asyncio

import pytest

from jmsx import AcknowledgeMode, App, Message, RedeliveryPolicy
from jmsx.errors import IllegalStateError
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

pytestmark = pytest.mark.timeout(60)

TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED
DEAD = "queue://dead"
ONCE = RedeliveryPolicy(
    maximum_redeliveries=1, initial_redelivery_delay=0.01, redelivery_delay=0.01
)


class Work:
    """Loses its link three times in the middle, and fails once by itself; then it is done."""

    def __init__(self, app: App, *, wraps: bool) -> None:
        self._app = app
        self._wraps = wraps
        self.refused = 0
        self.failed = 0

    def do(self, _given: object) -> None:
        """What the handler does, on whatever thread."""
        if self.refused < 3:
            self._lose_link()
        try:
            self._app.send("queue://out", "done")
        except IllegalStateError as error:
            self.refused += 1
            if self._wraps:
                raise ValueError("cannot send") from error
            raise
        if not self.failed:
            self.failed += 1
            raise ValueError("by itself")

    def _lose_link(self) -> None:
        worker = self._app._service.workers[0]
        before = worker._link.epoch
        worker.renew("a test")
        assert eventually(lambda: worker.connected and worker._link.epoch > before, 10)


@pytest.mark.parametrize("wraps", [False, True], ids=["lets it out", "raises another"])
@pytest.mark.parametrize("kind", ["classic", "artemis"])
@pytest.mark.parametrize("how", ["sync", "async", "batch"])
def test_a_send_that_its_lost_link_forbids(kind: str, how: str, wraps: bool) -> None:
    """Three such links are no failures, and the one that the handler has is one of two."""
    dead: list[str] = []
    out: list[str] = []
    with FakeBrokerServer(kind) as server:
        app = App(server.url, redelivery_policy=ONCE)
        work = Work(app, wraps=wraps)
        if how == "sync":

            @app.consumer("queue://in", mode=TRANSACTED, dead_letter=DEAD)
            def handle(message: Message) -> None:
                work.do(message)

        elif how == "async":

            @app.consumer("queue://in", mode=TRANSACTED, dead_letter=DEAD)
            async def handle_async(message: Message) -> None:
                await asyncio.to_thread(work.do, message)

        else:

            @app.consumer(
                "queue://in", mode=TRANSACTED, dead_letter=DEAD, batch=1, batch_timeout=0.01
            )
            def handle_batch(messages: list[Message]) -> None:
                work.do(messages)

        reader = App(server.url)
        reader.consumer(DEAD, name="dead")(lambda message: dead.append(message.text))
        reader.consumer("queue://out", name="out")(lambda message: out.append(message.text))
        with reader, app:
            app.send("queue://in", "a")
            assert eventually(lambda: bool(out or dead), 20)
    assert (out, dead, work.refused, work.failed) == (["done"], [], 3, 1)
