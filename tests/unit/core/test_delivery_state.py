"""The states of a delivery are a table, which is what DESIGN.md shows."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from jmsx.core.delivery_state import ARROWS, DeliveryInput, DeliveryState, next_state
from jmsx.errors import IllegalStateError
from tests.unit.arrows import printed
from tests.unit.core.harness import CLIENT, INDIVIDUAL, TRANSACTED, Talk

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.delivery import Delivery

ROOT: Final = Path(__file__).parents[3]


@pytest.mark.parametrize("given", DeliveryInput)
@pytest.mark.parametrize("state", DeliveryState)
def test_an_arrow_that_is_not_there_raises_by_name(
    state: DeliveryState, given: DeliveryInput
) -> None:
    """Whichever it is."""
    if (state, given) in ARROWS:
        assert next_state(state, given) is ARROWS[state, given]
        return
    with pytest.raises(
        IllegalStateError, match=f"cannot {given.name} a delivery that is {state.name}"
    ):
        next_state(state, given)


def test_every_state_is_reached_and_left() -> None:
    """Save the first one and the last one; and every input does something."""
    assert {state for state, _ in ARROWS} == {*DeliveryState} - {DeliveryState.GONE}
    assert {*ARROWS.values()} == {*DeliveryState}
    assert {given for _, given in ARROWS} == {*DeliveryInput}


def test_nobody_sets_a_state() -> None:
    """A delivery begins as WAITING, and goes on by its arrows; so does a transaction, as IDLE."""
    found = [
        (path.name, ast.unparse(node))
        for path in sorted((ROOT / "jmsx" / "core").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if ast.unparse(target).endswith(".state")
    ]
    assert sorted(found) == [
        (
            "delivery.py",
            "self.state = ARROWS.get((self.state, given)) or next_state(self.state, given)",
        ),
        ("delivery.py", "self.state = WAITING"),
        ("transaction.py", "self.state = TxState.IDLE"),
        ("transaction.py", "self.state = next_state(self.state, given)"),
    ]


@pytest.mark.parametrize(
    ("does", "state"),
    [
        (lambda _talk, _one: None, DeliveryState.HELD),
        (lambda talk, _one: talk.core.recover(talk.now), DeliveryState.WAITING),
        (lambda talk, one: talk.core.acknowledge(one, talk.now), DeliveryState.SETTLED),
    ],
)
def test_states_of_a_message_in_the_hands_of_the_application(
    does: Callable[[Talk, Delivery], None], state: DeliveryState
) -> None:
    """As they follow from what is done with it."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    does(talk, delivery)
    assert delivery.state is state


def test_a_message_that_was_acknowledged_while_it_waited_is_handed_out_again() -> None:
    """As in Java; it stays settled, and a second acknowledge() writes nothing."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.core.recover(talk.now)
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a"]
    assert talk.held() is delivery
    assert delivery.state is DeliveryState.SETTLED
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == []


def test_a_commit_is_on_its_way_until_it_is_answered() -> None:
    """Nothing else may be done with what it covers."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.commit()
    talk.wrote()
    before = delivery.state
    talk.answer()
    assert (before, delivery.state) == (DeliveryState.COMMITTING, DeliveryState.SETTLED)


def test_the_page_shows_the_arrows() -> None:
    """jmsx/DESIGN.md has them as they are printed here; copy what is missing."""
    assert printed(ARROWS) in (ROOT / "jmsx" / "DESIGN.md").read_text("utf-8")
