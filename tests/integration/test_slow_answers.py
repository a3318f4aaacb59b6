"""A broker whose words take their time: who asks what there is is not told that there is nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, PrefetchPolicy, Queue
from tests.integration.proxy import Proxy
from tests.integration.support import TRANSACTED, text

if TYPE_CHECKING:
    import socket

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class SlowProxy(Proxy):
    """Passes on what the broker says `lag` seconds late."""

    lag = 0.0

    def _pass_on(
        self, data: bytes, source: socket.socket, sink: socket.socket, *, to_broker: bool
    ) -> bool:
        if not to_broker:
            time.sleep(self.lag)
        return super()._pass_on(data, source, sink, to_broker=to_broker)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_slow_broker_is_waited_for(broker: Broker, queue: Queue, prefetch: int) -> None:
    """It has more than 0.2 s where it needs them for another answer, too; without a message the answer is None."""
    names = ["a", "b", "c", "d", "e"]
    with Connection(broker.url) as sender:
        producer = sender.create_session().create_producer(queue)
        for name in names:
            producer.send(Message(name))
    with (
        SlowProxy(broker.url) as proxy,
        Connection(proxy.url, prefetch_policy=PrefetchPolicy.all(prefetch)) as connection,
    ):
        connection.start()
        consumer = connection.create_session(TRANSACTED).create_consumer(queue)
        assert [text(consumer.receive(5)) for _ in "ab"] == names[:2]
        proxy.lag = 0.4
        assert [text(consumer.receive_no_wait()) for _ in "cde"] == names[2:]
        assert consumer.receive_no_wait() is None
