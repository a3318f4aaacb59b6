"""Tells what each ERROR frame is about, and ends the request that caused it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from jmsx.core import events
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, Outbox
from jmsx.core.requests import Request, Requests
from jmsx.errors import JmsxError, LinkError

#: Seconds that a refusal is held back until the broker tells its cause.
PATIENCE: Final = 1.0


class About(Enum):
    """What an ERROR is about, as far as anybody can tell."""

    #: The request that it answers, and nothing else: the link goes on
    REQUEST = auto()
    #: A copy of a message that leaves its queue; the messages that are held did not cause it
    COPY = auto()
    #: A further subscription, by which jmsx asks for more than a window has room for
    SUBSCRIPTION = auto()
    #: The link alone: the broker ends it because it was silent, or because an administrator wants that
    LINK = auto()
    #: Perhaps what the application has sent for the messages that it holds
    WORK = auto()


class Complaint(NamedTuple):
    """An ERROR of the broker."""

    about: About
    words: str
    error: JmsxError
    request: Request | None  #: the request that it answers, whose caller is told


class _Held(NamedTuple):
    receipt_id: str
    error: JmsxError
    until: float


class BrokerErrors:
    """Tells what the ERROR frames are about that a session receives, and ends the requests that caused them."""

    def __init__(self, dialect: Dialect, requests: Requests, outbox: Outbox) -> None:
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self.held: _Held | None = None  #: a refusal whose cause is not known yet
        self._ends_link: About | None = None  #: what the ERROR is about that ends the link

    def hear(self, frame: Frame, broker: str, now: float) -> Complaint:
        """Return what the ERROR `frame` is about; `broker`: its address. When that is noted, call `answer`."""
        reading = self._dialect.reading
        words, receipt_id = reading.complaint(frame), frame.headers.get("receipt-id")
        self._outbox.report(events.ErrorReceived(at=now, message=words, receipt_id=receipt_id))
        request = self._requests.peek(receipt_id)
        if request is None and receipt_id is None:
            request = self._unconfirmed()
        if request is None:
            error = reading.error("a frame", "that nobody waits for", frame, broker)
        else:
            error = reading.error(request.command, request.subject, frame, broker)
        about = self._ends_link
        if about is None:
            about = self._judge(words, error, request, named=receipt_id is not None)
        if self._dialect.errors_close:
            self._ends_link = about  # further ERRORs are about the same
        return Complaint(about, words, error, request)

    def answer(self, complaint: Complaint, broker: str, now: float, *, rollback_only: bool) -> None:
        """
        End the request that a complaint answers; if it answers none, end the one whose refusal it explains.

        Where the broker tells the cause of a refused COMMIT in a second ERROR, the refusal is held back until that
        comes, unless the transaction is `rollback_only` already: then its cause is known.
        """
        request, error, words = complaint.request, complaint.error, complaint.words
        if request is None:
            self.explain(now)
        elif self._dialect.reading.explains_later(request.command, words) and not rollback_only:
            self.explain(now)  # another one may be held
            self.held = _Held(request.receipt_id, error, now + PATIENCE)
        else:
            self._requests.answer(request.receipt_id, now, error)
        if self._dialect.errors_close:
            self._outbox.disconnect(f"{broker} ends a connection with an error: {words}")

    def _judge(
        self, words: str, error: JmsxError, request: Request | None, *, named: bool
    ) -> About:
        """
        Return what an ERROR is about that answers `request`, or none; `named`: it tells a receipt.

        An ERROR that ends the link and names no receipt is about what the broker would have answered next, if that was
        a copy.
        """
        if request is None and self._dialect.reading.refuses_subscription(words):
            return About.SUBSCRIPTION
        if isinstance(error, LinkError):
            return About.LINK
        if not self._dialect.errors_close:
            return About.WORK if request is None else About.REQUEST
        asked = request if request is not None or named else self._requests.oldest
        return About.COPY if asked is not None and asked.is_copy else About.WORK

    def _unconfirmed(self) -> Request | None:
        """Return the SUBSCRIBE that waits for an answer, if the broker names no receipt when it refuses one."""
        request = self._requests.oldest
        if request is None or request.command != "SUBSCRIBE":
            return None
        if self._dialect.errors_close:
            return request
        return None if self._dialect.writing.trial(request.subject, {}) is None else request

    def lost(self, now: float) -> None:
        """Note that the link is gone: what is held back will not be explained, and the next one has its own errors."""
        self.explain(now)
        self._ends_link = None

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
