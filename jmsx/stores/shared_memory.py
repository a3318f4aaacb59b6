"""The memory of this process, which all its sessions share."""

from __future__ import annotations

from typing import Any, Final

from jmsx.core.process_memory import LIMIT, ProcessMemory
from jmsx.drivers.locks import reentrant
from jmsx.drivers.process import tell_of_forks


class SharedMemory(ProcessMemory):
    """
    A ProcessMemory for many threads, also after a fork.

    Its lock is reentrant, for a signal handler may use another session in the middle of a call.
    """

    _lock: Any  #: a threading.RLock

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__(limit, reentrant())
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, keep what the parent knew, with a new lock."""
        self._lock = reentrant()


#: The memory of this process.
MEMORY: Final = SharedMemory()
