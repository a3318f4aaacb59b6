"""
One start of an app, and all that it makes: whoever ends a start ends that, and nothing of another one.

An app that was dropped while it started, or by another thread, may be started again before the first start knows.
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
    One start of an app, from before it begins until behind its end.

    Args:
        wake: is called when it is told to stop, for whoever waits.
        loop: on which handlers that are `async def` run; None: on one of the app's own.

    """

    def __init__(
        self,
        wake: Callable[[], None] = lambda: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.wake = wake
        self.given = loop
        self.told = False  #: to stop
        self.ending = Event()  #: set when it is told to stop, or ends: it begins nothing more
        #: Set when it is taken down: whoever brings up more takes that down himself
        self.over = Event()
        self.failure: JmsxError | None = None  #: of a consumer, which ended it
        self.workers = Workers()
        self.gates = Gates()
        self.loop: Loop | None = None
        self.endpoint: Endpoint | None = None
        self.watch: Watch | None = None
        self.counting: Counting | None = None
        #: What takes down each thing that is up, beside the workers
        self.up: list[Callable[[], object]] = []
        self.sends: list[Connection] = []  #: by which the app has sent, for this start to end
        self.origin = Origin()
        self.down = reentrant()  #: of who takes it down; another one waits, and finds it done

    def bring_up(self, begin: Callable[[], object], close: Callable[[], object]) -> None:
        """Call `begin`, and have `take_down` call `close`; raises what `begin` raises."""
        self.up.append(close)  # first: an interrupt may come as it has begun
        begin()
        if self.over.is_set():  # whoever takes it down may have closed what had not begun
            close()

    def leave(self) -> None:
        """Tell this start to stop; waits for nothing."""
        self.told = True
        self.ending.set()

    def abort(self) -> None:
        """Drop all of its sockets, also those that are being opened."""
        self.ending.set()  # first: what is not open by now is not wanted any more
        self.workers.abort()
        end_each(self.sends, Connection.abort)

    def forget(self, sends: Iterable[Connection]) -> None:
        """Forget connections for sending that have ended, so that they are not ended once more."""
        for each in sends:
            with contextlib.suppress(ValueError):
                self.sends.remove(each)

    def take_down(self) -> None:
        """Close each thing that is up, once, when the workers have stopped; also what came up since the last call."""
        self.over.set()  # first, for it may take a while
        self.ending.set()
        end_each(self.up, lambda close: close())
        self.workers.close()
        self.endpoint = self.watch = self.counting = self.loop = None
