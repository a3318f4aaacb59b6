"""Packages whose public names are imported when they are first asked for."""

from __future__ import annotations

import pytest

import jmsx
import jmsx_broker
import jmsx_eventlog
import jmsx_report


@pytest.mark.parametrize(
    "package", [jmsx, jmsx_broker, jmsx_eventlog, jmsx_report], ids=lambda one: one.__name__
)
def test_every_public_name_is_there(package: object) -> None:
    """And in `dir()`, for who looks for it."""
    for name in package.__all__:  # type: ignore[attr-defined]  # of a module
        assert getattr(package, name).__name__ == name
        assert name in dir(package)


def test_a_misspelt_name_is_none() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'jmsx' has no attribute 'Conection'"):
        _ = jmsx.Conection  # type: ignore[attr-defined]  # the refusal is what is tested
