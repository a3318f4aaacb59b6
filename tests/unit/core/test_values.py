"""The words of the core."""

from __future__ import annotations

import pytest

from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import NO_FAILURE, DestinationKind, Disposition, StompAck
from tests.unit.core.harness import AUTO, CLIENT, DUPS_OK, INDIVIDUAL, TRANSACTED, Talk


@pytest.mark.parametrize(
    ("mode", "number", "label"),
    [
        (TRANSACTED, 0, "transacted"),
        (AUTO, 1, "auto"),
        (CLIENT, 2, "client"),
        (DUPS_OK, 3, "dups_ok"),
        (INDIVIDUAL, 4, "individual"),
    ],
)
def test_modes_are_those_of_jms(mode: AcknowledgeMode, number: int, label: str) -> None:
    """Source: jakarta.jms.Session and `ActiveMQSession.java:197`; labels go to metrics."""
    assert (mode.value, mode.label) == (number, label)


@pytest.mark.parametrize(
    ("mode", "itself"),
    [(AUTO, True), (DUPS_OK, True), (CLIENT, False), (INDIVIDUAL, False), (TRANSACTED, False)],
)
def test_who_acknowledges(mode: AcknowledgeMode, *, itself: bool) -> None:
    """In AUTO and DUPS_OK the session does, in the others the application."""
    assert Talk(mode).settings().acknowledges_itself is itself


@pytest.mark.parametrize("kind", DestinationKind)
@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_only_dups_ok_on_a_topic_is_lazy(mode: AcknowledgeMode, kind: DestinationKind) -> None:
    """Source: `ActiveMQMessageConsumer.java:312-318`; DUPS_OK on a queue is AUTO."""
    lazy = mode is DUPS_OK and kind is not DestinationKind.QUEUE
    assert Talk(mode).settings(kind=kind).lazy is lazy


@pytest.mark.parametrize("ack", StompAck)
def test_individual_by_the_stomp_ack_alone(ack: StompAck) -> None:
    """Whatever the mode."""
    single = ack is StompAck.CLIENT_INDIVIDUAL
    assert Talk(CLIENT).settings(stomp_ack=ack).individual is single


def test_nothing_raised_means_redeliver() -> None:
    """A rollback of the application's own follows the policy."""
    assert (NO_FAILURE.disposition, NO_FAILURE.delay, NO_FAILURE.error_type) == (
        Disposition.REDELIVER,
        None,
        None,
    )
