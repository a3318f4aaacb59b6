"""
Everything that an app sends: messages, requests, and the answers that its handlers return.

Each of the three has a connection of its own, opened at its first use; so an answer to a bad reply-to, for which a
broker may close the connection, does not end the connection of `app.send`. In a transacted handler of the app, the
handler's session sends instead.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jmsx.app.answers import Requests
from jmsx.app.bodies import Data
from jmsx.app.loops import NoThreadError, in_thread
from jmsx.app.middleware import Layer, Middleware
from jmsx.app.sender import Sender, Sending, SendKeywords
from jmsx.app.worker import Worker
from jmsx.core.durations import bounded
from jmsx.drivers.machine import Machine
from jmsx.drivers.process import tell_of_forks
from jmsx.drivers.threads import no_room
from jmsx.errors import ConnectionFailedError, ResourceAllocationError
from jmsx.jms.connection import Connection
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Outgoing:
    """Sends for an app, from any thread; `App` has calls of the same names, which document what they do and raise."""

    def __init__(
        self,
        connect: Callable[..., Connection],
        calling: Callable[[], Worker | None],
        middleware: Sequence[Middleware],
        machine: Machine,
    ) -> None:
        """`connect(*observers)` makes a connection; `calling()` returns the worker whose handler calls this, if any."""
        self.requests = Requests(connect, machine)
        self._sender = Sender(connect, machine)
        self._replier = Sender(connect, machine)
        self._calling = calling
        self._machine = machine
        self.after_fork()
        tell_of_forks(self)
        self._around = [one.sending for one in middleware if isinstance(one, Layer) and one.sending]

    def after_fork(self) -> None:
        """Have threads of its own in the child of a fork, too: a pool takes its parent's for its own."""
        self._pools = _threads(), _threads()

    def send(
        self,
        to: Destination | str,
        body: Message | Data,
        options: SendKeywords,
        asked_at: float | None = None,
    ) -> str:
        """
        Send one message: in the transaction of the handler that calls this, or else on its own.

        asked_at: when another thread was asked to send it (seconds, monotonic), from when `timeout` counts; None: now.
        """
        sending = Sending.of(options)
        if asked_at is not None:
            sending = self._late(sending, to, asked_at)
        message = sending.message(to, body)
        worker = self._transacting()
        send = self._sender.send if worker is None else worker.send
        failed: list[BaseException] = []
        with contextlib.ExitStack() as around:
            try:
                for each in self._around:
                    around.enter_context(each(message, str(to)))
                return send(message, to, sending.of_producer)
            except BaseException as error:
                failed.append(error)
                raise
        raise failed[0]  # even if a middleware has swallowed it: nothing is confirmed

    def _late(self, sending: Sending, to: Destination | str, asked_at: float) -> Sending:
        """Return it with what is left of its timeout; raises ConnectionFailedError if that is over."""
        if sending.timeout is None:
            return sending
        timeout = bounded("timeout", sending.timeout)
        left = asked_at + timeout - self._machine.monotonic()
        if left <= 0:
            raise ConnectionFailedError(
                f"no thread of the app's pool for asend() was free in the {timeout:g} s of the caller's timeout;"
                f" nothing was sent to {to}"
            )
        # rounded, so that errors show the timeout as it was given, if a thread was free at once
        return replace(sending, timeout=round(left, 3) or left)

    async def asend(
        self, to: Destination | str, body: Message | Data, options: SendKeywords
    ) -> str:
        """Do as `send` does, without blocking the event loop; in a transaction, cancelling waits until it is done."""
        whole, pools = self._transacting() is not None, self._pools
        asked_at = self._machine.monotonic()
        # A handler does not wait for the sends of others, which may wait for it: it empties the queue that is full.
        pool = pools[self._calling() is not None]

        def send() -> str:
            if pools is not self._pools:
                raise ConnectionFailedError(
                    f"the app was stopped before a thread of its pool for asend() was free; nothing was sent to {to}"
                )
            return self.send(to, body, options, asked_at)

        try:
            return await in_thread(send, pool, to_its_end=whole)
        except NoThreadError as error:
            raise _unsent(to, error) from error

    def request(
        self, to: Destination | str, body: Message | Data, options: SendKeywords
    ) -> Message:
        """Send one message, and return its answer."""
        return self.requests.ask(Sending.of(options), to, body, self.requests.pending())

    async def arequest(
        self, to: Destination | str, body: Message | Data, options: SendKeywords
    ) -> Message:
        """Do as `request` does, without blocking the event loop; if it is cancelled, an answer is dropped."""
        try:
            return await self.requests.aask(Sending.of(options), to, body, self.requests.pending())
        except NoThreadError as error:
            raise _unsent(to, error) from error

    def reply(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """Send the answer of a handler outside of a transaction."""
        return self._replier.send(message, to, options)

    def take(self, ended: list[Connection]) -> None:
        """Move all connections, also those that are being opened, to `ended`, whose owner closes them."""
        # What waits for a thread of the old pools is not sent any more; it would open a connection again. Idle threads
        # end when a pool is freed: its shutdown() would wait for a lock that a signal handler may have interrupted.
        self._pools = _threads(), _threads()
        for each in (self._sender, self._replier, self.requests):
            each.take(ended)

    def _transacting(self) -> Worker | None:
        worker = self._calling()
        return worker if worker is not None and worker.transacted else None


def _threads() -> ThreadPoolExecutor:
    """
    Return a pool for `asend`, whose threads may have to wait, as for a broker that is away.

    The event loop's is for all that the program does, such as to look up names.
    """
    return ThreadPoolExecutor(thread_name_prefix="jmsx-asend")


def _unsent(to: Destination | str, error: NoThreadError) -> ResourceAllocationError:
    return no_room(f"nothing was sent to {to}", "send it again", error)
