"""
The messages of a queue that wait for a consumer, in the order in which they are given out.

Source: artemis-commons 2.44.0 PriorityLinkedListImpl and LinkedListImpl; artemis-server 2.44.0 QueueImpl.addHead,
addTail and addSorted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.testing.artemis.message import CoreMessage

_LEVELS: Final = 10
_PLACE: Final = attrgetter("place")


@dataclass(slots=True, eq=False)
class Reference:
    """One message in one queue."""

    message: CoreMessage
    sequence: int = 0  #: order of arrival; 0 for those that came with a delay
    delivery_count: int = 0  #: how often it was given out, less what was taken back uncounted
    scheduled: int = 0  #: epoch milliseconds before which it is not given out; 0: at once
    place: int = 0  #: where it stands in its level of the line

    @property
    def level(self) -> int:
        """Its priority."""
        return self.message.priority


@dataclass(slots=True, eq=False)
class Cursor:
    """How far one consumer has looked: what stands before it did not suit."""

    places: list[int | None] = field(default_factory=lambda: [None] * _LEVELS)

    def pass_by(self, reference: Reference) -> None:
        """Do not look at `reference` again."""
        self.places[reference.level] = reference.place

    def reset(self) -> None:
        """Look at everything again."""
        self.places = [None] * _LEVELS


class Line:
    """Highest priority first; within a priority by `place`."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: list[list[Reference]] = [[] for _ in range(_LEVELS)]

    def add_tail(self, reference: Reference) -> None:
        """Behind all of its priority."""
        level = self._levels[reference.level]
        reference.place = level[-1].place + 1 if level else 0
        level.append(reference)

    def add_head(self, reference: Reference) -> None:
        """Before all of its priority."""
        level = self._levels[reference.level]
        reference.place = level[0].place - 1 if level else 0
        level.insert(0, reference)

    def add_sorted(self, reference: Reference) -> None:
        """Where its order of arrival puts it; all cursors must be reset afterwards."""
        level = self._levels[reference.level]
        if not level or level[0].sequence >= reference.sequence:
            self.add_head(reference)
        elif level[-1].sequence <= reference.sequence:
            self.add_tail(reference)
        else:
            later = (i for i, other in enumerate(level) if other.sequence > reference.sequence)
            level.insert(next(later), reference)
            for place, other in enumerate(level):
                other.place = place

    def remove(self, reference: Reference) -> None:
        """Take it out."""
        level = self._levels[reference.level]
        del level[bisect_left(level, reference.place, key=_PLACE)]

    def after(self, cursor: Cursor) -> Reference | None:
        """The first that `cursor` has not passed; None if it has passed them all."""
        for number in reversed(range(_LEVELS)):
            level, place = self._levels[number], cursor.places[number]
            start = 0 if place is None else bisect_right(level, place, key=_PLACE)
            if start < len(level):
                return level[start]
        return None

    def __iter__(self) -> Iterator[Reference]:
        for level in reversed(self._levels):
            yield from level

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels)
