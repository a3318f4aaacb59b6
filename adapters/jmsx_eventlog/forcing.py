"""A thread that forces files to the disk (fsync), so that the writer thread need not wait for it."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Forcing:
    """
    Runs jobs one after the other in a thread of its own, or directly if the thread could not be started.

    Forcing a file to the disk may take a tenth of a second, and further writes need not wait for it.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, before it is needed: a program that is ending can no longer start one."""
        thread = threading.Thread(target=self._run, name="jmsx-eventlog-disk", daemon=True)
        with suppress(RuntimeError):  # at a limit of processes, or the program ends
            thread.start()
            self._thread = thread

    def do(self, job: Callable[[], None]) -> None:
        """Have `job` done after those before it; it must raise nothing."""
        if self._thread is None:
            job()
        else:
            self._jobs.put(job)

    def end(self) -> None:
        """Wait until all is done, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
