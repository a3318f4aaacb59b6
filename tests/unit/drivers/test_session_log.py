"""What the log tells of a broker that will not do as it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.events import DeadLetterFailed, DeliveryEnded, LinkClosed, Outcome, Source
from jmsx.core.frames import Refused
from jmsx.drivers.session_log import PAUSE, SessionLog
from jmsx.errors import SecurityError

if TYPE_CHECKING:
    import pytest

SOURCE = Source(
    broker="broker:61613", broker_kind="classic", connection_id="c", session_id="s", epoch=1
)


def refused(at: float) -> DeadLetterFailed:
    """The copy of `k` is refused."""
    return DeadLetterFailed(
        at=at,
        consumer="desk",
        destination="queue://q",
        message_key="k",
        reason="User shop is not authorized to write to queue://dead",
        dead_letter_destination="queue://dead",
    )


def test_a_dead_letter_that_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """What stands still, where it was to go, and why; one line in ten seconds, for it is tried again and again."""
    log = SessionLog()
    for at in (0.0, 5.0, PAUSE):
        log.observe(refused(at), SOURCE)
    first, second = (record.jmsx for record in caplog.records)  # type: ignore[attr-defined]  # our own extra field
    assert first["event"].startswith("dead letter not confirmed")
    assert (first["consumer"], first["destination"]) == ("desk", "queue://q")
    assert (first["to"], first["key"]) == ("queue://dead", "k")
    assert "not authorized" in first["error"]
    assert (first["left_out"], second["left_out"]) == (0, 1)
    assert {record.levelname for record in caplog.records} == {"ERROR"}


def test_what_is_refused_unheard(caplog: pytest.LogCaptureFixture) -> None:
    """One line each, by its key where that is known; none more where the broker's words have one."""
    log = SessionLog()
    for told in (
        Refused(SecurityError("of a send"), "k"),
        Refused(SecurityError("of a call that was given up"), late=True),
        Refused(SecurityError("of a frame without receipt")),
    ):
        log.refusal(told)
    first, second = (record.jmsx for record in caplog.records)  # type: ignore[attr-defined]  # our own extra field
    assert (first["event"], first["key"], first["error"]) == ("send refused", "k", "of a send")
    assert second["event"] == "refused after its caller had stopped waiting"
    assert second["error"] == "of a call that was given up"


def test_a_frame_that_ends_each_link(caplog: pytest.LogCaptureFixture) -> None:
    """One line for many in a row, and none for a link that ends for another reason behind them."""
    log = SessionLog()
    for reason in (*["protocol"] * 3, "io", "closed"):
        log.observe(LinkClosed(at=0.0, reason=reason, detail="a lie"), SOURCE)
    assert len(caplog.records) == 1
    assert "again and again" in caplog.text


def test_what_is_settled_in_between_begins_the_count_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Also a second time, and whatever was settled before the first such end; what is given back begins nothing."""

    def ended(outcome: Outcome) -> DeliveryEnded:
        return DeliveryEnded(
            at=0.0,
            consumer="desk",
            destination="queue://q",
            message_id="m",
            message_key="m",
            correlation_id=None,
            ack_mode="auto",
            prefetch=1,
            attempt=1,
            redelivered=False,
            sent_ms=None,
            received_at=0.0,
            started_at=0.0,
            ended_at=0.0,
            outcome=outcome,
        )

    log = SessionLog()
    lie = LinkClosed(at=0.0, reason="protocol", detail="a lie")
    settled, released = ended(Outcome.ACKNOWLEDGED), ended(Outcome.RELEASED)
    for event in (settled, lie, lie, settled, settled, lie, lie, settled, lie, released, lie):
        log.observe(event, SOURCE)
    assert not caplog.records
    log.observe(lie, SOURCE)
    assert len(caplog.records) == 1
