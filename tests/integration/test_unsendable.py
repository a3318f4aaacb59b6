"""What the wire cannot carry is refused before anything is written, and what just fits arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    Connection,
    Message,
    Queue,
)
from jmsx.core.events import (
    MessageSent,
    TransactionEnded,
)
from jmsx.errors import (
    ConfigurationError,
    MessageFormatError,
)
from tests.integration.support import (
    TRANSACTED,
    Diary,
    bodies,
)

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


UNFIT = {
    "property": Message("x", properties={"a": "\ud800"}),
    "text": Message("a\udcffb"),
    "map": Message({"a": "\ud800"}),
    "correlation id": Message("x", correlation_id="\udcff"),
    "long property": Message("x", properties={"a": "x" * 11_000}),
    "long correlation id": Message("x", correlation_id="ä" * 6_000),
    "many properties": Message("x", properties={f"p{number}": 1 for number in range(961)}),
    "negative delay": Message("x", properties={"AMQ_SCHEDULED_DELAY": -1}),
    "number that is none": Message("x", properties={"JMSXGroupSeq": "first"}),
}


QUALITIES: list[dict[str, Any]] = [
    {"priority": 10},
    {"priority": 4.5},
    {"priority": "5"},
    {"time_to_live": float("inf")},
    {"time_to_live": "1"},
]


@pytest.mark.parametrize("case", UNFIT)
def test_a_message_that_cannot_be_sent(
    classic_broker: Broker, queue: Queue, diary: Diary, case: str
) -> None:
    """An error at once; the transaction goes on without it, and the evidence knows of what was sent only."""
    with Connection(classic_broker.url, observers=[diary]) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        producer.send(Message("before"))
        with pytest.raises(MessageFormatError):
            producer.send(UNFIT[case])
        producer.send(Message("after"))
        session.commit()
        plain = connection.create_session().create_producer(queue)
        with pytest.raises(MessageFormatError):
            plain.send(UNFIT[case])
        plain.send(Message("last"))
    assert bodies(classic_broker, queue) == ["before", "after", "last"]
    sent = [event.outcome for event in diary.events if isinstance(event, MessageSent)]
    assert sent == ["confirmed"] * 3
    (ended,) = [event for event in diary.events if isinstance(event, TransactionEnded)]
    assert ended.sends == 2


def test_a_quality_that_the_broker_cannot_read(classic_broker: Broker, queue: Queue) -> None:
    """Classic would close the connection on it; an error at once, and the session goes on."""
    with Connection(classic_broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for quality in QUALITIES:
            with pytest.raises(ConfigurationError):
                producer.send(Message("x"), **quality)
        producer.send(Message("sent"), priority=9, time_to_live=60)
    assert bodies(classic_broker, queue) == ["sent"]


def test_a_header_line_of_the_greatest_length(classic_broker: Broker, queue: Queue) -> None:
    """The limit is the broker's own: what just fits arrives whole, escapes and all."""
    value = "x\n" * 3_412  # two bytes on the wire for each LF, and `p:` before them
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(Message("x", properties={"p": value}))
        with pytest.raises(MessageFormatError):
            producer.send(Message("x", properties={"p": value + "xx\n"}))
        message = session.create_consumer(queue).receive(5)
        assert message is not None
        assert message.properties["p"] == value


def test_the_most_properties(classic_broker: Broker, queue: Queue) -> None:
    """They arrive beside all that jmsx itself writes, for a message that has all that there is."""
    # One is for the types of the others.
    names = [f"p{number}" for number in range(960 - 4)]
    with Connection(classic_broker.url) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        message = Message(
            {"a": 1},
            properties={
                **dict.fromkeys(names, 1),
                "JMSXGroupID": "g",
                "JMSXGroupSeq": 1,
                "AMQ_SCHEDULED_DELAY": 1,
            },
            correlation_id="c",
            type="t",
            reply_to=queue,
        )
        session.create_producer(queue).send(message, priority=9, time_to_live=60)
        session.commit()
        came = session.create_consumer(queue).receive(5)
        assert came is not None
        assert came.properties.keys() >= {*names}
