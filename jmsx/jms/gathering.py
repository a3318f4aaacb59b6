"""What a listener does that takes its messages in batches: it asks for more of them, and settles them together."""

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
    """The batches of one consumer, for its listener, in an INDIVIDUAL or a transacted session."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    def gather(
        self, first: Message, most: int, seconds: float, given_up: Callable[[], bool]
    ) -> list[Message]:
        """
        Return `first`, with which the listener was called, and what comes behind it within `seconds`, `most` in all.

        What failed before comes alone, so that it takes nothing along if it fails again. As soon as `given_up()`
        nothing is waited for any more; `hurry` has that looked at. Empty if their link was lost meanwhile: nobody has
        handled them, and they come again. Raises Unhandled if the link is gone for good.
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
        Return the messages of a failed batch that were `undone` and are the next to be handed out.

        They are returned also while the connection stops. Dead letters behind them can be acknowledged only after them.
        If a stop gave them back to the broker first, the dead letters would come again, too; so their copies are
        waited for.
        """
        engine, wanted = self._link.engine, {delivery_of(message) for message in undone}
        name = delivery_of(undone[0]).arrival.subscription_id
        deadline = engine.now() + (engine.request_timeout or LONGEST_WAIT)

        def held_up() -> bool:
            """Return whether something else than a copy, such as a pause of the policy, is in their way."""
            core = engine.core
            return not (core.has_next(name, engine.now()) or core.is_held_back(name))

        batch: list[Message] = []
        with contextlib.suppress(JmsxError):  # then there is no link, and all come again
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
            HANDLED.set(None)  # what is sent may come of any of them
        if any(map(self._is_lost, batch)):
            self.settle(dict.fromkeys(batch, Unhandled()))
            return []
        return batch

    def hurry(self) -> None:
        """Have a `gather` that waits ask again whether it is given up."""
        self._link.engine.wake()

    def settle(self, outcomes: Mapping[Message, BaseException | None]) -> None:
        """
        End the messages of a batch, each as it went: None acknowledges it, an error gives it back as a listener's does.

        A transacted session is rolled back by this. Raises what the link does if it is gone for good.
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
