"""Several destinations in one name, as CompositePublishTest and JmsQueueTopicCompositeSendReceiveTest have them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Destination, Message, Queue, Topic
from jmsx.errors import InvalidDestinationError, UnsupportedError
from jmsx_broker import ClassicBroker
from tests.integration.support import take

if TYPE_CHECKING:
    from jmsx_broker import ArtemisBroker, Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def names() -> tuple[str, str]:
    """Two names that no other test knows."""
    token = uuid.uuid4().hex[:8]
    return f"jmsx.{token}.a", f"jmsx.{token}.b"


def test_a_message_to_two_topics(classic_broker: ClassicBroker, names: tuple[str, str]) -> None:
    """Each topic has it; before, the second one's went to a queue of that name."""
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        readers = [session.create_consumer(Topic(name)) for name in names]
        both = session.create_consumer(Topic(",".join(names)))
        session.create_producer(Topic(",".join(names))).send(Message("x"))
        assert [take(reader, 1)[0].destination for reader in readers] == [Topic(n) for n in names]
        assert {message.destination for message in take(both, 2)} == {Topic(n) for n in names}
        for name in names:
            assert classic_broker.statistics(name).size == 0


@pytest.mark.parametrize("kinds", [("queue", "queue"), ("queue", "topic"), ("topic", "queue")])
def test_a_message_to_a_queue_and_a_topic(
    classic_broker: ClassicBroker, names: tuple[str, str], kinds: tuple[str, str]
) -> None:
    """Each part says of what kind it is; a consumer of two kinds would get one only, as in Java, so there is none."""
    uris = [f"{kind}://{name}" for kind, name in zip(kinds, names, strict=True)]
    composite = Destination(",".join(uris))
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        readers = [session.create_consumer(Destination(uri)) for uri in uris]
        session.create_producer(composite).send(Message("x"))
        assert [str(take(reader, 1)[0].destination) for reader in readers] == uris
        for reader in readers:
            reader.close()
        if len(set(kinds)) > 1:
            with pytest.raises(UnsupportedError, match="those of the first kind only"):
                session.create_consumer(composite)
            return
        both = session.create_consumer(composite)
        session.create_producer(composite).send(Message("y"))
        assert {str(message.destination) for message in take(both, 2)} == set(uris)


def test_artemis_says_that_it_has_none(artemis_broker: ArtemisBroker) -> None:
    """It would make an address of that odd name."""
    with Connection(artemis_broker.url) as connection:
        session = connection.create_session()
        with pytest.raises(UnsupportedError, match="no composite destinations"):
            session.create_consumer(Queue("a,b"))
        with pytest.raises(UnsupportedError, match="no composite destinations"):
            session.create_producer(Queue("a,topic://b")).send(Message("x"))
        with pytest.raises(UnsupportedError, match="no composite destinations"):
            session.create_producer(Queue("a")).send(Message("x", reply_to=Queue("a,b")))


def test_wildcards(broker: Broker, names: tuple[str, str]) -> None:
    """On Artemis a wildcard is an address of its own, which gets what comes to those that fit from then on."""
    rest = ">" if isinstance(broker, ClassicBroker) else "#"
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        prefix = names[0].removesuffix(".a")
        reader = session.create_consumer(Queue(f"{prefix}.{rest}"))
        for name in names:
            session.create_producer(Queue(name)).send(Message(name))
        assert {message.text for message in take(reader, 2)} == set(names)


@pytest.mark.parametrize("uri", ["topic://orders.>", "queue://>"])
def test_artemis_says_how_its_wildcards_are_written(
    artemis_broker: ArtemisBroker, uri: str
) -> None:
    """Nobody sends to that address, so nothing would ever come."""
    with Connection(artemis_broker.url) as connection:
        session = connection.create_session()
        with pytest.raises(InvalidDestinationError, match=f"write {uri[:-1]}#"):
            session.create_consumer(uri)


@pytest.mark.parametrize("uri", ["topic://orders.#", "queue://#", "queue://a,b.#"])
def test_classic_says_how_its_wildcards_are_written(classic_broker: Broker, uri: str) -> None:
    """The same the other way round: there `#` is a name as any other."""
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        with pytest.raises(InvalidDestinationError, match=f"write {uri[:-1]}>"):
            session.create_consumer(uri)
