"""Who reads from Classic beside jmsx gets all of it, as without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from jmsx import Connection, Topic
from jmsx.cli.queues import opened
from jmsx.core.frames import Frame
from tests.integration.parity.wires import RealWire

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx import Queue
    from jmsx_broker import ClassicBroker

pytestmark = pytest.mark.broker

#: Who sends at a time, how many messages each, and who else reads them: beside one subscriber that asked for a
#: translation each of these lacked 2 to 16 of 3,000 messages, in three runs.
SENDERS, MESSAGES, OTHERS = 6, 500, 5

#: Seconds without a message after which no more come.
QUIET = 3.0


def connected(url: str) -> RealWire:
    """A plain STOMP client."""
    wire = RealWire(urlsplit(url).port or 0)
    wire.write(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}))
    assert wire.read(QUIET)
    return wire


def subscribed(url: str, topic: str, **headers: str) -> RealWire:
    """One that reads a topic."""
    wire = connected(url)
    wire.write(
        Frame("SUBSCRIBE", {"id": "1", "destination": f"/topic/{topic}", "receipt": "r", **headers})
    )
    assert wire.read(QUIET)
    return wire


def missing(url: str, topic: str) -> list[int]:
    """How many messages each of some plain subscribers of a topic lacks, of those that several send at once."""
    others = [subscribed(url, topic) for _ in range(OTHERS)]
    with ThreadPoolExecutor(SENDERS + OTHERS) as pool:
        got = [pool.submit(_taken, wire) for wire in others]
        list(pool.map(lambda _: _send(url, topic), range(SENDERS)))
    for wire in others:
        wire.cut()
    return [SENDERS * MESSAGES - one.result() for one in got]


def _taken(wire: RealWire) -> int:
    taken = 0
    while (seen := wire.read(QUIET)) is not None:
        taken += seen[0] == "MESSAGE"
    return taken


def _send(url: str, topic: str) -> None:
    wire = connected(url)
    properties = {f"p{number}": "v" for number in range(40)}
    for _ in range(MESSAGES):
        wire.write(
            Frame("SEND", {"destination": f"/topic/{topic}", "receipt": "r", **properties}, b"x")
        )
        assert wire.read(QUIET)
    wire.cut()


def test_nobody_lacks_a_message_because_jmsx_reads_the_topic_too(
    classic_broker: ClassicBroker, queue: Queue
) -> None:
    """The broker would write into messages that others are just being sent, if jmsx had it translate them."""
    with Connection(classic_broker.url) as connection:
        connection.start()
        connection.create_session().create_consumer(Topic(queue.name)).set_listener(lambda _: None)
        assert missing(classic_broker.url, queue.name) == [0] * OTHERS


def browsed(url: str, queue: str) -> int:
    """How many messages a browser is shown."""
    with Connection(url) as connection:
        connection.start()
        return len(list(connection.create_session().create_browser(queue)))


def looked_at(url: str, queue: str) -> int:
    """How many messages `jmsx browse` and `jmsx dlq list` are shown."""
    with opened(url) as access:
        return len(list(access.look(queue, bodies=True)))


@pytest.mark.parametrize("look", [browsed, looked_at])
def test_who_looks_into_a_queue_has_nothing_written_into_it(
    classic_broker: ClassicBroker, queue: Queue, look: Callable[[str, str], int]
) -> None:
    """The broker writes the header `transformation` into what it translates for a browser; others are shown that."""
    wire = connected(classic_broker.url)
    wire.write(Frame("SEND", {"destination": f"/queue/{queue.name}", "receipt": "r"}, b"x"))
    assert wire.read(QUIET)
    assert look(classic_broker.url, queue.name) == 1
    wire.write(Frame("SUBSCRIBE", {"id": "1", "destination": f"/queue/{queue.name}"}))
    seen = wire.read(QUIET)
    wire.cut()
    assert seen is not None
    _, headers, body = seen
    assert (body, headers.get("transformation")) == (b"x", None)
