"""The states of a transaction."""

from __future__ import annotations

from itertools import product

import pytest

from jmsx.core.frames import Frame
from jmsx.core.transaction import Transaction, TxInput, TxSend, TxState, next_state
from jmsx.errors import IllegalStateError

ALLOWED = {
    (TxState.IDLE, TxInput.BEGIN): TxState.ACTIVE,
    (TxState.IDLE, TxInput.COMMIT): TxState.COMMITTING,
    (TxState.IDLE, TxInput.ABORT): TxState.IDLE,
    (TxState.IDLE, TxInput.LOST): TxState.IDLE,
    (TxState.ACTIVE, TxInput.COMMIT): TxState.COMMITTING,
    (TxState.ACTIVE, TxInput.ABORT): TxState.IDLE,
    (TxState.ACTIVE, TxInput.LOST): TxState.IDLE,
    (TxState.COMMITTING, TxInput.RECEIPT): TxState.IDLE,
    (TxState.COMMITTING, TxInput.REFUSED): TxState.IDLE,
    (TxState.COMMITTING, TxInput.LOST): TxState.IDLE,
}


@pytest.mark.parametrize(
    ("state", "given"),
    [
        pytest.param(*pair, id=f"{pair[1].name} when {pair[0].name}")
        for pair in product(TxState, TxInput)
    ],
)
def test_every_input_in_every_state(state: TxState, given: TxInput) -> None:
    """A receipt without a COMMIT, a second COMMIT or an ABORT after it are errors by name (JMS 3.1, 6.2.7)."""
    if (state, given) in ALLOWED:
        assert next_state(state, given) is ALLOWED[state, given]
    else:
        with pytest.raises(IllegalStateError, match=f"cannot {given.name} .* {state.name}"):
            next_state(state, given)


def test_next_transaction_starts_clean_with_a_new_name() -> None:
    """The name on the wire stays, the name for people does not."""
    transaction = Transaction("s")
    assert (transaction.transaction_id, transaction.begun) == ("s:1", False)
    transaction.step(TxInput.BEGIN)
    transaction.touch(1.0)
    transaction.sends.append(TxSend("queue://x", "k", Frame("SEND"), 1.0))
    transaction.rollback_only = "refused"
    assert transaction.begun
    transaction.step(TxInput.COMMIT)
    assert (transaction.begun, transaction.transaction_id) == (False, "s:1")
    assert transaction.sends
    transaction.step(TxInput.RECEIPT)
    assert transaction.transaction_id == "s:2"
    assert transaction.sends == []
    assert transaction.rollback_only is None
    assert transaction.started_at is None


def test_it_starts_with_the_first_thing_in_it() -> None:
    """Later ones do not make it younger."""
    transaction = Transaction("s")
    transaction.touch(2.0)
    transaction.touch(5.0)
    assert transaction.started_at == 2.0


def test_refused_step_changes_nothing() -> None:
    """The transaction goes on where it stood."""
    transaction = Transaction("s")
    transaction.step(TxInput.BEGIN)
    with pytest.raises(IllegalStateError):
        transaction.step(TxInput.RECEIPT)
    assert (transaction.state, transaction.transaction_id) == (TxState.ACTIVE, "s:1")
