"""What tests of guarantees work with: modes, brokers, and what is sent and received."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import jmsx
from jmsx import AcknowledgeMode as Mode
from jmsx.core.frames import Frame
from jmsx.dead_letters.opening import open_access
from jmsx.errors import InvalidDestinationError
from jmsx_broker import ArtemisBroker, ClassicBroker
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from jmsx_broker import Broker

MODES: Final = (
    Mode.AUTO_ACKNOWLEDGE,
    Mode.CLIENT_ACKNOWLEDGE,
    Mode.INDIVIDUAL_ACKNOWLEDGE,
    Mode.SESSION_TRANSACTED,
)

#: Modes in which an application holds messages for as long as it likes.
HOLDING: Final = (Mode.CLIENT_ACKNOWLEDGE, Mode.SESSION_TRANSACTED)

MORTAL: Final = {"classic": ClassicBroker, "artemis": ArtemisBroker}

DEAD_LETTERS: Final = {"classic": "ActiveMQ.DLQ", "artemis": "DLQ"}


def put(connection: jmsx.Connection, queue: jmsx.Queue, *bodies: str, **properties: Any) -> None:
    """Send texts, confirmed."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    for body in bodies:
        producer.send(jmsx.Message(body), **properties)
    session.close()


def take(consumer: jmsx.MessageConsumer, timeout: float = 1.0) -> list[jmsx.Message]:
    """All that comes until nothing has come for `timeout` seconds."""
    return list(iter(lambda: consumer.receive(timeout), None))


def texts(messages: list[jmsx.Message]) -> list[str]:
    """Their bodies."""
    return [message.text for message in messages]


def settle(session: jmsx.Session, last: jmsx.Message) -> None:
    """Acknowledge or commit all that the session has got, `last` the latest."""
    if session.transacted:
        session.commit()
    else:
        last.acknowledge()


def left(connection: jmsx.Connection, queue: jmsx.Queue) -> list[jmsx.Message]:
    """What a new session gets from the queue."""
    session = connection.create_session()
    messages = take(session.create_consumer(queue))
    session.close()
    return messages


def emptied(broker: Broker, queue: jmsx.Queue) -> None:
    """Remove what other tests have left in a queue."""
    with contextlib.suppress(InvalidDestinationError), open_access(broker.url) as access:
        for _ in access.remove(queue.name, list(access.look(queue.name))):
            pass


def headers_of_the_first(broker: Broker, queue: jmsx.Queue) -> dict[str, str]:
    """What the broker says of a queue's first message, also what jmsx keeps from the application."""
    with Wire(broker.url) as wire:
        name = queue.name if wire.is_artemis else f"/queue/{queue.name}"
        wire.send(Frame("SUBSCRIBE", {"id": "look", "destination": name, "ack": "client"}))
        headers = dict(wire.receive("MESSAGE").headers)
        # given back in good order: what a lost socket had Artemis may keep
        wire.send(Frame("UNSUBSCRIBE", {"id": "look", "receipt": "left"}))
        wire.receive("RECEIPT")
        return headers
