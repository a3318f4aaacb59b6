"""
How a session learns what became of a commit whose answer was lost with the link.

Each transaction sends a marker to a queue of jmsx's own, and acknowledges the marker of the one before. On the next
link one of the two comes to the session, and the broker's own locks make certain which: the new one is there only if
the transaction was committed, and the old one comes again only if it was rolled back, for until then it is held by the
transaction or by the dead link. While the broker still works on the COMMIT of a dead socket, neither comes.

So a broker is needed whose ACKs take part in transactions. Nothing is left behind: each marker goes with the next
commit, the last one when the session closes, and those of sessions that died are acknowledged by others after a week.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx.core.headers import whole
from jmsx.core.requests import Request
from jmsx.core.transaction import Transaction
from jmsx.core.values import StompAck
from jmsx.errors import (
    BrokerFaultError,
    ConnectionFailedError,
    JmsxError,
    TransactionRolledBackError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jmsx.core.actions import Outbox
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.requests import Continuation, Requests

#: Where markers are.
QUEUE: Final = "queue://jmsx.commits"

#: The id of the subscription to it; consumers have numbers.
SUBSCRIPTION: Final = "commits"

#: Days after which a marker that comes to us is one that a dead session has left.
ORPHANED: Final = 7


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A commit that nobody has answered."""

    whole: Request  #: who waits for the outcome
    sent: int  #: the number of its marker
    covered: int  #: the number of the marker that it acknowledges
    broker: str

    def decide(self, seen: set[int], now: float) -> bool:
        """End it if one of the markers that are `seen` says how."""
        if self.sent in seen:
            self.whole.end(now)
        elif self.covered in seen:
            text = f"the connection to {self.broker} was lost before it did COMMIT {self.whole.subject}"
            self.whole.end(now, TransactionRolledBackError(f"{text}, and rolled it back"))
        return self.whole.done


class CommitMarkers:
    """The markers of one session; `today` is the date, in days since the epoch."""

    def __init__(
        self, session_id: str, today: int, dialect: Dialect, requests: Requests, outbox: Outbox
    ) -> None:
        self._session_id = session_id
        self._today = today
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._number = 0  #: of the last marker that was sent
        self._fresh = 0  #: number of the newest of ours that is in hand and not spent; 0: none
        #: The last one that has come on this link, of whatever session
        self._held: Delivery | None = None
        self._spent: Delivery | None = None  #: the one that the last commit acknowledged
        self._covered = 0  #: number of the newest of ours that went with it
        self._doubt: _Doubt | None = None
        self._due = False  #: one has been sent on this link
        self.opened = False
        self.error: JmsxError | None = None  #: why there are none on this link

    @property
    def ready(self) -> bool:
        """Whether the next transaction can be committed."""
        return not self.in_doubt and self._fresh > 0

    @property
    def leaves_nothing(self) -> bool:
        """Whether no marker of ours is on its way to us, so that `close` leaves none behind."""
        return not self.opened or self._fresh == self._number

    @property
    def in_doubt(self) -> bool:
        """Whether a commit waits for its outcome."""
        return self._doubt is not None and not self._doubt.whole.done

    def open(self) -> None:
        """Begin to use them, on a link that is up; at the first commit, and on every link after that."""
        self.opened, self.error = True, None
        orphans = self._today - ORPHANED
        headers = self._dialect.subscribe_headers(
            destination=QUEUE,
            ack=StompAck.CLIENT,
            selector=f"jmsx_session = '{self._session_id}' OR jmsx_day < {orphans}",
            durable_name=None,
            no_local=False,
            options={},
        )

        def then(_now: float, error: JmsxError | None) -> JmsxError | None:
            self.error = error
            return error

        request = self._requests.open("SUBSCRIBE", QUEUE, then)
        headers = {"id": SUBSCRIPTION, **headers, "receipt": request.receipt_id}
        self._outbox.transmit(Frame("SUBSCRIBE", headers))
        self._due = not self.in_doubt
        if self._due:
            self._outbox.transmit(self._marker({}))

    def prepare(self) -> None:
        """
        Have a marker come for the next commit, if none is on its way.

        So it is after a doubt that nobody has cleared up, perhaps because this is another broker than the one asked.
        """
        if not self.opened:
            self.open()
        elif not (self._due or self.in_doubt or self.ready):
            self._due = True
            self._outbox.transmit(self._marker({}))

    def accept(self, deliveries: Iterable[Delivery], now: float) -> None:
        """Markers have come, perhaps with the answer that is waited for."""
        seen = set()
        for delivery in deliveries:
            self._held = delivery
            number = whole(delivery.headers.get("jmsx_marker"))
            if number is not None and delivery.headers.get("jmsx_session") == self._session_id:
                self._fresh = number
                seen.add(number)
        if self._doubt is not None and self._doubt.decide(seen, now):
            self._doubt = None

    def commit(
        self, transaction_id: str, broker: str, frames: Sequence[Frame], answer: Continuation
    ) -> Request:
        """
        Commit the transaction that `frames` complete; only if they are `ready`.

        The request ends with the broker's answer or, if the link is lost before or that tells nothing, with what the
        marker tells.
        """
        whole = Request("COMMIT", transaction_id, then=answer)

        def told(now: float, error: JmsxError | None) -> JmsxError | None:
            if not isinstance(error, ConnectionFailedError | BrokerFaultError):
                whole.end(now, error)
            elif self._fresh == self._number:  # its marker was faster than its answer
                whole.end(now)
            elif not whole.done:
                self._doubt = _Doubt(whole, self._number, self._covered, broker)
                if isinstance(error, BrokerFaultError):  # the next link tells, as after a lost one
                    self._outbox.disconnect(str(error))
            return error

        request = self._requests.open("COMMIT", transaction_id, told)
        wire = {"transaction": Transaction.WIRE_NAME}
        held = self._spent = self._held
        ack = [] if held is None else [Frame("ACK", {"id": held.ack_id, **wire})]
        self._covered, self._fresh, self._due = self._fresh, 0, True
        commit = Frame("COMMIT", {**wire, "receipt": request.receipt_id})
        self._outbox.transmit(*frames, self._marker(wire), *ack, commit)
        return whole

    def lost(self) -> None:
        """The link is gone, and what was in hand comes again on the next one."""
        self._held = self._spent = None
        self._fresh = 0

    def give_up(self, now: float, gone: JmsxError) -> None:
        """There is no next link, so the doubt stays."""
        doubt, self._doubt = self._doubt, None
        if doubt is not None:
            doubt.whole.end(now, gone)

    def close(self) -> None:
        """Leave nothing behind; the link is being closed."""
        if self._held is not None and self._held is not self._spent:
            self._outbox.transmit(Frame("ACK", {"id": self._held.ack_id}))
        self.lost()

    def _marker(self, wire: Mapping[str, str]) -> Frame:
        self._number += 1
        headers = {
            **self._dialect.send_headers(QUEUE),
            "persistent": "true",
            "jmsx_session": self._session_id,
            "jmsx_marker": str(self._number),
            "jmsx_day": str(self._today),
            **wire,
        }
        return Frame("SEND", headers)
