"""The order of what waits, and whose turn it is."""

from __future__ import annotations

import pytest

from jmsx.testing.artemis.line import Cursor, Line, Reference
from jmsx.testing.artemis.message import CoreMessage
from jmsx.testing.artemis.turns import Turns


def reference(body: str, sequence: int = 0, priority: int = 4) -> Reference:
    """A message in a queue."""
    message = CoreMessage(
        message_id=1,
        address="q",
        routing=None,
        body=body.encode(),
        is_bytes=False,
        persistent=True,
        priority=priority,
        timestamp=0,
        expires=0,
        properties={},
    )
    return Reference(message, sequence)


def order(line: Line) -> str:
    """Their bodies, next first."""
    return "".join(each.message.body.decode() for each in line)


def line_of(*references: Reference) -> Line:
    """A line of messages that came one by one."""
    line = Line()
    for each in references:
        line.add_tail(each)
    return line


@pytest.mark.parametrize(
    ("sequence", "then"), [(1, "xbdf"), (2, "xbdf"), (3, "bxdf"), (5, "bdxf"), (7, "bdfx")]
)
def test_sorted_goes_where_it_was(sequence: int, then: str) -> None:
    """By order of arrival."""
    line = line_of(reference("b", 2), reference("d", 4), reference("f", 6))
    line.add_sorted(reference("x", sequence))
    assert order(line) == then


def test_ends_and_priorities() -> None:
    """Head and tail are those of a priority."""
    line = line_of(reference("b"), reference("c"), reference("9", priority=9))
    line.add_head(reference("a"))
    assert order(line) == "9abc"
    assert len(line) == 4


def test_cursor_passes_by_until_it_is_reset() -> None:
    """It sees what comes behind it, and what is more urgent, but not what it has passed."""
    first, second = reference("a"), reference("b")
    line, cursor = line_of(first, second), Cursor()
    assert line.after(cursor) is first
    cursor.pass_by(first)
    assert line.after(cursor) is second
    line.remove(second)
    assert line.after(cursor) is None
    line.add_head(reference("h"))
    assert line.after(cursor) is None
    line.add_tail(late := reference("z"))
    assert line.after(cursor) is late
    line.add_tail(urgent := reference("9", priority=9))
    assert line.after(cursor) is urgent
    cursor.reset()
    line.remove(urgent)
    assert order(line) == "haz"
    assert line.after(cursor) is not late


def test_turns_go_round_from_where_they_were() -> None:
    """A round ends when all had their turn; a repeated turn is no other's."""
    turns: Turns[str] = Turns()
    for name in "abc":
        turns.add(name)
    turns.restart()
    assert [turns.next() for _ in range(4)] == ["a", "b", "c", None]
    turns.restart()
    assert turns.next() == "a"
    turns.restart()
    assert [turns.next() for _ in range(4)] == ["b", "c", "a", None]
    turns.restart()
    assert turns.next() == "b"
    turns.repeat()
    assert turns.next() == "b"


def test_turns_begin_with_the_first_when_somebody_comes_or_goes() -> None:
    """Whose turn it was does not matter then."""
    turns: Turns[str] = Turns()
    for name in "abc":
        turns.add(name)
    turns.restart()
    turns.next()
    turns.remove("b")
    turns.restart()
    assert [turns.next() for _ in range(3)] == ["a", "c", None]
