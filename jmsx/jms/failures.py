"""
The log line of a failed handler: its consumer, the message, the attempt, when it is redelivered, and where it failed.

The first failure of a message and the one that makes it a dead letter are logged with the whole traceback; those in
between only with file and line.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.delivery import DEAD_LETTER, Delivery
from jmsx.core.policy import UNLIMITED
from jmsx.core.session import SessionCore
from jmsx.core.values import Disposition, Failure
from jmsx.jms.message import Message
from jmsx.jms.outcomes import steers, told_by
from jmsx.log import logger, shortened

#: What the log says of a message that is not redelivered, by the disposition that its handler chose.
_ENDS: Final = {
    Disposition.DISCARD: "never, it is discarded",
    Disposition.REJECT: "never, dead letter now",
}

_log = logger("jmsx.session")


class HandlerCall:
    """One call of a handler, with the state of the delivery before the call, which may change it."""

    def __init__(self, message: Message, delivery: Delivery) -> None:
        self.message = message
        self.delivery = delivery
        self._attempt = delivery.failures + 1
        self.running = True
        self.settled = False  #: whether the core knows the outcome already
        self.acknowledged = False  #: whether to acknowledge the message when the call returns
        self._first = not delivery.failed_before
        if delivery.failed.next_delivery is not None:
            delivery.expect_next(None)

    def tell(
        self,
        core: SessionCore,
        error: BaseException,
        failure: Failure,
        event: str = "handler failed",
        **more: object,
    ) -> None:
        """Log the failure, once the core knows what becomes of the message; `more` is put behind the destination."""
        if failure.error_type is None:
            return
        settings = core.consumer_settings(self.delivery.arrival.subscription_id)
        policy = failure.policy or (None if settings is None else settings.policy)
        most = policy.maximum_redeliveries if policy is not None else UNLIMITED
        cause = told_by(error)
        said = steers(cause)  # on purpose: it needs no traceback
        dead = self.delivery.failed.next_delivery == DEAD_LETTER
        # What was on a lost link comes again all the same, to a durable subscription.
        lazy = settings is not None and settings.lazy and not core.is_lost(self.delivery)
        level = _log.info if failure.disposition is Disposition.DISCARD else _log.warning
        level(
            event,
            consumer=settings.name if settings is not None else None,
            destination=str(self.message.destination),
            **more,
            key=self.message.key,
            message_id=self.message.message_id,
            attempt=f"{self._attempt} of {'any' if most == UNLIMITED else most + 1}",
            again=self._again(failure, lazy=lazy),
            error=shortened(f"{failure.error_type}: {failure.error_message}"),
            place=failure.place,
            exc_info=cause if (self._first or dead) and not said else None,
        )

    def _again(self, failure: Failure, *, lazy: bool) -> str:
        next_delivery = self.delivery.failed.next_delivery
        if failure.disposition in _ENDS:
            return _ENDS[failure.disposition]
        if lazy:
            return "never, it is acknowledged: so it is with topics in DUPS_OK_ACKNOWLEDGE"
        if next_delivery == DEAD_LETTER:
            return "never, dead letter now"
        if isinstance(next_delivery, float | int):
            return f"in {next_delivery:g} s" if next_delivery > 0 else "at once"
        return "when it is rolled back or recovered, or the broker sends it"
