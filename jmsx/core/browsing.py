"""Looking into a queue without taking anything: messages come in, none is owed an acknowledgement."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery


class Browsing:
    """One browser subscription. Source: the end is a MESSAGE with `browser:end` (classic.md 2.5)."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.ended = False

    def accept(self, deliveries: list[Delivery]) -> None:
        """Take what the broker shows."""
        for delivery in deliveries:
            if delivery.headers.get("browser") == "end":
                self.ended = True
            else:
                self.waiting.append(delivery)
