"""Matches each ERROR frame to the request that caused it."""

from __future__ import annotations

from typing import Final, NamedTuple

from jmsx.core import events
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, Outbox
from jmsx.core.requests import Request, Requests
from jmsx.errors import JmsxError

#: Seconds that a refusal is held back until the broker tells its cause.
PATIENCE: Final = 1.0


class _Held(NamedTuple):
    receipt_id: str
    error: JmsxError
    until: float


class BrokerErrors:
    """Matches the ERROR frames that a session receives to the requests that caused them."""

    def __init__(self, dialect: Dialect, requests: Requests, outbox: Outbox) -> None:
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self.held: _Held | None = None  #: a refusal whose cause is not known yet

    def refused(self, frame: Frame, broker: str, now: float, *, rollback_only: bool) -> str | None:
        """
        End the request that the ERROR `frame` answers; `broker` is the address of its sender.

        Returns the broker's words if the ERROR answers no request, which means that a frame without a receipt failed.
        Then mark an open transaction as rollback-only and call `explain`. Where the broker tells the cause of a refused
        COMMIT in a second ERROR, the refusal is held back until `explain` is called, unless the transaction is
        `rollback_only` already: then its cause is known.
        """
        text = self._dialect.reading.complaint(frame)
        receipt_id = frame.headers.get("receipt-id")
        self._outbox.report(events.ErrorReceived(at=now, message=text, receipt_id=receipt_id))
        request = self._requests.peek(receipt_id)
        if request is None and receipt_id is None:
            request = self._unconfirmed()
        if request is not None:
            error = self._dialect.reading.error(request.command, request.subject, frame, broker)
            if self._dialect.reading.explains_later(request.command, text) and not rollback_only:
                self.explain(now)  # there may be another one
                self.held = _Held(request.receipt_id, error, now + PATIENCE)
            else:
                self._requests.answer(request.receipt_id, now, error)
        if self._dialect.errors_close:
            self._outbox.disconnect(f"{broker} ends a connection with an error: {text}")
        return text if request is None else None

    def _unconfirmed(self) -> Request | None:
        """Return the SUBSCRIBE that waits for an answer, if the broker names no receipt when it refuses one."""
        request = self._requests.oldest("SUBSCRIBE")
        if request is None or self._dialect.errors_close:
            return request
        return None if self._dialect.writing.trial(request.subject, {}) is None else request

    def explain(self, now: float) -> None:
        """Answer the request whose refusal is held back: its cause was told now, or will not be told any more."""
        held, self.held = self.held, None
        if held is not None:
            self._requests.answer(held.receipt_id, now, held.error)

    def next_timer(self) -> float | None:
        """Return when `handle_timer` is next due (seconds, monotonic), or None."""
        return None if self.held is None else self.held.until

    def handle_timer(self, now: float) -> None:
        """Stop waiting for the cause of a refusal when its time is over."""
        if self.held is not None and self.held.until <= now:
            self.explain(now)
