"""The consuming program, run in a process of its own: killed, started again, and its journal read."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Self

from tests.faults.account import Delivery
from tests.faults.workload import BenchError

_ROOT: Final = Path(__file__).parents[2]

#: Seconds without a new delivery after which no more is expected.
_QUIET: Final = 12.0


class Consumer:
    """The consuming program; it can be killed and started again, and its journal goes on. A context manager."""

    def __init__(self, url: str, queue: str, journal: Path) -> None:
        self._journal = journal
        self._command = [sys.executable, "-m", "tests.faults.consumer", url, queue, str(journal)]
        self._log = journal.with_suffix(".log").open("ab")
        self._process = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def deliveries(self) -> list[Delivery]:
        """What it has handled."""
        if not self._journal.exists():
            return []
        *lines, _torn = self._journal.read_text("utf-8").split("\n")
        return [Delivery.parse(line) for line in lines]

    def wait_count(self, count: int, timeout: float) -> None:
        """Wait for this many deliveries; raises BenchError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while len(self.deliveries()) < count:
            self._check()
            if time.monotonic() > deadline:
                raise BenchError(f"fewer than {count} deliveries in {timeout:g} s")
            time.sleep(0.02)

    def wait_all(self, bodies: set[str]) -> None:
        """Wait until it has handled all of `bodies`, or nothing has come for long."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < _QUIET:
            self._check()
            deliveries = self.deliveries()
            if bodies <= {delivery.body for delivery in deliveries}:
                return
            if len(deliveries) != count:
                count, since = len(deliveries), time.monotonic()
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Start it again after `kill()`."""
        self._process = self._begin()

    def stop(self) -> None:
        """SIGTERM; raises BenchError if it does not end in good order."""
        self._check()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(40)
        except subprocess.TimeoutExpired:
            raise BenchError("the consumer did not end within 40 s of its SIGTERM") from None
        if code != 0:
            raise BenchError(f"the consumer ended with {code}: {self._words()}")

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=_ROOT, stdout=self._log, stderr=self._log)

    def _check(self) -> None:
        if self._process.poll() is not None:
            raise BenchError(f"the consumer ended by itself: {self._words()}")

    def _words(self) -> str:
        return self._journal.with_suffix(".log").read_text("utf-8", "replace")[-1500:]
