"""
A running app: the steps by which it starts, and those by which a stop or an abort takes it down, in reverse order.

`App` has calls of the same names, which document what they do and raise.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol, Unpack

from jmsx.app.counting import LAST, Counting
from jmsx.app.draining import DROPPING, close_all, drain
from jmsx.app.endpoint import Endpoint
from jmsx.app.gates import Gates
from jmsx.app.health import WorkerState
from jmsx.app.lifecycle import Lifecycle
from jmsx.app.loops import Loop
from jmsx.app.middleware import Middleware
from jmsx.app.outgoing import Outgoing
from jmsx.app.progress import Progress
from jmsx.app.registration import Consumer
from jmsx.app.start import Start
from jmsx.app.watch import Watch
from jmsx.app.worker import Worker, calling
from jmsx.app.workers import Shared, Workers
from jmsx.config.options import ConnectionKeywords, ReconnectPolicy
from jmsx.config.uri import BrokerUri
from jmsx.drivers.locks import end_each, reentrant
from jmsx.drivers.machine import Machine
from jmsx.drivers.process import tell_of_forks
from jmsx.errors import IllegalStateError, JmsxError, afresh
from jmsx.jms.connection import Connection
from jmsx.jms.handlers import is_async
from jmsx.observe import Observer, Observers

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication


class Settings(Protocol):
    """The settings of an app; they are read at each start, for until then they may be changed."""

    middleware: tuple[Middleware, ...]
    reconnect: bool | ReconnectPolicy
    health: str | None
    watch: float
    broker_stats: float

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The registered consumers."""

    @property
    def wsgi(self) -> WSGIApplication:
        """The WSGI application that is served at `health`."""

    def connection_uri(self) -> BrokerUri:
        """Return the brokers, and how to connect to them; raises ConfigurationError."""


class Service:
    """
    Runs one app, from start to stop, any number of times.

    Args:
        app: the settings, read at each start.
        observers: objects that are told every event, and are closed when the app stops.
        machine: the clock and the threads of its connections.

    """

    def __init__(self, app: Settings, observers: list[Observer], machine: Machine) -> None:
        self._app = app
        self.observers = observers
        #: Observers that are not closed yet, if closing was interrupted; the last one is closed first
        self._unclosed: list[Observer] | None = None
        self.machine = machine
        self.progress = Progress()
        self.lifecycle = Lifecycle()
        self.outgoing = Outgoing(
            partial(self.connection, client_id=None), self.calling, app.middleware, machine
        )
        self._here()
        tell_of_forks(self)

    def _here(self) -> None:
        #: Held by the start that opens what other starts use, too: stores, ports, client ids
        self._opening = reentrant()
        self._mark = object()  #: marks the workers of this app

    def after_fork(self) -> None:
        """In the child of a fork: a running app is the parent's; here it can send, and start if it was not running."""
        self.lifecycle.after_fork()
        self._here()

    @property
    def current(self) -> Start:
        """The last start, whether it has ended or not."""
        return self.lifecycle.current

    @property
    def workers(self) -> Workers:
        """The workers of the last start."""
        return self.current.workers

    def connection(self, *more: Observer, **options: Unpack[ConnectionKeywords]) -> Connection:
        """Return a connection with the app's URL, observers and options; `options` override the app's."""
        observers = (self.progress, *self.observers, *more)
        uri = self._app.connection_uri()
        return Connection(uri, observers=observers, machine=self.machine, **options)

    def calling(self) -> Worker | None:
        """Return the worker of this app whose handler calls this, even if that worker was aborted; None: no handler."""
        return calling(self._mark)

    def states(self) -> list[WorkerState]:
        """Return the state of each worker, for the health probes."""
        start = self.current
        watch = start.watch  # read once, for abort() sets it to None
        return start.workers.states(watch.stranded if watch is not None else {})

    # Up --------------------------------------------------------------------------------------------------------------

    def start(self, start: Start) -> None:
        """Do as `App.start` does."""
        try:
            self.claim(start)
            self.bring_up(start)
        except BaseException:
            if self.lifecycle.goes_on(start):  # Ctrl-C came between two steps
                self._drop(start)
            raise

    def claim(self, start: Start) -> None:
        """Do as `Lifecycle.start` does; raises IllegalStateError, too, if the app was told to stop before."""
        if not self.lifecycle.start(start):
            raise IllegalStateError("the app was told to stop before it started")

    def bring_up(self, start: Start) -> None:
        """Do the rest of a start; raises as `App.start` does."""
        self.open(start)
        self.begin(start)

    def bring_up_unless_told(self, start: Start) -> bool:
        """Do as `bring_up` does; returns False if the application tells it to stop in the meantime."""
        try:
            self.bring_up(start)
        except JmsxError as error:
            self.check_told(error, start)
            return False
        return True

    def check_told(self, error: JmsxError, start: Start) -> None:
        """Raise `error`, which `start` has raised, unless it did so because the application told it to stop."""
        if start.failure is not None or not start.told:
            raise error

    def open(self, start: Start) -> None:
        """Open all consumers; no message is delivered yet."""
        with start.workers.turn, self._opening:
            try:
                self._check_wanted(start)
                self._open_all(start)
                # if another thread has ended this start, it has closed only what was open by then
                self._check_wanted(start)
            except BaseException as error:
                self._drop(start)
                if start.failure is not None and isinstance(error, JmsxError):
                    raise start.failure from error  # the reason for being told to stop
                raise

    def _check_wanted(self, start: Start) -> None:
        """Raise IllegalStateError if a start has ended already."""
        if not self.lifecycle.goes_on(start):
            raise IllegalStateError("the app was stopped while it started")

    def _open_all(self, start: Start) -> None:
        app = self._app
        if app.health is not None:
            endpoint = Endpoint(app.health, app.wsgi)
            start.bring_up(endpoint.begin, endpoint.close)
            start.endpoint = endpoint
        loop = None
        if any(is_async(consumer.handler) for consumer in app.consumers):
            loop = Loop(start.given)
            start.bring_up(loop.open, loop.close)
            start.loop = loop
        gates = Gates(app.consumers, tuple(self.observers))
        start.up.append(gates.close)
        start.gates = gates
        start.workers.open(
            Shared(
                consumers=app.consumers,
                brokers=app.connection_uri,
                waits=bool(app.reconnect),
                observers=(self.progress, *self.observers),
                middleware=app.middleware,
                gates=gates,
                loop=loop,
                machine=self.machine,
                progress=self.progress,
                mark=self._mark,
                opening=self._opening,
                quit_start=partial(self.leave, start),
                abort_start=partial(self.abort, start),
                reply=self.outgoing.reply,
                failing=partial(self._fail, start),
                ending=start.ending,
                over=start.over,
            )
        )

    def begin(self, start: Start) -> None:
        """Let messages flow; raises IllegalStateError if the app was stopped since it was opened."""
        with start.workers.turn:
            try:
                self._check_wanted(start)
                self._begin_all(start)
            except BaseException:
                self._drop(start)
                raise

    def _begin_all(self, start: Start) -> None:
        start.workers.begin()
        app = self._app
        if app.watch > 0:
            watch = Watch(start.workers, self.progress, self.connection().options, app.watch)
            start.bring_up(watch.begin, watch.close)
            start.watch = watch
        self._count(start)
        start.workers.look_after()
        # a handler, a signal handler or another thread may have aborted the start, before the last steps above
        if start.over.is_set() or not self.lifecycle.flow(start):
            raise IllegalStateError("the app was aborted while it started")

    def _count(self, start: Start) -> None:
        """Have the brokers tell their own counts, if anybody keeps them."""
        every = self._app.broker_stats
        if every > 0 and any(getattr(one, "keeps_counts", False) for one in self.observers):
            uri, told = self._app.connection_uri(), Observers(self.observers)
            counting = Counting(self.progress.places, uri, told, every)
            start.bring_up(counting.begin, counting.leave)
            start.counting = counting

    # Down ------------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> None:
        """Do as `App.wait` does; `timeout` in seconds, None: for ever."""
        self.lifecycle.check_here()
        told = self.lifecycle.told
        told.wait(timeout)
        if told.start.failure is not None:
            raise afresh(told.start.failure)

    def quit(self) -> None:
        """Do as `App.quit` does; a handler stops the start that it belongs to, whether that has ended or not."""
        worker = self.calling()
        if worker is not None:
            worker.quit_start()
        else:
            _wake(self.lifecycle.quit())

    def leave(self, start: Start | None = None) -> Start:
        """Do as `quit` does, but only to this start (None: the running one) and no later one; returns the start."""
        start = self.lifecycle.leave(start)
        _wake(start)
        return start

    def _fail(self, start: Start, error: JmsxError) -> None:
        """End the app because of what has ended a worker of this start, unless that has ended."""
        if self.lifecycle.goes_on(start):
            start.failure = start.failure or error
            self.leave(start)

    def stop(self, timeout: float, start: Start | None = None) -> None:
        """Do as `App.stop` does, within `timeout` seconds, to this start only (None: the running one)."""
        stopped = start or self.current
        if self.calling() in stopped.workers:
            raise IllegalStateError(
                "stop() waits for handlers to end, so it would wait for its own; in a handler call quit()"
            )
        loop = stopped.loop
        if loop is not None and loop.here:
            raise IllegalStateError(
                "stop() waits for handlers that run on this event loop; leave `async with app`, or call quit() where"
                " app.serve() is awaited"
            )
        deadline = self.machine.monotonic() + timeout

        def left() -> float:
            return round(max(deadline - self.machine.monotonic(), 0.0), 3)

        start = self.leave(start)
        turn: list[bool] = []
        try:
            # In one step for Python, as in locks.py.
            turn += map(start.workers.turn.acquire, (True,), (min(timeout, threading.TIMEOUT_MAX),))
            if turn == [False] or not start.workers.stopping:
                self._drain(start, left, timeout)
        finally:
            if turn == [True]:
                start.workers.turn.release()

    def _drain(self, start: Start, left: Callable[[], float], given: float) -> None:
        """Do what `stop` does, in as many seconds as are left of those that were `given`."""
        try:
            start.workers.stopping = True
            if (watch := start.watch) is not None:  # read once, for abort() sets it to None
                watch.leave()  # so that no subscription is made anew
            failures = (
                start.failure,
                _attempt(drain, tuple(start.workers), left(), self.machine, given),
                self._close_sends(start, left()),
            )
            if (counting := start.counting) is not None:
                counting.close(min(LAST, left()))
            self._end(start, for_good=True)
        finally:
            start.workers.stopping = False
        for failure in failures:
            if failure is not None:
                raise failure

    def abort(self, start: Start | None = None) -> None:
        """Do as `App.abort` does, to this start only; None: that of the calling handler, or else the running one."""
        worker = self.calling() if start is None else None
        if worker is not None:
            worker.abort_start()
            return
        start = self.lifecycle.leave(start)
        try:
            self._take_sends(start)
            start.abort()
            self._end(start, for_good=True)
        finally:
            start.wake()

    def _drop(self, start: Start) -> None:
        """Drop what this start has up; the app may be started again, or is by now."""
        if not start.origin.here:
            return  # in a forked child: the start is the parent's
        if self.lifecycle.goes_on(start):
            self._take_sends(start)
        start.abort()
        self._end(start, for_good=False)

    def _take_sends(self, start: Start) -> None:
        """
        Have what the app has sent by ended with this start, unless another one runs, whose that is.

        One that was refused, and is ended without having begun, has nothing.
        """
        if start is self.current or (start.over.is_set() and not self.lifecycle.runs):
            self.outgoing.take(start.sends)
            # Without a lock, for sending has its own: another start may have begun, and have sent over these.
            if (current := self.current) is not start and self.lifecycle.runs:
                end_each(start.sends, current.sends.append)

    def _close_sends(self, start: Start, timeout: float) -> JmsxError | None:
        """Do as `close_all` does to what the app has sent by, and return its error."""
        self._take_sends(start)
        sends = tuple(start.sends)
        failure = _attempt(close_all, sends, timeout, self.machine)
        start.forget(sends)  # they were closed or aborted
        return failure

    def _end(self, start: Start, *, for_good: bool) -> None:
        """
        Take down what is left, and let the app rest.

        With `for_good` the observers are closed: nothing happens any more that they could be told. Another thread that
        does the same is waited for, unless something of the application's holds it up, such as a store: then the rest
        is taken down beside it.
        """
        turn: list[bool] = []
        try:
            turn += map(start.down.acquire, (True,), (DROPPING,))  # in one step, as in `stop`
            start.take_down()
            self.lifecycle.end(start)
            if for_good and self.observers and self.lifecycle.close(start):
                if self._unclosed is None:
                    self._unclosed = self.observers[::-1]
                end_each(self._unclosed, lambda one: Observers([one]).close())
        finally:
            if turn == [True]:
                start.down.release()


def _wake(start: Start) -> None:
    """Wake whoever waits for a broker, or for this start to be told to stop."""
    start.workers.leave_opening()
    start.wake()


def _attempt(step: Callable[..., object], *arguments: object) -> JmsxError | None:
    """Take a step of stopping, and return its error, so that the next step is taken all the same."""
    try:
        step(*arguments)
    except JmsxError as error:
        return error
    return None
