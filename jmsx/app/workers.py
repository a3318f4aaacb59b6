"""
The workers of a running app: they are opened for its consumers, and are examined, drained and aborted together.

A consumer whose store cannot be reached has no worker until the store is back. The app decides when each step is due,
and what happens after a failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, overload

from jmsx.app.availability import Stores
from jmsx.app.batches import BatchWorker
from jmsx.app.gates import Gates
from jmsx.app.health import WorkerState
from jmsx.app.loops import Loop
from jmsx.app.middleware import Middleware
from jmsx.app.progress import Movement, Progress
from jmsx.app.registration import Consumer
from jmsx.app.worker import Worker
from jmsx.config.options import FOR_EVER
from jmsx.config.uri import BrokerUri
from jmsx.core.durations import seconds
from jmsx.drivers.locks import reentrant
from jmsx.drivers.machine import Machine
from jmsx.drivers.threads import start
from jmsx.errors import (
    IllegalStateError,
    InvalidClientIdError,
    JmsxError,
    LinkError,
    StoreError,
)
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message
from jmsx.log import logger
from jmsx.observe import Observer
from jmsx.stores.pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Shortest and longest time in seconds between two checks whether a handler takes too long.
LOOK_FOR_LATE: Final = 0.02
LOOK_FOR_LATE_AT_MOST: Final = 1.0

_log = logger("jmsx.app")


@dataclass(frozen=True, slots=True)
class Shared:
    """
    What the workers of one start share.

    Attributes:
        consumers: the consumers that they serve.
        brokers: returns the brokers, and how to connect to them; raises ConfigurationError.
        waits: whether they wait for a broker or store that cannot be reached.
        observers: objects that are told every event of their sessions.
        middleware: the functions around every handler.
        gates: the rate limits and circuit breakers of the consumers.
        loop: the event loop of `async def` handlers; None: there are none.
        machine: the clock and the threads of their sessions.
        progress: the observer that knows when messages moved.
        mark: the object by which the app recognises its workers.
        opening: the lock to hold while opening stores and connections that other starts of the app use, too.
        quit_start: tells their start to stop.
        abort_start: aborts their start.
        reply: sends an answer outside of a transaction.
        failing: called with the error that ended a worker.
        ending: set when the start is told to stop, or ends; then nothing more is opened.
        over: set when the start is taken down; whatever is opened after that is closed by whoever has opened it.

    """

    consumers: Sequence[Consumer]
    brokers: Callable[[], BrokerUri]
    waits: bool
    observers: tuple[Observer, ...]
    middleware: Sequence[Middleware]
    gates: Gates
    loop: Loop | None
    machine: Machine
    progress: Progress
    mark: object
    opening: threading.RLock
    quit_start: Callable[[], object]
    abort_start: Callable[[], object]
    reply: Callable[[Message, Destination, dict[str, Any]], str]
    failing: Callable[[JmsxError], object]
    ending: threading.Event
    over: threading.Event

    def pause(self, seconds: float) -> None:
        """Wait while the app starts; raises IllegalStateError as soon as it is told to stop."""
        self.ending.wait(seconds)
        self.check_wanted()

    def check_wanted(self) -> None:
        """Raise IllegalStateError if the app was told to stop since it began to start."""
        if self.ending.is_set():
            raise IllegalStateError("the app was told to stop while it started")


class Workers(Sequence[Worker]):
    """The workers of one start, in the order in which they were opened; more may be opened later."""

    def __init__(self) -> None:
        self.turn = reentrant()  #: held by the thread that starts or stops them
        self.stopping = False  #: whether the thread with the `turn` stops them
        self._shared: Shared  #: set by `open`
        self._open: list[Worker] = []
        self._stores = Stores()  #: the stores of their consumers
        self._waiting: list[Consumer] = []  #: consumers that wait for their stores to be opened
        self._opening: Connection | None = None  #: connection of the worker that is being opened

    @overload
    def __getitem__(self, index: int) -> Worker: ...
    @overload
    def __getitem__(self, index: slice) -> list[Worker]: ...
    def __getitem__(self, index: int | slice) -> Worker | list[Worker]:
        return self._open[index]

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Worker]:
        return iter(tuple(self._open))

    def open(self, shared: Shared) -> None:
        """
        Open the workers; no message is delivered yet. The caller holds the `turn`, and aborts all workers on failure.

        If no consumer's store can be reached, this waits for one of them. Raises what opening a connection, a session
        or a store raises, and IllegalStateError if the app is told to stop in the meantime.
        """
        self._shared = shared
        self._open_those(shared.consumers)
        for pause in pauses():
            if self._open or not self._waiting:
                break
            shared.pause(pause)
            self._open_those(self._waiting)

    def begin(self) -> None:
        """Let messages flow."""
        for worker in self:
            worker.begin()

    def look_after(self) -> None:
        """While the app runs, log calls that take too long, and open consumers whose store can be reached again."""
        self._tell_late()
        if self._waiting:
            self._shared.machine.thread(self._begin_waiting, "jmsx-stores").start()

    def idle_since(self, since: float) -> bool:
        """Return whether none had anything to do after `since` (seconds, monotonic), and none waits for its store."""
        waits = bool(self._waiting)  # first, for it may become a worker meanwhile
        return all(one.idle_since(since, self._shared.progress) for one in self) and not waits

    def states(self, stranded: Mapping[str, int]) -> list[WorkerState]:
        """Return the state of each; `stranded`: messages in delivery to no existing consumer, by destination URI."""
        at_work = [
            worker.state(self._shared.progress, stranded.get(worker.consumer.destination.uri, 0))
            for worker in self
        ]
        return at_work + self.waiting()

    def waiting(self) -> list[WorkerState]:
        """Return the states of the consumers that have no worker yet, because their store cannot be reached."""
        return [
            WorkerState(
                consumer=one.name,
                destination=one.destination.uri,
                movement=Movement(),
                alive=True,
                away=f"store, which is away: {self._stores.availability(one.dedupe).reason}",
            )
            for one in tuple(self._waiting)
        ]

    def leave_opening(self) -> None:
        """Abort the opening of a worker that waits for its broker."""
        opening = self._opening
        if opening is not None:
            opening.abort()

    def abort(self) -> None:
        """Drop all their sockets, also that of a worker that is being opened; the app was told to stop before."""
        self.leave_opening()  # first: a worker that is open by then is among them
        for worker in self:
            worker.abort()

    def close(self) -> None:
        """Forget the workers, which have stopped, and close their stores; may be called again."""
        self._open.clear()
        self._waiting = []
        self._stores.close()

    def _open_those(self, consumers: Sequence[Consumer]) -> None:
        """Open these consumers, but for those whose store is away: they are the ones that wait from then on."""
        self._open_but(self._stores.open(consumers, waits=self._shared.waits), consumers)

    def _open_but(self, away: list[Consumer], consumers: Sequence[Consumer]) -> None:
        names = {one.name for one in away}
        for consumer in consumers:
            if consumer.name not in names:
                for _ in range(consumer.concurrency):
                    self._open_one(consumer)
        self._waiting = away

    def _tell_late(self) -> None:
        """Have calls told that take longer than their `timeout=`."""
        served, ending = self._shared.consumers, self._shared.ending
        limits = [seconds("timeout", one.timeout) for one in served if one.timeout]
        if not limits:
            return
        every = min(max(min(limits) / 4, LOOK_FOR_LATE), LOOK_FOR_LATE_AT_MOST)

        def look() -> None:
            while not ending.wait(every):
                for worker in self:
                    worker.tell_late()

        thread = threading.Thread(target=look, name="jmsx-late", daemon=True)
        start(thread, "the app looks for no late handlers", "start it again")

    def _begin_waiting(self) -> None:
        """Open the consumers that wait for their store when that is back, and let messages flow to them, too."""
        shared = self._shared
        try:
            for pause in pauses():
                shared.pause(pause)
                self._begin_those_back()
                if not self._waiting:
                    return
        except Exception as error:  # noqa: BLE001 - whatever a store raises, its consumers must not be forgotten
            if shared.ending.is_set():
                return
            if isinstance(error, JmsxError):
                shared.failing(error)
            else:
                _log.error("store not opened: the app ends", exc_info=error)
                shared.failing(StoreError(f"a store could not be opened: {error}"))

    def _begin_those_back(self) -> None:
        shared = self._shared
        with shared.opening:
            shared.check_wanted()
            try:
                # without the `turn`, for a stop waits for that, and opening a store may take long
                away = self._stores.open(self._waiting, waits=shared.waits)
                shared.check_wanted()  # a stop may have held the `turn`
                self._begin_but(away)
            finally:
                # if the start was taken down in the meantime, what was opened since must be closed here
                if shared.over.is_set():
                    self.abort()
                    self.close()

    def _begin_but(self, away: list[Consumer]) -> None:
        with self.turn:
            before = len(self._open)
            self._open_but(away, self._waiting)
            for worker in self._open[before:]:
                worker.begin()

    def _open_one(self, consumer: Consumer) -> None:
        shared, connection = self._shared, self._connection(consumer)
        self._opening = connection
        try:
            shared.check_wanted()
            kind = Worker if consumer.batch is None else BatchWorker
            worker = kind(
                consumer,
                connection,
                self._stores.availability(consumer.dedupe),
                loop=shared.loop,
                failing=shared.failing,
                gate=shared.gates[consumer.name],
                middleware=shared.middleware,
                mark=shared.mark,
                quit_start=shared.quit_start,
                abort_start=shared.abort_start,
                reply=shared.reply,
            )
            self._open.append(worker)
        except InvalidClientIdError as error:
            connection.abort()
            raise self._clash(consumer, error) from error
        except BaseException:
            connection.abort()
            raise
        finally:
            self._opening = None

    def _connection(self, consumer: Consumer) -> Connection:
        """Connect one worker of `consumer`, with options that fit it; raises ConfigurationError where none do."""
        shared = self._shared
        uri = shared.brokers()
        consumer.check_client_id(uri.options)
        consumer.check_ledger(uri.options)
        options = uri.options
        if "prefetchSize" not in consumer.destination.address.options:
            consumer.check_prefetch(options.prefetch(consumer.kind, consumer.options))
        if consumer.durable is None:
            options = replace(options, client_id=None)  # only a durable consumer needs it
        policy = options.reconnect
        if shared.waits and policy is not None and policy.startup_timeout is None:
            options = replace(options, reconnect=replace(policy, startup_timeout=FOR_EVER))
        connection = Connection(
            BrokerUri(uri.addresses, options), observers=shared.observers, machine=shared.machine
        )
        connection.set_exception_listener(
            # only a lost link ends a consumer, not a message of its handler that the broker refuses
            lambda error: shared.failing(error) if isinstance(error, LinkError) else None
        )
        return connection

    def _clash(self, consumer: Consumer, error: InvalidClientIdError) -> InvalidClientIdError:
        """Return the error, in better words if it is a consumer of this app that has the client id."""
        for worker in self:
            if worker.consumer.durable is not None:
                return InvalidClientIdError(
                    f"consumer {consumer.name}: {error} Here that is consumer {worker.consumer.name} of this app:"
                    " this broker lets a client id have one connection, so the second durable subscription needs"
                    " another App, with a client_id of its own"
                )
        return error
