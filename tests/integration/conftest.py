"""What tests on a real broker take as arguments; a file whose needs are its own defines its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import Connection
from jmsx_broker import Broker, ClassicBroker
from tests.integration.proxy import Proxy
from tests.integration.support import Diary, fresh_queue
from tests.jdk import end_peers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Queue


@pytest.fixture(scope="session", autouse=True)
def _java_peers() -> Iterator[None]:
    """The machine of the Java programs ends with this process: in good order here, else as its input ends."""
    yield
    end_peers()


@pytest.fixture(scope="session")
def mortal_broker() -> Iterator[ClassicBroker]:
    """One broker for the tests that kill or pause theirs."""
    with ClassicBroker() as broker:
        yield broker


@pytest.fixture
def mortal(mortal_broker: ClassicBroker) -> ClassicBroker:
    """A broker to kill or to pause; alive again for each test."""
    return mortal_broker if mortal_broker.running else mortal_broker.start()


@pytest.fixture(params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """One after the other, of both kinds."""
    found: Broker = request.getfixturevalue(f"{request.param}_broker")
    return found


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """A started connection."""
    with Connection(broker.url) as made:
        made.start()
        yield made


@pytest.fixture
def proxy(classic_broker: ClassicBroker) -> Iterator[Proxy]:
    """A way to the broker that can be cut."""
    with Proxy(classic_broker.url) as way:
        yield way


@pytest.fixture
def queue() -> Queue:
    """A queue that no other test knows."""
    return fresh_queue()


@pytest.fixture
def diary() -> Diary:
    """An observer that keeps every event."""
    return Diary()
