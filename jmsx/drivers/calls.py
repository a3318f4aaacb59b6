"""What application threads call on a session's engine, and wait for: the link, answers, messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.core.consumer import put_off
from jmsx.core.delivery import Delivery, Held
from jmsx.core.dialect import DOUBTFUL
from jmsx.core.requests import Request, silent
from jmsx.core.session import SessionCore
from jmsx.drivers.engine import DISCONNECT_WAIT, LONGEST_WAIT, Engine
from jmsx.drivers.epoch import Patience
from jmsx.drivers.link_state import LEAVING, RESTORING
from jmsx.drivers.tcp import HELD_BACK
from jmsx.errors import (
    BrokerFaultError,
    BrokerTimeoutError,
    ConnectionFailedError,
    IllegalStateError,
    JmsxError,
    LinkError,
    SendUnconfirmedError,
    TransactionRolledBackError,
)
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Collection


T = TypeVar("T")

#: Is called with a message in one step with its hand-out, and with the time (seconds, monotonic).
Begin = Callable[[SessionCore, Delivery, float], None]

#: Attempts to give back what a `receive()` that was interrupted had been given; each may be interrupted.
GIVE_BACK: Final = 5

#: Seconds that a write may stand still at least, however soon its call should end: a broker may be busy for a moment.
STANDSTILL: Final = 1.0

_log = logger("jmsx.session")


class Calls:
    """The calls of many threads on one engine; every wait has its bound, save `take` without a deadline."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.running = True  #: the connection is started, so deliveries are handed out
        self.closed = False  #: the session is closed: nobody waits for a link any more
        self._barrier: Request | None = None  #: when it is answered, the link is renewed
        self._told: Request | None = None  #: the last commit whose end was told to its caller

    def submit(
        self, what: str, operation: Callable[[SessionCore, float], T], limit: float | None = None
    ) -> T:
        """
        Do as `Engine.call` does, for an operation that needs a link: wait for one during an outage, at most `limit`
        seconds.

        Where nothing else is under way in the session, a write of which the broker takes nothing ends, with its link,
        at that limit, too. Raises ConnectionFailedError, naming `what` was not done, when that takes too long.
        """
        began = self.engine.now()
        with self.engine.lock:
            self._await_commit()
            self._await_link(what, limit)
            # The end of the link would put in doubt what others wait for, and bring again what they hold.
            if limit is None or not self.engine.core.at_rest:
                return self.engine.call(operation)
            left = began + limit - self.engine.now()
            with self.engine.link.hurried(max(left, STANDSTILL)):
                return self.engine.call(operation)

    def ask(
        self,
        what: str,
        operation: Callable[[SessionCore, float], Request | None],
        *,
        repeat: bool = False,
        limit: float | None = None,
    ) -> None:
        """
        Do what `submit` does, then wait until the broker has answered; raises its error, or BrokerTimeoutError.

        If the link is lost before the answer, ask again on the next one if that does no harm (`repeat`); if there is
        none in time, what was sent on the last one stays in doubt. If the broker complained, this is repeated only
        once: it may complain each time, and end the link for all senders. `limit`: seconds for all that; None: those
        that every answer has.
        """
        deadline = self.engine.now() + (self._limit if limit is None else limit)
        doubt: SendUnconfirmedError | None = None
        complained = False
        while True:
            try:
                request = self.submit(what, operation, self._left(deadline, limit))
            except (LinkError, IllegalStateError) as error:
                if doubt is None:
                    raise
                raise doubt from error
            try:
                if request is not None:
                    self.wait(request, self._left(deadline, limit))
            except (LinkError, SendUnconfirmedError) as error:
                if not repeat or self.engine.error is not None or self.engine.now() >= deadline:
                    raise
                if isinstance(error.__cause__, BrokerFaultError):
                    if complained:
                        raise
                    complained = True
                doubt = error if isinstance(error, SendUnconfirmedError) else doubt
            else:
                return

    def persist(self, what: str, attempt: Callable[[], T]) -> T:
        """
        Return what `attempt` returns, which opens something; repeat it if the link is lost, or brings no answer.

        It is repeated for as long, and as often, as the first connection may be tried, which is of no use without it. A
        link without an answer is dropped. Raises what the last attempt raised: at once where no link is restored, or
        where the broker complained.
        """
        policy = self.engine.reconnect_policy
        if policy is None:
            return attempt()
        until = self.engine.now() + policy.startup_seconds(self.engine.request_timeout)
        made = 0
        while True:
            made += 1
            try:
                return attempt()
            except (LinkError, BrokerTimeoutError) as error:
                spent = 0 <= policy.startup_attempts <= made or self.engine.now() >= until
                lost = self.engine.error is not None or self.closed
                if spent or lost or isinstance(error.__cause__, BrokerFaultError):
                    raise
                if isinstance(error, BrokerTimeoutError):
                    self.engine.renew(f"{what} was not answered in time")

    def wait(self, request: Request, limit: float | None = None) -> None:
        """Wait for one answer, `limit` seconds if that is given; raises its error, or BrokerTimeoutError."""
        seconds = self.engine.request_timeout if limit is None else limit
        with self.engine.lock:
            waited = self._wait(request, seconds, patient=limit is None)
            if waited is not None:
                # 0 where writing it has taken all the time
                within = "in time" if round(waited, 3) == 0 else f"in {_told(waited)}"
                late = BrokerTimeoutError(
                    f"{self.engine.source.broker} did not answer {request.command} {request.subject}"
                    f" {within}{self._advice(request)}"
                )
                self.engine.work(lambda core, now: core.abandon(request, late, now))
        if request.error is not None:
            raise request.error

    def _wait(self, request: Request, seconds: float | None, *, patient: bool) -> float | None:
        """Wait for an answer, longer if `patient`; return the seconds in which none came, None if it did."""
        link, waited = self.engine.link, 0.0
        patience = Patience(link, seconds or 0.0)
        while not self.engine.changed.wait_for(lambda: request.done, seconds):
            waited += seconds or 0.0
            same = link is self.engine.link
            if not (patient and seconds and same and patience.lasts(self.engine.core.ahead)):
                return waited
        return None

    def _advice(self, request: Request) -> str:
        """Return what may be wrong if the request is not answered."""
        if request.command not in DOUBTFUL:
            return ""
        doubt = "; it may or may not have been done"
        if self.engine.state in RESTORING:
            return f"{doubt}: {self.engine.cause}"
        if self.engine.write_fault:
            return f"{doubt}: {self.engine.write_fault}"
        return f"{doubt}. If nothing else is wrong, {self.engine.core.lacks_marker or HELD_BACK}"

    def finish(self, operation: Callable[[SessionCore, float], Request]) -> None:
        """Run an operation and wait for its answer, but for no link: a lost link has the same effect."""
        self.wait(self.engine.call(operation))

    def disown(self, subscription_id: str) -> None:
        """Close a consumer that nobody has been given, if it is open; wait for nothing, nor for its listener."""
        engine = self.engine
        with engine.lock:
            if engine.error is None and engine.core.is_open(subscription_id):
                engine.call(lambda core, now: core.close_consumer(subscription_id, now, idle=False))

    def commit(self) -> None:
        """
        Commit the transaction, and wait for the answer; raises what the core says, or BrokerTimeoutError.

        A session with commit markers needs the last one in its hands, which comes right behind the last commit. Raises
        the error of a commit that was interrupted, too: nobody has heard of it.
        """
        untold = self.end_commit()
        if untold is not None:
            raise untold
        deadline = self.engine.now() + self._limit
        while (request := self.engine.call(_commit)) is None:
            with self.engine.lock:
                left = deadline - self.engine.now()
                if left <= 0:
                    raise BrokerTimeoutError(
                        f"{self.engine.source.broker} did not deliver the marker for the next commit in"
                        f" {self.engine.request_timeout:g} s; nothing was committed"
                    )
                if not self.engine.work(lambda core, _now: core.may_commit()):
                    self.engine.changed.wait(min(left, LONGEST_WAIT))
        try:
            self.wait(request)
        except JmsxError:
            self._told = self.engine.core.last_commit
            raise
        self._told = self.engine.core.last_commit

    def end_commit(self) -> JmsxError | None:
        """Wait for the answer to a commit whose call was interrupted; return its error, once."""
        untold = self._interrupted_commit()
        return None if untold is None else untold.error

    def begin_rollback(self) -> None:
        """
        Wait as `end_commit` does; the log says if that commit was done, or may be, and so cannot be undone any more.

        No error says so: where the application calls rollback() it already has one, be it Ctrl-C.
        """
        untold = self._interrupted_commit()
        if untold is None or isinstance(untold.error, TransactionRolledBackError):
            return
        _log.warning(
            "rollback() came too late: commit() was interrupted, and done all the same"
            if untold.error is None
            else "rollback() may have come too late: commit() was interrupted, and stayed in doubt",
            broker=self.engine.source.broker,
            transaction=untold.subject,
            error=None if untold.error is None else str(untold.error),
        )

    def _interrupted_commit(self) -> Request | None:
        """Wait for the answer to a commit whose call was interrupted, and return its request, once."""
        last = self.engine.core.last_commit
        if last is None or last is self._told:
            return None
        if self.engine.core.committing:
            try:
                self.wait(last)
            except JmsxError:
                # Waiting itself was refused, as in a signal handler: nobody has heard the answer yet
                if not last.done:
                    raise
        self._told = last
        return last

    def await_commit(self) -> None:
        """Wait for the answer to a commit that was interrupted; if none comes, drop the link: it is in doubt."""
        with self.engine.lock:
            self._await_commit()

    def _await_commit(self) -> None:
        """Do as `await_commit`, which nearly always has nothing to wait for; the caller holds the lock."""
        if self.engine.core.committing and not self.engine.changed.wait_for(
            lambda: not self.engine.core.committing, self.engine.request_timeout
        ):
            self.engine.renew("a COMMIT whose commit() was interrupted was not answered")

    def take(
        self,
        taking: Callable[[SessionCore, float], T | None],
        deadline: float | None,
        given_up: Callable[[], bool],
        *,
        idle: bool = False,
        stopped: bool = False,
    ) -> T | None:
        """
        Return what `taking` makes of the next message, when there is one.

        An outage is waited through, and so is a ledger that is away. None at the deadline (seconds, monotonic; None:
        never) or as soon as `given_up()`; raises if the link is gone for good. `idle`: the caller has nothing to do
        until the deadline, as without one. `stopped`: also while the connection is stopped, for a listener that has
        yet to come to its end.
        """
        while True:
            with self.engine.lock:
                message = self._await_next(
                    taking, deadline, given_up, idle=idle or deadline is None, stopped=stopped
                )
                hand_outs = self.engine.hand_outs
                bodiless, hand_outs.bodiless = hand_outs.bodiless, None
                if message is not None or bodiless is None or given_up():
                    return message
            self._look_for_body(bodiless)

    def taking(
        self,
        subscription_ids: Callable[[], Collection[str]],
        read: Callable[[Delivery], T],
        *,
        begin: Begin = lambda _core, _delivery, _now: None,
        held: Held | None = None,
    ) -> Callable[[SessionCore, float], T | None]:
        """
        Return an operation that takes the next message that is here of these subscriptions, in the order of arrival.

        Pass it to `take` or, if the message `flows`, to another call of the engine. `read` is run under the lock, in
        one step with the hand-out, and then `begin`; a message that cannot be read becomes a dead letter, and the next
        one is taken. `held` has the message from the moment on in which it is handed out, for `give_back`.
        """

        def operation(core: SessionCore, now: float) -> T | None:
            while (delivery := self._next(core, subscription_ids(), now, held)) is not None:
                try:
                    message = read(delivery)
                except Exception as error:
                    if _is_readable(delivery, read):
                        raise  # the message can be read, so a signal handler has raised this
                    self._refuse(core, delivery, error, now)
                    continue
                begin(core, delivery, now)
                return message
            return None

        return operation

    @property
    def flows(self) -> bool:
        """Whether a message that is here may be taken, and nobody is to be asked first; the caller holds the lock."""
        engine = self.engine
        return (
            self.running
            and engine.reachable
            and not engine.core.committing
            and self._barrier is None
            and self._asks_nobody
        )

    @property
    def _asks_nobody(self) -> bool:
        """Whether a message is handed out as the core says, without a ledger, and with its body."""
        return self.engine.hand_outs.ledger is None and not self.engine.core.untranslated

    def has_next(self, subscription_id: str) -> bool:
        """Return whether a message of this consumer `flows`, and is here; the caller holds the lock."""
        return self.flows and self.engine.core.has_next(subscription_id, self.engine.now())

    def _await_next(
        self,
        taking: Callable[[SessionCore, float], T | None],
        deadline: float | None,
        given_up: Callable[[], bool],
        *,
        idle: bool,
        stopped: bool,
    ) -> T | None:
        """
        Return what `take` takes; None also where the body of a message is to be looked for first.

        The caller holds the lock.
        """
        while not given_up():
            self.engine.check()
            flows = self.engine.state not in RESTORING and not self.engine.core.committing
            flows = flows and (self.running or stopped)
            if flows and not self._translates_again():
                message = self.engine.work(taking)
                if message is not None or self.engine.hand_outs.bodiless is not None:
                    return message
            now = self.engine.now()
            if deadline is not None and now >= deadline:
                return None
            wait = self.engine.changed.rest if idle else self.engine.changed.wait
            wait(
                min(
                    LONGEST_WAIT,
                    math.inf if deadline is None else deadline - now,
                    self.engine.hand_outs.patience(now) if flows else math.inf,
                )
            )
        return None

    def _look_for_body(self, delivery: Delivery) -> None:
        """Ask the broker what it has of `delivery`, which stays the next message; its link may end meanwhile."""
        try:
            shown = self.engine.hand_outs.look(delivery)
        except JmsxError as error:
            with self.engine.lock:
                self.engine.hand_outs.unanswered(delivery, error, self.engine.now())
        else:
            with self.engine.lock:
                self.engine.hand_outs.looked(self.engine.core, delivery, shown)

    def _translates_again(self) -> bool:
        """
        Return whether nothing is handed out now, because the session changes to a link on which maps are translated.

        It does so at a moment when nothing is unsettled, and after the broker has read all that we wrote.
        """
        if (
            self._barrier is None
            and self.engine.hand_outs.only_maps_in == self.engine.core.epoch
            and self.engine.core.at_rest
        ):
            self._barrier = self.engine.work(lambda core, _now: core.barrier())
        if self._barrier is None:
            return False
        if not self._barrier.done:
            return True
        error, self._barrier = self._barrier.error, None
        if error is not None and silent(error):  # its link is gone, and another one is there
            return False
        self.engine.renew("maps are translated again, for nothing else came without a body")
        return True

    def _next(
        self, core: SessionCore, names: Collection[str], now: float, held: Held | None
    ) -> Delivery | None:
        withheld = False
        if self._asks_nobody:
            delivery = core.handing_out.deliver(names, now, held)
        else:
            delivery = self.engine.hand_outs.deliver(core, names, now, held)
            withheld = self.engine.hand_outs.withheld
        if delivery is not None and self.engine.hand_outs.waits:
            put_off(delivery)
        if delivery is None and not withheld:
            core.want(names, now)
        return delivery

    def _refuse(self, core: SessionCore, delivery: Delivery, error: Exception, now: float) -> None:
        _log.error(
            "message cannot be understood: it becomes a dead letter",
            broker=self.engine.source.broker,
            message_id=delivery.message_id,
            exc_info=error,
        )
        core.undecodable(delivery, error, now)

    def give_back(self, held: Held) -> None:
        """
        Put back, as the next message, what was handed out to a `receive()` that raises.

        It may be interrupted in turn, so it is tried again; at last the link is dropped, and the broker delivers it
        again.
        """
        if held.delivery is None:  # as when `receive()` was refused, in the middle of another call
            return
        for _ in range(GIVE_BACK):
            try:
                with self.engine.lock:
                    if self.engine.error is None and not self.engine.work(
                        lambda core, _: core.take_back(held)
                    ):
                        self.engine.interrupted("a receive() was interrupted at a hand-out")
                    return
            except BaseException:  # noqa: BLE001, S112 - what the caller raises already is told
                continue
        self.engine.renew("a receive() was interrupted again and again")

    def look(self, subscription_id: str, destination: str) -> Delivery | None:
        """
        Return the next message of the browser of `destination`, its URI; None at its end.

        Raises BrokerTimeoutError if the broker is silent, and IllegalStateError if the session is closed.
        """
        deadline = self.engine.now() + self._limit
        with self.engine.lock:
            return self._look(subscription_id, destination, deadline)

    def _look(self, subscription_id: str, destination: str, deadline: float) -> Delivery | None:
        while True:
            if self.closed:
                raise IllegalStateError(
                    f"The Session is closed; it was closed while {destination} was browsed, so what was shown may not"
                    " be all"
                )
            delivery, ended = self.engine.call(
                lambda core, _now: core.browsers.look(subscription_id)
            )
            if delivery is not None or ended:
                return delivery
            left = deadline - self.engine.now()
            if left <= 0 or not (
                self.engine.changed.wait(min(left, LONGEST_WAIT)) or left > LONGEST_WAIT
            ):
                raise BrokerTimeoutError(
                    f"{self.engine.source.broker} did not come to the end of {destination} in"
                    f" {self.engine.request_timeout:g} s; browse it again, or raise request_timeout"
                )

    def note_closed(self) -> None:
        """Note that the session is closed, though its link has yet to end, and end all waits for a link."""
        with self.engine.lock:
            self.closed = True
            self.engine.changed.notify_all()

    def tidy_up(self) -> None:
        """Before the session closes, wait for a commit, and a moment for the last commit marker."""
        with self.engine.lock:
            self.engine.changed.wait_for(
                lambda: not self.engine.reachable or not self.engine.core.committing,
                self.engine.request_timeout,
            )
            self.engine.changed.wait_for(
                lambda: not self.engine.reachable or self.engine.core.leaves_nothing,
                DISCONNECT_WAIT,
            )

    def leave(self, reason: str) -> None:
        """Say DISCONNECT and wait until the broker has closed the socket, so that it has forgotten us; then `end`."""
        try:
            if (request := self.engine.leave()) is not None:
                self.wait(request)
                with self.engine.lock:
                    self.engine.changed.wait_for(
                        lambda: self.engine.error is not None, DISCONNECT_WAIT
                    )
        except (LinkError, BrokerTimeoutError) as error:
            _log.info("no answer to DISCONNECT", broker=self.engine.source.broker, error=str(error))
        finally:
            self.engine.end(reason)

    @property
    def _limit(self) -> float:
        """Seconds for an answer."""
        return math.inf if self.engine.request_timeout is None else self.engine.request_timeout

    def _left(self, deadline: float, limit: float | None) -> float | None:
        """Return seconds until `deadline`, if `limit` has set it."""
        return None if limit is None else max(deadline - self.engine.now(), 0.0)

    def _await_link(self, what: str, limit: float | None) -> None:
        self.engine.check()
        if self.engine.state is LEAVING:  # by another thread; nobody answers what follows
            raise IllegalStateError(f"The Session is closed; {what} was not sent")
        if self.engine.state not in RESTORING:
            return
        policy = self.engine.reconnect_policy
        given = policy.timeout if policy is not None else 0.0
        seconds = given if given > 0 else self._limit
        if limit is not None:
            seconds = min(seconds, limit)
        self.engine.changed.wait_for(
            lambda: self.engine.state not in RESTORING or self.closed, min(seconds, LONGEST_WAIT)
        )
        self.engine.check()
        if self.closed:
            raise IllegalStateError(f"The Session is closed; {what} was not sent")
        if self.engine.state in RESTORING:
            told = self.engine.refusal
            raise ConnectionFailedError(
                f"{what} was not sent: {self.engine.cause}, and no broker could be reached for"
                f" {_told(seconds)}; jmsx goes on trying{f'; the last attempt: {told}' if told else ''}"
            )


def _commit(core: SessionCore, now: float) -> Request | None:
    """Return the commit, if it may be done now."""
    return core.commit(now) if core.may_commit() else None


def _is_readable(delivery: Delivery, read: Callable[[Delivery], object]) -> bool:
    """Return whether a message can be read after all: if something is wrong with it, that shows each time."""
    try:
        read(delivery)
    except Exception:  # noqa: BLE001 - what is wrong with a message may raise anything
        return False
    return True


def _told(seconds: float | None) -> str:
    """Return a duration for an error text, rounded: the time until a deadline has many digits."""
    return f"{round(math.inf if seconds is None else seconds, 3):g} s"
