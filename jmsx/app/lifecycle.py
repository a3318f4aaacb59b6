"""
The states of an app, and the transitions between them, in one table that answers whether an app runs.

Starting and stopping take time, and any thread, or a signal handler that interrupts either, may tell an app to stop at
any moment. So a transition is one uninterruptible step, which returns the state before it. Whatever belongs to one
start of the app passes its `Start`, and cannot change the state of another start.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final

from jmsx.app.start import Start
from jmsx.drivers.changed import Event
from jmsx.drivers.locks import reentrant
from jmsx.drivers.process import left_behind
from jmsx.errors import IllegalStateError


class State(StrEnum):
    """The state of an app, from one start to the next."""

    RESTING = auto()  #: it has not started yet, or has ended; it may start
    DISMISSED = auto()  #: it was told to stop while it did not run: its next start ends at once
    STARTING = auto()  #: its consumers are being opened
    FLOWING = auto()  #: all consumers are open, and messages may arrive
    LEAVING = auto()  #: it was told to stop after it had started
    CLOSED = auto()  #: it has ended, and its observers are closed: it cannot start again
    LEFT = auto()  #: this process is a forked child, and the app runs in the parent


class Move(Enum):
    """The events that change the state of an app."""

    START = auto()
    FLOW = auto()
    QUIT = auto()  #: the application tells it to stop: this start, or else the next one
    LEAVE = auto()  #: a part of the app tells it to stop: this start only
    END = auto()
    CLOSE = auto()
    FORK = auto()


_RUNS: Final = (State.STARTING, State.FLOWING, State.LEAVING)

#: The state to which each move leads from another state; from states that are not listed it changes nothing.
_CHANGES: Final = {
    Move.START: {State.RESTING: State.STARTING, State.DISMISSED: State.RESTING},
    Move.FLOW: {State.STARTING: State.FLOWING},
    Move.QUIT: {State.RESTING: State.DISMISSED, **dict.fromkeys(_RUNS, State.LEAVING)},
    Move.LEAVE: dict.fromkeys(_RUNS, State.LEAVING),
    Move.END: dict.fromkeys((State.DISMISSED, *_RUNS), State.RESTING),
    Move.CLOSE: dict.fromkeys((State.RESTING, State.DISMISSED, *_RUNS), State.CLOSED),
    Move.FORK: {State.DISMISSED: State.RESTING, **dict.fromkeys(_RUNS, State.LEFT)},
}

#: The same with all states, so that a move is a single look-up.
TABLE: Final = {
    move: {state: changes.get(state, state) for state in State}
    for move, changes in _CHANGES.items()
}


class StopFlag(Event):
    """Set when an app is told to stop; kept after a start that fails, for a thread may be waiting for it."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.start = start  #: the last start for which it stands


class Lifecycle:
    """The state of one app; its methods may be called by any thread and by signal handlers."""

    def __init__(self) -> None:
        self._state = State.RESTING
        self._lock = reentrant()
        #: The last start, whether it has ended or not; at first, one that never begins
        self.current = Start()
        self.told = StopFlag(self.current)

    def after_fork(self) -> None:
        """In the child of a fork, make new locks and events, for those are the parent's; a running app is LEFT."""
        self._lock, self.current = reentrant(), Start()
        self.told = StopFlag(self.current)
        self._move(Move.FORK)

    @property
    def runs(self) -> bool:
        """Whether the app has started and not ended."""
        return self._state in _RUNS

    @property
    def flows(self) -> bool:
        """Whether the app has started with all of its consumers, and was not told to stop."""
        return self._state is State.FLOWING

    def check_here(self) -> None:
        """Raise IllegalStateError if this is a forked child and the app was running in the parent."""
        if self._state is State.LEFT:
            raise left_behind("the app was started", "make another one in the child")

    def check_not_running(self) -> None:
        """Raise IllegalStateError if the app runs, here or in the parent process."""
        self.check_here()
        if self.runs:
            raise IllegalStateError("the app is running; do this before start(), or after stop()")

    def start(self, start: Start) -> bool:
        """
        Begin to start; False if the app was told to stop before: then nothing begins, and `start` is told to stop.

        Raises IllegalStateError if the app runs, or its observers are closed.
        """
        with self._lock:
            self.check_not_running()
            if self._state is State.CLOSED:
                raise IllegalStateError(
                    "the app was stopped and its observers are closed; make a new one"
                )
            if self.told.is_set():
                self.told = StopFlag(start)
            # Set first, so that a thread which tells the app to stop from now on reaches this start.
            self.told.start = self.current = start
            if self._move(Move.START) is State.RESTING:
                return True
            self._tell()
            return False

    def goes_on(self, start: Start) -> bool:
        """Return whether this start has not ended."""
        with self._lock:
            return self.runs and start is self.current

    def flow(self, start: Start) -> bool:
        """Note that all consumers are open; False if this start has ended in the meantime."""
        with self._lock:
            if start is self.current:
                self._move(Move.FLOW)
            return self.goes_on(start)

    def quit(self) -> Start:
        """Tell the last start to stop, and return it; if the app does not run, its next start will end at once."""
        with self._lock:
            self._move(Move.QUIT)
            return self._tell()

    def leave(self, start: Start | None = None) -> Start:
        """
        Tell this start (None: the running one) to stop, and return it.

        If that start has ended, this only wakes threads that wait for the app. In a forked child, a start of the parent
        counts as ended.
        """
        with self._lock:
            if start is not None and start is not self.current and start.origin.here:
                return start
            self._move(Move.LEAVE)
            return self._tell()

    def end(self, start: Start) -> None:
        """Note that nothing of this start runs any more."""
        with self._lock:
            if start is self.current:
                self._move(Move.END)

    def close(self, start: Start) -> bool:
        """End this start, and let the app start no more; False if another start runs, or the app is the parent's."""
        with self._lock:
            if not self.runs or start is self.current:
                self._move(Move.CLOSE)
            return self._state is State.CLOSED

    def _tell(self) -> Start:
        """Tell the last start to stop, and return it."""
        self.current.leave()
        self.told.set()
        return self.current

    def _move(self, move: Move) -> State:
        """Make a move, and return the state before it."""
        row = TABLE[move]
        with self._lock:
            # One statement, in which Python calls no signal handler; the lock keeps out other threads.
            before, self._state = self._state, row[self._state]
        return before
