"""Functions that Polars calls, so that what they ask it is asked at once."""

from __future__ import annotations

import pickle
import runpy
import signal
import threading

import polars as pl
import pytest

from jmsx_report import inline
from jmsx_report.inline import inlined


@inlined
def threads(add: int, *, to: int) -> tuple[int, int]:
    """The sum of two numbers as Polars has it, and in which thread it was asked for."""
    return pl.select(pl.lit(add) + to).item(), threading.get_native_id()


def test_it_is_the_same_function() -> None:
    """In the same thread, which signals come to; and one that can be sent to another process by its name."""
    assert threads(1, to=2) == (3, threading.get_native_id())
    assert pickle.loads(pickle.dumps(threads)) is threads  # noqa: S301 - the test has pickled it
    assert inlined(lambda: threads(3, to=4)[0])() == 7


def test_it_is_called_once() -> None:
    """A job of a report must not commit what it has made twice."""
    calls: list[int] = []
    inlined(calls.append)(1)
    assert calls == [1]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_what_it_raises_is_raised(error: type[BaseException]) -> None:
    """The very same, and no error of Polars around it."""
    raised = error()

    def fails() -> None:
        raise raised

    with pytest.raises(error) as found:
        inlined(fails)()
    assert found.value is raised


def test_an_interrupt_ends_it() -> None:
    """Polars sees to SIGINT itself while it has a query; what is in a `finally` is done."""
    done = []

    def goes_on() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            while True:
                pl.select(1)
        finally:
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        inlined(goes_on)()
    assert done
    assert pl.select(1).item() == 1


def test_a_polars_without_its_unstable_flags_answers_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may take them away, or rename them, in any version."""
    monkeypatch.delattr(pl, "QueryOptFlags")
    other = runpy.run_path(inline.__file__)["at_once"]

    rows = pl.DataFrame({"number": [3, 1, 2]})
    query = rows.lazy().filter(pl.col("number") > 1).select(pl.col("number").sum())
    assert other(query).equals(inline.at_once(query))
    assert other(query).item() == 5
