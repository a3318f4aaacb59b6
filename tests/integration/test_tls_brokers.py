"""TLS to both real brokers, which want a client's certificate: traffic, large bodies, and the death of the broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, TlsOptions
from jmsx.errors import ConnectionFailedError, JmsxError, TlsError
from jmsx_broker import ArtemisBroker, ClassicBroker
from jmsx_broker import TlsOptions as BrokerTls
from tests.integration.broker_support import eventually
from tests.integration.support import Diary, Outcome, fresh_queue, nothing_left, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker.local import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

MESSAGES = 5000


@pytest.fixture(scope="module", params=[ClassicBroker, ArtemisBroker])
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker that wants certificates."""
    with request.param(tls=BrokerTls(require_client_certificate=True)) as broker:
        yield broker


@pytest.fixture
def trust(broker: LocalBroker) -> TlsOptions:
    """Whom the broker knows."""
    files = broker.certificates
    return TlsOptions(
        ca_file=files.authority,
        certificate_file=files.client_certificate,
        key_file=files.client_key,
    )


def test_five_thousand_messages_through_a_listener(broker: LocalBroker, trust: TlsOptions) -> None:
    """B4: each is acknowledged while others come, and none is lost or comes twice."""
    queue, seen, done = fresh_queue(), [], threading.Event()
    diary = Diary()

    def listen(message: Message) -> None:
        seen.append(message.text)
        if len(seen) == MESSAGES:
            done.set()

    with nothing_left(), Connection(broker.tls_url, tls=trust, observers=[diary]) as connection:
        connection.start()
        connection.create_session().create_consumer(queue).set_listener(listen)
        producer = connection.create_session().create_producer(queue)
        for number in range(MESSAGES):
            producer.send(Message(f"{number}"), persistent=False)
        assert done.wait(60), len(seen)
    assert seen == [f"{number}" for number in range(MESSAGES)]
    assert diary.outcomes() == {"acknowledged": MESSAGES}
    assert eventually(lambda: broker.statistics(queue.name).size == 0)


def test_ten_megabytes(broker: LocalBroker, trust: TlsOptions) -> None:
    """A body of any bytes, there and back, and the next message behind it."""
    body, queue = bytes(range(256)) * 40 * 1024, fresh_queue()
    with nothing_left(), Connection(broker.tls_url, tls=trust) as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(Message(body))
        producer.send(Message("next"))
        consumer = session.create_consumer(queue)
        for expected in (body, "next"):
            message = consumer.receive(20)
            assert message is not None
            assert message.body == expected


def test_without_a_certificate(broker: LocalBroker, trust: TlsOptions) -> None:
    """The error tells what the broker wants; where its reset overtakes its alert, it asks."""
    connection = Connection(broker.tls_url, tls=TlsOptions(ca_file=trust.ca_file))
    error = within(10, connection.create_session).error
    assert isinstance(error, TlsError | ConnectionFailedError)
    assert "client certificate" in str(error)


def test_the_wrong_port(broker: LocalBroker, trust: TlsOptions) -> None:
    """TLS to the port without and the other way round: both errors name the scheme to write."""
    plain = Connection(broker.url.replace("stomp:", "ssl:"), tls=trust, connect_timeout=2)
    error = within(5, plain.create_session).error
    assert isinstance(error, TlsError | ConnectionFailedError)
    assert "stomp://" in str(error)
    secret = Connection(broker.tls_url.replace("stomp+ssl:", "stomp:"), connect_timeout=2)
    error = within(5, secret.create_session).error
    assert isinstance(error, JmsxError)
    assert "stomp+ssl://" in str(error)


def test_the_broker_is_killed_and_comes_back(broker: LocalBroker, trust: TlsOptions) -> None:
    """B3: who waits in receive() is told at once, and not by a missed heart-beat; with failover: it just goes on."""
    queue = fresh_queue()
    with nothing_left():
        plain = Connection(broker.tls_url, tls=trust, heartbeat=(0, 0))
        lasting = Connection(
            f"failover:({broker.tls_url})?maxReconnectDelay=500", tls=trust, heartbeat=(0, 0)
        )
        errors: list[JmsxError] = []
        plain.set_exception_listener(errors.append)
        for connection in (plain, lasting):
            connection.start()
        consumer = plain.create_session().create_consumer(fresh_queue())
        waiting = Outcome(lasting.create_session().create_consumer(queue).receive)
        began = time.monotonic()
        killer = threading.Timer(0.3, broker.kill)
        killer.start()
        call = within(10, consumer.receive)
        assert isinstance(call.error, ConnectionFailedError)
        assert time.monotonic() - began < 2
        assert eventually(lambda: len(errors) == 1)
        killer.join()
        plain.close()
        broker.start()
        with Connection(broker.tls_url, tls=trust) as other:
            other.create_session().create_producer(queue).send(Message("after the crash"))
        received = waiting.join(20).value
        assert received is not None
        assert received.text == "after the crash"
        lasting.close()
