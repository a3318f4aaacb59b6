"""Selectors that would stop a destination of Classic's."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsx.errors import InvalidSelectorError
from jmsx_classic.selectors import check_arithmetic, check_functions


@pytest.mark.parametrize(
    "selector",
    [
        "rank + 2 = 125",
        "rank - 2 = 121",
        "rank-2 = 121",
        "2 * rank = 246",
        "rank / 2 > 1",
        "rank % 2 = 0",
        "(rank) * 2 = 4",
        "2 * (1 + rank) = 4",
        "a = -rank",
        "-rank = 3",
        "a = 1 AND JMSPriority + rank = 5",
        "JMSPriority - -rank = 5",
        'x = 1 OR "a b" * 2 = 3',
        "größe - 1 = 2",
        "rank /* a remark */ - 2 = 1",
        "a = 1 -- b * 2",
    ],
)
def test_arithmetic_on_a_property_is_refused(selector: str) -> None:
    """It would stop the destination for everybody."""
    with pytest.raises(InvalidSelectorError, match="calculates with the property"):
        check_arithmetic(selector)


@pytest.mark.parametrize(
    "selector",
    [
        "a = -5",
        "a IN ('x-y', 'a*b')",
        "a = 'it''s a - b * c'",
        "a BETWEEN -3 AND +4",
        "a LIKE 'x\\_%' ESCAPE '\\'",
        "JMSPriority + 1 = 5",
        "JMSTimestamp - 1000 > 5 * (60 + 2)",
        "name + 'x' = 'bobx'",
        "a = 3 - 2",
        "a <> 1 AND NOT (b >= 2.5e-3)",
        "a = 1 -- b * 2\n",
        "",
        "((",
        "a ? b",
        "- (",
        "*",
    ],
)
def test_other_signs_are_not(selector: str) -> None:
    """Literals, numbers of the broker's own, texts, and what the broker will refuse."""
    check_arithmetic(selector)


@pytest.mark.parametrize(
    "selector",
    [
        "REGEX('(', t)",
        "replace (t, '(', 'x') = 'a'",
        "a = 1 AND INLIST(SPLIT(missing, ','), 'x')",
        'x = 1 OR "f"(t)',
        "a = '1' --REGEX('(', t)",
    ],
)
def test_a_function_is_refused(selector: str) -> None:
    """Classic has some, which raise at what does not fit them, as arithmetic does."""
    with pytest.raises(InvalidSelectorError, match="which is no part of JMS"):
        check_functions(selector)


@pytest.mark.parametrize(
    "selector",
    [
        "a in ('x')",
        "NOT (a = 1) AND (b = 2)",
        "a = 'REGEX(x)'",
        "a = 1 -- REGEX(x)\r\nAND b = 2",
        "xpath '//a(b)'",
        "((",
    ],
)
def test_other_parentheses_are_not(selector: str) -> None:
    """Lists, groups and texts."""
    check_functions(selector)


@given(st.text(alphabet="ab '\"()+-*/=<>,.1eL\nANDORNT_$", max_size=40))
def test_whatever_is_written_there(selector: str) -> None:
    """Only InvalidSelectorError is raised."""
    with contextlib.suppress(InvalidSelectorError):
        check_arithmetic(selector)
