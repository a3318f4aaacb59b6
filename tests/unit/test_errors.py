"""The error tree."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from jmsx import errors
from jmsx.errors import (
    BrokerFaultError,
    BrokerTimeoutError,
    DrainError,
    InDoubtError,
    JmsxError,
    LinkError,
    RefusedError,
    SendUnconfirmedError,
    StoreError,
    TransactionInDoubtError,
    UsageError,
)

ERRORS: list[type[Any]] = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


def test_all_errors_have_one_root() -> None:
    """`except JmsxError` catches whatever jmsx raises, and the module's drawing shows each."""
    assert len(ERRORS) > 20
    assert [kind for kind in ERRORS if not issubclass(kind, JmsxError)] == []
    assert [kind for kind in ERRORS if kind.__name__ not in (errors.__doc__ or "")] == []


def test_in_doubt_is_never_retriable() -> None:
    """A repeated commit could be a second one."""
    retriable = {kind.__name__ for kind in ERRORS if kind.retriable}
    assert retriable == {"ConnectionFailedError", "TransactionRolledBackError"}


def test_doubt_is_no_failure_of_the_link() -> None:
    """Whoever tries again when there was no connection sends nothing twice."""
    for doubt in (
        SendUnconfirmedError,
        TransactionInDoubtError,
        BrokerTimeoutError,
        BrokerFaultError,
    ):
        assert issubclass(doubt, InDoubtError)
        assert not issubclass(doubt, LinkError | RefusedError)


def test_who_is_at_fault() -> None:
    """Each error has one of six kinds; below JmsxError nothing else stands."""
    kinds = {UsageError, RefusedError, LinkError, InDoubtError, StoreError, DrainError}
    assert {kind for kind in ERRORS if kind.__bases__ == (JmsxError,)} == kinds


def test_in_doubt_says_who_what_and_what_not_to_do() -> None:
    """Names of the transaction and the broker, and the cause."""
    error = TransactionInDoubtError("s:1", "h:61613", "reset by peer")
    assert (error.transaction_id, error.broker) == ("s:1", "h:61613")
    for words in ("s:1", "h:61613", "reset by peer", "before you repeat"):
        assert words in str(error)


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_pass_to_another_process(kind: type[Any]) -> None:
    """As a process pool needs it, with all that they tell; `multiprocessing.Pool` waited for ever for two of them."""
    given = [
        one.name
        for one in inspect.signature(kind.__init__).parameters.values()
        if one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    error = kind(*given[1:] or ["some words"])
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own
        assert (type(other), str(other), vars(other)) == (kind, str(error), vars(error))
