"""When consumers go without translated bodies, and when with them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import COUNT_HEADER
from jmsx.core.identity import stamp
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.translating import OFTEN, SOON, Translating, is_same
from jmsx.core.values import ConsumerSettings, DestinationKind, StompAck
from jmsx.drivers.body_lookup import _merged
from jmsx.drivers.hand_outs import HandOuts
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT as CLASSIC
from tests.unit.core.harness import AUTO, WALL, Talk, at_most

QUEUE = ConsumerSettings(
    subscription_id="1",
    name="q",
    destination="queue://q",
    kind=DestinationKind.QUEUE,
    mode=AcknowledgeMode.AUTO_ACKNOWLEDGE,
    stomp_ack=StompAck.CLIENT,
    headers={},
    origin="queue://q",
    dead_letter_queue="queue://ActiveMQ.DLQ",
    prefetch=1000,
)
TOPIC = replace(QUEUE, destination="topic://t", kind=DestinationKind.TOPIC)
DURABLE = replace(TOPIC, kind=DestinationKind.DURABLE)
TEMPORARY = replace(QUEUE, destination="temp-queue://t")


def ended(*links: tuple[float, str]) -> Translating:
    """After links that ended so many seconds after they were opened, for these reasons."""
    translating, now = Translating(), 0.0
    for lasted, reason in links:
        translating.heard(now)
        now += lasted
        translating.closed(reason, now)
    return translating


def test_a_first_link_sees() -> None:
    """Nothing has happened."""
    translating = Translating()
    translating.heard(0.0)
    assert not translating.untranslated(QUEUE)
    assert not translating.suspects_translation


@pytest.mark.parametrize("reason", ["closed", "heartbeat", "error_frame", "protocol"])
def test_what_has_another_reason_changes_nothing(reason: str) -> None:
    """What the broker said, or we did."""
    assert not ended((0.1, reason)).untranslated(QUEUE)


def test_a_queue_goes_blind_at_once() -> None:
    """For each end repeats what came before it; a link that was quiet for long ended for something else."""
    assert ended((SOON, "io")).untranslated(QUEUE)
    assert not ended((SOON + 0.1, "io")).untranslated(QUEUE)


def test_messages_count_as_much_as_a_new_link() -> None:
    """The one that the broker could not write came right behind others."""
    translating = Translating()
    translating.heard(0.0)
    translating.heard(1000.0)
    translating.closed("io", 1000.5)
    assert translating.untranslated(QUEUE)


@pytest.mark.parametrize("settings", [TOPIC, DURABLE, TEMPORARY])
def test_what_cannot_be_looked_at_takes_longer(settings: ConsumerSettings) -> None:
    """Its maps cannot be read then."""
    assert not ended(*[(0.1, "io")] * (OFTEN - 1)).untranslated(settings)
    assert ended(*[(0.1, "io")] * OFTEN).untranslated(settings)


def test_it_sees_again_on_the_next_link() -> None:
    """Unless that ends in the same way."""
    assert not ended((0.1, "io"), (0.1, "closed")).untranslated(QUEUE)
    assert not ended((0.1, "io"), (60.0, "io")).untranslated(QUEUE)
    assert ended((0.1, "io"), (0.1, "io")).untranslated(QUEUE)


def test_what_was_found_out_counts_at_once() -> None:
    """Also where the link had been quiet for long."""
    translating = ended((60.0, "io"))
    translating.ended_by_translation()
    assert translating.untranslated(QUEUE)
    assert not translating.untranslated(TOPIC)


@pytest.mark.parametrize(
    ("fields", "suspected"),
    [
        ({}, True),
        ({"destination": "queue://q.>"}, False),
        ({"destination": "temp-queue://q"}, False),
        ({"destination": "topic://q", "kind": DestinationKind.TOPIC}, False),
        ({"headers": {"destination": "/queue/q"}}, False),
    ],
)
def test_who_may_have_been_shut_out(fields: dict[str, Any], *, suspected: bool) -> None:
    """Whoever has messages translated that others can look at; on the next link nobody has."""
    talk = Talk(AUTO, dialect=CLASSIC)
    translated = {"destination": "/queue/q", "transformation": "jms-map-xml"}
    talk.subscribe(**{"headers": translated, **fields})
    assert bool(talk.core.suspected_consumers("io")) is suspected
    assert talk.core.suspected_consumers("heartbeat") == []
    talk.cut()
    talk.core.ended_by_translation()
    talk.reopen()
    assert talk.core.suspected_consumers("io") == []


def test_only_classic_translates() -> None:
    """Its consumers leave out one header."""
    headers = {"destination": "/queue/q", "transformation": "jms-map-xml"}
    assert CLASSIC.untranslated(headers) == {"destination": "/queue/q"}
    assert ARTEMIS.untranslated(headers) == headers


def test_what_was_looked_at_is_another_message() -> None:
    """Its identity is asked for anew, and nobody looks twice."""
    frame = MessageFrame.of({"ack": "1"})
    delivery = Delivery.of(frame, 1, "m", epoch=1, now=0.0, wall=0.0)
    delivery.complete(None)
    assert delivery.arrival.looked_at
    assert delivery.frame is frame
    shown = MessageFrame.of({"ack": "1"}, b"<map/>")
    delivery.complete(shown)
    assert delivery.frame is shown
    assert delivery.arrival.identity is None


@pytest.mark.parametrize("fields", [{}, {"kind": DestinationKind.TOPIC}])
@pytest.mark.parametrize("translated", [True, False])
def test_what_may_be_a_map(fields: dict[str, Any], *, translated: bool) -> None:
    """Where nobody asked for translation its header was its sender's, and it is no empty text for sure."""
    talk, reading = Talk(AUTO, dialect=CLASSIC), CLASSIC.reading
    headers = {
        "destination": "/queue/q",
        **({"transformation": "jms-map-xml"} if translated else {}),
    }
    talk.subscribe(headers=headers, **fields)
    talk.core.receive(
        [
            MessageFrame.of(
                {"subscription": "1", "message-id": f"ID:x:-1:1:{n}", "ack": str(n), **of}, body
            )
            for n, (of, body) in enumerate(
                (
                    ({"transformation": "jms-map-xml"}, b""),
                    ({"transformation": "jms-map-xml"}, b"text"),
                    ({"transformation": "jms-map-xml", "content-length": "0"}, b""),
                    ({}, b""),
                ),
                1,
            )
        ],
        0.0,
        0.0,
    )
    came = [talk.held() for _ in range(4)]
    carried = [reading.carries(one.headers, one.frame.body) for one in came]
    assert carried == [translated, True, True, True]


def test_what_was_shown_is_whole() -> None:
    """An empty text, too, that looked as a map might."""
    headers = {"message-id": "ID:x:-1:1:1", "transformation": "jms-map-xml"}
    known = MessageFrame.of(headers).without_body()
    assert not CLASSIC.reading.carries(known.headers, known.body)
    for body in (b"<map/>", b""):
        shown = MessageFrame.of(headers, body)
        assert is_same(shown, known, CLASSIC)
        assert CLASSIC.reading.carries(_merged(known, shown, "transformation").headers, body)


MAP: Final = b"<map><entry><string>n</string><int>1</int></entry></map>"


def sent_back_map(talk: Talk, failures: int, *, untranslated: bool, **headers: str) -> MessageFrame:
    """A map that was sent back after so many failures, as Classic writes it with and without translation."""
    given = {
        "destination": "/queue/q",
        "persistent": "true",
        "message-id": "ID:x:-1:1:9",
        "ack": f"ack-{talk.core.epoch}",
        "subscription": "1",
        "timestamp": "1700000000000",
        "transformation": "jms-map-xml",
        COUNT_HEADER: str(failures),
        **headers,
    }
    stamped = stamp(given, MAP, "k", "queue://q", CLASSIC.reading)
    return MessageFrame.of(stamped, b"" if untranslated else MAP)


@pytest.mark.parametrize("mode", AcknowledgeMode)
@pytest.mark.parametrize("before", [0, 2])
def test_a_map_keeps_its_count_on_links_without_translation(
    mode: AcknowledgeMode, before: int
) -> None:
    """What was counted is believed, and what was lost is known, as soon as the body is there."""
    talk, hand_outs = Talk(mode, dialect=CLASSIC), HandOuts(None)
    talk.subscribe(
        headers={"destination": "/queue/q", "transformation": "jms-map-xml"}, policy=at_most(9)
    )
    talk.core.receive([sent_back_map(talk, before, untranslated=False)], talk.now, WALL + talk.now)
    assert talk.held().delivery_count == before + 1
    for lost in range(1, 4):
        talk.lose()
        assert talk.core.untranslated
        talk.core.receive(
            [sent_back_map(talk, before, untranslated=True, redelivered="true")],
            talk.now,
            WALL + talk.now,
        )
        assert hand_outs.deliver(talk.core, ["1"], talk.now) is None
        bodiless = hand_outs.bodiless
        assert bodiless is not None
        hand_outs.looked(talk.core, bodiless, sent_back_map(talk, before, untranslated=False))
        again = hand_outs.deliver(talk.core, ["1"], talk.now)
        assert again is bodiless
        assert (again.delivery_count, again.failures) == (before + lost + 1, before + lost)


def test_a_look_that_outlasts_its_link_forgets_nothing() -> None:
    """The count of a map waits for the one that comes on the next link, not for one that nobody will get."""
    talk, hand_outs = Talk(AUTO, dialect=CLASSIC), HandOuts(None)
    talk.subscribe(
        headers={"destination": "/queue/q", "transformation": "jms-map-xml"}, policy=at_most(9)
    )

    def come(*, untranslated: bool) -> None:
        frame = sent_back_map(talk, 0, untranslated=untranslated, redelivered="true")
        talk.core.receive([frame], talk.now, WALL + talk.now)

    def bodiless() -> Delivery:
        come(untranslated=True)
        assert hand_outs.deliver(talk.core, ["1"], talk.now) is None
        assert hand_outs.bodiless is not None
        return hand_outs.bodiless

    come(untranslated=False)
    first = talk.held()
    talk.lose()
    old = bodiless()
    talk.lose()
    hand_outs.looked(talk.core, old, sent_back_map(talk, 0, untranslated=False))
    hand_outs.looked(talk.core, bodiless(), sent_back_map(talk, 0, untranslated=False))
    again = hand_outs.deliver(talk.core, ["1"], talk.now)
    assert again is not None
    assert (again.delivery_count, again.failures) == (first.delivery_count + 1, first.failures + 1)
