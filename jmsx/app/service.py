"""
An app at work: what a start brings up, step by step, and a stop, or what drops all, takes down in reverse.

`App` has each call, and says what it does and raises.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol, Unpack

from jmsx.app.counting import LAST, Counting
from jmsx.app.endpoint import Endpoint
from jmsx.app.gates import Gates
from jmsx.app.health import WorkerState
from jmsx.app.lifecycle import Lifecycle, Start
from jmsx.app.loops import Loop
from jmsx.app.middleware import Middleware
from jmsx.app.outgoing import Outgoing
from jmsx.app.progress import Progress
from jmsx.app.registration import Consumer
from jmsx.app.watch import Watch
from jmsx.app.workers import Shared, Workers
from jmsx.config.options import ConnectionKeywords, ReconnectPolicy
from jmsx.config.uri import BrokerUri
from jmsx.drivers.changed import waitable
from jmsx.drivers.locks import reentrant
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
    """What an app says of itself; asked at each start, for until then it may be changed."""

    middleware: tuple[Middleware, ...]
    reconnect: bool | ReconnectPolicy
    health: str | None
    watch: float
    broker_stats: float

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """What is registered."""

    @property
    def wsgi(self) -> WSGIApplication:
        """What is served at `health`."""

    def connection_uri(self) -> BrokerUri:
        """Return the brokers, and how to connect to them; raises ConfigurationError."""


class Service:
    """
    One app at work, as often as it starts.

    Args:
        app: tells at each start what there is to do.
        observers: are told every event, and closed when it stops.
        machine: what its connections run on.

    """

    def __init__(self, app: Settings, observers: list[Observer], machine: Machine) -> None:
        self._app = app
        self.observers = observers
        self.machine = machine
        self.progress = Progress()
        self.lifecycle = Lifecycle()
        self.outgoing = Outgoing(
            partial(self.connection, client_id=None),
            lambda: self.workers.calling(),  # noqa: PLW0108 - the child of a fork has other workers
            app.middleware,
            machine,
        )
        self.failure: JmsxError | None = None  #: of a consumer, which ended the app
        self._nothing_is_up()
        tell_of_forks(self)

    def _nothing_is_up(self) -> None:
        self.workers = Workers(self.machine, self.progress)
        self.gates = Gates()
        self.endpoint: Endpoint | None = None
        self.loop: Loop | None = None
        self.watch: Watch | None = None
        self.counting: Counting | None = None
        self._opened: Start | None = None  #: whose workers there are
        self._ending = reentrant()

    def after_fork(self) -> None:
        """In the child of a fork: what runs is the parent's; it can send, and start if it did not run."""
        self.lifecycle.after_fork()
        self._nothing_is_up()

    def connection(self, *more: Observer, **options: Unpack[ConnectionKeywords]) -> Connection:
        """Return a connection with the app's URL, observers and options; those given win."""
        observers = (self.progress, *self.observers, *more)
        uri = self._app.connection_uri()
        return Connection(uri, observers=observers, machine=self.machine, **options)

    def states(self) -> list[WorkerState]:
        """Return how each consumer does."""
        watch = self.watch
        return self.workers.states(watch.stranded if watch is not None else {})

    # Up --------------------------------------------------------------------------------------------------------------

    def start(self, start: Start) -> None:
        """Do as `App.start` does."""
        self.claim(start)
        self.bring_up(start)

    def claim(self, start: Start) -> None:
        """Do as `Lifecycle.start` does; raises IllegalStateError, too, if the app was told to stop before."""
        if not self.lifecycle.start(start):
            raise IllegalStateError("the app was told to stop before it started")

    def bring_up(self, start: Start) -> None:
        """Do the rest of a start; raises as `App.start` does."""
        self.open(start)
        self.begin(start)

    def bring_up_unless_told(self, start: Start) -> bool:
        """Do as `bring_up` does; False if the application tells it to stop meanwhile."""
        try:
            self.bring_up(start)
        except JmsxError as error:
            self.check_told(error, start)
            return False
        return True

    def check_told(self, error: JmsxError, start: Start) -> None:
        """Raise what a start has raised, unless that is because the application told it to stop."""
        if self.failure is not None or not start.told.is_set():
            raise error

    def open(self, start: Start) -> None:
        """Open all consumers; nothing flows yet."""
        with self.workers.turn:
            self._check_wanted(start)
            self.failure, self._opened = None, start
            self.endpoint = self.watch = self.counting = self.loop = None
            try:
                self._open_all(start)
                # who has ended it meanwhile has taken down what was up by then, and no more
                self._check_wanted(start)
            except BaseException as error:
                self._drop(start)
                if self.failure is not None and isinstance(error, JmsxError):
                    raise self.failure from error  # for which we were told to stop
                raise

    def _check_wanted(self, start: Start) -> None:
        """Raise IllegalStateError if a start has ended already: another one may have begun."""
        if not self.lifecycle.goes_on(start):
            raise IllegalStateError("the app was stopped while it started")

    def _open_all(self, start: Start) -> None:
        app = self._app
        start.up.append(self.workers.close)
        if app.health is not None:
            endpoint = Endpoint(app.health, app.wsgi)
            start.up.append(endpoint.close)
            self.endpoint = endpoint
        loop = None
        if any(is_async(consumer.handler) for consumer in app.consumers):
            loop = Loop(start.loop)
            start.up.append(loop.close)
            self.loop = loop
        gates = Gates(app.consumers, tuple(self.observers))
        start.up.append(gates.close)
        self.gates = gates
        self.workers.open(
            Shared(
                consumers=app.consumers,
                brokers=app.connection_uri,
                waits=bool(app.reconnect),
                observers=(self.progress, *self.observers),
                middleware=app.middleware,
                gates=gates,
                loop=loop,
                reply=self.outgoing.reply,
                failing=partial(self._fail, start),
                stopping=start.told,
            )
        )

    def begin(self, start: Start) -> None:
        """Let messages flow; raises IllegalStateError if the app was stopped since it was opened."""
        with self.workers.turn:
            self._check_wanted(start)
            try:
                self._begin_all(start)
            except BaseException:
                self._drop(start)
                raise

    def _begin_all(self, start: Start) -> None:
        self.workers.begin()
        app = self._app
        if app.watch > 0:
            options = self.connection().options
            watch = Watch(self.workers, self.progress, options, app.watch)
            start.up.append(watch.close)
            self.watch = watch
        self._count(start)
        self.workers.look_after()
        if not self.lifecycle.flow(start):  # a handler has aborted it, or a signal's
            raise IllegalStateError("the app was aborted while it started")

    def _count(self, start: Start) -> None:
        """Have the brokers tell their own counts, if anybody keeps them."""
        every = self._app.broker_stats
        if every > 0 and any(getattr(one, "keeps_counts", False) for one in self.observers):
            uri, told = self._app.connection_uri(), Observers(self.observers)
            counting = Counting(self.progress.places, uri, told, every)
            start.up.append(counting.leave)
            self.counting = counting

    # Down ------------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> None:
        """Do as `App.wait` does; seconds, None: no matter how long."""
        self.lifecycle.check_here()
        self.lifecycle.told.wait(waitable(timeout))
        if self.failure is not None:
            raise afresh(self.failure)

    def quit(self) -> None:
        """Do as `App.quit` does."""
        self._wake(self.lifecycle.quit())

    def leave(self, start: Start | None = None) -> Start:
        """Do as `quit` does, to this start alone (None: what runs), and to none that comes later; returns it."""
        start = self.lifecycle.leave(start)
        self._wake(start)
        return start

    def _wake(self, start: Start) -> None:
        """Wake whoever waits for a broker, or for this start to be told to stop."""
        if start is self.lifecycle.current:
            self.workers.leave_opening()
        start.wake()

    def _fail(self, start: Start, error: JmsxError) -> None:
        """End the app because of what has ended a worker of this start, unless that has ended."""
        if self.lifecycle.goes_on(start):
            self.failure = self.failure or error
            self.leave(start)

    def stop(self, timeout: float, start: Start | None = None) -> None:
        """Do as `App.stop` does, within so many seconds, to this start alone (None: to what runs)."""
        if self.workers.calling() is not None:
            raise IllegalStateError(
                "stop() waits for handlers to end, so it would wait for its own; in a handler call quit()"
            )
        if self.loop is not None and self.loop.here:
            raise IllegalStateError(
                "stop() waits for handlers that run on this event loop; leave `async with app`, or call quit() where"
                " app.serve() is awaited"
            )
        deadline = self.machine.monotonic() + timeout

        def left() -> float:
            return round(max(deadline - self.machine.monotonic(), 0.0), 3)

        if self.lifecycle.left:
            self.outgoing.close(timeout)
            return
        start = self.leave(start)
        if start is not self.lifecycle.current:
            return
        turn: list[bool] = []
        try:
            # In one step for Python, as in locks.py.
            turn += map(self.workers.turn.acquire, (True,), (min(timeout, threading.TIMEOUT_MAX),))
            if turn == [False] or not self.workers.stopping:
                self._drain(start, left, timeout)
        finally:
            if turn == [True]:
                self.workers.turn.release()

    def _drain(self, start: Start, left: Callable[[], float], given: float) -> None:
        """Do what `stop` does, in as many seconds as are left of those that were `given`."""
        if start is not self.lifecycle.current:
            return  # another thread has stopped what we were to stop, and somebody has started it again
        try:
            self.workers.stopping = True
            if (watch := self.watch) is not None:  # once read, for abort() takes it away
                watch.leave()  # nothing is made anew any more
            failures = (
                self.failure,
                _attempt(self.workers.drain, left(), given),
                _attempt(self.outgoing.close, left()),
            )
            if (counting := self.counting) is not None:
                counting.close(min(LAST, left()))
            self._end(start)
        finally:
            self.workers.stopping = False
        for failure in failures:
            if failure is not None:
                raise failure

    def abort(self, start: Start | None = None) -> None:
        """Do as `App.abort` does, to this start alone (None: to what runs)."""
        if self.lifecycle.left:
            self.outgoing.abort()
            return
        start = self.lifecycle.leave(start)
        if start is self.lifecycle.current:
            self.workers.abort()
            self.outgoing.abort()
            self._take_down(start)
        self._end(start)
        start.wake()

    def _drop(self, start: Start) -> None:
        """Drop what this start has up, which has the turn; the app may be started again, or is by now."""
        ours = start is self._opened
        if ours:
            self.workers.abort()
        if start is self.lifecycle.current:
            self.outgoing.abort()
        self._take_down(start)
        if ours:
            self.workers.close()  # again, if who has ended it did: there is what has been opened since

    def _end(self, start: Start) -> None:
        """Stop what is left, and close the observers: nothing happens any more that they could be told."""
        with self._ending:
            self._take_down(start)
            if self.observers and self.lifecycle.close(start):
                Observers(self.observers).close()

    def _take_down(self, start: Start) -> None:
        """Close what this start has up beside the workers, which have stopped; each once, whoever else does so, too."""
        while True:
            try:
                close = start.up.pop()
            except IndexError:
                break
            close()
        if start is self.lifecycle.current:
            self.endpoint = self.watch = self.counting = self.loop = None
            self.lifecycle.end(start)


def _attempt(step: Callable[..., object], *arguments: object) -> JmsxError | None:
    """Take a step of stopping, and return its error, so that the next step is taken all the same."""
    try:
        step(*arguments)
    except JmsxError as error:
        return error
    return None
