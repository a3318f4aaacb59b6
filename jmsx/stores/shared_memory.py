"""The memory of this process, which all its sessions share."""

from __future__ import annotations

from typing import Any, Final

from jmsx.core.process_memory import LIMIT, ProcessMemory
from jmsx.drivers.locks import reentrant
from jmsx.drivers.process import tell_of_forks


class SharedMemory(ProcessMemory):
    """
    A memory for many threads, also after a fork.

    A signal handler may use another session in the middle of it.
    """

    _lock: Any  #: a threading.RLock

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__(limit, reentrant())
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Keep, in the child of a fork, what the parent knew, with a lock of its own."""
        self._lock = reentrant()


#: The memory of this process.
MEMORY: Final = SharedMemory()
