"""What a listener's thread does between two messages of a backlog: one call of the session's engine, no more."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from jmsx import AcknowledgeMode, Message, RedeliveryPolicy
from jmsx.jms.translation import delivery_of
from tests.benchmarks.one_thread import OneThread

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
DUPS_OK = AcknowledgeMode.DUPS_OK_ACKNOWLEDGE
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE

#: Messages that come in one chunk.
MANY = 100


@pytest.mark.parametrize(
    ("mode", "each"),
    [(AUTO, 1), (DUPS_OK, 1), (INDIVIDUAL, 2)],
    ids=["auto", "dups_ok", "individual"],
)
def test_a_message_of_a_backlog_takes_the_lock_once(
    operations: list[str], mode: AcknowledgeMode, each: int
) -> None:
    """One is settled and the next one handed out in one go; an acknowledge() of its own is another."""
    one = OneThread(mode, MANY)
    seen: list[int] = []

    def listener(message: Message) -> None:
        seen.append(len(operations))
        if mode is INDIVIDUAL:
            message.acknowledge()

    one.listen(listener, MANY)
    assert len(seen) == MANY
    assert {later - sooner for sooner, later in pairwise(seen)} == {each}


@pytest.mark.parametrize(
    "ends", ["session is paused", "consumer is closed", "listener is taken away", "link is dropped"]
)
def test_what_its_listener_ends_hands_out_no_more(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """By the time the listener returns, nothing may be handed out; what is here waits, or goes back."""
    one = OneThread(AUTO, MANY)
    seen: list[Message] = []
    link = one.link

    real = link.engine.changed.rest

    def rest(timeout: float) -> bool:
        link.dispatcher._stopped = bool(seen)
        return real(timeout)

    monkeypatch.setattr(link.engine.changed, "rest", rest)

    def listener(message: Message) -> None:
        link.dispatcher._stopped = bool(seen)  # lest it go on for ever where that is broken
        name = delivery_of(message).arrival.subscription_id
        seen.append(message)
        if ends == "session is paused":
            link.pause()
        elif ends == "consumer is closed":
            link.engine.call(lambda core, now: core.close_consumer(name, now))
        elif ends == "listener is taken away":
            link.listen(name, None)
        else:
            link.engine.renew("a test")

    one.listen(listener, MANY)
    assert len(seen) == 1


def test_what_has_failed_comes_again_before_the_next() -> None:
    """A listener that raises has its message back at once, and not behind the others that are here."""
    one = OneThread(AUTO, MANY, redelivery_policy=RedeliveryPolicy(initial_redelivery_delay=0))
    seen: list[str | None] = []

    def listener(message: Message) -> None:
        seen.append(message.message_id)
        if len(seen) == 1:
            raise ValueError

    one.listen(listener, 3)
    assert seen[0] == seen[1] != seen[2]


def test_a_session_has_one_thread_for_its_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come where it has started, while `set_listener` waits for that; the next one starts no other."""
    started: list[threading.Thread] = []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            started.append(self)
            super().start()
            raise KeyboardInterrupt

    one = OneThread(AUTO, 0)
    consumer, dispatcher = one.consumer(), one.link.dispatcher
    monkeypatch.setattr(dispatcher, "_run", lambda: None)
    monkeypatch.setattr(
        dispatcher._machine, "thread", lambda run, name: Interrupted(target=run, name=name)
    )
    with pytest.raises(KeyboardInterrupt):
        consumer.set_listener(print)
    consumer.set_listener(print)
    assert len(started) == 1
