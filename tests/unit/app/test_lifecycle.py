"""The states of an app: what each move makes of each, in whatever order they come, and in the middle of one another."""

from __future__ import annotations

from itertools import product

import pytest

from jmsx import IllegalStateError
from jmsx.app.lifecycle import TABLE, Lifecycle, Move, State
from jmsx.app.start import Start
from tests.unit.interrupts import Interrupt

R, D, S, F, L, C, X = (
    State.RESTING,
    State.DISMISSED,
    State.STARTING,
    State.FLOWING,
    State.LEAVING,
    State.CLOSED,
    State.LEFT,
)


def after(*moves: Move) -> Lifecycle:
    """What an app is after these, of which some may come to nothing."""
    life = Lifecycle()
    for move in moves:
        if move is Move.FORK:
            life.after_fork()
            continue
        make(life, move)
    return life


def make(life: Lifecycle, move: Move) -> None:
    """Make one move, of what there is of the app now; a start may be refused."""
    step = getattr(life, move.name.lower())
    of_the_current = move in (Move.FLOW, Move.END, Move.CLOSE)
    try:
        if move is Move.START:
            step(Start())
        else:
            step(life.current) if of_the_current else step()
    except IllegalStateError:
        assert move is Move.START


@pytest.mark.parametrize(
    ("move", "states"),
    [
        #            R  D  S  F  L  C  X
        (Move.START, [S, R, S, F, L, C, X]),
        (Move.FLOW, [R, D, F, F, L, C, X]),
        (Move.QUIT, [D, D, L, L, L, C, X]),
        (Move.LEAVE, [R, D, L, L, L, C, X]),
        (Move.END, [R, R, R, R, R, C, X]),
        (Move.CLOSE, [C, C, C, C, C, C, X]),
        (Move.FORK, [R, R, X, X, X, C, X]),
    ],
    ids=lambda each: each.name.lower() if isinstance(each, Move) else "",
)
def test_the_table(move: Move, states: list[State]) -> None:
    """Written out: from each state, in the order of `State`."""
    assert TABLE[move] == dict(zip(State, states, strict=True))


def test_any_four_moves() -> None:
    """It starts from rest alone, was told to stop whenever somebody has since, and ends whatever was before."""
    for moves in product(Move, repeat=4):
        life = after(*moves)
        was, told = life._state, life.told.is_set()
        if was in (D, L):
            assert told, moves
        if was in (S, F):
            assert not told, moves
        assert life.runs == (was in (S, F, L))
        assert life.flows == (was is F)
        life.end(life.current)
        assert life._state in (R, C, X)


def test_a_start() -> None:
    """It opens, and then flows until it ends; then it may start again."""
    life = Lifecycle()
    for _ in range(2):
        assert not life.flows
        start = Start()
        assert life.start(start)
        assert life.runs
        assert not start.told
        assert life.flow(start)
        assert life.flows
        with pytest.raises(IllegalStateError, match="the app is running"):
            life.start(Start())
        assert life.flows
        life.quit()
        assert life.runs
        assert not life.flows
        life.end(start)
        assert start.told
        assert not life.runs


def test_a_quit_before_a_start_ends_that_one() -> None:
    """And no second; nor one behind an end that comes between."""
    life, start = after(Move.QUIT), Start()
    assert not life.start(start)
    assert start.told
    assert life.start(Start())
    assert after(Move.QUIT, Move.END).start(Start())
    assert not after(Move.START, Move.FLOW, Move.END, Move.QUIT).start(Start())


@pytest.mark.parametrize("late", [[], [Move.FLOW], [Move.FLOW, Move.QUIT]])
def test_what_an_app_says_of_itself_when_it_is_over_ends_no_later_start(late: list[Move]) -> None:
    """As a consumer whose link is lost just then."""
    assert after(Move.START, *late, Move.END, Move.LEAVE).start(Start())


def test_an_app_that_has_ended_while_it_starts_does_not_flow() -> None:
    """Whoever starts it hears of that; one that was told to stop flows, and leaves."""
    for moves in [(Move.START, Move.END), (Move.START, Move.CLOSE)]:
        ended = after(*moves)
        assert not ended.flow(ended.current)
    leaving = after(Move.START, Move.QUIT)
    assert leaving.flow(leaving.current)
    assert not leaving.flows


@pytest.mark.parametrize("told", [False, True], ids=["failed", "dropped"])
def test_what_belongs_to_a_start_ends_no_later_one(*, told: bool) -> None:
    """One has failed, or hung and was aborted, and the app is started again before the first one knows."""
    life, first, second = Lifecycle(), Start(), Start()
    assert life.start(first)
    if told:
        assert life.leave(first) is first
    life.end(first)
    assert life.start(second)
    assert first.told == told
    assert not life.goes_on(first)
    assert not life.flow(first)
    assert life.leave(first) is first
    life.end(first)
    assert not life.close(first)
    assert life.goes_on(second)
    assert not second.told
    assert life.flow(second)
    assert life.flows


def test_a_start_that_was_dismissed_ends_no_later_one() -> None:
    """It has not begun, and whoever made it drops what it has."""
    life, first, second = after(Move.QUIT), Start(), Start()
    assert not life.start(first)
    assert life.start(second)
    life.end(life.leave(first))
    assert life.goes_on(second)
    assert not second.told


def test_what_has_ended_closes_an_app_that_rests() -> None:
    """As it does behind a start that has failed."""
    life, first = Lifecycle(), Start()
    assert life.start(first)
    life.end(first)
    second = Start()
    assert life.start(second)
    assert not life.close(first)
    life.end(second)
    assert life.close(first)


def test_whoever_waits_before_the_first_start_hears_of_its_end() -> None:
    """So it does behind a start that has failed."""
    life = Lifecycle()
    waits = life.told
    for _ in range(2):
        start = Start()
        assert life.start(start)
        life.end(start)
        assert not waits.is_set()
    last = Start()
    assert life.start(last)
    life.quit()
    assert waits.is_set()
    assert waits.start is last
    life.end(last)
    assert life.start(Start())
    assert waits.start is last
    assert not life.told.is_set()


def test_an_app_whose_observers_are_closed() -> None:
    """Starts no more, and whoever comes later closes those that are left."""
    life = after(Move.START, Move.FLOW)
    for _ in range(2):
        assert life.close(life.current)
    for between in (Move.END, Move.QUIT, Move.LEAVE):
        make(life, between)
        with pytest.raises(IllegalStateError, match="its observers are closed"):
            life.start(Start())
    life.check_not_running()


def test_in_the_child_of_a_fork() -> None:
    """An app that ran is the parent's; another one may start, and whoever told the parent's to stop told that."""
    life = after(Move.START, Move.QUIT, Move.FORK)
    for asked in (lambda: life.start(Start()), life.check_not_running, life.check_here):
        with pytest.raises(IllegalStateError, match="before fork"):
            asked()
    assert life._state is X
    assert not life.close(life.current)
    assert not life.told.is_set()
    assert after(Move.QUIT, Move.FORK).start(Start())


def test_a_signal_handler_that_quits_at_any_step_of_a_start() -> None:
    """Is not forgotten: the start does not begin, or is told; and it ends no other one."""

    def steps(at: int) -> int:
        life = Lifecycle()
        within = ["jmsx/app/lifecycle.py"]
        interrupt = Interrupt(at, within=within, handler=lambda _alarm: life.quit())
        started = interrupt.run(lambda: life.start(Start()))
        if interrupt.steps >= at:
            assert life.told.is_set()
            assert life._state is (L if started else R)
        return interrupt.steps

    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 5


@pytest.mark.parametrize("move", [Move.FLOW, Move.QUIT, Move.LEAVE])
def test_a_signal_handler_that_aborts_at_any_step(move: Move) -> None:
    """What it has ended stays so: nothing comes up behind the end."""

    def steps(at: int) -> int:
        life = after(Move.START)
        within = ["jmsx/app/lifecycle.py"]
        interrupt = Interrupt(at, within=within, handler=lambda _alarm: life.end(life.current))
        interrupt.run(lambda: make(life, move))
        if interrupt.steps >= at:
            assert not life.runs
        return interrupt.steps

    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 3
