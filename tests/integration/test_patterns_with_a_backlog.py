"""A consumer of several destinations gets what lies in them at once, as in Java; what a broker refuses is refused."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, Queue, Topic
from jmsx.errors import JmsxError
from tests.integration.proxy import Proxy
from tests.integration.support import TRANSACTED

if TYPE_CHECKING:
    from jmsx_broker import ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

#: Seconds in which a backlog is there; without the barrier it took 30.
AT_ONCE = 5.0


def fill(broker: ClassicBroker) -> str:
    """Three queues with a message in each; what their names begin with."""
    base = f"W{uuid.uuid4().hex[:8]}"
    with Connection(broker.url) as connection:
        producer = connection.create_session().create_producer()
        for number in range(3):
            producer.send(Message(str(number)), destination=Queue(f"{base}.q{number}"))
    return base


@pytest.mark.parametrize("pattern", ["{0}.*", "{0}.>", "{0}.q0,{0}.q1,{0}.q2"])
@pytest.mark.parametrize("turn", range(10))
def test_a_backlog_comes_at_once(classic_broker: ClassicBroker, pattern: str, turn: int) -> None:
    """Also in a transaction, and once more after what was received was given back."""
    base = fill(classic_broker)
    queue = Queue(pattern.format(base))
    for transacted in (True, False) if turn % 2 else (False,):
        with Connection(classic_broker.url) as connection:
            session = connection.create_session(*([TRANSACTED] if transacted else []))
            connection.start()
            began = time.monotonic()
            consumer = session.create_consumer(queue)
            found = [consumer.receive(AT_ONCE) for _ in range(3)]
            assert time.monotonic() - began < AT_ONCE
            assert sorted(one.text for one in found if one is not None) == ["0", "1", "2"]


def test_after_a_reconnect(classic_broker: ClassicBroker) -> None:
    """The subscription is made anew on the next link, and what came meanwhile is there at once."""
    base = fill(classic_broker)
    with Proxy(classic_broker.url) as proxy, Connection(f"failover:({proxy.url})") as connection:
        session = connection.create_session()
        consumer = session.create_consumer(Queue(f"{base}.*"))
        connection.start()
        assert sorted(one.text for _ in range(3) if (one := consumer.receive(AT_ONCE))) == [*"012"]
        proxy.cut()
        with Connection(classic_broker.url) as other:
            producer = other.create_session().create_producer()
            for number in range(3):
                producer.send(Message(f"more {number}"), destination=Queue(f"{base}.q{number}"))
        assert all(consumer.receive(AT_ONCE) for _ in range(3))


def test_a_browser(classic_broker: ClassicBroker) -> None:
    """It shows what lies in all of them."""
    base = fill(classic_broker)
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        browser = session.create_browser(Queue(f"{base}.*"))
        assert sorted(message.text for message in browser) == ["0", "1", "2"]


def test_a_durable_subscription(classic_broker: ClassicBroker) -> None:
    """What was sent while nobody read it."""
    base = f"W{uuid.uuid4().hex[:8]}"
    for turn in range(2):
        with Connection(classic_broker.url, client_id=base) as connection:
            session = connection.create_session()
            consumer = session.create_durable_consumer(Topic(f"{base}.*"), "all")
            connection.start()
            found = [consumer.receive(AT_ONCE) for _ in range(2 * turn)]
            assert all(found)
        with Connection(classic_broker.url) as other:
            producer = other.create_session().create_producer()
            for name in ("a", "b"):
                producer.send(Message(name), destination=Topic(f"{base}.{name}"))


def test_what_is_refused_is_refused(classic_broker: ClassicBroker) -> None:
    """The ERROR names no receipt, and still ends the call with what the broker says."""
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        with pytest.raises(JmsxError, match="refused SUBSCRIBE"):
            session.create_consumer(Queue("W.>"), selector="a = = b")
