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
    """Source: STOMP 1.2, "Heart-beating"."""
    assert header((10.0, 0.0)) == "10000,0"
    assert header((0.0005, 1.2345)) == "0,1234"


def test_we_send_at_half_of_what_we_promised() -> None:
    """Classic checks strictly, without grace (classic.md 2.10), so every 10 s means every 5."""
    beat = Heartbeat((10.0, 0.0), "0,10000", 100.0)
    assert beat.next_timer() == 105.0
    assert not beat.due(104.999)
    assert beat.due(105.0)
    beat.sent(103.0)
    assert not beat.due(107.999)
    assert beat.next_timer() == 108.0


def test_peer_has_two_and_a_half_times_what_it_promised() -> None:
    """Classic's own gap can be nearly twice its promise (classic.md 2.10)."""
    beat = Heartbeat((0.0, 10.0), "10000,0", 100.0)
    assert beat.next_timer() == 125.0
    assert not beat.late(124.999)
    assert beat.late(125.0)
    beat.heard(110.0)
    assert not beat.late(134.999)
    assert beat.next_timer() == 135.0


def test_what_was_heard_is_never_unheard() -> None:
    """An older time, told late, changes nothing."""
    beat = Heartbeat((0.0, 10.0), "10000,0", 100.0)
    beat.heard(0.0)
    assert not beat.late(124.999)


@pytest.mark.parametrize(
    ("offered", "answer", "send_every", "late_after"),
    [
        pytest.param((10, 10), "10000,10000", 5.0, 25.0, id="both"),
        pytest.param((10, 10), "0,0", None, None, id="the peer wants none"),
        pytest.param((0, 0), "10000,10000", None, None, id="we want none"),
        pytest.param((4, 4), "8000,8000", 4.0, 20.0, id="the slower one decides"),
        pytest.param((8, 8), "4000,4000", 4.0, 20.0, id="from either side"),
        pytest.param((10, 0), "10000,10000", 5.0, None, id="we do not listen"),
        pytest.param((0, 10), "10000,10000", None, 25.0, id="we do not send"),
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
