"""What a session says to its broker about no message, and what an ERROR is an answer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx.core import events
from jmsx.core.frames import Frame

if TYPE_CHECKING:
    from jmsx.core.actions import Outbox
    from jmsx.core.dialect import Dialect
    from jmsx.core.requests import Request, Requests
    from jmsx.errors import JmsxError

#: Seconds that a refusal without its cause is held back for it.
PATIENCE: Final = 1.0


class _Held(NamedTuple):
    receipt_id: str
    error: JmsxError
    until: float


class BrokerErrors:
    """Of one session with one broker after the other."""

    def __init__(self, dialect: Dialect, requests: Requests, outbox: Outbox) -> None:
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._held: _Held | None = None  #: a refusal whose cause is not known yet

    def refused(self, frame: Frame, broker: str, now: float, *, rollback_only: bool) -> str | None:
        """
        The broker at `broker` said ERROR: end the request that it answers.

        Gives the broker's words if it answers none; then something without a receipt went wrong. A transaction that is
        not `condemned` for such a thing, and is refused for one, waits for these words; `explain` ends the wait.
        """
        text = self._dialect.complaint(frame)
        receipt_id = frame.headers.get("receipt-id")
        self._outbox.report(events.ErrorReceived(at=now, message=text, receipt_id=receipt_id))
        request = self._requests.peek(receipt_id)
        if request is None and receipt_id is None:
            request = self._unconfirmed()
        if request is not None:
            error = self._dialect.error(request.command, request.subject, frame, broker)
            if self._dialect.explains_later(request.command, text) and not rollback_only:
                self._held = _Held(request.receipt_id, error, now + PATIENCE)
            else:
                self._requests.answer(request.receipt_id, now, error)
        if self._dialect.errors_close:
            self._outbox.disconnect(f"{broker} ends a connection with an error: {text}")
        return text if request is None else None

    def _unconfirmed(self) -> Request | None:
        """The SUBSCRIBE whose refusal names no receipt, if one waits."""
        request = self._requests.oldest("SUBSCRIBE")
        if request is None or self._dialect.errors_close:
            return request
        return None if self._dialect.trial(request.subject, {}) is None else request

    def explain(self, now: float) -> None:
        """The cause of a refusal that is held back is known, or nobody will tell it."""
        held, self._held = self._held, None
        if held is not None:
            self._requests.answer(held.receipt_id, now, held.error)

    def next_timer(self) -> float | None:
        """When `handle_timer` is next due (seconds, monotonic), or None."""
        return None if self._held is None else self._held.until

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        if self._held is not None and self._held.until <= now:
            self.explain(now)
