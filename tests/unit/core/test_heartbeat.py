"""Heart-beats: ours in time, the peer's late only when it is."""

from __future__ import annotations

import pytest

from jmsx.core.heartbeat import Heartbeat, header, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,0", (0.0, 0.0)),
        ("10000,5000", (10.0, 5.0)),
        (" 10000 , 5000 ", (10.0, 5.0)),
        ("1500,0", (1.5, 0.0)),
        ("", (0.0, 0.0)),
        ("10000", (0.0, 0.0)),
        ("a,b", (0.0, 0.0)),
        ("-1,5", (0.0, 0.0)),
    ],
)
def test_answer_is_read(text: str, expected: tuple[float, float]) -> None:
    """An answer that is none means no heart-beats."""
    assert parse(text) == expected


def test_offer_is_written_in_milliseconds() -> None:
    """Source: STOMP 1.2, "Heart-beating"; beats are asked for twice as often as they are needed."""
    assert header((10.0, 0.0)) == "10000,0"
    assert header((0.0005, 2.469)) == "0,1234"
    assert header((0.0, 0.001)) == "0,1"  # and not 0, which is never


def test_we_send_at_half_of_what_we_promised() -> None:
    """Classic checks strictly, without grace (BROKER.md C3), so every 10 s means every 5."""
    beat = Heartbeat((10.0, 0.0), "0,10000", 100.0)
    assert beat.next_timer() == 105.0
    assert not beat.due(104.999)
    assert beat.due(105.0)
    beat.sent(103.0)
    assert not beat.due(107.999)
    assert beat.next_timer() == 108.0


def test_silent_peer_is_dead_after_two_periods() -> None:
    """It promised half of one, and Classic's own gap can be nearly twice its promise (BROKER.md C3)."""
    beat = Heartbeat((0.0, 10.0), "5000,0", 100.0)
    assert beat.next_timer() == 120.0
    assert not beat.late(119.999)
    assert beat.late(120.0)
    beat.heard(110.0)
    assert not beat.late(129.999)
    assert beat.next_timer() == 130.0


def test_peer_that_promises_less_than_was_asked_has_more_time() -> None:
    """Two and a half times what it promised."""
    beat = Heartbeat((0.0, 10.0), "10000,0", 100.0)
    assert beat.next_timer() == 125.0


def test_what_was_heard_is_never_unheard() -> None:
    """An older time, told late, changes nothing."""
    beat = Heartbeat((0.0, 10.0), "5000,0", 100.0)
    beat.heard(0.0)
    assert not beat.late(119.999)


@pytest.mark.parametrize(
    ("offered", "answer", "send_every", "late_after"),
    [
        pytest.param((10, 10), "5000,10000", 5.0, 20.0, id="both"),
        pytest.param((10, 10), "0,0", None, None, id="the peer wants none"),
        pytest.param((0, 0), "10000,10000", None, None, id="we want none"),
        pytest.param((4, 4), "8000,8000", 4.0, 20.0, id="the slower one decides"),
        pytest.param((8, 10), "4000,4000", 4.0, 20.0, id="from either side"),
        pytest.param((10, 0), "0,10000", 5.0, None, id="we do not listen"),
        pytest.param((0, 10), "5000,0", None, 20.0, id="we do not send"),
    ],
)
def test_each_way_is_agreed_on_its_own(
    offered: tuple[float, float], answer: str, send_every: float | None, late_after: float | None
) -> None:
    """Source: STOMP 1.2: the larger of what one can do and the other wants, 0 from either side is never."""
    beat = Heartbeat(offered, answer, 0.0)
    timers = [timer for timer in (send_every, late_after) if timer is not None]
    assert beat.next_timer() == min(timers, default=None)
    for moment in (4.0, 5.0, 20.0, 25.0, 1e9):
        assert beat.due(moment) is (send_every is not None and moment >= send_every)
        assert beat.late(moment) is (late_after is not None and moment >= late_after)


def test_an_impatient_broker_hears_of_us_although_nothing_was_promised() -> None:
    """Artemis drops who is silent for 60 s, also without heart-beats (BROKER.md A3)."""
    beat = Heartbeat((0.0, 0.0), "0,0", 100.0, patience=60.0)
    assert beat.next_timer() == 130.0
    assert beat.due(130.0)
    assert not beat.late(1e9)
    agreed = Heartbeat((10.0, 0.0), "0,10000", 100.0, patience=60.0)
    assert agreed.next_timer() == 105.0
