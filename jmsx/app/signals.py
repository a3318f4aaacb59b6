"""
SIGTERM and Ctrl-C, as the app takes them.

Python runs a signal handler on the main thread between any two instructions of it, also while that thread holds a lock.
So the handler does nothing but put the signal into a queue that may be interrupted by itself; who waits there decides.
Above all it never raises: between two instructions of an import, say, that leaves Python's own lock held, and every
thread that imports something, or writes its first line of the log, waits for ever.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from typing import TYPE_CHECKING, Final, Self

from jmsx.drivers.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)

#: Seconds after which a signal that did not wake the main thread is noticed.
LOOK_EVERY: Final = 0.5


class Signals:
    """Lets the main thread wait for signals, in a `with` block; at its end the old handlers are put back."""

    def __init__(self) -> None:
        self._notices: queue.SimpleQueue[signal.Signals | Beside | None] = queue.SimpleQueue()
        self._previous = {}  # type: ignore[var-annotated]  # what signal.signal() returns has no name
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Take the handlers away in the child of a fork: nobody waits there, and SIGTERM shall end it."""
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)

    def wait(self) -> signal.Signals | None:
        """
        Return the next signal, or None for a `wake()`.

        Python notes a signal when the main thread runs. One that comes just before that waits, or that the system gives
        to another thread, does not end the waiting; so it is a short one, again and again.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                notice = self._notices.get(timeout=LOOK_EVERY)
                if not isinstance(notice, Beside):
                    return notice

    def wait_briefly(self, timeout: float) -> signal.Signals | None:
        """Return the next signal; None for a `wake()`, or if none has come in `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            notice = self._notices.get(timeout=timeout)
            return None if isinstance(notice, Beside) else notice
        return None

    def wake(self) -> None:
        """End one `wait()`; from any thread."""
        self._notices.put(None)

    def beside(self, work: Callable[[], object], name: str) -> Beside:
        """Do this on a thread of its own, called `name`, while the main thread waits for signals."""
        return Beside(work, name, self._notices)

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._notices.put(signal.Signals(number))


class Beside:
    """What a thread does while the main thread waits for its end or for a signal; see `Signals.beside`."""

    def __init__(
        self,
        work: Callable[[], object],
        name: str,
        notices: queue.SimpleQueue[signal.Signals | Beside | None],
    ) -> None:
        self._notices = notices
        self._error: BaseException | None = None
        self._woken = False
        self.over = False  #: and `wait` has said so
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process gets no further thread: then here, whatever signal comes
            self._run(work)

    def wait(self, timeout: float | None = None) -> signal.Signals | None:
        """
        Return the next signal; None: it is over, or `timeout` (seconds; None: no matter how long) has passed.

        Raises what the work raised. A `wake()` that comes meanwhile is for whoever waits next.
        """
        while not self.over:
            try:
                notice = self._notices.get(timeout=LOOK_EVERY if timeout is None else timeout)
            except queue.Empty:
                if timeout is not None:
                    return None
                continue
            if isinstance(notice, signal.Signals):
                return notice
            self._woken = self._woken or notice is None
            self.over = notice is self
        if self._woken:
            self._notices.put(None)
        if self._error is not None:
            raise self._error
        return None

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            self._error = error
        self._notices.put(self)
