"""Properties between jmsx programs, and what selectors make of them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message
from jmsx.errors import InvalidSelectorError
from jmsx_broker import ClassicBroker
from tests.integration.support import reading_maps, take
from tests.jdk import NEEDS_JDK, run_peer

if TYPE_CHECKING:
    from jmsx import Queue
    from jmsx.jms.message import PropertyValue
    from jmsx_broker import ArtemisBroker, Broker

pytestmark = pytest.mark.broker


class Rank(enum.IntEnum):
    """Whole numbers with names."""

    HIGH = 3


class Said(str, enum.Enum):  # noqa: UP042 - StrEnum prints as the text that it is, and most programs have this
    """Texts with names."""

    TOPIC = "jmsx.test.enum"
    CLIENT = "jmsx-test-enum"
    NAME = "named"
    RED = "red"


PROPERTIES: dict[str, PropertyValue] = {
    "flag": True,
    "off": False,
    "rank": 123,
    "size": 1.5,
    "one": 1.0,
    "total": 3_000_000_000,
    "below": -2.5,
    "name": "13",
    "none": None,
}


def test_types_arrive_as_they_were_sent(broker: Broker, queue: Queue) -> None:
    """In one header, beside the texts that all others see."""
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(queue).send(Message("x", properties=PROPERTIES))
        (message,) = take(session.create_consumer(queue), 1)
        assert dict(message.properties) == PROPERTIES
        assert message.properties["JMSXDeliveryCount"] == 1


@NEEDS_JDK
def test_a_null_of_java(broker: ClassicBroker | ArtemisBroker, queue: Queue) -> None:
    """The broker makes a text of it, which STOMP does not tell from that text."""
    run_peer("BodyPeer", broker.openwire_url, queue.name, "persistent", "null")
    with Connection(broker.url) as connection:
        connection.start()
        (message,) = take(connection.create_session().create_consumer(queue), 1)
    expected = "null" if isinstance(broker, ClassicBroker) else ""
    assert message.properties["nothing"] == expected


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("flag", True),
        ("NOT flag", False),
        ("NOT off AND flag", True),
        ("unknown OR NOT unknown", False),
        ("rank BETWEEN 100 AND 124 AND (flag)", True),
        ("rank = -5 OR size > 1.4", True),
        ("size > 1 AND one = 1 AND one = 1.0", True),
        ("size BETWEEN 1 AND 2 AND below < -2 AND rank = 123", True),
        ("total > 1000 AND total = 3000000000 AND NOT (total <= 5L)", True),
        ("size = 1 OR total < 3000000000 OR below > -2", False),
        ("none IS NULL", True),
        ("name = '13'", True),
        ("JMSPriority + 1 = 5", True),
    ],
)
def test_selectors_on_them(broker: Broker, queue: Queue, selector: str, *, chosen: bool) -> None:
    """As with the Java client, which has the types on the broker."""
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(Message("x", properties=PROPERTIES))
        producer.send(Message("end", properties={"end": True}))
        consumer = session.create_consumer(queue, selector=f"({selector}) OR end")
        (message,) = take(consumer, 1)
        assert message.text == ("x" if chosen else "end")


@pytest.mark.parametrize("selector", ["rank - 2 = 121", "2 * rank = 246", "rank + 2 = 125"])
def test_arithmetic_that_would_stop_everybody(
    classic_broker: ClassicBroker, queue: Queue, selector: str
) -> None:
    """It is refused before the broker hears of it; the session and the queue go on."""
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        with pytest.raises(InvalidSelectorError, match="calculates with the property rank"):
            session.create_consumer(queue, selector=selector)
        with pytest.raises(InvalidSelectorError, match="calculates with the property rank"):
            list(session.create_browser(queue, selector=selector))
        session.create_producer(queue).send(Message("x", properties=PROPERTIES))
        assert take(session.create_consumer(queue), 1)[0].text == "x"


def test_members_of_enums_are_what_they_equal(broker: Broker) -> None:
    """Names, a selector, properties and fields; and what is removed from Artemis by its management."""
    with Connection(broker.url, client_id=Said.CLIENT) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_durable_consumer(
            reading_maps(Said.TOPIC, broker), Said.NAME, selector="colour = 'red'"
        )
        sent = Message(
            {"rank": Rank.HIGH}, properties={"colour": Said.RED, "rank": Rank.HIGH}, type=Said.RED
        )
        session.create_producer("topic://jmsx.test.enum").send(sent)
        (message,) = take(consumer, 1)
        assert message.body == {"rank": 3}
        assert dict(message.properties) == {"colour": "red", "rank": 3}
        assert message.type == "red"
        consumer.close()
        session.unsubscribe(Said.NAME)
