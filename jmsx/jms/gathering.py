"""What a listener does that takes its messages in batches: it asks for more of them, and settles them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.delivery import Delivery, Held
from jmsx.core.values import Failure
from jmsx.errors import JmsxError
from jmsx.jms.dispatcher import HANDLED
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.outcomes import Unhandled, failure_of
from jmsx.jms.translation import ReceivedMessage, delivery_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Gathering:
    """The batches of one consumer, for its listener, in an INDIVIDUAL or a transacted session."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    def gather(
        self, first: Message, most: int, seconds: float, given_up: Callable[[], bool]
    ) -> list[Message]:
        """
        `first`, with which the listener was called, and what comes behind it within `seconds`, `most` in all.

        What failed before comes alone, so that it takes nothing along if it fails again. As soon as `given_up()`
        nothing is waited for any more; `hurry` has that looked at. Empty if their link was lost meanwhile: nobody has
        handled them, and they come again. Raises Unhandled if the link is gone for good.
        """
        if delivery_of(first).failures:
            return [first]
        calls, names = self._link.calls, (delivery_of(first).subscription_id,)
        deadline = calls.engine.now() + seconds
        batch = [first]

        def ended() -> bool:
            """On the next link those of the batch come again, and must find that nobody has them."""
            return given_up() or self._is_lost(first)

        while len(batch) < most:
            held = Held()
            try:
                message = calls.take(lambda: names, deadline, ended, self._read, held=held)
            except JmsxError as error:
                raise Unhandled from error
            if message is None:
                break
            if delivery_of(message).failures:
                calls.give_back(held)
                break
            batch.append(message)
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

    def _read(self, delivery: Delivery) -> Message:
        link = self._link
        return ReceivedMessage(delivery, link.dialect, link.acknowledging(delivery))
