"""Batches: a listener that was called with one message takes those behind it as well, and settles all together."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jmsx.core.delivery import Delivery, Held
from jmsx.core.values import Failure
from jmsx.drivers.engine import LONGEST_WAIT
from jmsx.errors import JmsxError
from jmsx.jms.dispatcher import HANDLED
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.outcomes import Unhandled, failure_of
from jmsx.jms.translation import delivery_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Gathering:
    """Makes and settles the batches of one consumer's listener, in an INDIVIDUAL or a transacted session."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    def gather(
        self, first: Message, most: int, seconds: float, given_up: Callable[[], bool]
    ) -> list[Message]:
        """
        Return a batch: `first`, with which the listener was called, and what follows within `seconds`, `most` in all.

        A message that failed before is a batch of its own, so that no other is rolled back with it. When `given_up()`
        becomes true, this stops waiting; `hurry` has it checked at once. The batch is empty if the link was lost in the
        meantime: its messages were not handled, and are delivered again. Raises Unhandled if the link is lost for good.
        """
        if delivery_of(first).failures:
            return [first]
        name, batch = delivery_of(first).arrival.subscription_id, [first]
        deadline = self._link.engine.now() + seconds
        try:
            self._fill(
                batch, name, lambda one: not one.failures, given_up, most=most, deadline=deadline
            )
        except JmsxError as error:
            raise Unhandled from error
        return self._if_here(batch)

    def again(self, undone: Sequence[Message]) -> list[Message]:
        """
        Return the messages of a failed batch that were `undone` (rolled back) and are next to be handed out again.

        They are returned even while the connection stops. Dead letters of the same batch can be acknowledged only after
        them. If a stop left them to the broker, it would deliver the dead letters again, too; so this waits for them.
        """
        engine, wanted = self._link.engine, {delivery_of(message) for message in undone}
        name = delivery_of(undone[0]).arrival.subscription_id
        deadline = engine.now() + (engine.request_timeout or LONGEST_WAIT)

        def held_up() -> bool:
            """Return whether something else than a copy, such as a pause of the policy, is in their way."""
            core = engine.core
            return not (core.has_next(name, engine.now()) or core.is_held_back(name))

        batch: list[Message] = []
        with contextlib.suppress(JmsxError):  # without a link the broker delivers all of them again
            self._fill(
                batch, name, wanted.__contains__, held_up,
                most=len(wanted), deadline=deadline, stopped=True,
            )  # fmt: skip
        return self._if_here(batch)

    def _fill(
        self,
        batch: list[Message],
        name: str,
        fits: Callable[[Delivery], bool],
        given_up: Callable[[], bool],
        *,
        most: int,
        deadline: float,
        stopped: bool = False,
    ) -> None:
        """Add to `batch` what comes next for the consumer `name`, up to the first that does not fit; see `gather`."""
        calls = self._link.calls

        def ended() -> bool:
            """On the next link those of the batch come again, and must find that nobody has them."""
            return given_up() or any(map(self._is_lost, batch[:1]))

        while len(batch) < most:
            held = Held()
            taking = calls.taking(lambda: (name,), self._link.read, held=held)
            message = calls.take(taking, deadline, ended, idle=not stopped, stopped=stopped)
            if message is None:
                return
            if not fits(delivery_of(message)):
                calls.give_back(held)
                return
            batch.append(message)

    def _if_here(self, batch: list[Message]) -> list[Message]:
        """Return `batch`, or nothing if a link of it was lost meanwhile."""
        if len(batch) > 1:
            HANDLED.set(None)  # a message that is sent then has no single cause
        if any(map(self._is_lost, batch)):
            self.settle(dict.fromkeys(batch, Unhandled()))
            return []
        return batch

    def hurry(self) -> None:
        """Have a waiting `gather` check `given_up()` at once."""
        self._link.engine.wake()

    def settle(self, outcomes: Mapping[Message, BaseException | None]) -> None:
        """
        Settle each message of a batch by its outcome: None acknowledges it, an error fails it, as a listener's would.

        In a transacted session this is a rollback. Raises the error of the link if that is lost for good.
        """
        failures: dict[int, Failure] = {
            id(error): failure_of(error) for error in outcomes.values() if error is not None
        }
        ended = [
            (delivery_of(message), None if error is None else failures[id(error)])
            for message, error in outcomes.items()
        ]
        if self._link.transacted:
            self._link.calls.await_commit()
        self._link.engine.call(lambda core, now: core.settle(ended, now))
        self._link.engine.wake()

    def _is_lost(self, message: Message) -> bool:
        return self._link.engine.core.is_lost(delivery_of(message))
