"""Sentences of the JMS javadoc on a real broker: each test quotes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import Connection
from jmsx.errors import IllegalStateError
from tests.integration.support import put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Queue
    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """A started connection."""
    with Connection(broker.url) as made:
        made.start()
        yield made


def send(connection: Connection, queue: Queue, *texts: str) -> None:
    """Send these, in a session of their own."""
    with connection.create_session() as session:
        producer = session.create_producer(queue)
        for one in texts:
            producer.send(one)


def test_what_a_closed_session_refuses(connection: Connection) -> None:
    """As Session.close says: any other call on a closed session raises IllegalStateException."""
    session = connection.create_session()
    session.close()
    for call in (session.create_queue, session.create_topic):
        with pytest.raises(IllegalStateError, match="The Session is closed"):
            call("a")


def test_a_closed_browser_shows_nothing(classic_broker: ClassicBroker, queue: Queue) -> None:
    """As Java's: `getEnumeration` raises, and what it has returned has no more elements."""
    put(classic_broker, queue, *"ab")
    with Connection(classic_broker.url) as connection:
        browser = connection.create_session().create_browser(queue)
        shown = iter(browser)
        assert next(shown).text == "a"
        browser.close()
        browser.close()
        assert list(shown) == []
        with pytest.raises(IllegalStateError, match=f"The Browser of {queue} is closed"):
            list(browser)
