"""What the audit says of a durable subscription that was removed from a real broker, and begun again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

import jmsx_report
from jmsx import Connection, Message, Topic
from jmsx.core.events import SubscriptionRemoved
from jmsx.errors import BrokerError
from jmsx_eventlog import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx import Session
    from jmsx.core.events import Event, Source
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

NAME: Final = "news"


class Removals:
    """An observer that notes which subscriptions were removed."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - it looks at the events of any session
        """Note it."""
        if isinstance(event, SubscriptionRemoved):
            self.seen.append(event.subscription)

    def close(self) -> None:
        """Nothing is open."""


class Reader:
    """A session of a client, and what it does with its durable subscription."""

    def __init__(self, session: Session, topic: Topic) -> None:
        self.session, self.topic = session, topic

    def takes(self, number: int, before: int = 0) -> None:
        """Open the subscription, send `before` and read these, then read `number` that are sent now."""
        consumer = self.session.create_durable_consumer(self.topic, NAME)
        self.sends(number)
        for _ in range(before + number):
            assert consumer.receive(10) is not None
        consumer.close()

    def sends(self, number: int) -> None:
        """Send, whoever reads."""
        producer = self.session.create_producer(self.topic)
        for at in range(number):
            producer.send(Message(str(at)))
        producer.close()


def audited(broker: Broker, folder: Path, story: Any) -> tuple[dict[str, Any], list[str]]:
    """The audit of what `story` does with a reader, and the subscriptions that were removed meanwhile."""
    removals, topic = Removals(), Topic(f"jmsx.test.{uuid.uuid4().hex[:10]}")
    log = EventLog(folder / "events", service="reader")
    with Connection(
        broker.url, client_id=f"c-{uuid.uuid4().hex[:8]}", observers=[log, removals]
    ) as connection:
        connection.start()
        story(Reader(connection.create_session(), topic))
    log.close()
    return dict(jmsx_report.report(folder / "events", folder / "out").audit), removals.seen


def test_what_is_sent_after_the_removal_is_not_owed(broker: Broker, tmp_path: Path) -> None:
    """Nor is what was sent before lost: it is told that it went with the subscription."""

    def story(reader: Reader) -> None:
        reader.takes(5)
        reader.sends(3)
        reader.session.unsubscribe(NAME)
        reader.sends(4)

    audit, removed = audited(broker, tmp_path, story)

    assert [one.rpartition(".")[2] for one in removed] == [NAME]
    assert (audit["verdict"], audit["done"], audit["unaccounted"], audit["removed"]) == (
        "balanced",
        5,
        0,
        3,
    )
    (told,) = [one for one in audit["findings"] if one["what"] == "subscription_removed"]
    assert told["where"] == removed[0]


def test_a_subscription_that_begins_again_owes_all(broker: Broker, tmp_path: Path) -> None:
    """What it does not read from then on waits for its next reader, if the last one has closed."""

    def story(reader: Reader) -> None:
        reader.takes(5)
        reader.session.unsubscribe(NAME)
        reader.sends(4)
        reader.takes(2)
        reader.sends(3)

    audit, _ = audited(broker, tmp_path, story)

    assert (audit["verdict"], audit["done"], audit["awaiting_reader"], audit["removed"]) == (
        "unverifiable",
        7,
        3,
        0,
    )
    assert audit["unaccounted"] == 0


def test_a_removal_that_was_refused_is_none(broker: Broker, tmp_path: Path) -> None:
    """While somebody reads, the broker keeps the subscription, and nothing is told."""

    def story(reader: Reader) -> None:
        consumer = reader.session.create_durable_consumer(reader.topic, NAME)
        with pytest.raises(BrokerError):
            reader.session.unsubscribe(NAME)
        consumer.close()

    _, removed = audited(broker, tmp_path, story)

    assert removed == []
