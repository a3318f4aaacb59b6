"""
Requests and answers: a request names a reply queue, and its answer is recognised by the correlation id.

All requests of an app share one temporary queue, on a connection of their own. Each link of that connection has a new
queue, so a request that was sent on a lost link gets no answer.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from jmsx.app.bodies import Data
from jmsx.app.loops import beside
from jmsx.app.sender import Sending, Shared
from jmsx.core.destination_names import is_pattern
from jmsx.core.durations import Duration, bounded
from jmsx.core.events import Event, LinkClosed, Source
from jmsx.drivers.machine import Machine
from jmsx.errors import (
    ConfigurationError,
    ConnectionFailedError,
    IllegalStateError,
    InDoubtError,
    InvalidDestinationError,
    UnansweredError,
)
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message
from jmsx.jms.session import Session, link_of
from jmsx.log import logger
from jmsx.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

#: The call that a signal handler must not make while it interrupts another one; for the error.
_WHAT: Final = "app.request()"

#: Seconds to wait for an answer, unless the caller gives a timeout.
PATIENCE: Final = 30.0

_log = logger("jmsx.app")


def answer_to(
    request: Message, returned: Message | Data
) -> tuple[Message, Destination, dict[str, Any]]:
    """
    Return the answer to `request`: a message, its destination, and options for sending it.

    The answer has the request's persistence and priority. Its correlation id is that of the request, or the request's
    message id if it has none. Raises MessageFormatError for a result that cannot be sent, InvalidDestinationError
    unless the answer goes to one single destination.
    Source: JMS 3.1 section 3.5.7.
    """
    to = request.reply_to
    if to is None or is_pattern(to.uri):
        raise InvalidDestinationError(
            f"message {request.message_id} wants its answer at {to}, which is no single destination"
        )
    sending = Sending(persistent=request.persistent, priority=request.priority)
    answer = sending.message(to, returned)
    if isinstance(returned, Message):
        # Copied: the handler may return a message that it received, or the same one from several calls
        answer = _copied(returned)
        if not returned.delivery_count:  # a received message has its own sender's reply-to
            answer.reply_to = returned.reply_to
    if answer.correlation_id is None:
        answer.correlation_id = request.correlation_id or request.message_id
    return answer, to, sending.of_producer


class PendingRequest:
    """A request of one caller, who waits for its answer."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._done = machine.event()
        self._answer: Message | None = None
        self._fault = ""
        self.what = "the request"  #: its name in errors
        self.deadline = math.inf  #: when the caller stops waiting (seconds, monotonic)
        #: Removes the request from those that the reply queue has answers for.
        self.leave: Callable[[], object] = lambda: None

    @property
    def is_over(self) -> bool:
        """Whether the request was answered or has failed."""
        return self._done.is_set()

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return max(self.deadline - self._machine.monotonic(), 0.0)

    def answered(self, answer: Message) -> None:
        """Note that `answer` has arrived: `answer()` returns it."""
        self._answer = answer
        self._done.set()

    def fail(self, fault: str) -> None:
        """Note that no answer will come, because of `fault`: `answer()` raises UnansweredError."""
        self._fault = fault
        self._done.set()

    def answer(self) -> Message:
        """Wait for the answer and return it; raises UnansweredError if there is none at the deadline."""
        self._done.wait(self.left)
        return self._taken()

    async def aanswer(self) -> Message:
        """Do as `answer` does, without blocking the event loop."""
        await self._done.awaited(self.left)
        return self._taken()

    def _taken(self) -> Message:
        if self._answer is None:
            fault = self._fault or "no answer came in time"
            raise UnansweredError(
                f"{self.what}: {fault}; whether the request was handled is not known"
            )
        return self._answer


class Requests(Shared["_ReplyQueue"]):
    """Sends requests from any thread, and waits for answers; `connect` makes a connection with a further observer."""

    def __init__(self, connect: Callable[[Observer], Connection], machine: Machine) -> None:
        def started() -> Connection:
            connection = connect(self)
            connection.start()  # which connects to nothing yet, for it has no client id
            return connection

        super().__init__(_WHAT, started, self._open, machine)
        #: Reply queues with waiting callers, by session id; among them are queues of connections that were replaced.
        self._queues: WeakValueDictionary[str, _ReplyQueue] = WeakValueDictionary()

    def pending(self) -> PendingRequest:
        """Return a new PendingRequest, in which the answer to one request will arrive."""
        return PendingRequest(self._machine)

    def ask(
        self,
        sending: Sending,
        to: Destination | str,
        body: Message | Data,
        pending: PendingRequest,
    ) -> Message:
        """Send the request and wait for its answer in `pending`, as `App.request` does."""
        try:
            self._send(sending, to, body, pending)
            return pending.answer()
        finally:
            pending.leave()

    async def aask(
        self,
        sending: Sending,
        to: Destination | str,
        body: Message | Data,
        pending: PendingRequest,
    ) -> Message:
        """Do as `ask` does, without blocking the event loop: a thread sends the request, and none waits for it."""
        try:
            await beside(self._send, sending, to, body, pending)
            return await pending.aanswer()
        except asyncio.CancelledError:
            pending.fail("the request was cancelled")  # so that it is not sent any more
            raise
        finally:
            pending.leave()

    def _send(
        self,
        sending: Sending,
        to: Destination | str,
        body: Message | Data,
        pending: PendingRequest,
    ) -> None:
        """Send the request, and have `pending` told of its answer; raises what `App.request` does."""
        if sending.reply_to is not None or (isinstance(body, Message) and body.reply_to):
            raise ConfigurationError(
                "request() waits for the answer at a queue of its own; with a reply_to of yours use send()"
            )
        patience: Duration = PATIENCE if sending.timeout is None else sending.timeout
        pending.deadline = self._machine.monotonic() + bounded("timeout", patience)
        message = _copied(sending.message(to, body))
        try:
            self.opened(pending.deadline).send(message, to, sending.of_producer, pending)
        except BaseException:
            pending.leave()
            raise

    def observe(self, event: Event, source: Source) -> None:
        """Fail all requests whose answers would have come over a link that is lost."""
        queue = self._queues.get(source.session_id) if isinstance(event, LinkClosed) else None
        if queue is not None and isinstance(event, LinkClosed):
            queue.fail(f"the connection to {source.broker} is gone ({event.reason})")

    def close(self) -> None:
        """Do nothing: observers have a `close()`, but the connection is closed by whoever took it."""

    def _open(self, session: Session) -> _ReplyQueue:
        queue = _ReplyQueue(session)
        self._queues[link_of(session).session_id] = queue
        return queue


class _ReplyQueue:
    """The temporary queue where answers come, in the session that asks."""

    def __init__(self, session: Session) -> None:
        self._link = link_of(session)
        self._queue = session.create_temporary_queue()
        self._producer = session.create_producer()
        self._pending: dict[str, PendingRequest] = {}  #: by correlation id
        session.create_consumer(self._queue, listener=self._take, name="answers")

    def send(
        self,
        message: Message,
        to: Destination | str,
        options: dict[str, Any],
        pending: PendingRequest,
    ) -> None:
        """Send `message`, and have `pending` told of its answer until it leaves."""
        name = message.correlation_id or uuid.uuid4().hex
        if self._pending.setdefault(name, pending) is not pending:
            raise IllegalStateError(
                f"an answer to {name!r} is awaited already; give another correlation_id"
            )
        pending.what = f"request {name} to {to}"
        pending.leave = partial(self._forget, name, pending)
        message.correlation_id, message.reply_to = name, self._queue
        try:
            # wait for the link first, so that no request is sent after its caller has stopped waiting
            self._link.calls.submit(f"SEND {to}", lambda _core, _now: None, pending.left)
            left = pending.left
            if pending.is_over or left <= 0:
                raise ConnectionFailedError(
                    f"there was no connection in time for {pending.what}; nothing was sent"
                )
            self._producer.send(message, destination=to, **{**options, "timeout": left})
        except InDoubtError as error:  # the request may have been handled
            raise UnansweredError(f"{pending.what}: {error}") from error

    def _forget(self, name: str, pending: PendingRequest) -> None:
        if self._pending.get(name) is pending:  # not a later request with this id
            self._pending.pop(name, None)

    def fail(self, fault: str) -> None:
        """End all waits for answers with an error: none will come."""
        for pending in list(self._pending.values()):
            pending.fail(fault)

    def _take(self, answer: Message) -> None:
        pending = self._pending.pop(answer.correlation_id or "", None)
        if pending is not None:
            pending.answered(answer)
            return
        _log.info(
            "answer dropped: nobody waits for it",
            correlation_id=answer.correlation_id,
            message_id=answer.message_id,
        )


def _copied(message: Message) -> Message:
    """Return a copy to send: it gets a reply-to, and the message may be somebody else's, or sent already."""
    return Message(
        message.body,
        properties=message.properties,
        correlation_id=message.correlation_id,
        type=message.type,
        group_id=message.group_id,
        group_sequence=message.group_sequence,
    )
