"""The states of a session's link are a table, which is what DESIGN.md shows."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

from jmsx import AcknowledgeMode, ReconnectPolicy
from jmsx.drivers.link import LinkLost
from jmsx.drivers.link_state import (
    ARROWS,
    FOR_GOOD,
    LINKED,
    REACHABLE,
    RESTORING,
    LinkInput,
    LinkState,
    next_state,
)
from jmsx.errors import IllegalStateError, JmsxError, StoreError
from tests.benchmarks.one_thread import OneThread
from tests.unit.arrows import printed

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.drivers.engine import Engine

ROOT: Final = Path(__file__).parents[3]


@pytest.mark.parametrize("given", LinkInput)
@pytest.mark.parametrize("state", LinkState)
def test_an_arrow_that_is_not_there_raises_by_name(state: LinkState, given: LinkInput) -> None:
    """Whichever it is."""
    if (state, given) in ARROWS:
        assert next_state(state, given) is ARROWS[state, given]
        return
    with pytest.raises(IllegalStateError, match=f"cannot {given.name} a link that is {state.name}"):
        next_state(state, given)


def test_every_state_is_reached_and_left() -> None:
    """Save that of a forked child; and every input does something."""
    left = {state for (state, _), following in ARROWS.items() if following is not state}
    assert left == {*LinkState} - {LinkState.FORKED}
    assert {*ARROWS.values()} == {*LinkState}
    assert {given for _, given in ARROWS} == {*LinkInput}


def test_nothing_comes_after_the_last_link() -> None:
    """No state without any hope of a link leads to one with."""
    for (state, _), following in ARROWS.items():
        assert state not in FOR_GOOD or following in FOR_GOOD


def test_a_session_is_reachable_or_waits_or_has_ended() -> None:
    """One of the three, and with a link in those that are told."""
    assert sorted([*REACHABLE, *RESTORING, *FOR_GOOD]) == list(LinkState)
    assert REACHABLE <= LINKED
    assert {LinkState.JOINING} == LINKED - REACHABLE


def test_nobody_sets_a_state() -> None:
    """A session begins as UP, and goes on by its arrows."""
    found = [
        function.name
        for path in sorted((ROOT / "jmsx" / "drivers").glob("*.py"))
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        if node.attr == "state"
        if isinstance(node.ctx, ast.Store)
    ]
    assert found == ["__init__", "_step"]


def opened(**options: Any) -> tuple[Engine, list[str]]:
    """A session's engine without a thread, and what its connection is told."""
    engine, told = (
        OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0, **options).link.engine,
        list[str](),
    )
    engine.on_lost = lambda error: told.append(str(error))
    return engine, told


def cut(engine: Engine) -> None:
    """Let its link end, as its thread hears of it."""
    engine._inbox.put((engine._epoch.link, LinkLost("cut")))
    engine._listen(engine.now())


def after(engine: Engine, *steps: Callable[[], object]) -> list[LinkState]:
    """How it stands after each of these."""
    states = []
    for step in steps:
        step()
        states.append(engine.state)
    return states


def test_a_link_that_nobody_restores_is_told_once() -> None:
    """Then the session rests, until it is closed."""
    engine, told = opened()
    states = after(
        engine,
        lambda: cut(engine),
        engine._tell,
        engine._tell,
        lambda: engine.end("a test"),
        engine._tell,
    )
    assert [state.name for state in states] == ["LOST", "GONE", "GONE", "ENDED", "ENDED"]
    assert told == [str(engine.error)]
    assert "cut" in told[0]


def test_whoever_ends_a_session_is_told_nothing() -> None:
    """Also not of a link that was lost just before."""
    engine, told = opened()
    after(engine, lambda: cut(engine), lambda: engine.end("a test"), engine._tell)
    assert (engine.state, told) == (LinkState.ENDED, [])


@pytest.mark.parametrize(
    ("loses", "alone", "restored"),
    [
        (cut, LinkState.LOST, LinkState.OUTAGE),
        (lambda engine: engine.renew("a test"), LinkState.OUTAGE, LinkState.OUTAGE),
        (lambda engine: engine.fault(ValueError("a test")), LinkState.LOST, LinkState.LOST),
        (lambda engine: engine.end("a test"), LinkState.ENDED, LinkState.ENDED),
    ],
    ids=["cut", "renewed", "fault", "ended"],
)
def test_where_a_session_is_without_its_link(
    loses: Callable[[Engine], None], alone: LinkState, restored: LinkState
) -> None:
    """With a reconnect policy and without; the same happens once more there, and changes nothing."""
    for state, policy in ((alone, None), (restored, ReconnectPolicy())):
        engine, _ = opened(reconnect=policy)
        for _ in range(2):
            loses(engine)
            assert engine.state is state
            assert (engine.error is not None) == (state is not LinkState.OUTAGE)


def test_an_outage_goes_on_where_the_next_link_is_lost_too() -> None:
    """Its cause is what began it, whatever the policy; and the next one again may end it."""
    engine, _ = opened()

    def join() -> None:
        engine._join(engine._connector.first(patient=False))

    states = after(
        engine,
        lambda: engine.renew("a test"),
        join,
        lambda: cut(engine),
        join,
        lambda: engine._restored(2),
    )
    assert [state.name for state in states] == ["OUTAGE", "JOINING", "OUTAGE", "JOINING", "UP"]
    assert str(engine.cause).endswith("is gone: a test")
    assert engine._lost_for.endswith("is gone: cut")
    with pytest.raises(IllegalStateError, match="cannot OPEN a link that is UP"):
        join()


def test_a_link_that_cannot_be_joined_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or every further one would be refused as one too many."""
    engine, _ = opened()
    engine.renew("a test")

    def fail(*_: object, **__: object) -> NoReturn:
        raise StoreError("a test")

    with monkeypatch.context() as patch:
        patch.setattr(engine.core, "link_opened", fail)
        with pytest.raises(StoreError):
            engine._join(engine._connector.first(patient=False))
    states = after(
        engine,
        lambda: None,
        lambda: engine._join(engine._connector.first(patient=False)),
        lambda: engine._restored(2),
    )
    assert [state.name for state in states] == ["OUTAGE", "JOINING", "UP"]


def test_a_link_that_ends_behind_disconnect_is_not_lost() -> None:
    """Nobody is told, and no other one is wanted, whatever the policy."""
    engine, told = opened(reconnect=ReconnectPolicy())
    states = after(engine, engine.leave, lambda: cut(engine), engine._tell)
    assert [state.name for state in states] == ["LEAVING", "GONE", "GONE"]
    assert told == []
    assert engine.leave() is None
    with pytest.raises(JmsxError, match="cut"):
        engine.check()


def test_the_page_shows_the_arrows() -> None:
    """jmsx/DESIGN.md has them as they are printed here; copy what is missing."""
    assert printed(ARROWS) in (ROOT / "jmsx" / "DESIGN.md").read_text("utf-8")
