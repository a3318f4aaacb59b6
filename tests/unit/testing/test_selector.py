"""
Selectors, in the broker's reading.

The same expressions run against a real broker in tests/integration/parity/selecting.py.
"""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from jmsx.testing.selector import Selector, SelectorSyntaxError, SelectorValueError, Value

PROPERTIES: dict[str, Value] = {
    "n": "5", "f": "2.5", "s": "it's", "p": "50%", "t": "true", "JMSPriority": 7, "JMSRedelivered": False,
    "JMSType": "T", "JMSXDeliveryCount": 1,
}  # fmt: skip

WANTED = [
    "n > 4", "n >= 5 AND n < 6", "n = 5", "n = '5'", "f > 2.0", "s = 'it''s'", "s LIKE 'it%'", "s NOT LIKE 'x%'",
    "p LIKE '50!%' ESCAPE '!'", "s IN ('a', 'it''s')", "s NOT IN ('a')", "missing IS NULL", "n IS NOT NULL",
    "n BETWEEN 4 AND 6", "t = TRUE", "JMSPriority > 6", "JMSType = 'T'", "JMSXDeliveryCount = 1", "NOT JMSRedelivered",
    "JMSRedelivered = FALSE", "JMSPriority + 1 = 8", "JMSPriority * 2 - 4 = 10", "JMSPriority / 2 = 3.5", "n + 1 = 51",
    "JMSPriority % 4 = 3", "-JMSPriority = -7", "(n = 5 OR n = 6) AND t = TRUE", "n = 6 OR n = 5 AND t = TRUE",
    "0x10 = 16", "010 = 8", "TRUE", "n = 5 -- five\n", "n = 5 /* five */", "missing = 1 OR n = 5", "5 <= n",
    "'x' <> missing", "n = 5L", "JMSPriority = 7.0", "JMSPriority / 0 > 1e300", "not (n = 6)",
]  # fmt: skip
UNWANTED = [
    "n <> 5", "n = 5.5", "f > 2", "missing = 1", "missing <> 1", "NOT missing = 1", "TRUE = t", "t", "JMSRedelivered",
    "n NOT BETWEEN 4 AND 6", "JMSPriority IN ('7')", "n = 5 AND missing = 1", "missing LIKE '%'", "s > 1", "FALSE",
    "NOT n = 6", "JMSRedelivered = 'false'", "missing > 1", "s LIKE 'IT%'", "JMSPriority LIKE '7'",
    "-s = 1", "missing + 1 = 1", "missing IN ('a')", "n = 5 AND n = 6", "missing", "JMSPriority % 0 = 0",
]  # fmt: skip
INVALID = [
    "", "n >", "s > 'a'", "1", "x y", "n BETWEEN 4", "n IN (5)", "n IN ('5'", "5 IN ('5')", "a = = b", "n = NULL",
    "'a'", "n LIKE s", "n LIKE 'a' ESCAPE 'ab'", "n = 'open", "AND", "regex('a', n)", "XPATH 'a'", "TRUE < 1", "n ! 1",
    "(n = 5",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"), [*((t, True) for t in WANTED), *((t, False) for t in UNWANTED)]
)
def test_matches(text: str, *, expected: bool) -> None:
    """The message with PROPERTIES is wanted or not."""
    assert Selector(text).matches(PROPERTIES.get) is expected


@pytest.mark.parametrize("text", INVALID)
def test_invalid(text: str) -> None:
    """What the broker refuses is refused."""
    with pytest.raises(SelectorSyntaxError):
        Selector(text)


def test_arithmetic_with_strings_is_an_error() -> None:
    """What that means is each broker's own affair."""
    with pytest.raises(SelectorValueError, match="Cannot calculate with '5' and 1"):
        Selector("n - 1 = 4").matches(PROPERTIES.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n > 4", False), ("n = 5", False), ("n = '5'", True), ("n <> 5", True), ("t = TRUE", False),
        ("JMSPriority > 6", True), ("JMSPriority = '7'", False), ("missing <> 1", False), ("n BETWEEN 4 AND 6", False),
    ],
)  # fmt: skip
def test_strings_stay_strings(text: str, *, expected: bool) -> None:
    """Artemis, unless it is asked to convert."""
    assert Selector(text, convert=False).matches(PROPERTIES.get) is expected


def test_names_with_hyphens() -> None:
    """On demand; otherwise that is a subtraction."""
    assert Selector("a-b = '1'", hyphens=True).matches({"a-b": "1"}.get)
    with pytest.raises(SelectorValueError):
        Selector("a-b = 1").matches({"a": "1", "b": "1"}.get)


@pytest.mark.parametrize("affinity", ["NUMERIC", "TEXT", "BLOB"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOT n = 6", False), ("f > 2", False), ("s > 'a'", None), ("n IN (5)", None), ("1", None), ("t = TRUE", True),
        ("n + 1 = 51", True),
    ],
)  # fmt: skip
def test_sqlite_answers_otherwise(text: str, affinity: str, *, expected: bool | None) -> None:
    """Whatever the type of its columns; so the parser stays. What is refused is None here."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        texts = {name: PROPERTIES[name] for name in "nfst"}
        db.execute(f"CREATE TABLE message ({', '.join(f'{name} {affinity}' for name in texts)})")
        db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", [*texts.values()])
        answer = db.execute(f"SELECT {text} FROM message").fetchone()[0]
    try:
        ours = Selector(text).matches(PROPERTIES.get)
    except SelectorSyntaxError:
        ours = None
    assert ours is expected
    assert answer in {0, 1}
    assert ours is not bool(answer)
