"""The error tree."""

from __future__ import annotations

import inspect
from typing import Any

from jmsx import errors
from jmsx.errors import JmsxError, TransactionInDoubtError

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


def test_in_doubt_says_who_what_and_what_not_to_do() -> None:
    """Names of the transaction and the broker, and the cause."""
    error = TransactionInDoubtError("s:1", "h:61613", "reset by peer")
    assert (error.transaction_id, error.broker) == ("s:1", "h:61613")
    for words in ("s:1", "h:61613", "reset by peer", "before you repeat"):
        assert words in str(error)
