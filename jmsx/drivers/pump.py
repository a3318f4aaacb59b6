"""The pump: what application threads call on a session's engine, waiting for the link, for answers and for messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from jmsx.drivers.engine import FAREWELL, LONGEST, Engine
from jmsx.errors import HELD_BACK, BrokerTimeoutError, ConnectionFailedError, IllegalStateError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jmsx.core.delivery import Delivery
    from jmsx.core.requests import Request
    from jmsx.core.session import SessionCore

T = TypeVar("T")

_log = logger("jmsx.session")


class Pump(Engine):
    """An engine for many threads; every wait has its bound, save `take` without a deadline."""

    running = True  #: deliveries are handed out: the connection is started
    closing = False  #: the session is being closed: nobody waits for a link any more

    def submit(self, what: str, operation: Callable[[SessionCore, float], T]) -> T:
        """
        As `call`, for an operation that needs a link: waits for one during an outage.

        Raises ConnectionFailedError, naming `what` was not done, when that takes too long.
        """
        with self.changed:
            self._await_link(what)
            return self.call(operation)

    def ask(
        self,
        what: str,
        operation: Callable[[SessionCore, float], Request | None],
        *,
        repeat: bool = False,
    ) -> None:
        """
        As `submit`, then wait until the broker has answered; raises its error, or BrokerTimeoutError.

        If the link is lost before, ask again on the next one if that does no harm (`repeat`).
        """
        deadline = self.now() + self._limit
        while True:
            request = self.submit(what, operation)
            try:
                if request is not None:
                    self.wait(request)
            except ConnectionFailedError:
                if not repeat or self.error is not None or self.now() >= deadline:
                    raise
            else:
                return

    def wait(self, request: Request) -> None:
        """Wait for one answer; raises its error, or BrokerTimeoutError."""
        with self.changed:
            if not self.changed.wait_for(lambda: request.done, self.request_timeout):
                now = self.now()
                late = BrokerTimeoutError(
                    f"{self.source.broker} did not answer {request.command} {request.subject}"
                    f" in {self.request_timeout:g} s{_advice(request)}"
                )
                self.core.abandon(request, late, now)
                self._perform(now)
        if request.error is not None:
            raise request.error

    def finish(self, operation: Callable[[SessionCore, float], Request]) -> None:
        """As `ask`, for an operation that an outage has done already: it waits for an answer, but for no link."""
        with self.changed:
            self.wait(self.call(operation))

    def commit(self) -> None:
        """
        Commit the transaction, and wait for the answer; raises what the core says, or BrokerTimeoutError.

        A session with commit markers needs the last one in its hands, which comes right behind the last commit.
        """
        deadline = self.now() + self._limit
        with self.changed:
            while not self.call(lambda core, _now: core.may_commit()):
                left = deadline - self.now()
                if left <= 0:
                    raise BrokerTimeoutError(
                        f"{self.source.broker} did not deliver the marker for the next commit in"
                        f" {self.request_timeout:g} s; nothing was committed"
                    )
                self.changed.wait(min(left, LONGEST))
            self.finish(lambda core, now: core.commit(now))

    def take(
        self,
        subscription_ids: Callable[[], Sequence[str]],
        deadline: float | None,
        given_up: Callable[[], bool],
        read: Callable[[Delivery], T],
        begin: Callable[[Delivery], None] = lambda _delivery: None,
    ) -> T | None:
        """
        What `read` makes of the next message of the subscriptions, in the order of arrival.

        An outage is waited through. None at the deadline (seconds, monotonic; None: never) or as soon as `given_up()`;
        raises if the link is gone for good. `read` is run under the lock, and then `begin(delivery)`; a message that
        cannot be read becomes a dead letter, and the next one is taken.
        """
        with self.changed:
            while not given_up():
                self.check()
                now = self.now()
                delivery = None
                if self.outage is None and self.running:
                    names = subscription_ids()
                    delivery = self.counting.deliver(self.core, names, now)
                    if delivery is None:
                        self.core.want(names, now)
                    self._perform(now)
                    self._rearm()
                if delivery is not None:
                    try:
                        message = read(delivery)
                    except Exception as error:  # noqa: BLE001 - one message must not end the session
                        self._refuse(delivery, error)
                        continue
                    begin(delivery)
                    return message
                if deadline is not None and now >= deadline:
                    return None
                self.changed.wait(LONGEST if deadline is None else min(deadline - now, LONGEST))
            return None

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        _log.error(
            "message cannot be understood: it becomes a dead letter",
            broker=self.source.broker,
            message_id=delivery.message_id,
            exc_info=error,
        )
        self.call(lambda core, now: core.undecodable(delivery, error, now))

    def look(self, subscription_id: str) -> Delivery | None:
        """The next message of a browser; None at its end; raises BrokerTimeoutError if the broker is silent."""
        deadline = self.now() + self._limit
        with self.changed:
            while True:
                delivery, ended = self.call(lambda core, _now: core.browsings.look(subscription_id))
                if delivery is not None or ended:
                    return delivery
                left = deadline - self.now()
                if left <= 0 or not (self.changed.wait(min(left, LONGEST)) or left > LONGEST):
                    raise BrokerTimeoutError(
                        f"{self.source.broker} showed no end of the queue in {self.request_timeout:g} s"
                    )

    def hurry(self) -> None:
        """The session is being closed: whoever waits for a link waits in vain."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def tidy_up(self) -> None:
        """Before the session closes: wait for a commit, and a moment for what it has to take along."""
        with self.changed:
            self.changed.wait_for(
                lambda: not self.reachable or not self.core.committing, self.request_timeout
            )
            self.changed.wait_for(
                lambda: self.error is not None or self.outage is not None or self.core.tidy,
                FAREWELL,
            )

    def leave(self, reason: str) -> None:
        """Say DISCONNECT and wait until the broker has closed the socket, so that it has forgotten us; then `end`."""
        try:
            with self.changed:
                if self.error is None and self.outage is None:
                    self.farewell = True
                    self.wait(self.call(lambda core, _now: core.disconnect()))
                    self.changed.wait_for(lambda: self.error is not None, FAREWELL)
        except (ConnectionFailedError, BrokerTimeoutError) as error:
            _log.info("no farewell", broker=self.source.broker, error=str(error))
        finally:
            self.end(reason)

    @property
    def _limit(self) -> float:
        """Seconds for an answer."""
        return math.inf if self.request_timeout is None else self.request_timeout

    def _await_link(self, what: str) -> None:
        self.check()
        if self.outage is None:
            return
        policy = self._connector.policy
        given = policy.timeout if policy is not None else 0.0
        seconds = given if given > 0 else self._limit
        self.changed.wait_for(lambda: self.outage is None or self.closing, min(seconds, LONGEST))
        self.check()
        if self.closing:
            raise IllegalStateError(f"The Session is closed; {what} was not sent")
        if self.outage is not None:
            raise ConnectionFailedError(
                f"{what} was not sent: {self.outage}, and no broker could be reached for {seconds:g} s;"
                " jmsx goes on trying"
            )


def _advice(request: Request) -> str:
    """What may be wrong with a broker that does not answer this."""
    if request.command not in ("SEND", "COMMIT"):
        return ""
    return f"; it may or may not have been done. If nothing else is wrong, {HELD_BACK}"
