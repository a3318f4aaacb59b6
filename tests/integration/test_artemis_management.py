"""Where Artemis' management may not be asked, or is not there: told once, in bounded time, and done without."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    Connection,
    ConsumerOptions,
    Message,
    Queue,
    RedeliveryPolicy,
    Reject,
    Topic,
)
from jmsx.core.values import DestinationKind
from jmsx.drivers.request_link import PATIENCE
from jmsx.errors import (
    BrokerFaultError,
    BrokerTimeoutError,
    InvalidSelectorError,
    JmsxError,
    UnsupportedError,
)
from jmsx.jms.session import link_of
from jmsx_broker import ArtemisBroker
from jmsx_broker.artemis_recipe import ArtemisRecipe
from jmsx_broker.local import LocalBroker
from tests.integration.artemis_support import Console
from tests.integration.broker_support import eventually
from tests.integration.support import CLIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker
    from jmsx_broker.recipe import Listeners

pytestmark = pytest.mark.broker

USER = "shop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten(ArtemisRecipe):
    """An Artemis with one thing in its broker.xml replaced by another."""

    old: str
    new: str

    def files(self, listeners: Listeners) -> dict[str, str]:
        """As always, but for that."""
        files = ArtemisRecipe.files(self, listeners)
        assert self.old in files["etc/broker.xml"]
        return {
            **files,
            "etc/broker.xml": files["etc/broker.xml"].replace(self.old, self.new),
        }


@pytest.fixture(scope="module")
def closed() -> Iterator[LocalBroker]:
    """Its users may do all but manage it: it refuses at once."""
    manage = '<permission type="manage" roles="jmsx"/>'
    with LocalBroker(Rewritten(users={USER: USER}, old=manage, new=""), 0) as broker:
        yield broker


@pytest.fixture(scope="module")
def moved() -> Iterator[LocalBroker]:
    """Its management has another address: it never answers."""
    new = "<management-address>elsewhere</management-address><acceptors>"
    with LocalBroker(Rewritten(old="<acceptors>", new=new), 0) as broker:
        yield broker


def connect(broker: Broker, client_id: str | None = None) -> Connection:
    """With a user and password, which matter to one of them."""
    return Connection(broker.url, username=USER, password=USER, client_id=client_id)


def warnings(caplog: pytest.LogCaptureFixture, about: str) -> list[str]:
    """The warnings so far that tell `about`."""
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [text for text in texts if about in text]


@pytest.mark.parametrize(("kind", "limit"), [("closed", 2.0), ("moved", PATIENCE + 2.0)])
def test_without_management_everything_else_goes_on(
    kind: str, limit: float, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, which says what to do; one wait; and dead letters go where they are safe."""
    broker: Broker = request.getfixturevalue(kind)
    with connect(broker, client_id="shop") as connection:
        connection.start()
        session = connection.create_session(CLIENT)
        began = time.monotonic()
        consumers = [
            session.create_consumer(Queue("a")),
            session.create_consumer(Queue("b"), selector="tint = 'red'"),
            session.create_durable_consumer(Topic("c"), f"sub-{kind}"),
        ]
        assert time.monotonic() - began < limit
        (warning,) = warnings(caplog, "management not available")
        assert "manage" in warning
        assert "use_management=False" in warning
        session.create_producer(Queue("a")).send(Message("poison"))
        assert consumers[0].receive(10) is not None
        session.recover(Reject("no"))
        reader = session.create_consumer(Queue("jmsx.DLQ"))
        message = reader.receive(10)
        assert message is not None
        message.acknowledge()
        assert len(warnings(caplog, "management not available")) == 1


@pytest.mark.parametrize(
    ("kind", "error"), [("closed", BrokerFaultError), ("moved", BrokerTimeoutError)]
)
def test_what_needs_management_says_so(
    kind: str, error: type[JmsxError], request: pytest.FixtureRequest
) -> None:
    """And the session lives on."""
    broker: Broker = request.getfixturevalue(kind)
    with connect(broker, client_id="shop2") as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(Queue(f"d.{uuid.uuid4().hex}"))
        with pytest.raises(error, match="`manage`") as caught:
            session.unsubscribe("sub")
        assert type(caught.value) is error
        assert "CoreMessage" not in str(caught.value)
        session.create_producer(consumer.destination).send(Message("a"))
        assert consumer.receive(10) is not None


def test_management_can_be_left_alone(
    artemis_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """`use_management=False`: no question, no warning; what needs it says so."""
    with Connection(artemis_broker.url, client_id="shop3", use_management=False) as connection:
        session = connection.create_session()
        policy = connection.options.redelivery_policy
        found = link_of(session).examine(Queue("a"), DestinationKind.QUEUE, policy)
        assert found.dead_letter_queue.destination == "queue://jmsx.DLQ"
        session.create_consumer(Queue("a"))
        with pytest.raises(UnsupportedError, match="use_management"):
            session.unsubscribe("sub")
    assert warnings(caplog, "") == []


def test_bad_selector_is_named_without_management_too(closed: Broker) -> None:
    """The trial needs no permission to manage."""
    with connect(closed) as connection, pytest.raises(InvalidSelectorError):
        connection.create_session().create_consumer(Queue("a"), selector="= =")


def test_redelivery_on_both_sides_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """One warning for each address, with the settings of both sides and what to do."""
    settings = {"slow.#": {"redelivery-delay": 500, "max-delivery-attempts": 3}}
    with ArtemisBroker(address_settings=settings) as broker:
        policy = RedeliveryPolicy(maximum_redeliveries=-1)
        with Connection(broker.url, redelivery_policy=policy) as connection:
            session = connection.create_session()
            for name in ("slow.a", "slow.a", "slow.b"):
                session.create_consumer(Queue(name)).close()
            told = warnings(caplog, "the broker redelivers too")
            assert [
                name for name in ("slow.a", "slow.b") for text in told if f"queue://{name}" in text
            ] == [
                "slow.a",
                "slow.b",
            ]
            for word in (
                "redelivery-delay=500",
                "max-delivery-attempts=3",
                "maximum_redeliveries=-1",
            ):
                assert word in told[0]
            told_again = link_of(session).examine(Queue("slow.a"), DestinationKind.QUEUE, policy)
            assert len(told_again.advice) == 1


def test_a_queue_for_dead_letters_that_loses_them_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where a consumer, or the connection, names one."""
    with ArtemisBroker(address_settings={"dead.#": {"default-ring-size": 10}}) as broker:
        with Connection(broker.url, dead_letter="queue://dead.all") as connection:
            session = connection.create_session()
            own = ConsumerOptions(dead_letter="queue://dead.own")
            for options in (None, own, own, None):
                session.create_consumer(Queue("a"), options=options).close()
        told = warnings(caplog, "a queue keeps so many messages only")
    assert len(told) == 2
    assert "queue://dead.all" in told[0]
    assert "queue://dead.own" in told[1]


def test_asking_leaves_nothing_behind(artemis_broker: Broker) -> None:
    """No queue, no address, no connection."""
    with Console(artemis_broker) as console:
        with Connection(artemis_broker.url) as connection:
            session = connection.create_session()
            link_of(session).examine(
                Queue("jmsx.test.tidy"), DestinationKind.QUEUE, RedeliveryPolicy()
            )
            session.create_consumer(Queue("jmsx.test.tidy"), selector="a = 'b'").close()
            assert console.queues("ADDRESS", "jmsx.answers") == []
            assert int(console.ask("broker", "getConnectionCount")) <= 3
        assert eventually(lambda: console.queues("NAME", "jmsx.answers") == [])
