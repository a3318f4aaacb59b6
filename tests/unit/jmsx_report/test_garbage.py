"""Python's search for cycles of garbage, put off."""

from __future__ import annotations

import gc

import pytest

from jmsx_report.garbage import uncollected


def test_no_garbage_is_looked_for_meanwhile() -> None:
    """And again as before afterwards, whatever happens."""

    @uncollected()
    def fails() -> None:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ZeroDivisionError

    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        fails()
    assert gc.isenabled()
