"""The consumer: `receive()` asks for one message, and a listener is called with each message that arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from jmsx.core.delivery import Delivery, Held
from jmsx.core.durations import LONGEST, Duration, timeout_of
from jmsx.core.session import SessionCore
from jmsx.errors import BrokerTimeoutError, IllegalStateError, LinkError, UsageError
from jmsx.jms.destination import Destination
from jmsx.jms.handlers import check_runs, check_takes_message
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds to wait for a message after asking the broker for one. A broker that is not slow has sent it by then, if it
#: has any; it never says that there is none.
_ANSWER: Final = 0.2


class MessageConsumer:
    """
    Receives the messages of one destination; made by `Session.create_consumer`.

    Take them by `receive()`, or have a listener called with each of them (`set_listener`).
    """

    def __init__(
        self,
        link: SessionLink,
        destination: Destination,
        subscription_id: str,
        *,
        pull: bool,
        durable_name: str | None,
    ) -> None:
        self.destination = destination
        self._link = link
        self._subscription_id = subscription_id
        self._pull = pull  #: whether the prefetch is 0
        self._durable_name = durable_name
        self._acknowledges_itself = link.mode.does.acknowledges_itself
        self._closed = False

    def receive(self, timeout: Duration | None = None) -> Message | None:
        """
        Return the next message; waits `timeout` for it (seconds, a timedelta, or a text such as "2s"), or for ever
        (None).

        Returns None if no message comes in time, or if the consumer is closed in the meantime. In AUTO mode the message
        is acknowledged when this returns. If this raises, for whatever reason (KeyboardInterrupt, or what a signal
        handler raises), the message is not acknowledged, and the next `receive()` returns it.

        If a listener of this consumer was removed while it ran, this waits in AUTO and DUPS_OK until the listener has
        returned, and raises IllegalStateError if the listener itself calls it: acknowledging the next message would
        acknowledge the listener's message, too.

        Raises ConfigurationError for a timeout that is no duration, IllegalStateError if closed, or if a consumer of
        the session has a listener, and ConnectionFailedError if the link is gone.
        """
        self._check()
        if self._awaits_listener() and self._link.dispatcher.inside:
            raise IllegalStateError(
                f"receive() in a listener of {self.destination} would acknowledge the listener's message, too; call it"
                " when the listener has returned"
            )
        seconds = timeout if _is_plain(timeout) else timeout_of("timeout", timeout)
        engine, calls = self._link.engine, self._link.calls
        if not calls.running:
            self._link.shared.note_unstarted()
        deadline = None if seconds is None else engine.now() + seconds
        held = Held()
        try:
            taking = calls.taking(self._names, self._link.read, begin=_consume, held=held)
            # Return at once: between the end of `take` and the end of the caller's line Python runs no signal handler.
            return calls.take(taking, deadline, self._given_up)
        except BaseException:
            calls.give_back(held)
            raise

    def _names(self) -> tuple[str, ...]:
        return () if self._awaits_listener() else (self._subscription_id,)

    def _awaits_listener(self) -> bool:
        """Return whether the message of a listener that runs has to be acknowledged before the next one."""
        return self._acknowledges_itself and self._link.dispatcher.serving == self._subscription_id

    def _given_up(self) -> bool:
        return self._closed or self._link.closed

    def receive_no_wait(self) -> Message | None:
        """
        Return the next message if it has been prefetched already, else None.

        The broker is asked for a message where none can have been prefetched: with prefetch 0, while the application
        holds as many unacknowledged messages as the prefetch allows, and while messages wait behind a dead letter that
        the broker has not accepted yet. The broker has 0.2 s to send one; a slow broker has as long as it takes to
        answer another request, at most `request_timeout`.
        """
        self._check()
        asks = self._pull or self._link.engine.call(
            lambda core, _now: core.is_window_full(self._subscription_id)
        )
        message = self._ask() if asks else self.receive(0.0)
        if message is not None or self._given_up():
            return message
        waits = self._link.engine.call(lambda core, _now: core.is_held_back(self._subscription_id))
        return self._ask() if waits else None

    def _ask(self) -> Message | None:
        """
        Receive what the broker sends when it is asked; None if it has answered a question behind that as fast.

        No answer of the broker waits for the thread that sends a queue's messages (BROKER.md C72, A72).
        """
        engine, calls = self._link.engine, self._link.calls
        seconds, deadline = _ANSWER, engine.now() + (engine.request_timeout or LONGEST)
        while True:
            message = self.receive(seconds)
            began = engine.now()
            if message is not None or self._given_up() or began >= deadline:
                return message
            try:
                calls.ask(
                    "receive_no_wait()", lambda core, _now: core.barrier(), limit=deadline - began
                )
            except (LinkError, BrokerTimeoutError):
                return self.receive(0.0)
            took = engine.now() - began
            if took <= seconds:
                return self.receive(0.0)
            seconds = took

    def set_listener(self, listener: Callable[[Message], object] | None) -> None:
        """
        Call `listener(message)` for each message from now on, on the session's own thread; None removes the listener.

        In AUTO mode a message is acknowledged when the listener has returned; if the listener raises, the message is
        delivered again by the redelivery policy. If it returns an awaitable or a generator, its work was not done, and
        the message becomes a dead letter at once. Raises ConfigurationError for a coroutine or generator function and
        for a function that cannot be called with one message, UsageError for a consumer with prefetch 0, and
        ResourceAllocationError if this process cannot start another thread.
        """
        if self._closed:
            raise IllegalStateError(
                f"The Consumer is closed; create another one for {self.destination}"
            )
        if listener is not None:
            check_runs(listener)
            check_takes_message(listener)
        if self._pull:
            raise UsageError(
                f"{self.destination}: Illegal prefetch size of zero. This setting is not supported for asynchronous"
                " consumers please set a value of at least 1"
            )
        self._link.listen(self._subscription_id, listener)

    def close(self) -> None:
        """
        Receive no more messages, and wait for a running listener, unless it is the caller; idempotent.

        A consumer with messages in an open transaction is closed when the transaction ends, and this waits for no
        listener, as in Java. In AUTO and DUPS_OK, a listener that closes its own consumer has its message acknowledged,
        even if it raises afterwards. If a listener has not returned after `request_timeout`, its message is delivered
        again.
        """
        if self._closed:
            return
        self._closed = True
        link = self._link
        link.engine.wake()
        if not link.closed and link.engine.error is None:
            try:
                try:
                    idle = link.leave(self._subscription_id)
                    asked = link.engine.call(
                        lambda core, now: core.close_consumer(self._subscription_id, now, idle=idle)
                    )
                except LinkError:  # the link was lost for good, and the consumer with it
                    return
                link.calls.wait(asked)
            except BaseException:  # a consumer that is still subscribed keeps messages from others
                self._closed = not link.engine.core.is_open(self._subscription_id)
                raise
            if self._durable_name is not None:
                link.shared.release_durable(self._durable_name)

    def _check(self) -> None:
        self._link.check_receive()
        if self._closed:
            raise IllegalStateError(
                f"The Consumer is closed; create another one for {self.destination}"
            )


def _consume(core: SessionCore, delivery: Delivery, now: float) -> None:
    """Do the last step of a `receive()`: return `delivery`, unless that is interrupted; see `Calls.give_back`."""
    core.consumed(delivery, now, returning=True)


def _is_plain(timeout: Duration | None) -> TypeGuard[float | None]:
    """Return whether it needs no reading, as in nearly every call: None, or a number that is finite."""
    return timeout is None or (type(timeout) in (int, float) and -LONGEST < timeout < LONGEST)  # type: ignore[operator]  # its type was just asked: a number
