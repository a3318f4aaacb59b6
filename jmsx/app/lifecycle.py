"""
The states of an app, and what leads from one to another: whatever asks whether an app runs goes by this table.

Starting and stopping take time, and an app may be told to stop at any moment, from any thread and by a signal handler
in the middle of either. So a move is one step for Python, and who makes it learns what it found. What belongs to a
start goes by its `Start`, and moves no other one.
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
    """Where an app is between two starts."""

    RESTING = auto()  #: it has not started yet, or has ended, and may start
    DISMISSED = auto()  #: it was told to stop before the start that comes next, which that ends
    STARTING = auto()  #: its consumers are being opened
    FLOWING = auto()  #: all are open, and messages may come
    LEAVING = auto()  #: it was told to stop since it started
    CLOSED = auto()  #: it has ended, and so have its observers: it starts no more
    LEFT = auto()  #: it ran when the process forked, and this is the child: nothing here is its own


class Move(Enum):
    """What happens to an app."""

    START = auto()
    FLOW = auto()
    QUIT = auto()  #: somebody tells it to stop, be it this time or the next
    LEAVE = auto()  #: something of its own tells it to stop, which is of this time only
    END = auto()
    CLOSE = auto()
    FORK = auto()


_RUNS: Final = (State.STARTING, State.FLOWING, State.LEAVING)

#: What each move changes; all else stays as it is.
_CHANGES: Final = {
    Move.START: {State.RESTING: State.STARTING, State.DISMISSED: State.RESTING},
    Move.FLOW: {State.STARTING: State.FLOWING},
    Move.QUIT: {State.RESTING: State.DISMISSED, **dict.fromkeys(_RUNS, State.LEAVING)},
    Move.LEAVE: dict.fromkeys(_RUNS, State.LEAVING),
    Move.END: dict.fromkeys((State.DISMISSED, *_RUNS), State.RESTING),
    Move.CLOSE: dict.fromkeys((State.RESTING, State.DISMISSED, *_RUNS), State.CLOSED),
    Move.FORK: {State.DISMISSED: State.RESTING, **dict.fromkeys(_RUNS, State.LEFT)},
}

#: The same for every state, so that a move looks up, and asks nothing.
TABLE: Final = {
    move: {state: changes.get(state, state) for state in State}
    for move, changes in _CHANGES.items()
}


class StopFlag(Event):
    """Set when an app is told to stop; the same over starts that fail without being told, for somebody may wait."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.start = start  #: the last one that it is for


class Lifecycle:
    """The state of one app; all may be called by any thread, and by signal handlers."""

    def __init__(self) -> None:
        self._state = State.RESTING
        self._lock = reentrant()
        #: The last one, whether it has ended or not; before the first one that never begins
        self.current = Start()
        self.told = StopFlag(self.current)

    def after_fork(self) -> None:
        """Begin anew in the child of a fork (State.LEFT): those locks and events are the parent's, so make others."""
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
        """Raise IllegalStateError if it ran when this process was forked."""
        if self._state is State.LEFT:
            raise left_behind("the app was started", "make another one in the child")

    def check_not_running(self) -> None:
        """Raise IllegalStateError if it runs, be it here or in the parent."""
        self.check_here()
        if self.runs:
            raise IllegalStateError("the app is running; do this before start(), or after stop()")

    def start(self, start: Start) -> bool:
        """
        Begin to start; False if it was told to stop before: then it has not begun, and `start` is told so.

        Raises IllegalStateError if it runs, or its observers are closed.
        """
        with self._lock:
            self.check_not_running()
            if self._state is State.CLOSED:
                raise IllegalStateError(
                    "the app was stopped and its observers are closed; make a new one"
                )
            if self.told.is_set():
                self.told = StopFlag(start)
            # First, so that who tells it to stop from now on is heard.
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
        """Note that all consumers are open; False if it has ended meanwhile."""
        with self._lock:
            if start is self.current:
                self._move(Move.FLOW)
            return self.goes_on(start)

    def quit(self) -> Start:
        """Tell the last start to stop, and return it; where the app does not run, the next one ends."""
        with self._lock:
            self._move(Move.QUIT)
            return self._tell()

    def leave(self, start: Start | None = None) -> Start:
        """
        Tell this start (None: what runs) to stop, and return it.

        Where that start has ended, this only wakes whoever waits for the next one. A start that is the parent's of a
        fork counts as ended.
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
        """Note, as `end` does, that the app starts no more; False if another start runs, or it is the parent's."""
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
            # In one step for Python, which calls no signal handler in it: the lock is for other threads.
            before, self._state = self._state, row[self._state]
        return before
