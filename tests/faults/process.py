"""The consuming program, run in a process of its own: killed, started again, and its journal read."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from jmsx.errors import DrainError
from tests.faults.account import Delivery
from tests.faults.workload import BenchError

if TYPE_CHECKING:
    from tests.faults.settings import Task

#: The last words of a program that says that the broker did not confirm what it had done.
_DRAIN_ERROR: Final = f"{DrainError.__module__}.{DrainError.__name__}: "

_ROOT: Final = Path(__file__).parents[2]


class Consumer:
    """
    The consuming program; it can be killed and started again, and its journal goes on. A context manager.

    Where its plan has messages that kill it, `tend()` starts it again. `number`: of several that share a task.
    """

    def __init__(self, task: Task, number: int = 0) -> None:
        self.task = task
        self._log_file = task.folder / f"log{number}"
        self.deaths = 0  #: by messages that kill
        self.started: dict[int, float] = {}  #: when each process began, by its id; monotonic
        self.killed: dict[int, float] = {}  #: when those that were; likewise
        self.deliveries: list[Delivery] = []  #: as far as the journal was read
        self._read = 0  #: bytes of the journal
        self.step_clock(0.0)
        task.journal.touch()
        self._command = [sys.executable, "-m", "tests.faults.consumer", task.dumps()]
        self._log = self._log_file.open("ab")
        self._parent_gone, self._parent_here = os.pipe()  # at its end when this process is
        self._process = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()
        os.close(self._parent_gone)
        os.close(self._parent_here)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def read(self) -> list[Delivery]:
        """What it has handled up to now."""
        with self.task.journal.open("rb") as journal:
            journal.seek(self._read)
            whole, _, _torn = journal.read().rpartition(b"\n")
        if whole:
            self._read += len(whole) + 1
            self.deliveries += map(Delivery.parse, whole.decode().split("\n"))
        return self.deliveries

    def times(self, body: str) -> int:
        """How often it was given this one."""
        return sum(1 for delivery in self.read() if delivery.body == body)

    def wait_count(self, count: int, timeout: float) -> None:
        """Wait for this many deliveries; raises BenchError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while len(self.read()) < count:
            self.tend()
            if time.monotonic() > deadline:
                raise BenchError(f"fewer than {count} deliveries in {timeout:g} s; {self.words()}")
            time.sleep(0.02)

    def tend(self) -> None:
        """See that it runs; raises BenchError if it ended by itself, and was not meant to."""
        code = self._process.poll()
        if code is None:
            return
        if code != -signal.SIGKILL or "kill" not in self.task.plan.marks:
            raise BenchError(f"the consumer ended by itself with {code}: {self.words()}")
        self.deaths += 1
        self.killed[self.pid] = time.monotonic()
        self.restart()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self.killed[self.pid] = time.monotonic()
        self._process.wait()

    def restart(self) -> None:
        """Start it again after its end."""
        self._process = self._begin()

    def stop(self, *, confirmed: bool = True) -> None:
        """
        SIGTERM; raises BenchError if it does not end in good order.

        `confirmed`: the broker has to confirm what was done; where its links are cut it cannot.
        """
        self.tend()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(40)
        except subprocess.TimeoutExpired:
            raise BenchError(
                f"the consumer outlives its SIGTERM by 40 s: {self.stacks()}"
            ) from None
        if code == -signal.SIGTERM and all(each.pid != self.pid for each in self.read()):
            return  # it had not begun
        if code != 0 and (confirmed or _DRAIN_ERROR not in self.words()[-2000:]):
            raise BenchError(f"the consumer ended with {code}: {self.words()}")

    def step_clock(self, ahead: float) -> None:
        """Set its time of day this many seconds ahead of the true one, if its plan allows it."""
        with self.task.clock.open("r+b" if self.task.clock.exists() else "wb") as file:
            file.write(struct.pack("d", ahead))

    def limit_files(self, size: int) -> None:
        """Let none of its files grow beyond `size` bytes; -1: as ever."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, hard))

    def stacks(self) -> str:
        """As `words()`, with where each of its threads is now at the end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)
        return self.words()

    def words(self) -> str:
        """The end of what it printed."""
        return self._log_file.read_text("utf-8", "replace")[-6000:]

    def _begin(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            cwd=_ROOT,
            stdin=self._parent_gone,
            stdout=self._log,
            stderr=self._log,
            # Where no file may grow, what Python compiles would be cut short, and taken for whole by others.
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.started[process.pid] = time.monotonic()
        return process
