"""Frames that the broker must answer: each asks for a RECEIPT and ends exactly once, well or badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from jmsx.core.frames import Frame, Outbox
from jmsx.errors import BrokerFaultError, BrokerTimeoutError, JmsxError, LinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


#: What the core does with an answer: given `now` and the error, if any, it returns the caller's error.
Continuation: TypeAlias = "Callable[[float, JmsxError | None], JmsxError | None]"


class Request:
    """One frame that the broker must answer. The driver's caller waits until `done`, then looks at `error`."""

    __slots__ = ("_continue", "command", "done", "error", "is_copy", "receipt_id", "subject")

    def __init__(
        self,
        command: str,
        subject: str,
        receipt_id: str = "",
        then: Continuation | None = None,
        *,
        is_copy: bool = False,
    ) -> None:
        self.command = command  #: the STOMP command
        self.subject = subject  #: destination, transaction or consumer, for errors
        self.receipt_id = receipt_id
        self.is_copy = is_copy  #: the SEND is of a copy of a message that leaves its queue, not of the application's
        self.done = False
        self.error: JmsxError | None = None
        self._continue = then

    def end(self, now: float, error: JmsxError | None = None) -> None:
        """Note the answer; the continuation may put a better error in its place."""
        if self.done:
            return
        if self._continue is not None:
            error = self._continue(now, error)
        self.error = error
        self.done = True
        # The continuation would keep its messages in memory as long as somebody keeps the request.
        self._continue = None


def answered(command: str, subject: str, error: JmsxError | None = None) -> Request:
    """Return a request that is done already, well or with `error`, because the broker need not be asked."""
    request = Request(command, subject)
    request.end(0.0, error)
    return request


class Requests:
    """The requests of one epoch that are not answered yet, by receipt id."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0
        self._open: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def open(
        self,
        command: str,
        subject: str,
        then: Continuation | None = None,
        *,
        is_copy: bool = False,
    ) -> Request:
        """Register a request, which may be for a SEND that `is_copy`; put its `receipt_id` on the frame."""
        self._count += 1
        receipt_id = f"{self._prefix}-{self._count}"
        request = Request(command, subject, receipt_id, then, is_copy=is_copy)
        self._open[request.receipt_id] = request
        return request

    def answer(self, receipt_id: str, now: float, error: JmsxError | None = None) -> bool:
        """End the request with that receipt id; False if there is none."""
        request = self._open.pop(receipt_id, None)
        if request is None:
            return False
        request.end(now, error)
        return True

    def peek(self, receipt_id: str | None) -> Request | None:
        """Return the open request with that receipt id, or None."""
        return self._open.get(receipt_id) if receipt_id is not None else None

    @property
    def oldest(self) -> Request | None:
        """The request that has been open for the longest time; None: none is open."""
        return next(iter(self._open.values()), None)

    def abandon(self, request: Request) -> None:
        """Forget a request whose caller waits no longer; a late answer is then unknown."""
        self._open.pop(request.receipt_id, None)

    def fail_all(self, now: float, error: Callable[[Request], JmsxError]) -> None:
        """End every open request with an error, because the link is gone."""
        for receipt_id, request in list(self._open.items()):
            self._open.pop(receipt_id, None)  # one by one: this may be interrupted
            request.end(now, error(request))


def unanswered(error: JmsxError) -> bool:
    """Return whether the error leaves open what the broker did."""
    return silent(error) or isinstance(error, BrokerFaultError)


def silent(error: JmsxError) -> bool:
    """Return whether the broker said nothing at all: the link is gone, or of no use."""
    return isinstance(error, LinkError | BrokerTimeoutError)


def barrier(receipt_id: str) -> tuple[Frame, Frame]:
    """Return an empty transaction; the broker confirms its ABORT when it has done all that came before."""
    name = {"transaction": "jmsx-barrier"}  # only one: Artemis keeps each name (BROKER.md A36)
    return Frame("BEGIN", name), Frame("ABORT", {**name, "receipt": receipt_id})


def subscribe(
    headers: Mapping[str, str],
    request: Request,
    requests: Requests,
    outbox: Outbox,
    *,
    trial: Mapping[str, str] | None,
) -> None:
    """
    Write SUBSCRIBE with `headers`, and answer `request` when the broker has confirmed or refused it.

    Some brokers send messages only if the SUBSCRIBE asks for no receipt; and an ERROR that names no receipt may come at
    any time. For them a subscription with the headers `trial` is tried first, with a receipt: it gets no messages, and
    is refused for the same reasons. A barrier after the SUBSCRIBE is answered when the broker has done that.
    """
    if trial is None:
        outbox.transmit(Frame("SUBSCRIBE", {**headers, "receipt": request.receipt_id}))
        return
    tried_id = {"id": f"trial-{headers['id']}"}

    def tried(now: float, error: JmsxError | None) -> JmsxError | None:
        if error is not None:
            requests.answer(request.receipt_id, now, error)
            return error
        outbox.transmit(Frame("UNSUBSCRIBE", tried_id))
        if not request.done:
            outbox.transmit(Frame("SUBSCRIBE", headers), *barrier(request.receipt_id))
        return None

    receipt_id = requests.open(request.command, request.subject, tried).receipt_id
    outbox.transmit(Frame("SUBSCRIBE", {**trial, **tried_id, "receipt": receipt_id}))
