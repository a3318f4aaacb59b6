"""`app.send()` inside a handler: in a transacted one it is part of the transaction, on both brokers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import Discard, Message, RedeliveryPolicy
from jmsx.app import App
from jmsx.dedupe import MemoryStore
from tests.integration.broker_support import eventually
from tests.integration.support import TRANSACTED, Diary, bodies, fresh_queue, settles

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

QUICK = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.02, redelivery_delay=0.02
)


@pytest.fixture(params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each of the brokers."""
    found: Broker = request.getfixturevalue(f"{request.param}_broker")
    return found


def test_in_a_transacted_handler(broker: Broker) -> None:
    """What raises has sent nothing, what returns has sent each message once, in order; nested calls, too."""
    queue, out, diary = fresh_queue(), fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    def forward(text: str) -> None:
        app.send(out, text)

    @app.consumer(queue, mode=TRANSACTED)
    def move(message: Message) -> None:
        forward(f"{message.text} 1")
        app.send(out, f"{message.text} 2")
        if message.text == "poison" or (message.text == "twice" and message.delivery_count == 1):
            raise ValueError(message.text)
        if message.text == "discard":
            raise Discard

    with app:
        for text in ("a", "twice", "poison", "discard", "b"):
            app.send(queue, text)
        assert eventually(lambda: len(diary.dead()) == 1, 10)
        assert settles(broker, queue, size=0)
    assert bodies(broker, out) == ["a 1", "a 2", "twice 1", "twice 2", "b 1", "b 2"]


def test_from_elsewhere(broker: Broker) -> None:
    """A thread that the handler starts, another app, and the other modes send at once."""
    queue, plain, out = fresh_queue(), fresh_queue(), fresh_queue()
    app = App(broker.url, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))
    other, diary = App(broker.url), Diary()
    app.observe(diary)

    @app.consumer(queue, mode=TRANSACTED)
    def move(_message: Message) -> None:
        app.send(out, "inside")
        thread = threading.Thread(target=app.send, args=(out, "thread"))
        thread.start()
        thread.join()
        other.send(out, "other")
        raise ValueError

    @app.consumer(plain)
    def auto(_message: Message) -> None:
        app.send(out, "auto")
        raise ValueError

    with other, app:
        app.send(queue, "x")
        app.send(plain, "x")
        assert eventually(lambda: len(diary.dead()) == 2, 10)
    assert sorted(bodies(broker, out)) == ["auto", "other", "thread"]


def test_with_a_store_that_would_know_it_as_done(broker: Broker) -> None:
    """The store is written before the transaction is committed, so it is an error that says so."""
    queue, diary = fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    @app.consumer(queue, mode=TRANSACTED, dedupe=MemoryStore())
    def move(message: Message) -> None:
        app.send(fresh_queue(), message.text)

    with app:
        app.send(queue, "x")
        assert eventually(lambda: len(diary.dead()) == 1, 10)
    (dead,) = diary.dead()
    assert dead.error_type == "IllegalStateError"
    assert "with dedupe= a SESSION_TRANSACTED handler cannot send" in str(dead.error_message)
