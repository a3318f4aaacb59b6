"""The order in which a queue gives out what waits, and whose turn it is."""

from __future__ import annotations

from typing import Any

from jmsx.testing.artemis.message import CoreMessage
from jmsx.testing.artemis.queue import QueueOrder, Reference, RoundRobin


def reference(body: str, sequence: int = 0, priority: int = 4) -> Reference:
    """A message in a queue; without a sequence it came with a delay."""
    message = CoreMessage(
        message_id=1,
        address="q",
        routing=None,
        body=body.encode(),
        priority=priority,
        properties={},
    )
    return Reference(message, sequence)


def order_of(*references: Reference) -> QueueOrder:
    """Messages that were put there one by one."""
    order = QueueOrder()
    for each in references:
        order.add(each)
    return order


def bodies(order: QueueOrder) -> str:
    """Their bodies, next first."""
    return "".join(each.message.body.decode() for each in order)


def test_each_goes_where_it_was() -> None:
    """By order of arrival, whenever it is put there; what had a delay goes before all of its priority."""
    order = order_of(reference("b", 2), reference("f", 6), reference("d", 4))
    assert bodies(order) == "bdf"
    order.add(reference("y"))
    order.add(reference("x"))
    order.add(reference("a", 1))
    order.add(reference("9", 7, priority=9))
    assert bodies(order) == "9xyabdf"
    assert len(order) == 7


def test_cursor_passes_by_until_it_is_cleared() -> None:
    """It sees what comes behind it, and what is more urgent, but not what it has passed."""
    first, second = reference("a", 1), reference("b", 2)
    order, cursor = order_of(first, second), dict[int, int]()
    assert order.after(cursor) is first
    cursor[first.level] = first.place
    assert order.after(cursor) is second
    order.remove(second)
    order.add(delayed := reference("h"))
    assert order.after(cursor) is None
    order.add(late := reference("z", 3))
    assert order.after(cursor) is late
    order.add(urgent := reference("9", 4, priority=9))
    assert order.after(cursor) is urgent
    order.remove(urgent)
    cursor.clear()
    assert order.after(cursor) is delayed


def test_turns_go_round_from_where_they_were() -> None:
    """A round ends when all had their turn; a repeated turn is no other's; who comes or goes begins anew."""
    one, two, three = consumers = [object(), object(), object()]
    turns: Any = RoundRobin()
    for each in consumers:
        turns.add(each)
    turns.restart()
    assert [turns.next() for _ in range(4)] == [one, two, three, None]
    turns.restart()
    assert turns.next() is one
    turns.restart()
    assert [turns.next() for _ in range(4)] == [two, three, one, None]
    turns.restart()
    assert turns.next() is two
    turns.repeat()
    assert turns.next() is two
    turns.remove(two)
    turns.restart()
    assert [turns.next() for _ in range(3)] == [one, three, None]
