"""Selectors in Artemis' own words."""

from __future__ import annotations

import pytest

from jmsx.errors import InvalidSelectorError
from jmsx_artemis.selectors import check_quotes, signs_multiplied


@pytest.mark.parametrize("selector", ['region = "EU"', 'a = 1 AND NOT (b<>"x" OR c = 2)'])
def test_a_text_in_double_quotes_is_refused(selector: str) -> None:
    """Artemis takes it for the name of a property that nobody has, and finds nothing."""
    with pytest.raises(InvalidSelectorError, match=r"single quotes: '(EU|x)'"):
        check_quotes(selector)


@pytest.mark.parametrize(
    "selector", ['"a-b" = 1', "a = '\"x\"'", '"a" IS NULL', '1 < "a-b"', 'x = "a-b"', "a ="]
)
def test_other_double_quotes_are_not(selector: str) -> None:
    """Names that JMS does not have need them."""
    check_quotes(selector)


@pytest.mark.parametrize(
    ("selector", "sent"),
    [
        ("-x < 0", "(-1.0*x) < 0"),
        ("1 - -x > - -y", "1 - (-1.0*x) > (-1.0* (-1.0*y))"),
        ("-(x + -y) * 2 < -5", "(-1.0*(x + (-1.0*y))) * 2 < -5"),
        ("a-b = 1 AND c = '-d' AND (e)-f > 0", "a-b = 1 AND c = '-d' AND (e)-f > 0"),
        ("x BETWEEN -1 AND -y", "x BETWEEN -1 AND (-1.0*y)"),
        ("-", "-"),
    ],
)
def test_the_sign_of_a_property_is_a_multiplication(selector: str, sent: str) -> None:
    """What is a difference, and the sign of a number, stay."""
    assert signs_multiplied(selector) == sent
