"""
The engine: one session's core on its link, driven by one thread.

One lock guards the core. stomp.py's thread puts what arrives into a queue, the engine's thread feeds it to the core,
runs the timers and wakes those who wait. What the core asks for is written and reported before the lock is released, so
frames and events are in one order.

A lost link is restored by the engine's thread, if the connection has a reconnect policy; and once, without one, if it
was the session itself that dropped the link. It is restored when all consumers are subscribed again.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.config.options import ReconnectPolicy
from jmsx.config.uri import BrokerAddress
from jmsx.core.events import Event, LinkRestored, Source
from jmsx.core.frames import Action, Disconnect, Effect, Frame, Record, Refused, Transmit
from jmsx.core.requests import Request
from jmsx.core.session import SessionCore
from jmsx.core.values import ConsumerSettings
from jmsx.drivers.epoch import Epoch, Patience
from jmsx.drivers.hand_outs import HandOuts
from jmsx.drivers.link import Arrival, LinkLost, StompLink
from jmsx.drivers.link_state import (
    CLOSED,
    FOR_GOOD,
    LINKED,
    LOST,
    OUTAGE,
    REACHABLE,
    RESTORING,
    LinkInput,
    LinkState,
    next_state,
)
from jmsx.drivers.locks import reentered, reentrant
from jmsx.drivers.machine import Machine
from jmsx.drivers.process import left_behind, tell_of_forks
from jmsx.drivers.reconnect import Connected, Connector
from jmsx.drivers.session_log import SessionLog
from jmsx.drivers.threads import start_serving
from jmsx.errors import (
    ConnectionFailedError,
    JmsxError,
    ProtocolError,
    afresh,
    text_of,
)
from jmsx.log import logger
from jmsx.observe import Observers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


T = TypeVar("T")

#: Seconds that a thread waits at most before it looks again; a lock cannot wait for just any number.
LONGEST_WAIT: Final = 3600.0

#: Seconds that `end` waits for the engine's thread, which may be inside an exception listener.
DISCONNECT_WAIT: Final = 2.0

#: A link that lived shorter than this, in seconds, counts as a failed attempt: the next one is not opened at once. One
#: that lived longer may be lost again and again, by a proxy for example: pauses that grow would keep messages waiting
#: for half a minute.
STEADY: Final = 1.0

#: The same for a link with consumers that the broker has ended with an ERROR. A broker without room ends the link at
#: each SEND, and each link lasts as long as messages wait before their next try, which is a second. On an Artemis whose
#: disk is full each such link costs every message in flight one of its deliveries (jmsx_artemis/BROKER.md, A80).
STEADY_AFTER_ERROR: Final = 10.0

#: Seconds that stomp.py's thread is given to read what lies in the socket before a timer looks again.
GLANCE: Final = 0.001

#: Seconds that a timer waits for that thread at most: with a flood for one consumer something is always unread.
GLANCES: Final = 0.25

#: Seconds that the engine's thread holds the lock at most while more and more comes: a flood would keep others waiting.
TURN: Final = 0.05

#: Seconds that a frame which may wait is kept back after a write, to go with others: as ACKs are (core/batching.py).
#: Not longer, for a SEND that the broker refuses should be known before the COMMIT, which would be in doubt on Artemis.
TOGETHER: Final = 0.005

#: Seconds that a broker is given to answer on a link that we drop.
LAST_ANSWERS: Final = 1.0

#: In place of a receipt that is owed: the end of the link, which the broker closes when it has our DISCONNECT.
_THE_END: Final = "the end"

#: Bytes of bodies from which on frames do not wait for others.
MOST_TOGETHER: Final = 64 * 1024

_log = logger("jmsx.session")


class Engine:
    """
    Drives one SessionCore over one StompLink after the other.

    Without a reconnect policy a lost link stays lost, save where jmsx has dropped it, or the broker ended it because
    maps were to be translated (core/translating.py), which is jmsx's own affair.
    """

    cause: JmsxError  #: why there is no link, or none with all consumers on it, where the state says so

    def __init__(
        self,
        core: SessionCore,
        connected: Connected,
        connector: Connector,
        *,
        machine: Machine,
        observers: Observers,
        source: Source,
    ) -> None:
        options = connector.uri.options
        self.core = core
        self.lock = reentrant()  #: guards the core and what follows
        #: Notified whenever something may have come
        self.changed = machine.changed(self.lock, self._refuse_to_wait)
        self.state = LinkState.UP
        #: Called by the thread, without the lock, once there will be no link any more
        self.on_lost: Callable[[JmsxError], None] = lambda _error: None
        #: Called in the same way with the error of what the broker has refused, and nobody waits for
        self.on_refused: Callable[[JmsxError], None] = lambda _error: None
        #: Whether the broker ends the link of a consumer with these settings, for what it reads.
        self.ends_links: Callable[[ConsumerSettings], bool] = lambda _settings: False
        self._suspected: list[ConsumerSettings] = []  #: to ask `ends_links` about
        self.hand_outs = HandOuts(None)  #: how deliveries are counted beyond this process
        self.request_timeout = options.request_timeout
        self.source = source
        self._connector = connector
        self._inbox = connector.inbox
        self._machine = machine
        self._observers = observers
        self._offered = options.heartbeat
        self._opened_at = self._lost_at = machine.monotonic()
        self._epoch = self._epoch_on(connected)
        #: A link that was dropped and is still open, and the receipts that its broker owes us
        self._parting: tuple[Epoch, set[str]] | None = None
        #: What is to be done because the link is gone
        self._losing: Callable[[], None] | None = None
        self._parts = False  #: a thread is doing that
        self._ending = ""  #: why the session is to end; empty: it is not, or has
        self._lost_for = ""  #: what ended the last link
        self._flaps = 0  #: links in a row that did not last, or were not to be had
        self._armed = self._epoch.next_timer()  #: what the thread waits for (seconds, monotonic)
        self._session_log = SessionLog()
        #: What the core asks for besides frames, and is not done yet
        self._todo: deque[Effect] = deque()
        self._untold: list[JmsxError] = []  #: refusals that are to be told
        self._unwritten: list[Transmit] = []  #: frames for the link that is up
        self._unwritten_size = 0  #: bytes of their bodies
        self._working = False  #: the core is at work, under the lock
        self._reentered = False  #: somebody called it meanwhile: a signal handler, or an observer
        self._thread = machine.thread(self._run, f"jmsx-engine-{source.session_id}")
        self._serve_core(core)
        tell_of_forks(self)

    def after_fork(self) -> None:
        """End in the child of a fork, and tell nobody so: the link is the parent's."""
        self.lock = reentrant()
        self.changed = self._machine.changed(self.lock, self._refuse_to_wait)
        self._losing, self._ending, self._parts, self._working = None, "", False, False
        self._todo.clear()
        self.core.take_actions()
        self.cause = left_behind(
            f"the connection to {self.source.broker} was opened", "open one in the child"
        )
        self._step(LinkInput.FORK)

    def start(self) -> None:
        """Start the thread that serves the link; raises ConnectionFailedError where the process gets none."""
        start_serving(self._thread, str(self.address))

    def adopt(self, core: SessionCore, source: Source, server: str, seconds: float) -> None:
        """Serve `core` from now on; it took `seconds` to connect to `server`."""
        with self.lock:
            self._serve_core(core)
            self.source = source
            self._thread.name = f"jmsx-engine-{source.session_id}"
            if self.state in LINKED:
                self.call(lambda core, now: core.link_opened(server, seconds, now))

    def _serve_core(self, core: SessionCore) -> None:
        self.core = core
        core.detail(wanted=len(self._observers) > 0, ends=self._observers.follow_ends)

    def call(self, operation: Callable[[SessionCore, float], T]) -> T:
        """
        Run `operation(core, now)` and do what the core then asks for; raises if the link is gone for good.

        `operation` may run during an outage, so it must need no link. An exception that is no JmsxError came from
        outside, as KeyboardInterrupt does, and may have left the core half changed: then the link is dropped, with
        which everything begins anew. Raises IllegalStateError in a signal handler that interrupts another call of the
        session.
        """
        with self.lock:
            if self._working:
                self._refuse_reentry()
            try:
                return self.work(operation)
            except BaseException as error:
                if self._reentered or not isinstance(error, JmsxError):
                    self.interrupted(f"a call was interrupted by {type(error).__name__}")
                raise

    def refuse_reentry(self) -> None:
        """
        Raise IllegalStateError if the caller, a signal handler or observer, interrupts another call.

        Use it before what ends the link.
        """
        with self.lock:
            self._refuse_to_wait()

    def _refuse_to_wait(self) -> None:
        """Raise IllegalStateError within a call, which would wait for itself here, and release the core's lock."""
        if self._working or self._parts:
            self._refuse_reentry()

    def _refuse_reentry(self) -> None:
        self._reentered = True
        raise reentered("a session")

    def work(self, operation: Callable[[SessionCore, float], T]) -> T:
        """Do as `call` does; the caller holds the lock, and deals with interruptions."""
        if self._working:
            self._refuse_reentry()
        self._reentered = False
        now = self._machine.monotonic()
        try:
            self._working = True
            self.check()  # now, for from here on no signal handler ends the session
            return operation(self.core, now)
        finally:
            try:
                self._perform(now)
            finally:
                try:
                    self._rearm()
                finally:
                    self._working = False
                    if self._ending:
                        self._finish_losing()

    def tell(self, operation: Callable[[SessionCore, float], object]) -> None:
        """Run an operation that reports something, although there will be no link; not once the session has ended."""
        with self.lock:
            if self.state not in CLOSED:
                operation(self.core, self.now())
                self._report_only()

    def do_due(self, now: float) -> None:
        """
        Do what is due by now; call it in an operation of `work`, on a thread of the session.

        Else the engine's thread would be woken for it, and would wake those who wait. While more may be in the socket
        it is left to that thread, for some of it is due only if nothing has come.
        """
        timer = self.core.next_timer()
        due = timer is not None and timer <= now
        if due and self.state in LINKED and not self._may_bring_more():
            self.core.handle_timer(now, half=self.link.incomplete is not None)
            self.changed.notify_all()

    def check(self) -> None:
        """Raise the error that ended the session, if there is one: then there will be no other link."""
        if self.state in FOR_GOOD:
            raise afresh(self.cause)

    @property
    def error(self) -> JmsxError | None:
        """Why there will be no link any more; None: there is one, or it is being restored."""
        return self.cause if self.state in FOR_GOOD else None

    @property
    def reachable(self) -> bool:
        """Whether there is a link, as far as we know, with all consumers on it."""
        return self.state in REACHABLE

    @property
    def forked(self) -> bool:
        """Whether this is the child of a fork, and all of it is the parent's."""
        return self.state is LinkState.FORKED

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def write_fault(self) -> str:
        """Why the last write failed, if it took too long: its link ends in a moment; empty where none has."""
        return self._epoch.cause("")

    @property
    def reconnect_policy(self) -> ReconnectPolicy | None:
        """How a lost link is restored; None: it is not."""
        return self._connector.policy

    @property
    def refusal(self) -> str:
        """Why there is no link again, although that was tried; empty where it was not, or there is one."""
        return self._connector.refusal

    @property
    def link(self) -> StompLink:
        """The link that there is, or was last."""
        return self._epoch.link

    @property
    def address(self) -> BrokerAddress:
        """The address of the broker at the other end of the link that there is, or was last."""
        return self._epoch.link.address

    @property
    def greeting(self) -> Mapping[str, str]:
        """The headers of CONNECTED on the link that there is, or was last."""
        return self._epoch.greeting

    def now(self) -> float:
        """Return the time in seconds, monotonic."""
        return self._machine.monotonic()

    def wake(self) -> None:
        """Make waiting threads look again."""
        with self.lock:
            self.changed.notify_all()

    def fault(self, error: BaseException) -> None:
        """End the link for good, because of a fault of ours or a frame that makes no sense: never go on as if idle."""
        with self.lock:
            cause = f"{type(error).__name__}: {text_of(error)}"
            if self.state not in LINKED:
                self._losing, self._ending = None, ""  # doing one of these may have failed
            self._lose("protocol", cause, LinkInput.GIVE_UP)
            if self.state not in FOR_GOOD:  # no link was lost, because there was none
                self._give_up(self._gone(cause))
                self._inbox.put(None)
        _log.error(
            "link ended for good by a fault, of jmsx or of a frame that makes no sense",
            broker=self.source.broker,
            exc_info=error,
        )

    def renew(self, reason: str) -> None:
        """Drop a link that is of no more use; it is restored, with or without a reconnect policy."""
        with self.lock:
            self._lose("closed", reason, LinkInput.DROP)

    def leave(self) -> Request | None:
        """Say DISCONNECT; returns the request that the broker's answer ends, or None if there is no link for that."""
        with self.lock:
            self._finish_losing()
            if not self._step(LinkInput.LEAVE, REACHABLE):
                return None
            return self.call(lambda core, _now: core.disconnect())

    def end(self, reason: str) -> None:
        """
        Close the socket and stop the thread, which a caller that holds the lock does not wait for; idempotent.

        Where a signal handler or an observer calls it in the middle of another call, that one does the rest at its end.
        """
        if self.forked:
            return
        again = self.state in CLOSED
        self.on_lost = lambda _error: None
        self._connector.cancel()
        self._ending = reason  # if interrupted from here on, the thread does it
        self._inbox.put(None)
        self._epoch.drop()  # without the lock: it also ends a write that blocks under it
        with self.lock:
            self._ending = reason  # again, for a fault forgets it
            if not self._working:
                self._finish_losing()
        self._inbox.put(None)
        waits = threading.current_thread() is not self._thread and not self.changed.owned
        if waits and not again and self._thread.ident is not None:
            self._thread.join(DISCONNECT_WAIT)

    # The thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the session must not look idle
            self.fault(error)
            self._tell()
        finally:
            self._part()

    def _serve(self) -> None:
        while self.state not in CLOSED:
            self._listen()
            self._part()
            if self.state is OUTAGE:
                self._restore()
            self._tell()

    def _tell(self) -> None:
        """Call `on_lost`, once, when there will be no link any more."""
        with self.lock:
            news = self._step(LinkInput.TELL, (LOST,))
        if news:
            self.on_lost(self.cause)

    def _listen(self, deadline: float | None = None) -> None:
        """Wait for what comes, for a timer, or for `deadline` (seconds, monotonic); then do what is to be done."""
        try:
            arrival = self._inbox.get(timeout=self._patience(deadline))
        except queue.Empty:
            arrival = None
        flooded = False
        with self.lock:
            if self.state in LINKED:
                flooded = self._turn_or_fault(arrival)
            self._finish_losing()
            self.changed.notify_all()
            untold, self._untold = self._untold, []
        for refusal in untold:
            self.on_refused(refusal)
        if flooded:
            time.sleep(GLANCE)  # or nobody else would ever have the lock

    def _turn_or_fault(self, arrival: tuple[StompLink, Arrival] | None) -> bool:
        """Do as `_turn` does; a frame that the core cannot take ends the link, with its cause, and not this thread."""
        self._working = True
        try:
            return self._turn(arrival)
        except Exception as error:  # noqa: BLE001 - whatever it is, the session must not hang
            self.fault(error)
            return False
        finally:
            self._working = False

    def _turn(self, arrival: tuple[StompLink, Arrival] | None) -> bool:
        """Take in what has come, and do what is due; return whether more has come than a turn has time for."""
        now = self._machine.monotonic()
        flooded = False
        while not flooded:
            if arrival is not None and arrival[0] is self._epoch.link:  # not an older one
                self._feed(arrival[1], now)
                # now, for the link's end may lie behind a frame for which we drop it
                self._perform(now)
            flooded = self._machine.monotonic() - now > TURN
            try:
                arrival = None if flooded else self._inbox.get_nowait()
            except queue.Empty:
                break
        timer = self.core.next_timer()
        unread = False
        if timer is not None and timer <= now and self.state in LINKED:
            unread = now - timer < GLANCES and self._may_bring_more()
            half = self.link.incomplete is not None
            self.core.handle_timer(now, unread=unread, half=half)
        if self.state in LINKED and (dead := self._epoch.beat(now)) is not None:
            self._lose(*dead)
        elif self.state in LINKED and (measured := self._epoch.measured(now)) is not None:
            measured.unanswered = len(self.core.owed)
            self._report(measured)
            self.core.measure(now)
        self._perform(now)
        self._arm()
        if unread and self._armed is not None:
            self._armed = max(self._armed, now + GLANCE)
        return flooded

    def _may_bring_more(self) -> bool:
        """Return whether something has come that is not taken in; asks in the order of its way from the socket."""
        return self._epoch.link.unread or not self._inbox.empty()

    def _feed(self, arrival: Arrival, now: float) -> None:
        if isinstance(arrival, LinkLost):
            self.core.broker_errors.explain(now)
            # A refusal that drops the link counts for more than the end of the link
            self._perform(now)
            self._lose(arrival.reason, self._epoch.cause(arrival.detail))
        elif self.state in LINKED:
            try:
                self.core.receive(arrival, now, self._machine.wall())
            except ProtocolError as error:  # the broker's fault, not ours: another link may do
                self._lose("protocol", str(error))

    def _patience(self, deadline: float | None) -> float | None:
        armed = self._armed if self.state in LINKED else None
        due = [at for at in (armed, deadline) if at is not None]
        return min(max(0.0, min(due) - self._machine.monotonic()), LONGEST_WAIT) if due else None

    def _part(self) -> None:
        """
        Close the link that was dropped, when its broker has said what it owes us and has taken our DISCONNECT.

        It has a moment for both. A thread of Artemis that answers a client which has just gone waits 10 s for another
        one, and does nothing for its other connections; if it answers with an ERROR, they wait for each other for ever
        (BROKER.md A70, A65). And of a consumer whose socket is closed without a word it may keep a message for nobody
        (A66).
        """
        parting, self._parting = self._parting, None
        if parting is None:
            return
        epoch, owed = parting
        deadline = self.now() + LAST_ANSWERS
        try:
            if self._hear_out(epoch.link, owed, deadline):
                epoch.link.end_within(deadline - self.now())  # also while it does not read
                if epoch.disconnect(self.now()):
                    self._hear_out(epoch.link, {_THE_END}, deadline)
        finally:
            epoch.link.drop()

    def _hear_out(self, link: StompLink, owed: set[str], deadline: float) -> bool:
        """
        Wait until `link`, which is not up any more, has brought the `owed` receipts.

        Returns False if it will bring no more: at its end, behind an ERROR, and at the deadline (seconds, monotonic).
        """
        while owed:
            left = deadline - self.now()
            if self.state in CLOSED or left <= 0:
                return False
            try:
                arrival = self._inbox.get(timeout=left)
            except queue.Empty:
                return False
            if arrival is None or arrival[0] is not link:
                continue
            if isinstance(arrival[1], LinkLost) or link.condemned:
                return False
            owed = owed - {
                frame.headers.get("receipt-id", "")
                for frame in arrival[1]
                if isinstance(frame, Frame)
            }
        return True

    # Restoring, on the thread ----------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Connect again until there is a link with all consumers on it, or no hope of one."""
        if self._suspected and not self._ended_by_translation():
            return
        _log.warning("connection lost", broker=self.source.broker, error=str(self.cause))
        with self.lock:
            counted = self._epoch.patient and self._epoch.link.condemned and self.core.ahead > 0
        steady = STEADY_AFTER_ERROR if counted else STEADY
        lasted = self._lost_at - self._opened_at >= steady
        self._flaps = 0 if lasted else self._flaps + 1
        try:
            attempts = self._connector.restore(
                self._reopen, self._epoch.link.address, flaps=self._flaps
            )
        except JmsxError as error:
            with self.lock:
                gone = ConnectionFailedError(f"{self.cause}; it could not be restored: {error}")
                self._give_up(self.error or gone)
        else:
            self._flaps += attempts - 1
            self._restored(attempts)

    def _ended_by_translation(self) -> bool:
        """Return whether the broker ended the link for what a consumer reads; if not, there will be no other one."""
        found = any(self.ends_links(one) for one in self._suspected)
        with self.lock:
            if found:
                self.core.ended_by_translation()
            elif self.state is OUTAGE:
                self._give_up(self.cause)
        return found

    def _reopen(self) -> None:
        """Make one attempt: open a new link, begin a new epoch, and subscribe every consumer on it."""
        try:
            self._resubscribe(self._join(self._connector.connect()))
        finally:
            self._part()  # now, for the next attempt may come late, or never

    def _resubscribe(self, requests: list[Request]) -> None:
        """Wait until the broker has confirmed every consumer; raises if the link is of no use."""
        seconds = self.request_timeout or LONGEST_WAIT
        patience, deadline = Patience(self.link, seconds), self.now() + seconds
        while self.state in LINKED and not all(request.done for request in requests):
            if self.now() >= deadline:
                with self.lock:
                    ahead = self.core.ahead
                if not patience.lasts(ahead):
                    break
                deadline += seconds
            self._listen(deadline)
        with self.lock:
            failures = [request.error for request in requests if request.error is not None]
            if self.state in LINKED and (failures or not all(request.done for request in requests)):
                text = str(failures[0]) if failures else "SUBSCRIBE was not answered in time"
                self._lose("error_frame", text)
            if self.state not in LINKED:
                raise ConnectionFailedError(self._lost_for)

    def _join(self, connected: Connected) -> list[Request]:
        with self.lock:
            self._finish_losing()
            if not self._step(LinkInput.OPEN, REACHABLE | RESTORING):
                connected.link.drop()
                raise afresh(self.cause)
            self._opened_at = self._machine.monotonic()
            self._epoch = self._epoch_on(connected)
            self._unwritten, self._unwritten_size = [], 0
            broker = str(connected.link.address)
            self.source = replace(self.source, broker=broker, epoch=self.core.epoch + 1)
            try:
                return self.call(
                    lambda core, now: core.link_opened(
                        connected.server, connected.seconds, now, broker=broker
                    )
                )
            except JmsxError as error:
                self._lose("error_frame", str(error))  # else no other one could be joined
                raise

    def _epoch_on(self, connected: Connected) -> Epoch:
        """Return the epoch of a link that was just opened."""
        connected.link.awaited = lambda: self.core.awaits_answer
        return Epoch(connected, self._offered, self._opened_at, self.request_timeout)

    def _restored(self, attempts: int) -> None:
        with self.lock:
            if not self._step(LinkInput.RESTORE, (LinkState.JOINING,)):
                return  # lost again; the thread sees that the outage goes on
            now = self._machine.monotonic()
            self._report(LinkRestored(at=now, seconds=now - self._lost_at, attempts=attempts))
            self.changed.notify_all()
        _log.warning(
            "connection restored",
            broker=self.source.broker,
            seconds=round(now - self._lost_at, 3),
            attempts=attempts,
        )

    # Under the lock --------------------------------------------------------------------------------------------------

    def _perform(self, now: float) -> None:
        """Write all frames that the core asks for in one go, unless they may wait for others, then report."""
        try:
            actions = self.core.take_actions()
            if not (actions or self._todo or self._unwritten):
                return
            bursts, others = _parted(actions)
            self._todo += others
            self._unwritten += bursts
        except BaseException:  # it is not known which actions are lost
            self.interrupted("a call was interrupted before its frames were written")
            raise
        written = True
        if self._unwritten and not (self._may_wait(bursts) and now < self._write_by):
            written = self._write_all(now)
        if not written:  # the thread waits for the reason, no longer than a moment
            self._inbox.put(None)
        while self._todo:  # what raises here is not repeated, and what is left is done next time
            action = self._todo.popleft()
            if not isinstance(action, (Record, Disconnect, Refused)):  # most actions are
                self._report(action)
            elif isinstance(action, Refused):
                self._note_refusal(action)
            elif isinstance(action, Disconnect):
                self._lose("error_frame", action.reason, LinkInput.DROP)
            elif written or action.holds_unwritten:
                self.hand_outs.record(action)

    def _may_wait(self, bursts: list[Transmit]) -> bool:
        """Return whether `bursts`, with what is not written yet, may go with what follows."""
        for burst in bursts:
            if not burst.waits:
                return False
            for frame in burst.frames:
                self._unwritten_size += len(frame.body)
        return self._unwritten_size < MOST_TOGETHER

    @property
    def _write_by(self) -> float:
        """When what may wait is written (seconds, monotonic)."""
        return self._epoch.written_at + TOGETHER

    def _write_all(self, now: float) -> bool:
        """Write what is not written; False if the socket is gone."""
        bursts = self._unwritten
        data = b""
        written = True
        try:
            # Emptied first, so that what an exception interrupts here is not written twice.
            self._unwritten, self._unwritten_size = [], 0
            data = self._encoded(bursts)
            if data and self.state in LINKED:
                written = self._epoch.write(data, now)
        except BaseException:  # no frame may be left out, and nothing may follow half a one
            self._unwritten, self._unwritten_size = [], 0
            self._write_after_all(data or self._encoded(bursts), now)
            raise
        return written

    def _encoded(self, bursts: list[Transmit]) -> bytes:
        """Return all frames of `bursts`, as they are written on this link."""
        encode = self._epoch.encode
        return b"".join([encode(frame) for burst in bursts for frame in burst.frames])

    def _write_after_all(self, data: bytes, now: float) -> None:
        """Write `data` after an interruption if nothing of it was written; drop the link if only a part was."""
        if self.state not in LINKED:
            return
        written = self._epoch.link.written(data)
        if data and not written:
            self._epoch.write(data, now)
        elif written < len(data):
            self.interrupted("a write was interrupted")
        else:
            self._epoch.torn = False

    def interrupted(self, why: str) -> None:
        """Begin anew on another link at once, because an exception from outside (Ctrl-C) came at an unknown moment."""
        self._opened_at = -math.inf  # it does not count as a failed attempt
        self._lose("io", why, LinkInput.DROP)

    def _step(self, given: LinkInput, among: Collection[LinkState] = tuple(LinkState)) -> bool:
        """
        Go to the next state; returns False if the present one is not `among` these.

        If a signal handler that calls the session changes the state meanwhile, this starts from the new one.
        """
        while (before := self.state) in among:
            following = next_state(before, given)
            # In one step for Python, which runs no signal handler inside it.
            moved, self.state = (True, following) if self.state is before else (False, self.state)
            if moved:
                return True
        return False

    def _lose(self, reason: str, detail: str, given: LinkInput = LinkInput.LOSE) -> None:
        """
        Note that the link is gone, or drop it; `given` is LOSE, DROP, GIVE_UP or END.

        A signal handler may interrupt this; what is left of it is done by whoever comes next, at the latest the thread.
        """
        if self.state in LINKED:
            self._inbox.put(None)  # the thread does the rest
            if reason == "protocol":  # from now on it matters whether any message is settled at all
                self.core.detail(wanted=True)
            told = "closed" if self.state is LinkState.LEAVING else reason
            self._losing = partial(self._lose_link, told, detail, given)
        self._finish_losing()

    def _finish_losing(self) -> None:
        # Read once, for another thread that ends the session sets it without the lock.
        ending = self._ending
        if ending and self.state in LINKED:
            self._losing = partial(self._lose_link, "closed", ending, LinkInput.END)
        if (losing := self._losing) is not None:
            self._parts = True
            try:
                losing()
            finally:
                self._parts = False
            self._losing = None
        if ending:
            self._give_up(self.error or self._gone(ending), LinkInput.END)
            self._ending = ""

    def _lose_link(self, reason: str, detail: str, given: LinkInput) -> None:
        """See `_lose`; this is done once more if it was interrupted."""
        now = self._machine.monotonic()
        if self.state in LINKED:
            self._leave_link(reason, self._gone(detail or reason), given, now)
        link = self._epoch.link
        # One that is dropped for good is closed at once.
        dropped = given is LinkInput.DROP and self.state is OUTAGE
        if dropped and self._epoch.patient and not link.condemned:
            self._parting = self._epoch, self.core.owed
        else:
            self._epoch.drop()
        if (measured := self._epoch.measured(now, finally_=True)) is not None:
            self._report(measured)
        self.core.link_closed(reason, detail, now)
        if self.state in FOR_GOOD:
            self._give_up(self.cause)
        self._report_only()
        self.changed.notify_all()

    def _leave_link(self, reason: str, lost: JmsxError, given: LinkInput, now: float) -> None:
        """Go to the state after this link's end; if it is to be restored and may not be, no other one will come."""
        wanted = given in (LinkInput.LOSE, LinkInput.DROP)
        if wanted and not self._may_restore(reason, given):
            wanted, given = False, LinkInput.GIVE_UP
        self._lost_for = str(lost)
        if not wanted or self.state is not LinkState.JOINING:  # else that outage goes on
            self.cause, self._lost_at = lost, now
        self._step(given, LINKED)

    def _may_restore(self, reason: str, given: LinkInput) -> bool:
        """Return whether there is to be another link; without a policy, if translation may have ended this one."""
        self._suspected = []
        policy = self._connector.policy
        if self._connector.cancelled:
            return False
        if given is LinkInput.DROP or self.state is LinkState.JOINING:
            return True
        if policy is None and not self._epoch.timed_out:
            self._suspected = self.core.suspected_consumers(reason)
        return bool(self._suspected) if policy is None else policy.maximum_attempts != 0

    def _give_up(self, error: JmsxError, given: LinkInput = LinkInput.GIVE_UP) -> None:
        """Note that there will be no other link, because of `error`."""
        self._connector.cancel()
        self.cause = error
        self._step(given)
        self.core.give_up(self.now())
        self._report_only()
        self.changed.notify_all()

    def _report_only(self) -> None:
        """Do what the core asks for where there is no link: report, and tell the ledger."""
        for action in _parted(self.core.take_actions())[1]:
            if isinstance(action, Record):
                self.hand_outs.record(action)
            elif isinstance(action, Refused):
                self._note_refusal(action)
            elif not isinstance(action, Disconnect):
                self._report(action)

    def _gone(self, detail: str) -> ConnectionFailedError:
        return ConnectionFailedError(f"the connection to {self.source.broker} is gone: {detail}")

    def _note_refusal(self, refused: Refused) -> None:
        """Note what the broker refuses; the thread tells it, once nobody has the lock."""
        self._session_log.refusal(refused)
        self._untold.append(refused.error)

    def _report(self, event: Event) -> None:
        self._session_log.observe(event, self.source)
        self._observers.observe(event, self.source)

    def _arm(self) -> None:
        held = self._write_by if self._unwritten else None
        timers = (self.core.next_timer(), self._epoch.next_timer(), held)
        self._armed = min((at for at in timers if at is not None), default=None)

    def _rearm(self) -> None:
        """Wake the thread if a timer is due before the one that it waits for; heart-beats only become due later."""
        timer = self.core.next_timer()
        if self._unwritten and (timer is None or self._write_by < timer):
            timer = self._write_by
        if timer is not None and (self._armed is None or timer < self._armed):
            self._armed = timer
            self._inbox.put(None)


def _parted(actions: list[Action]) -> tuple[list[Transmit], list[Effect]]:
    """Return the Transmit actions, and the others."""
    bursts: list[Transmit] = []
    others: list[Effect] = []
    for action in actions:
        if isinstance(action, Transmit):
            bursts.append(action)
        else:
            others.append(action)
    return bursts, others
