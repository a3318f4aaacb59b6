"""A broker whose words take their time: who asks what there is is not told that there is nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, PrefetchPolicy, Queue, ReconnectPolicy
from jmsx.errors import BrokerTimeoutError, IllegalStateError
from tests.integration.liar import Liar, message, receipt
from tests.integration.proxy import Proxy
from tests.integration.support import TRANSACTED, text

if TYPE_CHECKING:
    import socket

    from jmsx_broker import Broker
    from tests.integration.liar import Client

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


class ThinProxy(Proxy):
    """Passes on what the broker says at 2 MB a second."""

    def _pass_on(
        self, data: bytes, source: socket.socket, sink: socket.socket, *, to_broker: bool
    ) -> bool:
        if not to_broker:
            time.sleep(len(data) / 2_000_000)
        return super()._pass_on(data, source, sink, to_broker=to_broker)


def fill(broker: Broker, queue: Queue) -> None:
    """Twelve messages of half a megabyte: three seconds of the thin link."""
    with Connection(broker.url) as sender:
        producer = sender.create_session().create_producer(queue)
        for number in range(12):
            producer.send(Message(f"{number:06}" + "x" * 500_000))


def test_an_answer_stands_behind_what_was_sent_before(broker: Broker, queue: Queue) -> None:
    """A slow link takes longer for the messages in front of it than an answer may."""
    fill(broker, queue)
    with (
        ThinProxy(broker.url) as proxy,
        Connection(proxy.url, request_timeout=1.0) as connection,
    ):
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        for number in range(12):
            assert text(consumer.receive(20))[:6] == f"{number:06}"
            session.commit()
        assert consumer.receive(0.5) is None


def test_a_consumer_is_closed_behind_what_was_sent_before(broker: Broker, queue: Queue) -> None:
    """So is its session: the answer to a close stands behind the same messages."""
    fill(broker, queue)
    with ThinProxy(broker.url) as proxy:
        connection = Connection(proxy.url, request_timeout=1.0)
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(20))[:6] == "000000"
        consumer.close()
        session.close()
        connection.close()


def test_a_browser_is_closed_behind_what_it_is_shown(queue: Queue) -> None:
    """That may be all that lies in the queue, for nothing of it is acknowledged."""

    def show(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        shown = subscribe.headers["id"]
        client.say(receipt(subscribe), message(shown, 0))
        unsubscribe = client.obey(until="UNSUBSCRIBE")
        assert unsubscribe is not None
        for number in range(12):
            time.sleep(0.1)
            client.say(message(shown, number, b"x" * 1000))
        client.say(receipt(unsubscribe))
        client.obey()

    with Liar(show) as liar:
        connection = Connection(liar.url, request_timeout=0.5)
        connection.start()
        with connection.create_session().create_browser(queue) as browser:
            messages = iter(browser)
            assert text(next(messages)) == "x"
        connection.close()


def test_what_ends_a_browser_names_its_queue(queue: Queue) -> None:
    """Whether the broker does not come to the end, or the session is closed meanwhile."""

    def show_one(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        client.say(receipt(subscribe), message(subscribe.headers["id"], 0))
        client.obey()

    with Liar(show_one, show_one) as liar, Connection(liar.url, request_timeout=0.5) as connection:
        connection.start()
        shown = iter(connection.create_session().create_browser(queue))
        next(shown)
        with pytest.raises(BrokerTimeoutError, match=f"to the end of {queue.uri} in 0.5 s; browse"):
            next(shown)
        session = connection.create_session()
        shown = iter(session.create_browser(queue))
        next(shown)
        session.close()
        with pytest.raises(IllegalStateError, match=f"closed while {queue.uri} was browsed, so"):
            next(shown)


def test_a_link_is_restored_behind_what_it_brings(queue: Queue) -> None:
    """A consumer's messages come at once, in front of the answers to the SUBSCRIBEs of others."""

    def hang_up(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        client.say(receipt(subscribe))

    def bring(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        for number in range(12):
            time.sleep(0.1)
            client.say(message(subscribe.headers["id"], number, b"x" * 1000))
        client.say(receipt(subscribe))
        client.obey()

    with Liar(hang_up, bring) as liar:
        reconnect = ReconnectPolicy(initial_delay=0.01)
        connection = Connection(liar.url, request_timeout=0.5, reconnect=reconnect)
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        assert text(consumer.receive(10)) == "x" * 1000
        connection.abort()
        assert len(liar.clients) == 2


def test_an_answer_behind_one_large_message_is_waited_for(queue: Queue) -> None:
    """However slow the link is: it brings something all the time."""

    def pour(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        client.say(receipt(subscribe))
        send = client.obey(until="SEND")
        assert send is not None
        data = message(subscribe.headers["id"], 0, b"x" * 75_000)
        for start in range(0, len(data), 500):
            client.say(data[start : start + 500])
            time.sleep(0.01)
        client.say(receipt(send))
        client.obey()

    with Liar(pour) as liar:
        connection = Connection(liar.url, request_timeout=0.1)
        session = connection.create_session()
        session.create_consumer(queue)
        session.create_producer(queue).send(Message("x"))
        connection.abort()


def test_an_answer_that_never_comes_is_not_waited_for_behind_a_trickle(queue: Queue) -> None:
    """However much the broker might send ahead: what comes so slowly stands in front of nothing."""

    def trickle(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        client.say(receipt(subscribe))
        client.obey(until="SEND")
        for number in range(1000):
            client.say(message(subscribe.headers["id"], number, b"x" * 1000))
            time.sleep(0.05)

    with Liar(trickle) as liar:
        connection = Connection(liar.url, request_timeout=0.1)
        session = connection.create_session()
        session.create_consumer(queue)
        with pytest.raises(BrokerTimeoutError, match=r"did not answer SEND .* in 1 s"):
            session.create_producer(queue).send(Message("x"))
        connection.abort()


def test_an_answer_that_does_not_come_is_not_waited_for_behind_more_than_the_prefetch(
    queue: Queue,
) -> None:
    """The broker sends message after message, and never the receipt."""

    def pour(client: Client) -> None:
        subscribe = client.obey(until="SUBSCRIBE")
        assert subscribe is not None
        client.say(receipt(subscribe))
        commit = client.obey(until="SEND")
        for number in range(100_000 if commit else 0):
            client.say(message(subscribe.headers["id"], number, b"x" * 1000))
            time.sleep(0.01)

    prefetch = PrefetchPolicy.all(50)
    with Liar(pour) as liar:
        connection = Connection(liar.url, request_timeout=0.3, prefetch_policy=prefetch)
        session = connection.create_session()
        session.create_consumer(queue)
        began = time.monotonic()
        with pytest.raises(BrokerTimeoutError, match="did not answer SEND"):
            session.create_producer(queue).send(Message("x"))
        assert 0.3 < time.monotonic() - began < 5
        connection.abort()
