"""
No session stalls on a backlog, in any mode.

Classic pages in 200 messages per wake-up and nothing but an ACK wakes it, which is where the Java client's CLIENT,
TRANSACTED and optimizeAcknowledge sessions stop (jmsx_classic/BROKER.md C10 and C11).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Connection, Message, PrefetchPolicy, Queue, Session
from jmsx.core.frames import Frame
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

#: Ten times the prefetch, and fifty pages.
BACKLOG = 10_000

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
CLIENT = AcknowledgeMode.CLIENT_ACKNOWLEDGE
DUPS_OK = AcknowledgeMode.DUPS_OK_ACKNOWLEDGE
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED


def fill(broker: Broker, queue: Queue, messages: int) -> None:
    """Put `messages` persistent messages of 100 bytes into `queue`, numbered, with a client that is not jmsx."""
    head = {"destination": f"/queue/{queue.name}", "persistent": "true", "transaction": "fill"}
    with Wire(broker.url, timeout=120) as wire:
        for start in range(0, messages, 1000):
            numbers = range(start, min(start + 1000, messages))
            wire.send(Frame("BEGIN", {"transaction": "fill"}))
            for number in numbers:
                wire.send(Frame("SEND", head, f"{number:100}".encode()))
            wire.request(Frame("COMMIT", {"transaction": "fill"}))


def settle(session: Session, message: Message | None) -> None:
    """Make everything received final, as the mode has it."""
    if session.transacted:
        session.commit()
    elif message is not None:
        message.acknowledge()


def drained(broker: Broker, queue: Queue) -> bool:
    """Whether nothing is left in `queue`."""
    with Connection(broker.url) as connection:
        connection.start()
        return connection.create_session().create_consumer(queue).receive(0.5) is None


@pytest.mark.parametrize(
    ("mode", "options", "every"),
    [
        pytest.param(AUTO, {}, 0, id="auto"),
        pytest.param(AUTO, {"optimize_acknowledge": True}, 0, id="optimize"),
        pytest.param(
            AUTO,
            {"optimize_acknowledge": True, "optimize_acknowledge_timeout": 0.0},
            0,
            id="optimize-without-timeout",
        ),
        pytest.param(AUTO, {"non_blocking_redelivery": True}, 0, id="auto-non-blocking"),
        pytest.param(DUPS_OK, {}, 0, id="dups-ok"),
        pytest.param(CLIENT, {}, 500, id="client-each-500"),
        pytest.param(CLIENT, {}, BACKLOG, id="client-each-10000"),
        pytest.param(INDIVIDUAL, {}, 1, id="individual-each"),
        pytest.param(TRANSACTED, {}, 500, id="transacted-each-500"),
        pytest.param(TRANSACTED, {}, BACKLOG, id="transacted-each-10000"),
    ],
)
def test_receive_takes_a_whole_backlog(
    classic_broker: Broker,
    queue: Queue,
    mode: AcknowledgeMode,
    options: dict[str, Any],
    every: int,
) -> None:
    """`receive()` gets all waiting messages, in order, however late they are settled, and goes on after that."""
    backlog = 2 * BACKLOG if every == BACKLOG else BACKLOG
    fill(classic_broker, queue, backlog)
    with Connection(classic_broker.url, request_timeout=120, **options) as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        for number in range(backlog):
            message = consumer.receive(30)
            assert message is not None, f"stalled after {number}"
            assert int(message.text) == number
            if every and number % every == every - 1:
                settle(session, message)
    assert drained(classic_broker, queue)


def test_individual_messages_may_all_wait(classic_broker: Broker, queue: Queue) -> None:
    """INDIVIDUAL with more unacknowledged messages than the prefetch, acknowledged out of order."""
    count = 1500
    fill(classic_broker, queue, count)
    with Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session(INDIVIDUAL).create_consumer(queue)
        messages = [consumer.receive(10) for _ in range(count)]
        for message in reversed(messages):
            assert message is not None
            message.acknowledge()
    assert drained(classic_broker, queue)


@pytest.mark.parametrize("mode", [AUTO, CLIENT, DUPS_OK, INDIVIDUAL, TRANSACTED])
@pytest.mark.parametrize("prefetch", [1, 7, 1000])
def test_a_listener_takes_a_whole_backlog(
    classic_broker: Broker, queue: Queue, mode: AcknowledgeMode, prefetch: int
) -> None:
    """A listener that settles only at the end, or never by itself, is not left waiting."""
    count = 300 if prefetch < 10 else 3000
    fill(classic_broker, queue, count)
    done = threading.Event()
    seen: list[Message] = []

    def listen(message: Message) -> None:
        seen.append(message)
        if len(seen) == count:
            done.set()

    with Connection(classic_broker.url, prefetch_policy=PrefetchPolicy.all(prefetch)) as connection:
        connection.start()
        session = connection.create_session(mode)
        session.create_consumer(queue).set_listener(listen)
        assert done.wait(60), f"stalled after {len(seen)}"
        connection.stop()
        if mode is INDIVIDUAL:
            for message in seen:
                message.acknowledge()
        else:
            settle(session, seen[-1])
    assert [int(message.text) for message in seen] == list(range(count))
    assert drained(classic_broker, queue)
