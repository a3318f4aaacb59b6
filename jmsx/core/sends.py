"""Writes the messages that the application sends, and reports how each send ended."""

from __future__ import annotations

from typing import Final

from jmsx.core import events
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, Outbox
from jmsx.core.headers import time_ms
from jmsx.core.requests import Request, Requests, unanswered
from jmsx.core.transaction import Transaction, TxSend
from jmsx.errors import BrokerFaultError, JmsxError, LinkError, SendUnconfirmedError

#: Bytes of a body from which on its size may be why a broker closes the connection.
LARGE: Final = 10_000_000


class Sends:
    """Writes the SENDs of one session outside transactions, and reports all of its SENDs."""

    def __init__(self, requests: Requests, outbox: Outbox, dialect: Dialect) -> None:
        self._requests = requests
        self._outbox = outbox
        self._dialect = dialect
        self.without_receipt = False  #: a message was sent that asks for no receipt

    def send(self, sent: TxSend, *, awaited: bool = True) -> Request | None:
        """
        Write a SEND; returns the request to wait for if the message is persistent, else None.

        Not `awaited`: nobody waits for the request, so the exception listener is told if the broker refuses the
        message. It is not told here of a lost link, of which it hears anyway.
        """
        if sent.frame.headers.get("persistent") != "true":
            self.without_receipt = True
            self._outbox.transmit(sent.frame)
            self.report(sent, sent.at, "unconfirmed")
            return None

        def then(now: float, error: JmsxError | None) -> JmsxError | None:
            doubt = error is not None and unanswered(error)
            outcome = "confirmed" if error is None else "unconfirmed" if doubt else "error"
            self.report(sent, now, outcome)
            lost = isinstance(error, LinkError)
            if isinstance(error, LinkError | BrokerFaultError):
                told = f"{error}{self._large(sent.frame)}"
                unconfirmed = SendUnconfirmedError(sent.message_key, sent.destination, told)
                unconfirmed.__cause__ = error
                error = unconfirmed
            if not (awaited or lost or error is None):
                self._outbox.refused(error, sent.message_key)
            return error

        request = self._requests.open("SEND", sent.destination, then)
        self._outbox.transmit(_with_receipt(sent.frame, request))
        return request

    def send_own(self, frame: Frame) -> Request:
        """Send a message of jmsx's own, which is not reported; wait for the request."""
        request = self._requests.open("SEND", frame.headers["destination"])
        self._outbox.transmit(_with_receipt(frame, request))
        return request

    def report(
        self, sent: TxSend, now: float, outcome: str, transaction_id: str | None = None
    ) -> None:
        """Report how a SEND ended."""
        if not self._outbox.detailed:
            return
        self._outbox.report(
            events.MessageSent(  # in the order of its fields
                now,
                sent.destination,
                sent.message_key,
                outcome,
                sent.at,
                sent.size,
                transaction_id,
                time_ms(sent.frame.headers.get("expires")),
                sent.cause_key,
                self._dialect.duplicate_id(sent.frame.headers, sent.message_key),
            )
        )

    def report_all(self, transaction: Transaction, outcome: str, now: float) -> None:
        """Report how the SENDs of a transaction ended."""
        if not self._outbox.detailed:
            return
        for sent in transaction.sends:
            self.report(sent, now, outcome, transaction.transaction_id)

    def report_end(
        self,
        transaction: Transaction,
        outcome: events.TransactionOutcome,
        acknowledgements: int,
        now: float,
    ) -> None:
        """Report how a transaction ended."""
        self._outbox.report(
            events.TransactionEnded(
                at=now,
                transaction_id=transaction.transaction_id,
                outcome=outcome,
                started_at=now if transaction.started_at is None else transaction.started_at,
                sends=len(transaction.sends),
                acknowledgements=acknowledgements,
            )
        )

    def _large(self, frame: Frame) -> str:
        """Return a remark on the size of a large body, which may be why the broker closed the connection silently."""
        size = len(frame.body)
        if size < LARGE:
            return ""
        return f"; its body has {size} bytes: the broker may take less{self._dialect.settings.frame_size}"


def _with_receipt(frame: Frame, request: Request) -> Frame:
    return Frame("SEND", {**frame.headers, "receipt": request.receipt_id}, frame.body)
