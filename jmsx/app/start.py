"""
One start of an app with everything that it opens, so that ending it closes just that, and nothing of another start.

If an app is aborted while it starts, or by another thread, it may be started again before the first start notices.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jmsx.app.counting import Counting
from jmsx.app.endpoint import Endpoint
from jmsx.app.gates import Gates
from jmsx.app.loops import Loop
from jmsx.app.watch import Watch
from jmsx.app.workers import Workers
from jmsx.drivers.changed import Event
from jmsx.drivers.locks import end_each, reentrant
from jmsx.drivers.process import Origin
from jmsx.errors import JmsxError
from jmsx.jms.connection import Connection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable


class Start:
    """
    One start of an app, from before its beginning until after its end.

    Args:
        wake: called when the start is told to stop, to wake a thread that waits.
        loop: the event loop for `async def` handlers; None: a loop of the app's own.

    """

    def __init__(
        self,
        wake: Callable[[], None] = lambda: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.wake = wake
        self.given = loop
        self.told = False  #: whether it was told to stop
        self.ending = Event()  #: set when it is told to stop, or ends: it opens nothing more
        #: Set when `take_down` begins: whatever is opened after that is closed by whoever has opened it
        self.over = Event()
        self.failure: JmsxError | None = None  #: the error of a consumer that ended it
        self.workers = Workers()
        self.gates = Gates()
        self.loop: Loop | None = None
        self.endpoint: Endpoint | None = None
        self.watch: Watch | None = None
        self.counting: Counting | None = None
        #: The functions that close what was opened besides the workers
        self.up: list[Callable[[], object]] = []
        self.sends: list[Connection] = []  #: for sending, to be closed at the end
        self.origin = Origin()
        self.down = reentrant()  #: held by the thread that takes it down; others wait for it

    def bring_up(self, begin: Callable[[], object], close: Callable[[], object]) -> None:
        """Call `begin`, and have `take_down` call `close`; raises what `begin` raises."""
        self.up.append(close)  # first, for an interrupt may come when `begin` has just ended
        begin()
        if self.over.is_set():  # `take_down` may have called `close` before `begin` had ended
            close()

    def leave(self) -> None:
        """Tell this start to stop; does not block."""
        self.told = True
        self.ending.set()

    def abort(self) -> None:
        """Drop all of its sockets, also those that are being opened."""
        self.ending.set()  # first, so that nothing more is opened
        self.workers.abort()
        end_each(self.sends, Connection.abort)

    def forget(self, sends: Iterable[Connection]) -> None:
        """Forget connections for sending that were closed, so that they are not closed again."""
        for each in sends:
            with contextlib.suppress(ValueError):
                self.sends.remove(each)

    def take_down(self) -> None:
        """Close, once, everything that this start has opened, after its workers have stopped; may be called again."""
        self.over.set()  # first, for it may take a while
        self.ending.set()
        end_each(self.up, lambda close: close())
        self.workers.close()
        self.endpoint = self.watch = self.counting = self.loop = None
