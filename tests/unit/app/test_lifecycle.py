"""The states of an app: what each move makes of each, in whatever order they come, and in the middle of one another."""

from __future__ import annotations

from itertools import product

import pytest

from jmsx import IllegalStateError
from jmsx.app.lifecycle import TABLE, Lifecycle, Move, State
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
        try:
            getattr(life, move.name.lower())()
        except IllegalStateError:
            assert move is Move.START
    return life


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
        life.end()
        assert life._state in (R, C, X)


def test_a_start() -> None:
    """It opens, and then flows until it ends; then it may start again."""
    life = Lifecycle()
    for _ in range(2):
        assert not life.flows
        assert life.start()
        assert life.runs
        assert not life.told.is_set()
        assert life.flow()
        assert life.flows
        with pytest.raises(IllegalStateError, match="the app is running"):
            life.start()
        assert life.flows
        life.quit()
        assert life.runs
        assert not life.flows
        life.end()
        assert life.told.is_set()
        assert not life.runs


def test_a_quit_before_a_start_ends_that_one() -> None:
    """And no second; nor one behind an end that comes between."""
    life = after(Move.QUIT)
    assert not life.start()
    assert life.told.is_set()
    assert life.start()
    assert after(Move.QUIT, Move.END).start()
    assert not after(Move.START, Move.FLOW, Move.END, Move.QUIT).start()


@pytest.mark.parametrize("late", [[], [Move.FLOW], [Move.FLOW, Move.QUIT]])
def test_what_an_app_says_of_itself_when_it_is_over_ends_no_later_start(late: list[Move]) -> None:
    """As a consumer whose link is lost just then."""
    assert after(Move.START, *late, Move.END, Move.LEAVE).start()


def test_an_app_that_has_ended_while_it_starts_does_not_flow() -> None:
    """Whoever starts it hears of that; one that was told to stop flows, and leaves."""
    assert not after(Move.START, Move.END).flow()
    assert not after(Move.START, Move.CLOSE).flow()
    leaving = after(Move.START, Move.QUIT)
    assert leaving.flow()
    assert not leaving.flows


def test_an_app_whose_observers_are_closed() -> None:
    """Starts no more, and they are closed once."""
    life = after(Move.START, Move.FLOW)
    assert life.close()
    assert not life.close()
    for between in (life.end, life.quit, life.leave):
        between()
        with pytest.raises(IllegalStateError, match="its observers are closed"):
            life.start()
    life.check_not_running()


def test_in_the_child_of_a_fork() -> None:
    """An app that ran is the parent's; another one may start, and whoever told the parent's to stop told that."""
    life = after(Move.START, Move.QUIT, Move.FORK)
    for asked in (life.start, life.check_not_running, life.check_here):
        with pytest.raises(IllegalStateError, match="before fork"):
            asked()
    assert life.left
    assert not life.told.is_set()
    assert after(Move.QUIT, Move.FORK).start()


def test_a_signal_handler_that_quits_at_any_step_of_a_start() -> None:
    """Is not forgotten: the start does not begin, or is told; and it ends no other one."""

    def steps(at: int) -> int:
        life = Lifecycle()
        within = ["jmsx/app/lifecycle.py"]
        interrupt = Interrupt(at, within=within, handler=lambda _alarm: life.quit())
        started = interrupt.run(life.start)
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
        interrupt = Interrupt(at, within=within, handler=lambda _alarm: life.end())
        interrupt.run(getattr(life, move.name.lower()))
        if interrupt.steps >= at:
            assert not life.runs
        return interrupt.steps

    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 3
