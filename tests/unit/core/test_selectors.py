"""Selectors where every property is a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsx.core.selectors import in_decimals, spelled_out


@pytest.mark.parametrize(
    ("selector", "sent"),
    [
        ("flag", "(flag = TRUE)"),
        ("flag AND rank = 3", "(flag = TRUE) AND rank = 3"),
        ("NOT flag", "NOT (flag <> FALSE)"),
        ("((flag)) or x", "(((flag = TRUE))) or (x = TRUE)"),
        ("(a and b) OR c", "((a = TRUE) and (b = TRUE)) OR (c = TRUE)"),
        ("(rank) > 3", "(rank) > 3"),
        ("a BETWEEN b AND c AND d", "a BETWEEN b AND c AND (d = TRUE)"),
        ("a NOT BETWEEN (b) AND (c)", "a NOT BETWEEN (b) AND (c)"),
        ("a IS NULL OR b IS NOT NULL", "a IS NULL OR b IS NOT NULL"),
        ("a IN ('b', 'c')", "a IN ('b', 'c')"),
        ("flag = TRUE AND TRUE", "flag = TRUE AND TRUE"),
        ("XPATH 'a'", "XPATH 'a'"),
        ("a LIKE 'b' AND flag", "a LIKE 'b' AND (flag = TRUE)"),
        ("not a selector", "not a selector"),
    ],
)
def test_a_bare_name_is_spelled_out(selector: str, sent: str) -> None:
    """As a comparison with TRUE, wherever a truth is wanted."""
    assert spelled_out(selector) == sent


@pytest.mark.parametrize(
    ("selector", "sent"),
    [
        ("rank > 1", "rank > 1.0"),
        ("rank = -5 OR 3<size", "rank = -5.0 OR 3.0<size"),
        ("a BETWEEN 1 AND 20 AND b <> 7L", "a BETWEEN 1.0 AND 20.0 AND b <> 7.0"),
        ("JMSPriority + 1 = 5", "JMSPriority + 1.0 = 5.0"),
        ("x = 0 AND y = '1' AND z1 = TRUE", "x = 0.0 AND y = '1' AND z1 = TRUE"),
        ("x = 1.5 OR x = 7. OR x = 1e3", "x = 1.5 OR x = 7. OR x = 1e3"),
        ("id = 999999999999999", "id = 999999999999999.0"),
        ("id = 1000000000000000", "id = 1000000000000000"),
        ("x = 010 OR x = 0x1F", "x = 010 OR x = 0x1F"),
        ("x > 1 and what is ?", "x > 1 and what is ?"),
    ],
)
def test_numbers_become_decimals(selector: str, sent: str) -> None:
    """As far as that is exact; octal and hexadecimal ones, and what cannot be parsed, are left to the broker."""
    assert in_decimals(selector) == sent


@pytest.mark.parametrize(
    ("selector", "sent"),
    [
        ("a > 5/2", "a >  2.0 "),
        ("5 / 2 < a", " 2.0  < a"),
        ("(a > 5/2)", "(a >  2.0 )"),
        ("(5/2) < a AND (b) = 1", " 2.0  < a AND (b) = 1.0"),
        ("a > 3*5/2 - 1", "a >  6.0 "),
        ("a = -7/2", "a =  -3.0 "),
        ("a = -7%2 + 0/1", "a =  -1.0 "),
        ("a > 7/(1+1)", "a >  3.0 "),
        ("a BETWEEN 5/2 AND 10/3", "a BETWEEN  2.0  AND  3.0 "),
        ("a > 5/2.0", "a > 5/2.0"),
        ("a > 5.0/2", "a > 5.0/2"),
        ("a > 2.5 + 5/2", "a > 2.5 + 5/2"),
        ("a IN (5/2)", "a IN (5/2)"),
        ("a > 5/0", "a > 5/0"),
        ("a > 4000000000/3", "a > 4000000000/3"),
        ("a > 5/2 * b", "a > 5/2 * b"),
        ("a > 5/2 + 0.5", "a > 5/2 + 0.5"),
        ("a > 6/4*1.5", "a > 6/4*1.5"),
        ("a > 5*2", "a > 5.0*2.0"),
    ],
)
def test_whole_numbers_are_divided_as_such(selector: str, sent: str) -> None:
    """As in Java; what is beyond its int, or divides by nothing, is left to the broker."""
    assert in_decimals(selector) == sent


@given(st.text(alphabet="ab '\"()+-*/=<>,.1eL\nANDORNT_$", max_size=40))
def test_whatever_is_written_there(selector: str) -> None:
    """Nothing is raised, and what is spelled out stays so."""
    sent = spelled_out(selector)
    assert spelled_out(sent) == sent
    sent = in_decimals(selector)
    assert in_decimals(sent) == sent
