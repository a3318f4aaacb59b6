"""The table of the guide names a test in each row, and that test exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
ROWS = [
    line
    for line in (ROOT / "examples/guarantees/README.md").read_text("utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| |", "|-"))
]


def test_there_are_rows() -> None:
    """Else the next test would show nothing."""
    assert len(ROWS) >= 12


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_row_is_shown_by_a_test(row: str) -> None:
    """A promise for each broker, and the test of both."""
    *_, classic, artemis, named, _ = [cell.strip() for cell in row.split("|")]
    assert classic
    assert artemis
    found = re.fullmatch(r"`(test_\w+)`( \(integration\))?", named)
    assert found is not None
    if found[2]:  # a file of tests that go further than a row says
        assert (ROOT / "tests/integration" / f"{found[1]}.py").is_file()
    else:
        assert f"def {found[1]}(" in TESTS
