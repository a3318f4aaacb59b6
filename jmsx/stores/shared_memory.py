"""The memory of this process, which all its sessions share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from jmsx.core.history import Remembered
from jmsx.core.process_memory import LIMIT, Name, ProcessMemory
from jmsx.drivers.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Iterable


class SharedMemory(ProcessMemory):
    """A memory for many threads."""

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__(limit)
        self._lock = threading.Lock()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: it knows what the parent knew."""
        self._lock = threading.Lock()

    def note(self, pasts: Iterable[tuple[Name, Remembered]]) -> None:
        """Remember these, unless more is known already."""
        with self._lock:
            super().note(pasts)

    def recall(self, name: Name) -> Remembered | None:
        """What is known of a message that is handed out."""
        with self._lock:
            return super().recall(name)

    def forget(self, names: Iterable[Name]) -> None:
        """These are dead letters, or expired."""
        with self._lock:
            super().forget(names)


#: The memory of this process.
MEMORY: Final = SharedMemory()
