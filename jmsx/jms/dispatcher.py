"""The thread that calls the listeners of a session, with one message at a time, in the order of arrival."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Final

from jmsx.core.delivery import Delivery
from jmsx.core.session import SessionCore
from jmsx.core.values import Failure
from jmsx.drivers.calls import Calls
from jmsx.drivers.machine import Machine
from jmsx.drivers.threads import start
from jmsx.errors import JmsxError, LinkError, ResourceAllocationError
from jmsx.jms.failures import HandlerCall
from jmsx.jms.handlers import check_ran
from jmsx.jms.message import Message
from jmsx.jms.outcomes import failure_of
from jmsx.log import logger

Listener = Callable[[Message], object]

#: A message that was taken for a listener, with that listener and the delivery.
_Taken = tuple[Listener, Message, Delivery]

#: The call of a listener in which this code runs, also in tasks and threads that got a copy of the listener's context,
#: as asyncio's do; there the call may be over.
HANDLED: Final[ContextVar[HandlerCall | None]] = ContextVar("jmsx_handled", default=None)

_log = logger("jmsx.session")


def handled() -> Message | None:
    """
    Return the message whose listener calls this; None outside a listener.

    Also None once the listener has returned: tasks that it has started may then work for another message.
    """
    call = HANDLED.get()
    return call.message if call is not None and call.running else None


class Dispatcher:
    """Calls the listeners of one session on a thread of its own."""

    def __init__(
        self,
        calls: Calls,
        read: Callable[[Delivery], Message],
        machine: Machine,
    ) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._machine = machine
        self._read_message = read
        self.listeners: dict[str, Listener] = {}  #: by subscription id, also of closed ones
        self._thread: threading.Thread | None = None  #: started with the first listener
        self._handling: HandlerCall | None = None  #: the running call of a listener
        self.serving: str | None = None  #: the subscription id whose listener runs
        self._stops = False  #: whether the running listener has called `Connection.stop`
        self._awaited = False  #: whether a thread waits, or may wait, for the running listener
        self._stopped = False
        self._stopped_at = 0.0  #: seconds, monotonic
        self._failed = False  #: whether the thread ended with an unsettled message
        #: Takes the next message for a listener
        self._taking = calls.taking(self._names, self._read, begin=self._begin)

    @property
    def alive(self) -> bool:
        """Whether the thread runs; True also where none is needed: before the first listener, and once stopped."""
        return self._stopped or self._thread is None or self._thread.is_alive()

    @property
    def inside(self) -> bool:
        """Whether the caller is a listener of this session."""
        return threading.current_thread() is self._thread

    def set(self, subscription_id: str, listener: Listener | None) -> None:
        """
        Set the listener of a subscription, or remove it (None).

        Raises ResourceAllocationError if the process cannot start the thread; then the subscription has no listener.
        """
        with self._engine.lock:
            if listener is not None and self._thread is None:
                self._start_thread()
            if listener is None:
                self.listeners.pop(subscription_id, None)
                self._awaited = True  # by `receive()`
            else:
                self.listeners[subscription_id] = listener
            self._engine.wake()

    def _start_thread(self) -> None:
        """Start the thread that calls listeners; it waits for the lock, which the caller holds."""
        thread = self._machine.thread(self._run, f"jmsx-listener-{self._engine.source.session_id}")
        # Set before it is started: start() may raise KeyboardInterrupt although the thread runs.
        self._thread = thread
        undone = f"no listener was set in a session on {self._engine.source.broker}"
        try:
            start(thread, undone, "set it again")
        except ResourceAllocationError:
            self._thread = None
            raise

    def note_stop(self) -> bool:
        """Note that the connection is being stopped; returns whether a listener of this session does so."""
        with self._engine.lock:
            self._stops = self._stops or self.inside
            self._engine.wake()
            return self.inside

    def wait_idle(self, timeout: float | None, *, for_listener: bool = False) -> bool:
        """
        Wait until no listener runs, at most `timeout` seconds; returns True at once if the caller is a listener.

        `for_listener`: a listener of another session stops the connection. Then this does not wait for a listener that
        stops the connection, too: each of the two would wait for the other for ever.
        """
        with self._engine.lock:
            self._awaited = True
            patience = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            return self.inside or self._engine.changed.wait_for(
                lambda: self.serving is None or self._failed or (for_listener and self._stops),
                patience,
            )

    def leave(self, subscription_id: str) -> bool:
        """Remove a subscription's listener, and wait for it as `finish` does; False if it still runs after that."""
        with self._engine.lock:
            self.listeners.pop(subscription_id, None)
            self._awaited = True
            if self.inside:
                return True
            waited = self._engine.changed.wait_for(
                lambda: self.serving != subscription_id or self._failed,
                self._engine.request_timeout,
            )
            return waited and not self._failed

    def stop(self) -> None:
        """Call no further listener; a running one goes on, and `finish` waits for it `request_timeout` from now."""
        with self._engine.lock:
            if not self._stopped:
                self._stopped, self._stopped_at = True, self._machine.monotonic()
            self._engine.wake()

    def finish(self) -> bool:
        """Stop, and wait for a running listener unless it is the caller; False if it still runs after that."""
        self.stop()
        limit = self._engine.request_timeout  # two listeners may wait for each other
        if limit is not None:
            limit = max(self._stopped_at + limit - self._machine.monotonic(), 0.0)
        if self._thread is not None and not self.inside:
            self._thread.join(limit)
        return self.inside or not (self.serving is not None or self._failed)

    def go_on(self) -> Message | None:
        """
        Settle the message of the running listener as if it had returned, and return its next message, if one is here.

        This is for a listener whose work is done on another thread, which must not block; `HANDLED` is set on that
        thread. Returns None, and does nothing, if another thread holds the session's lock, if the broker would have to
        be asked first, or if no message is here. What the listener returns or raises afterwards is about the message
        that this returned last.
        """
        lock, call = self._engine.lock, self._handling
        try:
            if call is None or not lock.acquire(blocking=False):
                return None
            return self._next(call)
        except JmsxError:
            # If the link is lost for good, None is the answer; any other error is raised.
            if self._engine.error is None:
                raise
            return None
        except BaseException as error:  # how far it came is unknown: start on a new link
            self._engine.interrupted(f"a hand-out was interrupted by {type(error).__name__}")
            raise
        finally:
            # Ask whether this thread owns the lock: an exception may be raised directly after acquire().
            if self._engine.changed.owned:
                lock.release()

    def _next(self, call: HandlerCall) -> Message | None:
        """Do as `go_on` says; the caller holds the lock."""
        name = call.delivery.arrival.subscription_id
        if self._stopped or name not in self.listeners or not self._calls.has_next(name):
            return None
        call.running, call.settled = False, True

        def operation(core: SessionCore, now: float) -> _Taken | None:
            core.consumed(call.delivery, now)
            return self._taking(core, now)

        taken = self._engine.call(operation)
        if taken is None:  # the next message became a dead letter, or has expired
            return None
        _, message, delivery = taken
        self._handling = HandlerCall(message, delivery)
        HANDLED.set(self._handling)
        return message

    def _run(self) -> None:
        try:
            following: _Taken | None = None
            while True:
                taken = following or self._calls.take(self._taking, None, lambda: self._stopped)
                if taken is None:
                    # If a listener is still noted, its outcome could not be told to the core: the link was lost.
                    self._failed = self.serving is not None
                    self._engine.wake()
                    return
                following = self._call(*taken)
        except BaseException as error:  # noqa: BLE001 - a fault in jmsx must not look like an idle consumer
            self._failed = True
            if self._engine.error is None:
                self._engine.fault(error)
            self._engine.wake()

    def _names(self) -> Collection[str]:
        """Return those with a listener; of several the core leaves out those that are closed."""
        if len(self.listeners) > 1:
            return self.listeners
        return [name for name in self.listeners if self._engine.core.is_open(name)]

    def _read(self, delivery: Delivery) -> _Taken:
        """Find the listener, under the lock of the hand-out: if it is taken away now, it still gets this message."""
        listener = self.listeners[delivery.arrival.subscription_id]
        return listener, self._read_message(delivery), delivery

    def _begin(self, _core: SessionCore, delivery: Delivery, _now: float) -> None:
        self.serving, self._stops = delivery.arrival.subscription_id, False

    def _end(self) -> None:
        with self._engine.lock:
            self.serving = None
            if self._awaited:
                self._engine.changed.notify_all()

    def _call(self, listener: Listener, message: Message, delivery: Delivery) -> _Taken | None:
        """
        Call the listener, then tell the core how that went, in one go with being idle again; see `_settle`.

        If that cannot be told, it is never idle again: its message is not acknowledged when the session closes.
        """
        following = None
        raised: BaseException | None = None
        failure = None
        call = self._handling = HandlerCall(message, delivery)
        HANDLED.set(call)
        try:
            check_ran(listener, listener(message))
        except BaseException as error:  # noqa: BLE001 - whatever it raises, SystemExit too, is a failed delivery
            raised, failure = error, failure_of(error)
        call = self._handling  # perhaps of a later message: see `go_on`
        call.running = False
        self._handling = None
        if self._engine.forked:
            _log.error(
                "listener returned in a forked child: the message is the parent's, and the child ends here;"
                " let it end in the listener, with os._exit()",
                message_id=call.message.message_id,
                exc_info=raised,
            )
            return None
        if call.settled:
            self._end()
        elif self._engine.error is None:
            following = self._engine.call(lambda core, now: self._settle(core, call, failure, now))
        elif not isinstance(raised, LinkError):  # a LinkError is no failure of the message
            self._engine.tell(lambda core, now: core.ended_late(call.delivery, failure, now))
        if raised is not None and failure is not None:
            call.tell(self._engine.core, raised, failure)
        return following

    def failed(self, error: BaseException, failure: Failure) -> None:
        """Note that the running listener has rolled its message back because of `error`."""
        if self.inside and self._handling is not None:
            self._handling.tell(self._engine.core, error, failure)

    def acknowledge_returned(self) -> None:
        """Have the message of the calling listener acknowledged when the listener returns, as by `acknowledge()`."""
        if self.inside and self._handling is not None:
            self._handling.acknowledged = True

    def _settle(
        self, core: SessionCore, call: HandlerCall, failure: Failure | None, now: float
    ) -> _Taken | None:
        """
        Tell the core how a call went, and return the message for the next one, where that is here.

        In one go, for each go takes the session's lock, and lets go of it.
        """
        delivery = call.delivery
        if failure is not None:
            core.failed(delivery, failure, now)
            self._end()
            return None
        if call.acknowledged and core.is_open(delivery.arrival.subscription_id):
            core.acknowledge(delivery, now)
        if core.consumed(delivery, now):
            self._engine.do_due(now)
        self._end()
        return None if self._stopped or not self._calls.flows else self._taking(core, now)
