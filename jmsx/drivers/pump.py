"""
The pump: joins one session's core to its link.

One lock guards the core. stomp.py's thread puts what arrives into a queue, the pump's thread feeds it to the core, runs
the timers and wakes those who wait; application threads call in under the same lock. What the core asks for is written
and reported before the lock is let go, so wire and evidence show one order. Handlers run outside it.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.core.actions import Disconnect, Record, Report, Transmit
from jmsx.core.heartbeat import Heartbeat
from jmsx.drivers.counting import Counting
from jmsx.drivers.link import Arrival, Inbox, LinkLost, StompLink
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, JmsxError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jmsx.clock import Clock
    from jmsx.core.delivery import Delivery
    from jmsx.core.events import Event, Source
    from jmsx.core.frames import Frame
    from jmsx.core.requests import Request
    from jmsx.core.session import SessionCore
    from jmsx.observe import Observers

T = TypeVar("T")

#: Seconds that a thread waits at most before it looks again; a lock cannot wait for just any number.
LONGEST: Final = 3600.0

#: Seconds that a farewell waits for the broker to close the socket.
FAREWELL: Final = 2.0

_log = logger("jmsx.session")


class Pump:
    """Drives one SessionCore over one StompLink."""

    def __init__(
        self,
        core: SessionCore,
        link: StompLink,
        inbox: Inbox,
        *,
        clock: Clock,
        observers: Observers,
        source: Source,
        request_timeout: float | None,
    ) -> None:
        self.core = core
        self.changed = threading.Condition()  #: the lock; notified whenever something may have come
        self.error: JmsxError | None = None  #: why the link is gone
        self.on_lost: Callable[[JmsxError], None] = lambda _error: None
        self.dropped = False  #: the link is gone because we dropped it, and `restore` can mend that
        self.farewell = False  #: we have said DISCONNECT: that the broker closes is no loss
        self.running = True  #: deliveries are handed out: the connection is started
        self.counting = Counting(None)  #: how deliveries are counted beyond this process
        self.request_timeout = request_timeout
        self.source = source
        self.inbox = inbox
        self._link = link
        self._clock = clock
        self._observers = observers
        self._heartbeat: Heartbeat | None = None
        self._armed: float | None = None  #: the timer that the pump's thread waits for
        self._ended = False
        self._told = False  #: `on_lost` was called for the link
        self._thread = threading.Thread(
            target=self._run, name=f"jmsx-pump-{source.session_id}", daemon=True
        )

    def start(self, connected: Frame, offered: tuple[float, float]) -> None:
        """Begin, on a link that has just said CONNECTED."""
        answer = connected.headers.get("heart-beat", "0,0")
        self._heartbeat = Heartbeat(offered, answer, self._clock.monotonic())
        self._armed = self._heartbeat.next_timer()
        self._thread.start()

    def restore(
        self, link: StompLink, connected: Frame, offered: tuple[float, float], seconds: float
    ) -> None:
        """
        Go on with a new link, a new epoch; nobody is subscribed on it yet.

        Raises ConnectionFailedError if the session was ended meanwhile; the new link is then dropped.
        """
        with self.changed:
            if self._ended:
                link.drop()
                raise ConnectionFailedError(f"the session on {self.source.broker} was ended")
            now = self._clock.monotonic()
            self._link, self.error, self.dropped, self._told = link, None, False, False
            self._heartbeat = Heartbeat(offered, connected.headers.get("heart-beat", "0,0"), now)
            self.source = replace(self.source, epoch=self.core.epoch + 1)
            server = connected.headers.get("server", "")
            self.call(lambda core, now: core.link_opened(server, seconds, now))
            self.inbox.put(None)  # so that the thread sees the new timers

    def give_up(self) -> None:
        """A dropped link cannot be restored: those who wait for it are told."""
        with self.changed:
            self.dropped = False
            self.changed.notify_all()

    def adopt(self, core: SessionCore, source: Source, server: str, seconds: float) -> None:
        """Serve `core` from now on; it took `seconds` to connect to `server`."""
        with self.changed:
            self.core, self.source = core, source
            self.call(lambda core, now: core.link_opened(server, seconds, now))

    # For application threads -----------------------------------------------------------------------------------------

    def call(self, operation: Callable[[SessionCore, float], T]) -> T:
        """Run `operation(core, now)` and do what the core then asks for; raises if the link is gone."""
        with self.changed:
            self.check()
            now = self._clock.monotonic()
            try:
                return operation(self.core, now)
            finally:
                self._perform(now)
                self._rearm()

    def ask(
        self,
        operation: Callable[[SessionCore, float], Request | None],
        timeout: float | None = None,
    ) -> None:
        """As `call`, then wait until the broker has answered; raises its error, or BrokerTimeoutError."""
        with self.changed:
            request = self.call(operation)
            if request is not None:
                self.wait(request, timeout)

    def wait(self, request: Request, timeout: float | None = None) -> None:
        """Wait for one answer; raises its error, or BrokerTimeoutError."""
        seconds = self.request_timeout if timeout is None else timeout
        with self.changed:
            if not self.changed.wait_for(lambda: request.done, seconds):
                now = self._clock.monotonic()
                late = BrokerTimeoutError(
                    f"{self.source.broker} did not answer {request.command} {request.subject}"
                    f" in {seconds:g} s"
                )
                self.core.abandon(request, late, now)
                self._perform(now)
        if request.error is not None:
            raise request.error

    def take(
        self,
        subscription_ids: Callable[[], Sequence[str]],
        deadline: float | None,
        given_up: Callable[[], bool],
        begin: Callable[[Delivery], None] = lambda _delivery: None,
    ) -> Delivery | None:
        """
        The next message of the subscriptions, in the order of arrival.

        None at the deadline (seconds, monotonic; None: never) or as soon as `given_up()`; raises if the link is gone.
        `begin(delivery)` is run under the lock, before it is returned. A link that we dropped is being restored, and is
        waited for.
        """
        with self.changed:
            while not given_up():
                if self.dropped and not self._ended:
                    self.changed.wait(LONGEST)
                    continue
                self.check()
                now = self._clock.monotonic()
                names = subscription_ids() if self.running else ()
                delivery = self.counting.deliver(self.core, names, now)
                if delivery is None:
                    self.core.want(names, now)
                self._perform(now)
                self._rearm()
                if delivery is not None:
                    begin(delivery)
                    return delivery
                if deadline is not None and now >= deadline:
                    return None
                self.changed.wait(LONGEST if deadline is None else min(deadline - now, LONGEST))
            return None

    def look(self, subscription_id: str) -> Delivery | None:
        """The next message of a browser; None at its end; raises BrokerTimeoutError if the broker is silent."""
        limit = self.request_timeout
        deadline = None if limit is None else self._clock.monotonic() + limit
        with self.changed:
            while True:
                delivery, ended = self.call(lambda core, _now: core.browsings.look(subscription_id))
                if delivery is not None or ended:
                    return delivery
                left = LONGEST if deadline is None else deadline - self._clock.monotonic()
                if left <= 0 or not (self.changed.wait(left) or deadline is None):
                    raise BrokerTimeoutError(
                        f"{self.source.broker} showed no end of the queue in {self.request_timeout:g} s"
                    )

    def check(self) -> None:
        """Raise if the link is gone."""
        if self.error is not None:
            raise self.error

    def fault(self, error: Exception) -> None:
        """End the link because of a fault of ours or a frame that makes no sense: never go on as if idle."""
        _log.error("link ended by a fault", broker=self.source.broker, exc_info=error)
        with self.changed:
            self._lose("protocol", f"{type(error).__name__}: {error}")

    def wake(self) -> None:
        """Make waiting threads look again."""
        with self.changed:
            self.changed.notify_all()

    def now(self) -> float:
        """Seconds, monotonic."""
        return self._clock.monotonic()

    def leave(self, reason: str) -> None:
        """Say DISCONNECT and wait until the broker has closed the socket, so that it has forgotten us; then `end`."""
        try:
            if self.error is None:
                self.farewell = True
                self.ask(lambda core, _now: core.disconnect())
                with self.changed:
                    self.changed.wait_for(lambda: self.error is not None, FAREWELL)
        except (ConnectionFailedError, BrokerTimeoutError) as error:
            _log.info("no farewell", broker=self.source.broker, error=str(error))
        finally:
            self.end(reason)

    def end(self, reason: str) -> None:
        """Close the socket and stop the thread; idempotent."""
        self._told = True
        self._link.drop()  # first, and without the lock: it also ends a write that blocks under it
        with self.changed:
            if self._ended:
                return
            self._ended = True
            if self.error is None:
                self._lose("closed", reason)
            self.changed.notify_all()
        self.inbox.put(None)
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join()

    # The pump's own thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            try:
                arrival = self.inbox.get(timeout=self._patience())
            except queue.Empty:
                arrival = None
            lost: JmsxError | None = None
            with self.changed:
                if self.error is None:
                    self._turn_or_lose(arrival)
                if self.error is not None and not self._told:
                    self._told, lost = True, self.error
                self.changed.notify_all()
            if lost is not None:
                self._link.drop()
                if not self.farewell:
                    self.on_lost(lost)

    def _turn_or_lose(self, arrival: tuple[StompLink, Arrival] | None) -> None:
        """A frame that the core cannot take ends the link, with its cause, and not this thread."""
        try:
            self._turn(arrival)
        except Exception as error:  # noqa: BLE001 - whatever it is, the session must not hang
            self.fault(error)

    def _turn(self, arrival: tuple[StompLink, Arrival] | None) -> None:
        now = self._clock.monotonic()
        while True:
            if arrival is not None and arrival[0] is self._link:  # not a broker that refused us
                self._feed(arrival[1], now)
            try:
                arrival = self.inbox.get_nowait()
            except queue.Empty:
                break
        timer = self.core.next_timer()
        if timer is not None and timer <= now and self.error is None:
            self.core.handle_timer(now)
        self._beat(now)
        self._perform(now)
        self._arm()

    def _feed(self, arrival: Arrival, now: float) -> None:
        if isinstance(arrival, LinkLost):
            self._lose(arrival.reason, arrival.detail)
        elif self.error is None:
            self.core.receive(arrival, now, self._clock.wall())

    def _beat(self, now: float) -> None:
        heartbeat = self._heartbeat
        if heartbeat is None or self.error is not None:
            return
        heartbeat.heard(self._link.heard_at)
        if heartbeat.late(now):
            self._lose("heartbeat", "the broker sent nothing for too long")
        elif heartbeat.due(now) and (failure := self._write(b"\n", now)) is not None:
            self._lose("io", failure)

    # Under the lock --------------------------------------------------------------------------------------------------

    def _perform(self, now: float) -> None:
        """Write all frames that the core asks for in one go, then report."""
        actions = self.core.take_actions()
        frames = [
            frame.encode()
            for action in actions
            if isinstance(action, Transmit)
            for frame in action.frames
        ]
        failure = self._write(b"".join(frames), now) if frames and self.error is None else None
        for action in actions:
            if isinstance(action, Report):
                self._report(action.event)
            elif isinstance(action, Record) and failure is None:
                self.counting.record(action)
            elif isinstance(action, Disconnect) and self.error is None:
                self.dropped = self._told = True
                self._lose("error_frame", action.reason)
                self._link.drop()
        if failure is not None:
            self._lose("io", failure)

    def _write(self, data: bytes, now: float) -> str | None:
        """Write to the socket; what is wrong if it is gone."""
        try:
            self._link.send(data)
        except OSError as error:
            return str(error) or type(error).__name__
        except BaseException:  # half a frame may be on the wire: nothing may ever follow it
            self._link.drop()
            self._lose("io", "a write was interrupted")
            raise
        if self._heartbeat is not None:
            self._heartbeat.sent(now)
        return None

    def _lose(self, reason: str, detail: str) -> None:
        if self.error is not None:
            return
        self.error = ConnectionFailedError(
            f"the connection to {self.source.broker} is gone: {detail or reason}"
        )
        self._armed = self._heartbeat = None
        now = self._clock.monotonic()
        self.core.link_closed("closed" if self.farewell else reason, detail, now)
        for action in self.core.take_actions():
            if isinstance(action, Report):
                self._report(action.event)
        self.changed.notify_all()
        self.inbox.put(None)  # the pump's thread tells who wants to know

    def _report(self, event: Event) -> None:
        self._observers.observe(event, self.source)

    def _patience(self) -> float | None:
        armed = self._armed
        return None if armed is None else min(max(0.0, armed - self._clock.monotonic()), LONGEST)

    def _arm(self) -> None:
        timers = [self.core.next_timer()]
        if self._heartbeat is not None:
            timers.append(self._heartbeat.next_timer())
        self._armed = min((at for at in timers if at is not None), default=None)

    def _rearm(self) -> None:
        """Wake the pump's thread if a timer is due before the one that it waits for."""
        timer = self.core.next_timer()
        if timer is not None and (self._armed is None or timer < self._armed):
            self._armed = timer
            self.inbox.put(None)
