"""
The app's handling of SIGTERM and Ctrl-C.

Python runs a signal handler on the main thread between any two of its instructions, even while that thread holds a
lock. So the handler only puts the signal into a reentrant queue, and the code that waits there decides what to do.
Above all the handler never raises: an exception in the middle of an import, say, would leave Python's import lock held,
and every thread that imports something, or writes its first line of the log, would wait for ever.
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

#: Seconds after which a signal is noticed even if it did not wake the main thread.
LOOK_EVERY: Final = 0.5


class Signals:
    """Lets the main thread wait for signals, in a `with` block; at its end the old handlers are put back."""

    def __init__(self) -> None:
        self._notices: queue.SimpleQueue[signal.Signals | Beside | None] = queue.SimpleQueue()
        self._previous = {}  # type: ignore[var-annotated]  # what signal.signal() returns has no name
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, remove the handlers: nothing waits for signals there, and SIGTERM must end it."""
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)

    def wait(self) -> signal.Signals | None:
        """
        Return the next signal, or None for a `wake()`.

        Python notices a signal only when the main thread runs. A signal that arrives just before the main thread waits,
        or that the system delivers to another thread, does not end the wait; so this waits for short times, in a loop.
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
        """Do `work` on a thread of its own, called `name`, while the main thread waits for signals."""
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
    """Work on a thread, while the main thread waits for its end or for a signal; see `Signals.beside`."""

    def __init__(
        self,
        work: Callable[[], object],
        name: str,
        notices: queue.SimpleQueue[signal.Signals | Beside | None],
    ) -> None:
        self._notices = notices
        self._error: BaseException | None = None
        self._woken = False
        self.over = False  #: whether it has ended, and `wait` has returned that
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: do it here, deaf to signals
            self._run(work)

    def wait(self, timeout: float | None = None) -> signal.Signals | None:
        """
        Return the next signal, or None if the work has ended, or after `timeout` (seconds; None: no limit).

        Raises what the work raised. A `wake()` in the meantime is kept for the next one who waits.
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
