"""
A `Machine` in which only the test advances time, threads run one at a time, and all links lead to one broker in memory.

The sessions on it are those of production, with their own threads. But each wait of a thread goes through
`World.wait`, and one thread, the mover (normally the test's), resumes the waiting threads one at a time, in the order
in which they began to wait. The mover goes on while any thread can be resumed; when none can, only the passing of time
changes that.
Threads that this world did not start are its guests.
"""

from __future__ import annotations

import contextlib
import inspect
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from jmsx.app.loops import CALL, Running, beside
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.core.frames import Frame
from jmsx.core.process_memory import ProcessMemory
from jmsx.drivers.changed import Changed, Event
from jmsx.drivers.link import Arrival, Inbox, StompLink
from jmsx.drivers.machine import Machine
from jmsx.errors import ProtocolError
from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.link import FakeLink
from jmsx.testing.wire import encode

#: Where virtual time begins, in seconds; not at 0, which code easily mistakes for "no time".
START: Final = 1000.0

#: Real seconds for which the resumed thread may run alone; after that others run beside it.
GRACE: Final = 0.02

#: Real seconds after which a handler on an event loop is taken to await a thread that waits in this world.
AWAITING: Final = 0.2

#: Virtual seconds that may pass by themselves while a thread waits in the middle of a task.
SHORT: Final = 0.25


class BlockedError(AssertionError):
    """A thread or handler of the application under test does not return, or waits for what cannot happen."""


class _Wait:
    """A thread that waits until `check()` is true or virtual time reaches `deadline` (seconds; None: for ever)."""

    def __init__(self, check: Callable[[], bool], deadline: float | None, *, idle: bool) -> None:
        self.check = check
        self.deadline = deadline
        self.idle = idle  #: it waits for work, and not in the middle of a task
        self.thread = threading.current_thread()
        #: The session's thread whose handler, on an event loop, awaits this thread; None: no handler does.
        self.awaited_by: int | None = getattr(CALL.get(), "thread", None)
        self._go = threading.Lock()  #: held until the thread is resumed
        self._go.acquire()

    def ready(self, now: float) -> bool:
        """Return whether the thread may be resumed."""
        return self.check() or (self.deadline is not None and self.deadline <= now)

    def is_of(self, world: World) -> bool:
        """Return whether `world` started the thread."""
        return isinstance(self.thread, _Thread) and self.thread.world is world

    def may_move(self, world: World) -> bool:
        """Return whether the thread becomes the mover when there is none: a guest does, unless a handler awaits it."""
        return not self.is_of(world) and self.awaited_by is None

    def go(self) -> None:
        """Resume the thread."""
        self._go.release()

    def sleep(self) -> None:
        """Wait until the thread is resumed."""
        self._go.acquire()


class World(Machine):
    """
    The machine, with the `broker` that all its links lead to.

    `patience`: real seconds after which a thread that does not come back to wait raises BlockedError.
    """

    def __init__(self, broker: FakeBroker, origin: float, patience: float) -> None:
        self.broker = broker
        self.memory = ProcessMemory()
        self.delays = True
        self.failures: list[Exception] = []  #: what the fake broker cannot do
        self._now = START
        self._origin = origin
        self._patience = patience
        self._links: list[MemoryLink] = []
        self._wires = threading.RLock()  #: guards the broker and the links
        self._turn = threading.Condition()  #: guards what follows
        self._mover: threading.Thread | None = None
        self._moving = 0  #: how deeply its moves are nested
        self._would_move = 0  #: threads that wait for the mover to finish
        self._waits: list[_Wait] = []  #: oldest first
        self._busy: set[threading.Thread] = set()  #: threads of this world that run
        #: Threads of this world whose handler, on an event loop, awaits another thread that waits in this world.
        self._awaiting: set[threading.Thread] = set()
        self._came = 0  #: how often a thread has begun to wait
        #: Threads that this world did not start, but that waited in it or moved it; it cannot see what else they do.
        self._guests: set[threading.Thread] = set()
        broker.handle_timer(START)

    # A machine -------------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        """Return the time in seconds, virtual."""
        return self._now

    def wall(self) -> float:
        """Return the time in epoch seconds, virtual."""
        return self._origin + self._now

    def link(self, address: BrokerAddress, options: ConnectionOptions, inbox: Inbox) -> StompLink:
        """Return a link to the broker in memory, whatever the address is."""
        return MemoryLink(self, address, options, inbox)

    def inbox(self, *, awaited: bool = False) -> Inbox:
        """Make an inbox as `Machine.inbox` does; whoever waits for it waits in virtual time."""
        return _Inbox(self, idle=not awaited)

    def check_files(self, uri: BrokerUri) -> None:
        """Do nothing: links in memory need no files."""

    def changed(self, lock: Any, refuse: Callable[[], object]) -> Changed:
        """Make a condition as `Machine.changed` does, in virtual time."""
        return _Changed(self, lock, refuse)

    def event(self) -> Event:
        """Make an event as `Machine.event` does, in virtual time."""
        return _Event(self)

    def thread(self, target: Callable[[], object], name: str) -> threading.Thread:
        """Make a thread as `Machine.thread` does; it takes turns with the others."""
        return _Thread(self, target, name)

    # Waiting ---------------------------------------------------------------------------------------------------------

    def wait(
        self, check: Callable[[], bool], timeout: float | None = None, *, idle: bool = False
    ) -> bool:
        """Have this thread wait until `check()` is true, at most `timeout` virtual seconds; returns `check()`."""
        wait = _Wait(check, None if timeout is None else self._now + timeout, idle=idle)
        if wait.is_of(self):
            self._park(wait)
            return check()
        while True:
            if self._mover not in (None, wait.thread) and wait.ready(self._now):
                return check()
            if self._park(wait):
                continue
            with self._moves() as alone:
                if self._until(wait, alone=alone):
                    self._take_up_awaiting()
                    return check()
            with self._turn:
                self._turn.wait(GRACE)  # another thread moves first

    def _park(self, wait: _Wait) -> bool:
        """
        Wait until the mover resumes this thread; at once return False if this thread is the mover, or becomes it now.

        Waiting and becoming the mover are decided under one lock: a thread that merely waited for the mover to finish
        would be invisible to it, and a handler that awaits that thread would never return.
        """
        with self._turn:
            if not wait.is_of(self):
                self._guests.add(wait.thread)
                if self._mover in (None, wait.thread):
                    self._mover = wait.thread
                    return False
            self._forget(wait.thread)
            self._waits.append(wait)
            self._came += 1
            self._turn.notify_all()
        wait.sleep()
        return True

    def begun(self, thread: threading.Thread) -> None:
        """Note that a thread of this world is being started."""
        with self._turn:
            self._busy.add(thread)

    def ended(self, thread: threading.Thread) -> None:
        """Note that a thread which `begun` was told of has ended."""
        with self._turn:
            self._forget(thread)
            self._came += 1
            self._turn.notify_all()

    def _forget(self, thread: threading.Thread) -> None:
        self._busy.discard(thread)
        self._awaiting.discard(thread)

    # Moving ----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _moves(self) -> Iterator[bool]:
        """Make this thread the mover, once any other mover has finished; yield whether it was not the mover already."""
        thread = threading.current_thread()
        with self._turn:
            if not isinstance(thread, _Thread):
                self._guests.add(thread)
            self._would_move += 1
            self._turn.notify_all()
            try:
                self._turn.wait_for(lambda: self._mover in (None, thread))
            finally:  # Ctrl-C, too
                self._would_move -= 1
            self._mover = thread
            self._moving += 1
        try:
            yield self._moving == 1
        finally:
            with self._turn:
                self._moving -= 1
                if not self._moving:
                    self._mover = None
                    self._wake_others()
                    self._turn.notify_all()

    def _wake_others(self) -> None:
        """Wake the waiting guests, which move the world themselves now that there is no mover."""
        for wait in [wait for wait in self._waits if wait.may_move(self)]:
            self._waits.remove(wait)
            wait.go()

    def settle(self) -> None:
        """Run the threads until only time can let any go on; raises BlockedError if one does not come back to wait."""
        with self._moves():
            while True:
                self._let_all_on()
                due = self._awaited()
                if due is None or due > self._now + SHORT:
                    break
                self._move(min(due, self._due() or due))
        self.check()

    def end(self) -> None:
        """Let the threads that have no more work end."""
        with contextlib.suppress(BlockedError), self._moves():
            self._let_all_end()

    def _let_all_end(self) -> None:
        self._let_all_on()
        while (due := self._awaited()) is not None:  # handlers that were given up
            self._move(due)
            self._let_all_on()

    def check(self) -> None:
        """Raise the first NotImplementedError or other failure of the fake broker, if there was one."""
        if self.failures:
            raise self.failures[0]

    def advance_to(self, moment: float) -> None:
        """Advance virtual time to `moment` (seconds), running all that is due on the way."""
        with self._moves():
            while True:
                self.settle()
                due = self._due()
                if due is None or due > moment:
                    break
                self._move(due)
            if moment > self._now:
                self._move(moment)
            self.settle()

    def _until(self, wait: _Wait, *, alone: bool) -> bool:
        """
        Move the world until the mover's own wait is over; return False if another thread shall move it first.

        A thread that a handler awaits lets all others move first. If `alone` is False, this wait is nested in another
        move by the same thread, which therefore cannot hand over.
        """
        while not wait.check():
            if self._let_one_on(wait):
                continue
            if alone and self._would_move and not wait.may_move(self):
                return False
            due = self._due()
            if wait.deadline is not None and (due is None or due >= wait.deadline):
                self._move(wait.deadline)
                return True
            if due is None and alone and self._would_move:
                return False
            if due is None and self._await_guests(wait, alone=alone):
                continue
            if due is None:
                place = _place(inspect.currentframe())
                raise BlockedError(
                    f"{place} waits for ever: nothing in this test will happen any more"
                )
            self._move(due)
        return True

    def _await_guests(self, wait: _Wait, *, alone: bool) -> bool:
        """
        Wait for guests that run outside this world, or want to move it; return False if none does anything.

        Then nothing more will happen, unless a guest needs longer than the world's patience.
        """
        waited = 0.0
        while waited < self._patience:
            with self._turn:
                away = self._guests_beside(wait)
                if away:
                    self._turn.wait(GRACE)
                waits = list(self._waits)
            if wait.check() or any(one.ready(self._now) for one in waits):
                return True
            if self._due() is not None or (alone and self._would_move):
                return True
            if not away:
                return False
            waited += GRACE
        return False

    def _guests_beside(self, wait: _Wait) -> bool:
        """Return whether some guests are not waiting in this world; guests that have ended are forgotten."""
        self._guests = {one for one in self._guests if one.is_alive()}
        return bool(self._guests - {one.thread for one in self._waits} - {wait.thread})

    def _let_all_on(self) -> None:
        while self._let_one_on():
            pass

    def _let_one_on(self, moves: _Wait | None = None) -> bool:
        """Resume the next thread that is ready, and wait until it waits again; return False if none is ready."""
        with self._turn:
            wait = next((w for w in self._waits if w.ready(self._now)), None)
            if wait is None:
                return self._await_turn(moves)
            self._waits.remove(wait)
            if isinstance(wait.thread, _Thread):
                self._busy.add(wait.thread)
            else:
                self._take_up_awaiting()
            wait.go()
            self._await_turn(moves)
            return True

    def _take_up_awaiting(self) -> None:
        """Count handlers that awaited a guest as running again: the guest goes on, and so may they."""
        with self._turn:
            self._busy |= self._awaiting
            self._awaiting.clear()

    def _await_turn(self, moves: _Wait | None) -> bool:
        """
        Wait until the resumed threads wait again; return False if none was running.

        While one of them waits for something outside this world, others go on. If all of them have handlers on an event
        loop that await threads waiting in this world, or the mover (`moves`), then only the passing of time can help.
        """
        if not self._busy:
            return False
        came, waited = self._came, 0.0
        while self._busy and self._came == came:
            self._turn.wait(GRACE)
            waited += GRACE
            if any(w.ready(self._now) for w in self._waits):
                break
            if waited >= AWAITING and self._came == came and self._is_awaited(moves):
                self._awaiting |= self._busy
                self._busy.clear()
                return False
            if waited >= self._patience and self._came == came:
                thread = self._busy.pop()
                raise BlockedError(self._told_of(thread))
        return True

    def _is_awaited(self, moves: _Wait | None) -> bool:
        awaiting = {one.awaited_by for one in [*self._waits, *([moves] if moves else [])]}
        return all(thread.ident in awaiting for thread in self._busy)

    def _told_of(self, thread: threading.Thread) -> str:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - of another thread there is no other way
        where = _place(frame)
        return (
            f"{thread.name} has not come back for {self._patience:g} s: it is in {where}. A handler under test must"
            " not wait for anything real; harness(..., patience=...) says how long it may take"
        )

    def _due(self) -> float | None:
        """Return when the next timer or deadline is due (virtual seconds); None if there is none."""
        with self._wires:
            timer = self.broker.next_timer()
        dues = [w.deadline for w in list(self._waits) if w.deadline is not None]
        return min([*dues, *([] if timer is None else [timer])], default=None)

    def _awaited(self) -> float | None:
        """Return the earliest deadline of the threads that wait in the middle of a task; None if there is none."""
        waits = [w.deadline for w in list(self._waits) if not w.idle and w.deadline is not None]
        return min(waits, default=None)

    def _move(self, moment: float) -> None:
        with self._wires:
            self._now = max(self._now, moment)
            self.broker.handle_timer(self._now)
            self._deliver()

    # Links -----------------------------------------------------------------------------------------------------------

    def dial(self, link: MemoryLink) -> FakeLink:
        """Return the broker's end of a new link; raises an earlier failure of the fake broker, which would recur."""
        with self._wires:
            self.check()
            self._links.append(link)
            return self.broker.open_link(self._now)

    def transmit(self, wire: FakeLink, data: bytes) -> None:
        """Write bytes to the broker, with all effects on all links; raises OSError if the broker closed the link."""
        with self._wires:
            if wire.closed:
                self._deliver()  # the link may not have been told of its end yet
                raise ConnectionResetError("the broker has closed the connection")
            try:
                wire.receive(data, self._now)
            except Exception as error:  # noqa: BLE001 - it belongs to the test
                self.failures.append(error)
                self.broker.drop(wire, self._now)
            self._deliver()

    def hang_up(self, wire: FakeLink) -> None:
        """Note that the client has closed the link."""
        with self._wires:
            if not wire.closed:
                self.broker.drop(wire, self._now)
            self._deliver()

    def cut(self) -> None:
        """Let all links die, as when a broker is restarted."""
        with self._wires:
            for link in list(self.broker.links):
                self.broker.drop(link, self._now)
            self._deliver()

    def _deliver(self) -> None:
        for link in list(self._links):
            link.take_in()
            if link.ended:
                self._links.remove(link)


class MemoryLink(StompLink):
    """A link to the broker in memory: `send` returns after the broker has answered."""

    in_memory = True

    def __init__(
        self, world: World, address: BrokerAddress, options: ConnectionOptions, inbox: Inbox
    ) -> None:
        super().__init__(address, options, inbox)
        self._world = world
        self._client_id: str | None = None
        self._wire: FakeLink | None = None
        self.ended = False

    def send(self, data: bytes) -> None:
        """Send `data` as `StompLink.send` does."""
        if self._wire is None:
            raise ConnectionResetError("the link was not opened")
        self._world.transmit(self._wire, data)

    def written(self, data: bytes) -> int:
        """Return the length of `data`: what is sent to a broker in memory is written at once."""
        return len(data)

    @property
    def unread(self) -> bool:
        """Return False: what was sent has been read at once."""
        return False

    def end_within(self, seconds: float) -> None:
        """Have the broker close the link, which it does at once, whatever `seconds` says."""

    def hang_up(self, *, at_once: bool = False) -> None:
        """Close the link as `StompLink.hang_up` does."""
        del at_once
        if self._wire is not None:
            self._world.hang_up(self._wire)

    def take_in(self) -> None:
        """Hand over the bytes that the broker wrote, and the end of the link if it closed."""
        wire = self._wire
        if wire is None or self.ended:
            return
        data = b"".join(encode(frame, wire.end_of_frame) for frame in wire.take_frames())
        try:
            frames = self._transport.splitter.feed(data) if data else []
            if frames:
                self._hand_over(frames)
        except ProtocolError as error:
            self._transport.cause = error
            self._world.broker.drop(wire, self._world.monotonic())
        if wire.closed:
            self.ended = True
            if not self._dropped:
                self.on_disconnected()

    def open(self, client_id: str | None) -> Frame:
        """Connect as StompLink does, but without heart-beats: time is virtual."""
        connected = super().open(client_id)
        return Frame("CONNECTED", {**connected.headers, "heart-beat": "0,0"})

    def _log_in(self) -> tuple[str | None, str | None]:
        """Return user and password unchecked, and look up no secret: the broker in memory admits everybody."""
        return self._options.username, self._options.password

    def _say_connect(self, client_id: str | None) -> None:
        headers = {
            "accept-version": "1.2",
            "host": self.address.host,
            "heart-beat": "0,0",
            "login": self._login[0],
            "passcode": self._login[1],
            "client-id": client_id,
        }
        self._wire = self._world.dial(self)
        told = {name: value for name, value in headers.items() if value is not None}
        # no error here: the end of the link that is handed over says why, as StompLink's reader does
        with contextlib.suppress(OSError):
            self.send(Frame("CONNECT", told).encode())
        self._answered.set()


class _Inbox(queue.SimpleQueue[tuple[StompLink, Arrival] | None]):
    def __new__(cls, *_: object, **__: object) -> _Inbox:  # noqa: PYI034 - the base takes no arguments
        return super().__new__(cls)

    def __init__(self, world: World, *, idle: bool) -> None:
        super().__init__()
        self._world = world
        self._idle = idle

    def get(
        self,
        block: bool = True,  # noqa: FBT001, FBT002 - the base's
        timeout: float | None = None,
    ) -> tuple[StompLink, Arrival] | None:
        if block:
            self._world.wait(lambda: not self.empty(), timeout, idle=self._idle)
        return super().get_nowait()


class _Changed(Changed):
    def __init__(self, world: World, lock: Any, refuse: Callable[[], object]) -> None:
        super().__init__(lock, refuse)
        self._world = world
        self._times = 0  #: how often it was notified

    def wait(self, timeout: float | None = None) -> bool:
        return self._wait(timeout, idle=False)

    def rest(self, timeout: float | None = None) -> bool:
        return self._wait(timeout, idle=True)

    def _wait(self, timeout: float | None, *, idle: bool) -> bool:
        self._refuse()
        seen = self._times
        held = self._release_save()
        try:
            return self._world.wait(lambda: self._times != seen, timeout, idle=idle)
        finally:
            self._acquire_restore(held)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        world = self._world
        deadline = None if timeout is None else world.monotonic() + timeout
        while not (result := predicate()):
            left = None if deadline is None else deadline - world.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify_all(self) -> None:
        self._times += 1


class _Event(Event):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        return self._world.wait(self.is_set, timeout, idle=True)

    async def awaited(self, seconds: float) -> bool:
        return await beside(self.wait, seconds)  # virtual time goes on where threads wait


class _Thread(threading.Thread):
    def __init__(self, world: World, target: Callable[[], object], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self._work = target
        self._over = False

    def start(self) -> None:
        self.world.begun(self)
        super().start()

    def run(self) -> None:
        self.world.wait(lambda: True)  # until it is its turn
        try:
            self._work()
        finally:
            self._over = True
            self.world.ended(self)

    def join(self, timeout: float | None = None) -> None:
        self.world.wait(lambda: self._over, timeout)
        if self._over:
            super().join()


def _place(frame: FrameType | None) -> str:
    """Return the innermost line of the stack that is neither in jmsx nor in Python's library."""
    lines = [*traceback.extract_stack(frame), *_on_a_loop(frame)]
    theirs = [line for line in lines if not _is_foreign(line.filename)]
    line = (theirs or lines)[-1]
    return f"{line.name}() at {line.filename}:{line.lineno} ({line.line})"


def _on_a_loop(frame: FrameType | None) -> Iterator[traceback.FrameSummary]:
    """Yield the stack of the handler on an event loop that a thread waits for."""
    inner: Any = None
    while frame is not None and inner is None:
        running = frame.f_locals.get("self")
        if isinstance(running, Running) and running.task is not None:
            inner = running.task.get_coro()
        frame = frame.f_back
    while (at := getattr(inner, "cr_frame", None)) is not None:
        yield from traceback.extract_stack(at, limit=1)
        inner = inner.cr_await


def _is_foreign(file: str) -> bool:
    return file.startswith((_LIBRARY, _OURS, "<")) or "site-packages" in file


_LIBRARY: Final = threading.__file__.removesuffix("threading.py")
_OURS: Final = __file__.removesuffix("testing/world.py")
