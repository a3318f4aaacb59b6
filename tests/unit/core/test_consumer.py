"""One consumer: what it hands out in which order, what an acknowledgement covers, what it tells."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from jmsx.core.events import AckTrigger, DeliveryEnded, MessagesAcknowledged, MessagesReceived
from jmsx.core.frames import MessageFrame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DestinationKind, Failure
from jmsx.errors import IllegalStateError, ProtocolError
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLASSIC,
    CLIENT,
    DISCARDED,
    DUPLICATE,
    DUPS_OK,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    WALL,
    Talk,
    at_most,
    copies,
    settled,
)


@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_messages_are_handed_out_in_order(mode: AcknowledgeMode) -> None:
    """Each once, in the order of arrival."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a", "b")
    talk.comes("c")
    assert talk.drain() == ["a#1", "b#1", "c#1"]


def test_a_broker_that_floods_is_refused() -> None:
    """A hundred times the prefetch may wait, for windows widen; then it is no broker to be trusted with memory."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe(prefetch=20)
    talk.comes(*(f"{number}" for number in range(100 * 20)))
    with pytest.raises(ProtocolError, match="more than 2000 messages ahead, and the prefetch"):
        talk.comes("one more")


@pytest.mark.parametrize(("ahead", "flood"), [(12, False), (40, False), (41, True)])
def test_a_flood_of_large_messages_is_refused_sooner(ahead: int, *, flood: bool) -> None:
    """More than two prefetches, and half a gigabyte; what the prefetch allows may be as large as it likes."""
    talk, large = Talk(AUTO, dialect=CLASSIC), bytes(64 * 1024 * 1024)  # one for all
    talk.subscribe(prefetch=20)
    frames = [MessageFrame(talk.message(f"{number}").block, large) for number in range(ahead)]
    with pytest.raises(ProtocolError, match="bytes ahead") if flood else nullcontext():
        talk.core.receive(frames, talk.now, WALL)


def test_consumers_are_served_in_the_order_of_arrival() -> None:
    """One listener thread serves all consumers of a session; a consumer may also ask for its own only."""
    talk = Talk(AUTO)
    talk.subscribe("1")
    talk.subscribe("2")
    talk.comes("a", to="1")
    talk.comes("x", "y", to="2")
    talk.comes("b", to="1")
    assert [talk.receive("1", "2") for _ in range(3)] == ["a#1", "x#1", "y#1"]
    talk.comes("z", to="2")
    assert talk.receive("2") == "z#1"
    assert talk.receive("1", "2") == "b#1"
    assert talk.receive("1", "2") is None


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED, INDIVIDUAL])
def test_nothing_is_acknowledged_without_the_application(mode: AcknowledgeMode) -> None:
    """Neither by receiving nor by a listener that returns, however long it takes."""
    talk = Talk(mode)
    talk.subscribe(prefetch=1000)
    talk.comes("a", "b", "c")
    talk.receive()
    talk.listen()
    talk.wait_until(3600.0)
    assert talk.wrote() == []
    assert talk.ended() == []


# -- acknowledge() ----------------------------------------------------------------------------------------------------


def test_client_acknowledges_all_that_was_delivered() -> None:
    """Upstream row 53: also what was delivered after the message that is acknowledged; not what waits."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a", "b", "c", "d")
    talk.receive()
    second = talk.held()
    talk.receive()
    talk.core.acknowledge(second, talk.now)
    assert talk.wrote() == ["ACK c"]
    assert talk.ended() == ["a#1 acknowledged", "b#1 acknowledged", "c#1 acknowledged"]
    (event,) = talk.reported(MessagesAcknowledged)
    assert (event.messages, event.trigger) == (3, AckTrigger.EXPLICIT)


def test_client_acknowledges_on_every_consumer() -> None:
    """Source: `ActiveMQSession.java:1843-1848`; a consumer that delivered nothing writes nothing."""
    talk = Talk(CLIENT)
    for name in ("1", "2", "3"):
        talk.subscribe(name)
    talk.comes("a", "b", to="1")
    talk.comes("x", to="2")
    talk.comes("z", to="3")
    delivery = talk.held("1")
    talk.receive("2")
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a", "ACK x"]


def test_client_acknowledges_once() -> None:
    """A second acknowledge() covers only what came since."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a", "b")
    delivery = talk.held()
    talk.core.acknowledge(delivery, talk.now)
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a"]
    talk.receive()
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK b"]


def test_client_with_single_acks_writes_one_for_each() -> None:
    """Non-blocking redelivery breaks the order that a cumulative ACK relies on."""
    talk = Talk(CLIENT)
    talk.subscribe(non_blocking_redelivery=True)
    talk.comes("a", "b", "c")
    first = talk.held()
    talk.receive()
    talk.core.acknowledge(first, talk.now)
    assert talk.wrote() == ["ACK a", "ACK b"]


def test_individual_acknowledges_that_message_only() -> None:
    """Upstream row 54: out of order, and each once."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a", "b", "c")
    deliveries = [talk.held() for _ in range(3)]
    talk.core.acknowledge(deliveries[2], talk.now)
    talk.core.acknowledge(deliveries[0], talk.now)
    talk.core.acknowledge(deliveries[0], talk.now)
    assert talk.wrote() == ["ACK c", "ACK a"]
    assert talk.ended() == ["c#1 acknowledged", "a#1 acknowledged"]


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK, TRANSACTED])
def test_acknowledge_means_nothing_in_other_modes(mode: AcknowledgeMode) -> None:
    """A silent no-op (`ActiveMQMessageConsumer.java:941-1063`)."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a")
    talk.core.acknowledge(talk.held(), talk.now)
    assert talk.wrote() == []


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledge_on_a_closed_consumer_is_an_error(mode: AcknowledgeMode) -> None:
    """In the words of the Java client; nothing is written after UNSUBSCRIBE."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    with pytest.raises(IllegalStateError, match="The Consumer is closed"):
        talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == []


def test_recovered_message_is_acknowledged_when_it_came_again() -> None:
    """acknowledge() covers what is delivered, not what was."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a", "b")
    delivery = talk.held()
    talk.core.recover(talk.now)
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == []
    assert talk.receive() == "a#2"
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a"]


# -- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_expired_message_is_never_seen(mode: AcknowledgeMode) -> None:
    """It goes to the broker's strategy for expired ones, by NACK (BROKER.md C59)."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a", expires=str(round((WALL + 2) * 1000)))
    talk.comes("b")
    talk.now = 2.001
    assert talk.receive() == "b#1"
    assert talk.wrote()[0] == "NACK a"
    assert talk.ended()[0] == "a#1 expired"


@pytest.mark.parametrize("expires", ["0", "", str(round((WALL + 2) * 1000)), "soon"])
def test_message_that_is_not_expired_is_seen(expires: str) -> None:
    """0 is never; the last millisecond is not after it."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", expires=expires)
    talk.now = 2.0
    assert talk.receive() == "a#1"


def test_expiry_follows_the_time_of_day_at_arrival() -> None:
    """`expires` is an absolute time; a clock that is set later changes nothing."""
    talk = Talk(AUTO, now=500.0)
    talk.subscribe()
    talk.comes("a", wall=9000.0, expires="9001000")
    talk.now = 501.1
    assert talk.receive() is None
    assert talk.wrote() == ["NACK a"]


def test_expiry_is_looked_at_again_before_a_redelivery() -> None:
    """A message may expire while it waits."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(5, initial_redelivery_delay=3.0))
    talk.comes("a", expires=str(round((WALL + 2) * 1000)))
    talk.listen(BROKEN)
    talk.timer()
    assert talk.listen() is None
    assert talk.wrote() == ["NACK a"]
    assert talk.ended() == ["a#1 rolled_back", "a#2 expired"]


def test_prefetch_full_of_expired_messages_does_not_stall() -> None:
    """Upstream row 71: each is given back to the broker as it is met."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=45)
    talk.comes(*(f"m{n}" for n in range(45)), expires="1")
    assert talk.receive() is None
    assert talk.wrote() == [f"NACK m{n}" for n in range(45)]


# -- what it tells ----------------------------------------------------------------------------------------------------


def test_delivery_is_told_whole() -> None:
    """One wide event for each delivery, at its settlement."""
    talk = Talk(CLIENT)
    talk.subscribe(prefetch=7)
    talk.now = 1.0
    talk.comes("a", redelivered="true", correlation_id="c", key="k")
    talk.now = 2.0
    delivery = talk.held()
    talk.now = 3.0
    talk.core.consumed(delivery, talk.now)
    talk.now = 4.0
    talk.core.acknowledge(delivery, talk.now)
    assert talk.reported(DeliveryEnded) == [
        DeliveryEnded(
            at=4.0,
            consumer="consumer-1",
            destination="queue://q",
            message_id="a",
            message_key="k",
            correlation_id="c",
            ack_mode="client",
            prefetch=7,
            attempt=2,
            redelivered=True,
            sent_ms=1_700_000_000_000,
            received_at=1.0,
            started_at=2.0,
            ended_at=3.0,
            outcome=talk.reported(DeliveryEnded)[0].outcome,
            size=1,
        )
    ]
    assert talk.ended() == ["a#2 acknowledged"]


def test_redelivery_tells_of_its_own_delivery_only() -> None:
    """Count, times and failure are those of this delivery, not of the one before."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(3, initial_redelivery_delay=1.0))
    talk.comes("a")
    talk.listen(BROKEN)
    talk.wait_until(1.5)
    talk.listen()
    talk.timer()
    first, second = talk.reported(DeliveryEnded)
    assert (first.attempt, first.started_at, first.error_type) == (1, 0.0, "ValueError")
    assert (second.attempt, second.started_at, second.error_type) == (2, 1.5, None)
    assert (first.redelivered, second.redelivered) == (False, True)


@pytest.mark.parametrize("stamp", ["", "yesterday"])
def test_time_of_sending_may_be_missing(stamp: str) -> None:
    """What is no number is no time."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", timestamp=stamp)
    talk.receive()
    assert talk.reported(DeliveryEnded)[0].sent_ms is None


def test_messages_are_counted_as_they_come() -> None:
    """By consumer and chunk, with those that the broker flagged."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.core.receive(
        [talk.message("a"), talk.message("b", redelivered="true"), talk.message("c")], 1.0, WALL
    )
    assert talk.reported(MessagesReceived) == [
        MessagesReceived(
            at=1.0, consumer="consumer-1", destination="queue://q", messages=3, redelivered=1
        )
    ]


def test_ack_is_told_whole() -> None:
    """One event for each ACK frame, with what it settles."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a", "b")
    for _ in range(2):
        talk.core.consumed(last := talk.held(), talk.now)
    talk.now = 4.0
    talk.core.acknowledge(last, talk.now)
    assert talk.reported(MessagesAcknowledged) == [
        MessagesAcknowledged(
            at=4.0,
            consumer="consumer-1",
            destination="queue://q",
            messages=2,
            trigger=AckTrigger.EXPLICIT,
        )
    ]


@pytest.mark.parametrize(
    ("failure", "ends"),
    [(REJECTED, "dead_lettered"), (DISCARDED, "discarded"), (DUPLICATE, "duplicate")],
)
def test_a_lazy_consumer_s_message_may_be_ended(failure: Failure, ends: str) -> None:
    """DUPS_OK on a topic delivers nothing again; but a handler that rejects a message does not mean an ACK."""
    talk = Talk(DUPS_OK)
    talk.subscribe(kind=DestinationKind.TOPIC, destination="topic://t", origin="topic://t")
    talk.comes("a", "b", "c")
    assert (talk.listen(), talk.listen(failure)) == ("a#1", "b#1")
    copied = failure is REJECTED
    assert talk.wrote() == ["ACK a", *(copies("b") if copied else ["ACK b"])]
    if copied:
        assert talk.listen() is None  # an ACK of it would cover the original
        talk.answer()
        assert talk.wrote() == settled("b")
        talk.answer()
    assert talk.listen() == "c#1"
    talk.timer()
    assert talk.wrote() == ["ACK c"]
    assert talk.ended() == ["a#1 acknowledged", f"b#1 {ends}", "c#1 acknowledged"]


def test_lazy_failure_is_told_and_acknowledged() -> None:
    """DUPS_OK on a topic delivers nothing again, and the evidence says that it failed."""
    talk = Talk(DUPS_OK)
    talk.subscribe(kind=DestinationKind.TOPIC)
    talk.comes("a", "b")
    talk.listen(BROKEN)
    assert talk.listen() == "b#1"
    talk.timer()
    assert talk.wrote() == ["ACK b"]
    assert [event.error_type for event in talk.reported(DeliveryEnded)] == ["ValueError", None]


def test_individual_acknowledges_what_waits_for_its_redelivery() -> None:
    """Once; it comes again all the same, as with the Java client, and owes nothing then."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.core.recover(talk.now)
    talk.core.acknowledge(delivery, talk.now)
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a"]
    again = talk.held()
    talk.core.acknowledge(again, talk.now)
    talk.core.acknowledge(again, talk.now)
    assert talk.wrote() == []
    assert talk.drain() == []
    assert len(talk.reported(MessagesAcknowledged)) == 1


@pytest.mark.parametrize("rests", [False, True])
def test_what_is_acknowledged_keeps_no_window_open(*, rests: bool) -> None:
    """It waits for its redelivery all the same; Classic would complain of a second ACK for it."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    later = at_most(5, initial_redelivery_delay=60 if rests else 0)
    talk.subscribe(prefetch=1, non_blocking_redelivery=rests, policy=later)
    talk.comes("a")
    delivery = talk.held()
    talk.core.recover(talk.now)
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a"]
    assert talk.take() is (None if rests else delivery)
    talk.core.want(["1"], talk.now)
    talk.wait_until(10.0)
    assert talk.wrote() == []


@pytest.mark.parametrize("verdict", [REJECTED, DISCARDED])
def test_verdict_on_a_message_that_is_settled_already_does_nothing(verdict: Failure) -> None:
    """A listener that acknowledges and then raises has had its way; the others stay as they are."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a", "b")
    other, delivery = talk.held(), talk.held()
    talk.core.acknowledge(delivery, talk.now)
    talk.core.failed(delivery, verdict, talk.now)
    talk.core.acknowledge(other, talk.now)
    assert talk.wrote() == ["ACK b", "ACK a"]
    assert talk.drain() == []
