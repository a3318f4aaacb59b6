"""
Commit markers tell a session what became of a commit whose answer was lost with the link.

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

from jmsx.core.actions import Outbox
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame
from jmsx.core.headers import whole
from jmsx.core.requests import Continuation, Request, Requests
from jmsx.core.transaction import Transaction
from jmsx.core.values import StompAck
from jmsx.errors import (
    BrokerFaultError,
    JmsxError,
    LinkError,
    TransactionRolledBackError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


#: The queue of the markers.
QUEUE: Final = "queue://jmsx.commits"

#: The id of the subscription to `QUEUE`; the ids of consumers are numbers.
SUBSCRIPTION: Final = "commits"

#: Days after which a marker counts as one that a dead session has left.
ORPHANED: Final = 7


@dataclass(frozen=True, slots=True)
class _UnansweredCommit:
    """A commit that the broker has not answered."""

    whole: Request  #: who waits for the outcome
    sent: int  #: the number of its marker
    covered: int  #: the number of the marker that it acknowledges
    broker: str

    def decide(self, seen: set[int], now: float) -> bool:
        """End the commit if one of the markers `seen` tells its outcome; return whether it is ended."""
        if self.sent in seen:
            self.whole.end(now)
        elif self.covered in seen:
            text = (
                f"the connection to {self.broker} was lost before the broker committed"
                f" {self.whole.subject}, which it has rolled back"
            )
            self.whole.end(now, TransactionRolledBackError(text))
        return self.whole.done


class CommitMarkers:
    """Sends, keeps and reads the commit markers of one session; `today` is the date, in days since the epoch."""

    def __init__(
        self, session_id: str, today: int, dialect: Dialect, requests: Requests, outbox: Outbox
    ) -> None:
        self._session_id = session_id
        self._today = today
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._number = 0  #: of the last marker that was sent
        #: Number of the newest marker of this session that is in hand and not acknowledged; 0: none
        self._newest_in_hand = 0
        #: The last marker that has come on this link, of whatever session
        self._last_marker: Delivery | None = None
        #: The one that the last commit acknowledged
        self._acknowledged_marker: Delivery | None = None
        self._acknowledged = 0  #: number of this session's newest marker that went with it
        self._unanswered: _UnansweredCommit | None = None
        self._was_sent = False  #: a marker has been sent on this link
        self.opened = False
        self.error: JmsxError | None = None  #: why there are none on this link

    @property
    def ready(self) -> bool:
        """Whether a marker is in hand, so that the next transaction can be committed."""
        return not self.in_doubt and self._newest_in_hand > 0

    @property
    def leaves_nothing(self) -> bool:
        """Whether no marker of ours is on its way to us, so that `close` leaves none behind."""
        return not self.opened or self._newest_in_hand == self._number

    @property
    def in_doubt(self) -> bool:
        """Whether a commit waits for its outcome."""
        return self._unanswered is not None and not self._unanswered.whole.done

    def open(self) -> None:
        """Subscribe to the markers on a link that is up; called at the first commit, and on every link after that."""
        self.opened, self.error = True, None
        orphans = self._today - ORPHANED
        headers = self._dialect.writing.subscribe_headers(
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
        self._was_sent = not self.in_doubt
        if self._was_sent:
            self._outbox.transmit(self._marker({}))

    def prepare(self) -> None:
        """
        Send a marker for the next commit, if none is in hand or on its way.

        One is needed after a commit whose outcome was never told, perhaps because another broker was asked.
        """
        if not self.opened:
            self.open()
        elif not (self._was_sent or self.in_doubt or self.ready):
            self._was_sent = True
            self._outbox.transmit(self._marker({}))

    def accept(self, deliveries: Iterable[Delivery], now: float) -> None:
        """Keep markers that have come, and end the commit in doubt if they tell its outcome."""
        seen = set()
        for delivery in deliveries:
            self._last_marker = delivery
            number = whole(delivery.headers.get("jmsx_marker"))
            if number is not None and delivery.headers.get("jmsx_session") == self._session_id:
                self._newest_in_hand = number
                seen.add(number)
        if self._unanswered is not None and self._unanswered.decide(seen, now):
            self._unanswered = None

    def commit(
        self, transaction_id: str, broker: str, frames: Sequence[Frame], answer: Continuation
    ) -> Request:
        """
        Commit the transaction that `frames` complete; call it only when the markers are `ready`.

        The request ends with the broker's answer. If the link is lost before, or the broker fails, it ends with what
        the marker tells on the next link.
        """
        whole = Request("COMMIT", transaction_id, then=answer)

        def told(now: float, error: JmsxError | None) -> JmsxError | None:
            if not isinstance(error, LinkError | BrokerFaultError):
                whole.end(now, error)
            elif self._newest_in_hand == self._number:  # its marker was faster than its answer
                whole.end(now)
            elif not whole.done:
                self._unanswered = _UnansweredCommit(
                    whole, self._number, self._acknowledged, broker
                )
                if isinstance(error, BrokerFaultError):  # the next link tells, as after a lost one
                    self._outbox.disconnect(str(error))
            return error

        request = self._requests.open("COMMIT", transaction_id, told)
        wire = {"transaction": Transaction.WIRE_NAME}
        held = self._acknowledged_marker = self._last_marker
        ack = [] if held is None else [Frame("ACK", {"id": held.ack_id, **wire})]
        self._acknowledged, self._newest_in_hand, self._was_sent = self._newest_in_hand, 0, True
        commit = Frame("COMMIT", {**wire, "receipt": request.receipt_id})
        self._outbox.transmit(*frames, self._marker(wire), *ack, commit)
        return whole

    def lost(self) -> None:
        """Forget the markers in hand, because the link is gone; they come again on the next one."""
        self._last_marker = self._acknowledged_marker = None
        self._newest_in_hand = 0

    def give_up(self, now: float, gone: JmsxError) -> None:
        """End the commit in doubt with the error `gone`: there will be no next link that could tell its outcome."""
        doubt, self._unanswered = self._unanswered, None
        if doubt is not None:
            doubt.whole.end(now, gone)

    def close(self) -> None:
        """Acknowledge the marker in hand, so that none stays on the broker; the link is being closed."""
        if self._last_marker is not None and self._last_marker is not self._acknowledged_marker:
            self._outbox.transmit(Frame("ACK", {"id": self._last_marker.ack_id}))
        self.lost()

    def _marker(self, wire: Mapping[str, str]) -> Frame:
        self._number += 1
        headers = {
            **self._dialect.writing.send_headers(QUEUE),
            "persistent": "true",
            "jmsx_session": self._session_id,
            "jmsx_marker": str(self._number),
            "jmsx_day": str(self._today),
            **wire,
        }
        return Frame("SEND", headers)
