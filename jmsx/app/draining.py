"""
Draining: every worker finishes its present message, acknowledges it, and releases its prefetched messages.

The workers drain at the same time, so that messages prefetched by an idle worker go to other consumers at once, and do
not wait for another worker's slow handler. At one common deadline for handlers and broker, the remaining connections
are dropped, and the broker takes back every unacknowledged message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.app.worker import Worker
from jmsx.drivers.changed import waitable
from jmsx.drivers.machine import Machine
from jmsx.errors import ConnectionFailedError, DrainError, JmsxError
from jmsx.jms.connection import Connection
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Seconds that draining may take by default: less than the 30 s after which Kubernetes kills a process.
DRAIN_TIMEOUT: Final = 25.0

#: Seconds to wait at most until the threads of a dropped connection have ended.
DROPPING: Final = 2.0

#: Seconds that the broker has to confirm acknowledgements and sends, even if handlers have used up the whole time.
CONFIRMING: Final = 1.0

_log = logger("jmsx.app")


def drain(workers: Sequence[Worker], timeout: float, machine: Machine, given: float) -> None:
    """
    Drain all `workers` within `timeout` seconds, the rest of the `given` ones; workers that are late are aborted.

    If no threads can be started, the workers are drained one after the other on the caller's thread; then none is
    aborted while the broker does not answer. Raises DrainError if a handler did not return in time, or the broker did
    not confirm the acknowledgements.
    """
    deadline = machine.monotonic() + max(timeout, 0.0)
    drains = [_Drain(worker, deadline, machine) for worker in workers]
    threadless = [each for each in drains if not each.begin()]
    for each in threadless:
        each.run()
    for each in drains:
        each.wait(waitable(max(deadline - machine.monotonic(), 0.0)))
    late = [each for each in drains if each.thread.is_alive() or each.overdue]
    for each in late:
        each.cut_off()
    for each in late:
        each.wait(DROPPING)
    left = [told for each in drains if (told := each.left())]
    if left:
        raise DrainError(
            f"{'; '.join(left)}. The app was given {given:g} s to drain; the broker delivers these messages again"
        )


def close_all(connections: Sequence[Connection], timeout: float, machine: Machine) -> None:
    """
    Close `connections` at the same time, within `timeout` seconds but at least `CONFIRMING`; late ones are aborted.

    Raises the first JmsxError that closing a connection raises, and DrainError if the broker did not answer in time.
    """
    deadline = machine.monotonic() + max(timeout, CONFIRMING)
    closings = [_Closing(connection, machine) for connection in connections]
    for each in closings:
        if each.thread.ident is not None:
            each.thread.join(waitable(max(deadline - machine.monotonic(), 0.0)))
    late = [each for each in closings if each.thread.is_alive()]
    for each in late:
        each.cut_off()
    for each in late:
        each.thread.join(DROPPING)
    for each in closings:
        each.check()


class _Closing:
    """The end of a connection in good order, on a thread of its own; where the process gets none, on the caller's."""

    def __init__(self, connection: Connection, machine: Machine) -> None:
        self.connection = connection
        self.thread = machine.thread(self._run, "jmsx-close")
        self._failure: JmsxError | None = None
        self._late: DrainError | None = None
        try:
            self.thread.start()
        except RuntimeError:
            self._run()

    def _run(self) -> None:
        try:
            self.connection.close()
        except JmsxError as error:
            self._failure = error

    def cut_off(self) -> None:
        """Drop the connection, because the time is over."""
        self.connection.abort()
        self._late = DrainError(
            f"the broker has not confirmed in time the end of {self.connection!r}, by which the app sends: what it sent"
            " with confirm=False may be lost"
        )

    def check(self) -> None:
        """Raise what closing it has raised."""
        failure = self._late or self._failure
        if failure is not None:
            raise failure


class _Drain:
    """One worker's end, on a thread of its own."""

    def __init__(self, worker: Worker, deadline: float, machine: Machine) -> None:
        self.thread = machine.thread(self.run, f"jmsx-drain-{worker.consumer.name}")
        self._machine = machine
        self.worker = worker
        self.overdue = False  #: whether its handler has not returned
        settled = None if worker.called is worker.call else worker.called
        self._before = (settled, worker.greeting)  #: the last call, and the link, at the start
        self._cut_off = False
        self._deadline = deadline
        self._failure: JmsxError | None = None

    def begin(self) -> bool:
        """Begin, on the thread of its own; False where the process gets no further one: `run` it behind the others."""
        try:
            self.thread.start()
        except RuntimeError:
            self.worker.begin_nothing_more()
            return False
        return True

    def wait(self, seconds: float | None) -> None:
        """Wait for the end of its thread, at most so many seconds (None: as long as that takes)."""
        if self.thread.ident is not None:
            self.thread.join(seconds)

    def run(self) -> None:
        """Wait for the handler, then close."""
        try:
            self.overdue = not self.worker.rest(
                max(self._deadline - self._machine.monotonic(), 0.0)
            )
            if not self.overdue:
                self._close()
        except JmsxError as error:
            self._failure = error

    def _close(self) -> None:
        """Give back the rest; raises if what was finished meanwhile can never be confirmed."""
        before, greeting = self._before
        lost = not self.worker.connected or self.worker.greeting is not greeting
        call = self.worker.called
        self.worker.close()
        if call is not None and call is not before and lost:
            raise ConnectionFailedError(
                f"the connection was lost while message {call.message_id} was handled, so it comes again"
            )

    def cut_off(self) -> None:
        """Drop the worker's socket, which also ends the waiting for its broker."""
        self._cut_off = True
        self.worker.abort()

    def left(self) -> str:
        """Return what is not done, in words and in the log; empty if all is."""
        name, call = self.worker.consumer.name, self.worker.call
        if self.overdue and call is not None:
            seconds = self._machine.monotonic() - call.since
            _log.error(
                "handler abandoned: its message may come again",
                consumer=name,
                message_id=call.message_id,
                running_seconds=round(seconds, 3),
            )
            return f"the handler of {name} still ran after {seconds:.1f} s with message {call.message_id}"
        if self._failure is None and not self._cut_off:
            return ""
        cause = self._failure or "no answer in time"
        _log.error(
            "drain not confirmed: what was handled may come again", consumer=name, error=str(cause)
        )
        return f"the broker did not confirm what {name} finished ({cause})"
