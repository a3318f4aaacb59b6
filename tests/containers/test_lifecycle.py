"""A broker in a container starts, keeps its messages, dies and comes back, and leaves nothing behind."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import jmsx
from jmsx.errors import BrokerTimeoutError, ConfigurationError
from jmsx_broker import ArtemisContainer, ClassicContainer, own
from jmsx_broker.docker import docker_client
from jmsx_broker.ports import free_port
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually
from tests.integration.support import fresh_queue

if TYPE_CHECKING:
    from jmsx_broker import Broker
    from jmsx_broker.container import ContainerBroker

pytestmark = [pytest.mark.broker, pytest.mark.containers]

both = pytest.mark.parametrize("make", [ClassicContainer, ArtemisContainer])


@both
def test_messages_outlive_a_crash(make: type[ClassicContainer | ArtemisContainer]) -> None:
    """
    A killed broker comes back at the same place with what was confirmed and not acknowledged.

    It is one container of the image of its kind; stopped it is there, and afterwards not even so.
    """
    queue = fresh_queue()
    with make() as broker:
        url = broker.url
        connection = jmsx.Connection(url)
        connection.start()
        session = connection.create_session(jmsx.AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE)
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        for text in "abc":
            producer.send(jmsx.Message(text))
        first = consumer.receive(10)
        assert first is not None
        first.acknowledge()
        assert eventually(lambda: broker.statistics(queue.name).size == 2)
        broker.kill()
        connection.abort()
        assert not broker.running
        broker.start()
        assert url == broker.url
        shown = broker.container.get_container_id()
        assert containers()[shown] == broker.product.image
        with jmsx.Connection(url) as connection:
            connection.start()
            consumer = connection.create_session().create_consumer(queue)
            again = [consumer.receive(10), consumer.receive(10), consumer.receive(1)]
        broker.stop()
        assert not broker.running
        assert shown in containers()
    assert shown not in containers()
    assert [message and message.text for message in again] == ["b", "c", None]


@both
def test_paused_broker_is_silent_until_it_is_resumed(
    make: type[ClassicContainer | ArtemisContainer],
) -> None:
    """Frozen it says nothing, and it can be removed as it is; over TLS it is served with its own certificates."""
    with make(tls=True) as broker:
        assert greet_over_tls(broker).startswith(b"CONNECTED")
        broker.pause()
        with pytest.raises(BrokerTimeoutError):
            Wire(broker.url, timeout=0.5)
        broker.resume()
        Wire(broker.url).close()
        broker.pause()
        frozen = broker.container.get_container_id()
    assert frozen not in containers()


def test_a_port_that_was_taken_meanwhile_is_replaced(
    classic_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when we looked; one that the caller gives is not replaced."""
    taken = urlsplit(classic_broker.url).port
    assert taken is not None
    found = [taken]
    monkeypatch.setattr(own, "free_port", lambda: found.pop() if found else free_port())
    with ClassicContainer() as second:
        assert not found
        assert urlsplit(second.url).port != taken
        Wire(second.url).close()
    with pytest.raises(ConfigurationError, match=f":{taken}"):
        ClassicContainer(taken).start()


def test_image_that_is_nowhere_is_told_with_the_remedy() -> None:
    """Neither here nor to be pulled: the error says how to make one."""
    broker = ClassicContainer(image="jmsx.invalid/nowhere:1")
    with pytest.raises(
        ConfigurationError, match=r"no image jmsx\.invalid/nowhere:1.*jmsx broker images"
    ):
        broker.start()
    assert not broker.running


def containers() -> dict[str, str]:
    """The image of each container that the daemon has, running or not."""
    with docker_client() as client:
        return {
            str(each.id): str(each.attrs["Config"]["Image"])
            for each in client.containers.list(all=True)
        }


def greet_over_tls(broker: ContainerBroker) -> bytes:
    """The beginning of the broker's answer to CONNECT, over TLS."""
    context = ssl.create_default_context(cafile=broker.certificates.authority)
    address = urlsplit(broker.tls_url)
    with (
        socket.create_connection((address.hostname, address.port or 0), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        return wrapped.recv(9)
