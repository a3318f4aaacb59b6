"""A worker: one session with one consumer, whose messages it passes to a handler."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from jmsx.app.answers import answer_to
from jmsx.app.availability import Availability
from jmsx.app.health import WorkerState
from jmsx.app.loops import CALL, Loop, Running, Work
from jmsx.app.middleware import Around, Middleware
from jmsx.app.pacing import Gate
from jmsx.app.parameters import InvalidMessagesError
from jmsx.app.progress import Movement, Progress
from jmsx.app.registration import Consumer
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.dialect import Dialect
from jmsx.core.durations import seconds
from jmsx.core.ledger import StoreKey
from jmsx.core.modes import AcknowledgeMode, SettledBy
from jmsx.core.values import DestinationKind
from jmsx.errors import (
    IllegalStateError,
    InvalidDestinationError,
    JmsxError,
    SecurityError,
    SpoiltTransactionError,
    StoreError,
    UsageError,
)
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.handlers import check_ran, is_async
from jmsx.jms.message import Message
from jmsx.jms.outcomes import Duplicate, Reject, Unhandled
from jmsx.jms.session import link_of
from jmsx.jms.translation import delivery_of
from jmsx.log import logger
from jmsx.stores import IdempotencyStore
from jmsx.stores.pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

P = ParamSpec("P")
T = TypeVar("T")

#: Why a transacted handler may not send if its consumer has a DatabaseStore, which commits first.
NO_SENDS: Final = (
    "with dedupe=DatabaseStore(...) a SESSION_TRANSACTED handler cannot send: the message would be known as done"
    " although its sends were lost with their transaction; use another mode, where app.send() is confirmed at once"
)

#: Seconds that a coroutine has for its cleanup, when it is cancelled because the time for draining is over.
GRACE: Final = 2.0

#: How often a handler may do its work while its store cannot commit it, before that counts as a failure.
IN_VAIN: Final = 3

#: How many frames of a late handler's stack are logged.
_STACK: Final = 8

#: The outcome of a call that was not made.
NOT_CALLED: Final = Unhandled()

_log = logger("jmsx.app")


#: Holds the call of the handler that this thread runs, or waits for.
_HERE: Final = threading.local()


@dataclass(slots=True, eq=False)
class Call:
    """One call of the handler of `worker` for one message; immutable."""

    worker: Worker
    message_id: str | None
    since: float  #: seconds, monotonic
    thread: int = field(default_factory=threading.get_ident)


def calling(mark: object) -> Worker | None:
    """
    Return the worker with that mark whose handler is the caller.

    The context tells; or the thread, for what a handler runs there in a context of its own.
    """
    at_work = CALL.get()
    for call in (at_work, getattr(_HERE, "call", None)):
        if isinstance(call, Call) and call.worker.mark is mark and call.worker.call is call:
            return call.worker
    return None


class Worker:
    """Runs `consumer.handler` for the messages of `connection`, which is its own, in one session."""

    def __init__(
        self,
        consumer: Consumer,
        connection: Connection,
        availability: Availability,
        *,
        loop: Loop | None = None,
        failing: Callable[[JmsxError], object] = lambda _error: None,
        gate: Gate | None = None,
        middleware: Sequence[Middleware] = (),
        mark: object = None,
        quit_start: Callable[[], object] = lambda: None,
        abort_start: Callable[[], object] = lambda: None,
        reply: Callable[[Message, Destination, dict[str, Any]], str] | None = None,
    ) -> None:
        self.consumer = consumer
        self._gate = gate or Gate()
        self._around = Around(consumer.handler, (*middleware, *consumer.middleware))
        timeout = consumer.timeout
        self.timeout = None if timeout is None else seconds("timeout", timeout)  #: of a call
        #: When its handler was called that runs in this thread, monotonic.
        self._called_at: float | None = None
        self._late: Call | None = None  #: the call that was logged as late
        #: When a wait for its rate limit or circuit breaker ends; seconds, monotonic
        self._held_until = -math.inf
        self.away: str | None = None  #: why its store cannot be used
        self.mark = mark  #: by which its app knows it
        self.quit_start = quit_start  #: tells the start that it belongs to to stop
        self.abort_start = abort_start  #: drops that start
        self._reply = reply or self.send  #: sends answers outside of transactions
        self._availability = availability
        self.call: Call | None = None  #: the running call of its handler
        self.called: Call | None = None  #: the last call of its handler
        self._ended = False  #: whether the commit for the present message was tried
        self._unsent = False  #: whether a send of the handler has failed in the transaction
        self._connection = connection
        self._failing = failing
        self._left = False  #: told to close, so its threads are to end
        self._database = consumer.parameters.database
        self._loop = loop if is_async(consumer.handler) else None
        self._on_loop: Running | None = None  #: its handler's call on a loop
        mode, options = self._mode(consumer), consumer.options
        if mode.does.batches_topics and consumer.kind is not DestinationKind.QUEUE:
            # On a topic, a DUPS_OK listener that raises has lost its message, as in Java; AUTO can batch its ACKs, too.
            mode = AcknowledgeMode.AUTO_ACKNOWLEDGE
            options = replace(options, optimize_acknowledge=True)
        self._session = connection.create_session(mode)
        self._link = link_of(self._session)
        self._machine = self._link.machine
        self._leaving = self._machine.event()  #: set: no further call begins
        self._producer = self._session.create_producer()
        if consumer.redelivery_for:
            base = connection.options.policy(consumer.destination.uri, options)
            options = replace(options, redelivery_policy=consumer.policy(base))
        if consumer.durable is not None:
            subscription = self._session.create_durable_consumer(
                consumer.destination,
                consumer.durable,
                selector=consumer.selector,
                name=consumer.name,
                options=options,
            )
        else:
            subscription = self._session.create_consumer(
                consumer.destination,
                selector=consumer.selector,
                name=consumer.name,
                options=options,
            )
        does = consumer.mode.does
        #: Whether a handled message is settled without writing to a store or waiting for the broker.
        self._goes_on = (
            self._link.mode.does.settled_by is SettledBy.RETURN and consumer.dedupe is None
        )
        self._settle = {
            SettledBy.RETURN: self._handle,
            SettledBy.CALL: (
                self._acknowledge if does.redelivers_raised else self._acknowledge_or_recover
            ),
            SettledBy.COMMIT: self._transact,
        }[does.settled_by]
        self._subscription = subscription
        # A message that was taken may wait before its handler is called, so the worker reports when it is called. Set
        # only here, for a durable consumer has moved to another link by now.
        self._link.engine.hand_outs.waits = (
            consumer.dedupe is not None or consumer.batch is not None or not self._gate.is_open
        )
        self._link.engine.hand_outs.asks_store = consumer.dedupe is not None
        subscription.set_listener(self._listen)

    @staticmethod
    def _mode(consumer: Consumer) -> AcknowledgeMode:
        """Return the acknowledge mode of the session that serves `consumer`."""
        return consumer.mode

    @property
    def transacted(self) -> bool:
        """Whether its session is transacted: receives and sends of the handler are committed together."""
        return self._link.transacted

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """
        Send one message in the transaction of the handler that calls this; returns its key.

        Raises IllegalStateError if the consumer has a DatabaseStore: the store commits first, so if the transaction
        failed, the received message would count as handled, and the sent one would be lost.
        """
        if not self._sends_in_transaction:
            raise IllegalStateError(f"consumer {self.consumer.name}: {NO_SENDS}")
        try:
            return self._producer.send(message, destination=to, **options)
        except IllegalStateError:
            self._unsent = True
            raise

    @property
    def _sends_in_transaction(self) -> bool:
        """
        Whether its transaction may have sends, and is committed before a store knows the message as done.

        A store in a database cannot wait for that.
        """
        return self.transacted and not getattr(self.consumer.dedupe, "connects", False)

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return self._link.session_id

    @property
    def dialect(self) -> Dialect:
        """The dialect of its kind of broker."""
        return self._link.dialect

    @property
    def server(self) -> str:
        """The `server` header of the broker's CONNECTED frame."""
        return self.greeting.get("server", "")

    @property
    def options(self) -> ConnectionOptions:
        """The options of its connection."""
        return self._link.options

    @property
    def address(self) -> BrokerAddress:
        """The address of the broker to which it is connected, or was last."""
        return self._link.address

    @property
    def connected(self) -> bool:
        """Whether it is connected, as far as the client can know, and subscribed."""
        return self._link.connected

    @property
    def greeting(self) -> Mapping[str, str]:
        """The headers of the broker's CONNECTED frame; a new object for each link."""
        return self._link.greeting

    @property
    def link(self) -> str:
        """The broker's session id of the current link."""
        return self.greeting.get("session", "")

    def renew(self, reason: str) -> None:
        """Subscribe anew, on a new link."""
        self._link.renew(reason)

    def begin(self) -> None:
        """Let messages flow."""
        self._connection.start()

    def begin_nothing_more(self) -> None:
        """Call the handler no more; does not block."""
        self._leaving.set()
        self._connection.stop(0.0)

    def rest(self, timeout: float) -> bool:
        """Begin no further call, and wait for the running one; False if it still runs after `timeout` seconds."""
        self._leaving.set()
        if self._loop is None:
            return self._connection.stop(timeout)
        grace = min(GRACE, timeout / 4)
        if self._connection.stop(timeout - grace):
            return True
        running = self._on_loop
        if running is None:
            return self._connection.stop(grace)
        running.cancel()
        rested = self._connection.stop(grace)
        if not rested:
            self._loop.give_up(running)
        return rested

    def close(self) -> None:
        """
        Return the messages that were not begun to the broker, and end the subscription.

        When this returns, the broker has confirmed the UNSUBSCRIBE, and with it all acknowledgements before it on the
        same socket: it answers in order. Raises JmsxError if it did not.
        """
        self._left = True
        self._leaving.set()
        self._connection.close()

    def abort(self) -> None:
        """Drop the socket: the broker takes back every unacknowledged message."""
        self._left = True
        self._leaving.set()
        running = self._on_loop
        if running is not None:
            running.cancel()
        self._connection.abort()

    def idle_since(self, moment: float, progress: Progress) -> bool:
        """Return whether it was subscribed since `moment` (seconds, monotonic), had no message, and none waits."""
        idle = self.call is None and self._link.empty_handed
        return idle and self._movement(progress).idle_since(moment)

    def _movement(self, progress: Progress) -> Movement:
        """Return where its session stands, by its events and by its own word."""
        movement = progress.movement(self._link.session_id)
        return replace(movement, moved_at=max(movement.moved_at, self._link.ended_at))

    def state(self, progress: Progress, stranded: int) -> WorkerState:
        """Return its state for the health probes: its link, its handler's call, and what it waits for."""
        call, now = self.call, self._machine.monotonic()
        return WorkerState(
            consumer=self.consumer.name,
            destination=self.consumer.destination.uri,
            movement=self._movement(progress),
            alive=self._left or self._link.alive,
            in_hand=self._link.in_hand,
            running_since=call.since if call else None,
            message_id=call.message_id if call else None,
            stranded=stranded,
            away=self._awaited(),
            refusal=self._link.refusal,
            fault=self._link.policy_fault,
            paused=self._gate.paused(now),
            held_until=self._held_until,
            called_at=self._called_at,
            handler_limit=self.timeout,
        )

    def _awaited(self) -> str | None:
        """Return what it waits for because that is away, and why."""
        told = getattr(self.consumer.dedupe, "away", None)
        # A store that the application wrote may mean something else by `away`.
        store = self.away or (told if isinstance(told, str) else None)
        if store is not None:
            return f"store, which is away: {store}"
        ledger = self._link.ledger_away
        return None if ledger is None else f"delivery ledger, which is away: {ledger}"

    def _called_for(self, message_id: str | None) -> None:
        """Let others, and what the handler calls, see that it is at work, on this thread."""
        self.call = _HERE.call = Call(self, message_id, self._machine.monotonic())

    def _listen(self, message: Message) -> None:
        """Handle and settle one message, and let others see that it is being done."""
        self._called_for(message.message_id)
        try:
            self._settle(message)
        finally:
            if not self._gate.is_open:
                self._gate.ended(NOT_CALLED, 0.0)
            self.call = None
            self._check_session()

    def _check_session(self) -> None:
        """End the app if a handler has closed the session that it was given: nothing can come in it any more."""
        if self._link.closed and not self._left:
            self._failing(
                IllegalStateError(
                    f"consumer {self.consumer.name}: its handler closed the session that it shares with all its calls;"
                    " to end the app, call quit()"
                )
            )

    def _enter(self, messages: Sequence[Message]) -> None:
        """
        Wait until the handler may be called with these.

        Raises Unhandled if they cannot be settled any more then, and if a single one is to be the probe.
        """
        if self._gate.is_open:
            return
        waited = self._gate.enter(len(messages), self._machine, self._wait)
        lost = waited and self._are_lost(messages)
        if lost or (len(messages) > 1 and self._gate.one_only):
            self._gate.leave(len(messages), self._machine.monotonic())
            raise Unhandled

    def _handle(self, message: Message) -> None:
        """Call the handler, once, when it may be; what it raises, as the consumer judges it."""
        self._enter((message,))
        try:
            self._call_once(message)
        except BaseException as error:
            judged = error if self._ended else self.consumer.judged(error)
            if judged is error:  # also if it is the error of the commit, not of the handler
                raise
            raise judged from error

    def _call_once(self, message: Message) -> None:
        consumer, store = self.consumer, self.consumer.dedupe
        client_id = self._link.options.client_id
        identity = None if store is None else consumer.identity(message, client_id)
        if store is None or identity is None:
            if self._database is not None:
                raise StoreError(
                    f"dedupe_by= names no key for message {message.message_id}, and without one there is no"
                    f" transaction for {self._database}="
                )
            self._call_handler(message, None)
        elif not self._once(store, identity, message):
            _log.info(
                "duplicate: acknowledged as done before",
                consumer=consumer.name,
                message_id=message.message_id,
            )
            raise Duplicate

    def _once(self, store: IdempotencyStore, identity: StoreKey, message: Message) -> bool:
        """Do as `store.once` does, when the store can be used."""
        return self._when_back(
            # Only False means that the message was done before: a store of the application may return anything else.
            lambda handle: store.once(identity, handle) is not False,
            lambda database: self._call_handler(message, database),
            f"{type(store).__name__}.once() has not called the handler for message {message.message_id}, and has not"
            " returned False, which says that it was done before",
        )

    def _when_back(
        self, attempt: Callable[[Callable[P, T]], bool], work: Callable[P, T], uncalled: str
    ) -> bool:
        """
        Have a store do `work`, by an `attempt` that is made until the store can be used: that it cannot is no failure.

        But if the handler has done its work several times, and its transaction breaks each time, then that may be the
        handler's doing. Raises StoreError then, and with the words `uncalled` if an attempt succeeds without `work`;
        what the handler raises, and Unhandled if the worker is to end. Whether the handler was called.
        """
        raised: list[BaseException] = []
        done_in_vain = 0
        pause = pauses()

        called = False  #: whether the handler was called in this attempt

        def handle(*given: P.args, **named: P.kwargs) -> T:
            nonlocal called
            called = True
            try:
                result = work(*given, **named)
                if self._sends_in_transaction:
                    self._commit()
            except BaseException as error:
                raised.append(error)
                raise
            nonlocal done_in_vain
            done_in_vain += 1
            return result

        while True:
            called = False
            try:
                done = attempt(handle)
            except SpoiltTransactionError:
                raise
            except StoreError as error:
                if raised or self._ended or done_in_vain >= IN_VAIN:
                    raise
                self._availability.away(self.consumer.name, error)
                self.away = str(error)
            else:
                self._present()
                if done and not called:
                    raise StoreError(uncalled)
                return called
            self._wait(next(pause))

    def _wait(self, seconds: float) -> None:
        """Wait, and do not count as working meanwhile; raises Unhandled if the worker is to end."""
        call, self.call = self.call, None
        self._held_until = self._machine.monotonic() + seconds
        try:
            if self._leaving.wait(seconds):
                raise Unhandled
        finally:
            if call is not None:
                self._called_for(call.message_id)

    def _present(self) -> None:
        """Note that the store can be used."""
        if self.away is not None:
            self.away = None
            self._availability.back(self.consumer.name)

    def _call_handler(self, taken: Message | list[Message], database: Any) -> None:
        """Call the handler, with its middleware around it, and note how that went."""
        error: BaseException | None = None
        # A copy, for the handler may change the list.
        messages = tuple(taken) if isinstance(taken, list) else (taken,)
        try:
            self._reach(messages)
            taken, result = self._call_inside(taken, database)
        except BaseException as raised:
            error = NOT_CALLED if isinstance(raised, InvalidMessagesError) else raised
            raise
        finally:
            if not isinstance(error, Unhandled):
                self.called = self.call
            if not self._gate.is_open:
                self._gate.ended(error, self._machine.monotonic())
        if result is not None and isinstance(taken, Message) and taken.reply_to is not None:
            self._answer(taken, result)
        self._have_done(messages)  # with a store, the loop has not begun the next message

    def _have_done(self, messages: Iterable[Message]) -> None:
        """Tell the ledger that the handler has done these, before a store is told."""
        if self.consumer.dedupe is not None:
            self._link.engine.hand_outs.returned(map(delivery_of, messages))

    def _are_lost(self, messages: Sequence[Message]) -> bool:
        """Return whether one of them is not acknowledged, and its link is gone."""
        return any(map(self._link.engine.core.is_lost, map(delivery_of, messages)))

    def _reach(self, messages: Sequence[Message]) -> None:
        """
        Have counted that the handler gets these.

        Raises Unhandled where they are to wait for the ledger instead; if their link was lost meanwhile, as while a
        store was waited for: they come again, and another may have them already; and if one is over its limit.
        """
        engine = self._link.engine
        if self._are_lost(messages) or engine.hand_outs.not_done(map(delivery_of, messages)):
            raise Unhandled
        try:
            engine.hand_outs.reach(map(delivery_of, messages), engine.now())
        except StoreError as error:
            raise Unhandled from error

    def _call_inside(
        self, taken: Message | list[Message], database: Any
    ) -> tuple[Message | list[Message], Any]:
        """Return what the handler has returned, and for what: on a loop, it may be one behind the message `taken`."""
        handler, parameters = self.consumer.handler, self.consumer.parameters

        def arguments(given: Message | list[Message]) -> tuple[list[Any], dict[str, Any]]:
            return parameters.arguments(given, self._session, database)

        if self._loop is None:
            CALL.set(self.call)  # also for an event loop that the handler runs itself
            if self.timeout is not None:
                self._called_at = self._machine.monotonic()
            try:
                result = self._around.call(taken, arguments)
            finally:
                self._called_at = None
        else:

            def work(given: Message | list[Message]) -> Work:
                return lambda: self._in_time(self._around.acall(given, arguments))

            def following(returned: Any) -> Work | None:
                nonlocal taken
                message = None if returned is not None else self._next_here()
                if message is None:
                    return None
                taken = message
                return work(message)

            result = self._await(self._loop, work(taken), following)
        check_ran(handler, result)
        return taken, result

    def _next_here(self) -> Message | None:
        """
        Return the next message, on the loop: its handler has returned, and nothing has to be waited for to settle that.

        None where the session's thread is to do what is next.
        """
        if not (self._goes_on and self._gate.is_open) or self._leaving.is_set():
            return None
        message = self._link.dispatcher.go_on()
        if message is not None and self.call is not None:
            now = self._machine.monotonic()
            self.call = Call(self, message.message_id, now, self.call.thread)
            CALL.set(self.call)
        return message

    def _answer(self, request: Message, returned: Any) -> None:
        """
        Send what the handler returned to whoever asked, in its transaction or, where none has its sends, at once.

        Raises Reject if that will never work; an asker who is gone is none of the message's faults.
        """
        try:
            answer, to, options = answer_to(request, returned)
            send = self.send if self._sends_in_transaction else self._reply
            send(answer, to, options)
        except InvalidDestinationError as error:
            if request.reply_to is None or not request.reply_to.is_temporary:
                raise Reject from error
            _log.warning(
                "answer not sent: who asked is gone",
                consumer=self.consumer.name,
                message_id=request.message_id,
                reply_to=str(request.reply_to),
            )
        except (UsageError, SecurityError) as error:
            raise Reject from error

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns; raises TimeoutError, when it has been cancelled because it took too long."""
        if self.timeout is None:
            return await work
        try:
            async with asyncio.timeout(self.timeout) as limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"handler {self.consumer.name} did not return in its timeout of {self.timeout:g} s, and was cancelled"
            ) from error

    def tell_late(self) -> None:
        """Log, once, that a call has exceeded its timeout, and where it is; only an `async def` can be cancelled."""
        call, since = self.call, self._called_at
        if self.timeout is None or since is None or call is None or call is self._late:
            return
        running = self._machine.monotonic() - since
        if running <= self.timeout:
            return
        self._late = call
        frame = sys._current_frames().get(call.thread)  # noqa: SLF001 - of another thread there is no other way
        _log.error(
            "handler late: it goes on, for a thread cannot be ended, and its message is settled when it returns",
            consumer=self.consumer.name,
            message_id=call.message_id,
            running_seconds=round(running, 3),
            timeout=self.timeout,
            stack=None if frame is None else "".join(traceback.format_stack(frame, _STACK)),
        )

    def _await(self, loop: Loop, work: Work, following: Callable[[Any], Work | None]) -> Any:
        """Return what a handler on a loop returns; raises Unhandled if it could not run, or was to end with the app."""
        try:
            running = self._on_loop = loop.begin(work, self.call, following)
        except IllegalStateError as error:
            self._lose_loop(error)
            raise Unhandled from error
        try:
            return running.result()
        except asyncio.CancelledError as error:
            if running.cancelled_by_us:
                raise Unhandled from error
            raise
        except IllegalStateError as error:
            if running.loop_closed:
                self._lose_loop(error)
                raise Unhandled from error
            raise
        finally:
            self._on_loop = None

    def _lose_loop(self, error: IllegalStateError) -> None:
        """End the app, for nothing can be handled any more; what is not handled goes back."""
        self._connection.stop(0.0)
        self._failing(error)

    def _acknowledge(self, message: Message) -> None:
        """Have acknowledged what the handler has done, before it is called again; a second time does no harm."""
        self._handle(message)
        self._link.dispatcher.acknowledge_returned()

    def _acknowledge_or_recover(self, message: Message) -> None:
        """Acknowledge it, or recover: for a mode that would take a raising handler for one that has done its work."""
        try:
            self._acknowledge(message)
        except BaseException as error:  # noqa: BLE001 - whatever the handler raises
            self._session.recover(error)

    def _transact(self, message: Message) -> None:
        """Commit what the handler received and sent, or roll it back if it raised."""
        self._ended = self._unsent = False
        try:
            self._handle(message)
        except BaseException as error:
            if self._ended:  # the handler has returned, and the error is that of its commit
                raise
            self._end_unsent()
            self._session.rollback(error)
        else:
            if not self._ended:
                self._commit()

    def _end_unsent(self) -> None:
        """
        Let the commit tell what became of the transaction, if the handler could not send in it and has raised.

        So it is for a handler that ends well: the link was lost, or the broker has refused a part, and it is not the
        message that has failed.
        """
        if self._unsent and self._link.engine.core.is_rollback_only:
            self._commit()

    def _commit(self) -> None:
        """Commit, once for each message."""
        self._ended = True
        self._session.commit()
