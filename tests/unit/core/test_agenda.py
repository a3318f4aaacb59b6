"""What is next for a thousand consumers costs no more than for one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.core.harness import AUTO, BROKEN, CLIENT, INDIVIDUAL, TRANSACTED, Talk, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.modes import AcknowledgeMode

#: Consumers, and messages that are held: so many that looking at each would show.
MANY = 300


def steps(work: Callable[[], object]) -> int:
    """How many lines of the core are run."""
    lines = 0

    def trace(frame: Any, event: str, _argument: object) -> Any:
        nonlocal lines
        if "/jmsx/core/" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def with_consumers(mode: AcknowledgeMode, number: int) -> Callable[[], object]:
    """The way of one message through a session with so many consumers, all of which want messages."""
    talk = Talk(mode)
    names = [str(one) for one in range(1, number + 1)]
    for name in names:
        talk.subscribe(name)
    everybody = dict.fromkeys(names)
    talk.core.want(everybody, talk.now)
    assert talk.core.handing_out.deliver(everybody, talk.now) is None
    talk.core.next_timer()

    def way() -> None:
        talk.comes("a", to=names[-1])
        delivery = talk.core.handing_out.deliver(everybody, talk.now)
        assert delivery is not None
        assert talk.core.handing_out.deliver(everybody, talk.now) is None
        talk.core.want(everybody, talk.now)
        talk.core.consumed(delivery, talk.now)
        if mode is TRANSACTED:
            talk.core.commit(talk.now)
        else:
            talk.core.acknowledge(delivery, talk.now)
        due = talk.core.next_timer()
        if due is not None:
            talk.core.handle_timer(due)

    return way


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_other_consumers_cost_nothing(mode: AcknowledgeMode) -> None:
    """Neither when a message comes, nor when it is handed out, settled, or waited for."""
    assert steps(with_consumers(mode, MANY)) <= steps(with_consumers(mode, 2)) + 40


@pytest.mark.parametrize("oldest", [True, False])
def test_held_messages_cost_nothing(*, oldest: bool) -> None:
    """Whichever of them is acknowledged."""

    def acknowledged(held: int) -> int:
        talk = Talk(INDIVIDUAL)
        talk.subscribe(prefetch=10 * MANY)
        talk.comes(*(f"m{one}" for one in range(held)))
        got = [talk.held() for _ in range(held)]
        talk.core.next_timer()
        return steps(lambda: talk.core.acknowledge(got[0 if oldest else -1], talk.now))

    assert acknowledged(MANY) == acknowledged(3)


def test_one_that_is_paused_does_not_hold_up_others() -> None:
    """It comes first again when its pause is over."""
    talk = Talk(AUTO)
    talk.subscribe("1", policy=at_most(1, initial_redelivery_delay=1.0))
    talk.subscribe("2")
    talk.comes("a", to="1")
    talk.comes("b", "c", to="2")
    assert talk.listen(BROKEN, "1", "2") == "a#1"
    assert talk.listen(None, "1", "2") == "b#1"
    talk.now = 1.0
    assert talk.listen(None, "1", "2") == "a#2"
    assert talk.listen(None, "1", "2") == "c#1"


def test_a_consumer_nobody_asks_for_is_left_out() -> None:
    """Whatever waits there; it has its turn when it is asked for."""
    talk = Talk(AUTO)
    for name in "123":
        talk.subscribe(name)
    talk.comes("a", to="1")
    talk.comes("b", to="2")
    talk.comes("c", to="3")
    assert talk.drain("2", "3") == ["b#1", "c#1"]
    assert talk.drain("1", "2", "3") == ["a#1"]


def test_one_that_was_closed_is_left_out() -> None:
    """With its messages and its timers."""
    talk = Talk(AUTO)
    for name in "12":
        talk.subscribe(name)
    talk.comes("a", to="1")
    talk.comes("b", to="2")
    talk.core.close_consumer("1", talk.now)
    assert talk.drain("1", "2") == ["b#1"]
    assert talk.core.next_timer() is None
