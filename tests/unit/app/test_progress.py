"""Progress: what the events of a session say about its movement."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, Message
from jmsx.app.progress import Movement, Progress
from jmsx.core.events import (
    DeadLetterFailed,
    DeliveryEnded,
    ErrorReceived,
    LinkClosed,
    LinkOpened,
    MessagesAcknowledged,
    MessagesReceived,
    Outcome,
    RedeliveryScheduled,
    Source,
    SubscriptionClosed,
    SubscriptionOpened,
)
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.events import Event

OPENED = LinkOpened(at=1.0, server="ActiveMQ/6.1.8", seconds=0.1)
SUBSCRIBED = SubscriptionOpened(
    at=2.0,
    consumer="ship",
    destination="queue://orders",
    ack_mode="auto",
    prefetch=10,
    maximum_redeliveries=6,
    optimize_acknowledge=False,
)
RECEIVED = MessagesReceived(
    at=3.0, consumer="ship", destination="queue://orders", messages=2, redelivered=0
)
CLOSED = SubscriptionClosed(at=9.0, consumer="ship", destination="queue://orders")
LOST = LinkClosed(at=9.0, reason="io")


def ended(outcome: Outcome) -> DeliveryEnded:
    """One delivery is over at 5.0."""
    return DeliveryEnded(
        at=5.0,
        consumer="ship",
        destination="queue://orders",
        message_id="ID:1",
        message_key="1",
        correlation_id=None,
        ack_mode="auto",
        prefetch=10,
        attempt=1,
        redelivered=False,
        sent_ms=None,
        received_at=3.0,
        started_at=4.0,
        ended_at=5.0,
        outcome=outcome,
    )


def again(delay: float) -> RedeliveryScheduled:
    """At 5.0 a redelivery is promised."""
    return RedeliveryScheduled(
        at=5.0,
        consumer="ship",
        destination="queue://orders",
        message_key="1",
        next_attempt=2,
        delay=delay,
        blocking=True,
        by_broker=False,
    )


UP = (OPENED, SUBSCRIBED, RECEIVED)

#: After UP: messages have come.
HAND = {"connected": True, "subscribed": True, "received_at": 3.0, "moved_at": 3.0}

CASES: dict[str, tuple[tuple[Event, ...], dict[str, Any]]] = {
    "nothing": ((), {}),
    "connected": ((OPENED,), {"connected": True, "moved_at": 1.0}),
    "subscribed": (
        (OPENED, SUBSCRIBED),
        HAND | {"received_at": 2.0, "moved_at": 2.0},
    ),
    "received": (UP, HAND),
    "acknowledged: its session tells when": ((*UP, ended(Outcome.ACKNOWLEDGED)), HAND),
    "rolled back": ((*UP, ended(Outcome.ROLLED_BACK), again(7.0)), HAND | {"due_at": 12.0}),
    "the later promise": ((*UP, again(7.0), again(1.0)), HAND | {"due_at": 12.0}),
    "unsubscribed": ((*UP, CLOSED), HAND | {"subscribed": False}),
    "lost": ((*UP, again(7.0), LOST), {"received_at": 3.0, "moved_at": 9.0}),
    "what is none of its business": ((*UP, ErrorReceived(at=8.0, message="no")), HAND),
}


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_movement(events: tuple[Event, ...], expected: dict[str, Any]) -> None:
    """Each event moves the session as it should, and no other session."""
    progress = Progress()
    for event in events:
        progress.observe(event, Source("b", "classic", "c", "mine", 1))
    assert progress.movement("mine") == Movement(**expected)
    assert progress.movement("other") == Movement()
    progress.close()


def test_an_end_that_belongs_to_an_older_link() -> None:
    """It is no message that came."""
    movement = Movement()
    movement.note(ended(Outcome.ABANDONED))
    assert math.isinf(movement.received_at)


@pytest.mark.parametrize(
    ("told_at", "reason", "remembered"),
    [(4.0, "io", False), (4.0, "error_frame", True), (3.5, "io", True), (3.5, "timeout", True)],
)
def test_a_dead_letter_that_was_cut_off_is_refused_by_nobody(
    told_at: float,
    reason: str,
    remembered: bool,
) -> None:
    """What the broker said is remembered beyond the link; that its link was lost with it says nothing of it."""
    refused = DeadLetterFailed(
        at=told_at, consumer="ship", destination="queue://orders", message_key="k", reason="why"
    )
    movement = Movement()
    for event in (OPENED, SUBSCRIBED, RECEIVED, refused):
        movement.note(event)
    assert set(movement.refused) == {"k"}
    movement.note(LinkClosed(at=4.0, reason=reason, detail="", in_doubt=False))
    assert set(movement.refused) == ({"k"} if remembered else set())
    movement.note(LinkOpened(at=5.0, server="", seconds=0.1))
    assert set(movement.refused) == ({"k"} if remembered else set())


@pytest.mark.parametrize("mode", ["auto", "individual", "client", "transacted"])
@pytest.mark.parametrize("observed", [False, True], ids=["alone", "beside an observer"])
def test_a_message_that_has_gone_is_movement(
    monkeypatch: pytest.MonkeyPatch, mode: str, *, observed: bool
) -> None:
    """Its end is no event where nobody else wants one; a probe between two calls sees all the same that it ended."""
    told: list[type[Event]] = []
    seen: list[type[Event]] = []
    monkeypatch.setattr(Progress, "observe", _noting(told, Progress.observe))
    returned: list[float] = []
    with FakeBrokerServer("classic") as server:
        observers = [SimpleNamespace(observe=lambda event, _: seen.append(type(event)), close=int)]
        app = App(server.url, observers=observers if observed else [])

        @app.consumer("queue://in", mode=mode)
        def handle(_message: Message) -> None:
            assert eventually(lambda: worker._link.in_hand == 2, 10)
            worker._link.pause()  # so that the other one waits, in no call, and nothing more comes
            returned.append(time.monotonic())

        app.start()
        (worker,) = app._service.workers
        app.send("queue://in", "1")
        app.send("queue://in", "2")

        def has_moved() -> bool:
            moved_at = worker.state(app._service.progress, 0).movement.moved_at
            return bool(returned) and worker.call is None and moved_at >= returned[0]

        assert eventually(has_moved, 10)
        app.abort()
    assert MessagesReceived in told
    assert (DeliveryEnded in told) is observed
    assert (MessagesAcknowledged in told) is observed
    assert (DeliveryEnded in seen) is observed


def _noting(told: list[type[Event]], observe: Callable[..., None]) -> Callable[..., None]:
    """`observe`, which first notes what it is told."""

    def noting(self: Progress, event: Event, source: Source) -> None:
        told.append(type(event))
        observe(self, event, source)

    return noting
