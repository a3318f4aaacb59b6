"""Redelivery by the session that holds up no other message: failed messages wait here until they are due."""

from __future__ import annotations

import heapq

from jmsx.core.delivery import Delivery


class NonBlockingRedelivery:
    """Keeps failed batches by due time; batches that are due together come out in the order they went in."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, list[Delivery]]] = []
        self._count = 0
        self._pending: dict[Delivery, None] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self._pending

    def add(self, due: float, batch: list[Delivery]) -> None:
        """Keep `batch` until `due` (seconds, monotonic)."""
        self._count += 1
        self._pending.update(dict.fromkeys(batch))
        heapq.heappush(self._heap, (due, self._count, batch))

    def deadline(self) -> float | None:
        """Return when the next batch is due (seconds, monotonic), or None."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[Delivery]:
        """Remove and return all deliveries that are due, in order."""
        due: list[Delivery] = []
        while self._heap and self._heap[0][0] <= now:
            due.extend(heapq.heappop(self._heap)[2])
        for delivery in due:
            self._pending.pop(delivery, None)
        return due

    def pending(self) -> list[Delivery]:
        """Return all deliveries that wait, in no particular order."""
        return list(self._pending)

    def clear(self) -> list[Delivery]:
        """Remove and return all deliveries that wait."""
        pending = self.pending()
        self._heap.clear()
        self._pending.clear()
        return pending
