"""Packages whose public names are imported when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mypy.api
import pytest

import jmsx
import jmsx_broker
import jmsx_eventlog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "package", [jmsx, jmsx_broker, jmsx_eventlog], ids=lambda one: one.__name__
)
def test_every_public_name_is_there(package: object) -> None:
    """And in `dir()`, for who looks for it."""
    for name in package.__all__:  # type: ignore[attr-defined]  # of a module
        assert getattr(package, name).__name__ == name
        assert name in dir(package)


#: What a type checker must find; the last is what `by_name` must not hide.
MISTAKES = """
from jmsx import Conection
from jmsx_broker import ClasicBroker
from jmsx_eventlog import EventLogs
from jmsx import RedeliveryPolicy
RedeliveryPolicy(maximum_redelivery=3)
"""


def test_type_checkers_see_the_names(tmp_path: Path) -> None:
    """With a `__getattr__` that they knew of, each misspelt name would be Any to them."""
    file = tmp_path / "mistakes.py"
    file.write_text(MISTAKES)
    told, _, _ = mypy.api.run(["--follow-imports=silent", str(file)])
    lines = [line.partition("mistakes.py:")[2] for line in told.splitlines()]
    assert [line.partition(":")[0] for line in lines if "error:" in line] == ["2", "3", "4", "6"]
    assert 'Unexpected keyword argument "maximum_redelivery"' in told


def test_a_misspelt_name_is_none() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'jmsx' has no attribute 'Conection'"):
        _ = jmsx.Conection  # type: ignore[attr-defined]  # what is refused
