"""The reader of PromQL: what it finds, and what it refuses to understand."""

from __future__ import annotations

import pytest

from tests.dashboards.promql import Call, PromqlError, Selector, selectors


def test_a_selector_knows_what_is_around_it() -> None:
    """Name, matchers, window, and calls from the inside out."""
    (found,) = selectors('1 - sum by (le, a) (rate(x_bucket{a="1",b!~"c,}"}[5m])) / 0.1')
    assert found == Selector(
        "x_bucket",
        (("a", "=", "1"), ("b", "!~", "c,}")),
        "5m",
        (Call("rate"), Call("sum", by=("le", "a"))),
    )
    assert found.function == "rate"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("a > 0 and on (job) sum without (x) (b) == 0 unless c", ["a", "b", "c"]),
        ("count(a{} == 0) or vector(0)", ["a"]),
        ("time() - max by (d) (a > 0)", ["a"]),
        ("histogram_quantile(0.95, sum by (le) (increase(a_bucket[$__range])))", ["a_bucket"]),
        ("level:metric:rate5m > 14.4 * 0.001", ["level:metric:rate5m"]),
        ("a / ignoring (i) group_left (j) b", ["a", "b"]),
        ("a < +Inf", ["a"]),
    ],
)
def test_all_selectors_are_found(query: str, names: list[str]) -> None:
    """Keywords, functions and labels are none."""
    assert [found.name for found in selectors(query)] == names


@pytest.mark.parametrize(
    "query",
    ["sum(a", "sum a)", "a)", "deriv(a)", "sum(a) by", "[5m]", '{a="b"}', "a{b=", "a ? b"],
)
def test_what_is_not_understood_is_refused(query: str) -> None:
    """The linter passes nothing that it did not read to its end."""
    with pytest.raises(PromqlError):
        selectors(query)
