"""
Commit markers tell a session what became of a commit whose answer was lost with the link.

Each transaction sends a marker to a queue of jmsx's own, and acknowledges the marker of the one before. On the next
link one of the two comes to the session, and the broker's own locks make certain which: the new one is there only if
the transaction was committed, and the old one comes again only if it was rolled back, for until then it is held by the
transaction or by the dead link. While the broker still works on the COMMIT of a dead socket, neither comes.

Where ACKs take no part in transactions (Artemis), only a session without consumers has markers, and the old one is
acknowledged when the commit is confirmed. If it comes again, then the broker has ended the dead link and will commit
nothing of it any more; but what it has committed before may still be on its way to the disk, or into the queue. So a
further marker is sent when the disk has all of that (journal_barrier.py), and if the new one has not come before that
one, then the transaction was rolled back.

Nothing is left behind: each marker goes with the next commit, the last one when the session closes, and those of
sessions that died are acknowledged by others after a week.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.commit_ways import Commit
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, Outbox
from jmsx.core.headers import whole
from jmsx.core.journal_barrier import journal_barrier
from jmsx.core.requests import Request, Requests
from jmsx.core.transaction import ALL_AGAIN, Transaction
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

#: Why a marker that was sent may come to nobody of ours, and what to do.
_LACKING: Final = (
    "its commit marker is not where it is looked for since its link is gone: that is another broker, or a bridge of a"
    f" network of brokers has moved it away; have bridges leave {QUEUE} alone (excludedDestinations)"
)

#: The id of the subscription to `QUEUE`; the ids of consumers are numbers.
SUBSCRIPTION: Final = "commits"

#: Days after which a marker counts as one that a dead session has left.
ORPHANED: Final = 7


@dataclass(frozen=True, slots=True)
class _UnansweredCommit:
    """A commit that the broker has not answered."""

    commit: Commit
    sent: int  #: the number of its marker
    covered: int  #: the number of the marker that is acknowledged with it

    def decide(self, seen: set[int], disproof: int, now: float) -> bool:
        """
        End the commit if one of the markers `seen` tells its outcome; return whether it is ended.

        It was rolled back if the marker `disproof` comes, and its own has not come before.
        """
        whole = self.commit.whole
        if self.sent in seen:
            whole.end(now)
        elif disproof in seen:
            text = (
                f"the connection to {self.commit.broker} was lost before the broker committed"
                f" {whole.subject}, which it has rolled back; {ALL_AGAIN}"
            )
            whole.end(now, TransactionRolledBackError(text))
        return whole.done


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
        self._number = 0  #: number of the last marker that was sent
        #: Number of the newest marker of this session that is in hand and not acknowledged; 0: none
        self._newest_in_hand = 0
        #: The last marker that has come on this link, of whatever session
        self._last_marker: Delivery | None = None
        #: The marker that the last commit acknowledged
        self._acknowledged_marker: Delivery | None = None
        self._asked: Request | None = None  #: the COMMIT of the last commit
        self._unanswered: _UnansweredCommit | None = None
        self._was_sent = False  #: a marker has been sent on this link
        #: Number of the marker that is sent on this link when the one of the commit before has come again; 0: none
        self._further = 0
        self.opened = False
        self._refusal: JmsxError | None = None  #: the broker's, of the markers

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
        return self._unanswered is not None and not self._unanswered.commit.whole.done

    @property
    def lacking(self) -> str:
        """Why no marker may tell the end of the commit in doubt, and what to do; empty if none is in doubt."""
        return _LACKING if self.in_doubt else ""

    def open(self) -> None:
        """Subscribe to the markers on a link that is up; called at the first commit, and on every link after that."""
        self.opened = True
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
            if error is not None and not isinstance(error, LinkError):
                self.opened, self._refusal = False, error
            return error

        request = self._requests.open("SUBSCRIBE", QUEUE, then)
        headers = {"id": SUBSCRIPTION, **headers, "receipt": request.receipt_id}
        self._outbox.transmit(Frame("SUBSCRIBE", headers))
        self._was_sent = not self.in_doubt
        # Where each ERROR ends a link, refusals that name no receipt would end one link after the other
        if self._was_sent and self._dialect.errors_close:
            request = self._requests.open("SEND", QUEUE, then)
            self._outbox.transmit(self._marker({"receipt": request.receipt_id}))
        elif self._was_sent:
            self._outbox.transmit(self._marker({}))

    def check(self) -> None:
        """Raise what the broker has said if it has refused the markers; once, for the next commit asks again."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

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
            number = whole(delivery.headers.get("jmsx_marker"))
            if number is not None and delivery.headers.get("jmsx_session") == self._session_id:
                self._newest_in_hand = number
                seen.add(number)
                self._release_older()
            self._last_marker = delivery
        if self._unanswered is not None:
            self._look_at(self._unanswered, seen, now)

    def _release_older(self) -> None:
        """
        Acknowledge the marker before the one that has come, which a COMMIT need not take along.

        The broker would count each lost link that held it, and make a dead letter of it in the end (BROKER.md A43).
        """
        older = self._last_marker
        committing = self._asked is not None and not self._asked.done
        if self._dialect.transactional_ack or committing or self.in_doubt:
            return
        if older is not None and older is not self._acknowledged_marker:
            self._acknowledged_marker = older
            self._outbox.transmit(Frame("ACK", {"id": older.arrival.ack_id}))

    def _look_at(self, unanswered: _UnansweredCommit, seen: set[int], now: float) -> None:
        covered_tells = self._dialect.transactional_ack
        if unanswered.decide(seen, unanswered.covered if covered_tells else self._further, now):
            self._unanswered = None
        elif unanswered.covered in seen and not self._further:
            further = self._marker({})
            self._further = self._number

            def passed(_now: float, error: JmsxError | None) -> JmsxError | None:
                if error is None:
                    self._outbox.transmit(further)
                return error

            request = self._requests.open("SEND", QUEUE, passed)
            self._outbox.transmit(*journal_barrier(further, request.receipt_id))

    def commit(self, commit: Commit, acks: Sequence[Frame]) -> None:
        """
        Commit the transaction that `acks` complete, with a marker in it; only when the markers are `ready`.

        A COMMIT that the broker does not answer ends with what the marker tells on the next link.
        """
        wire = {"transaction": Transaction.WIRE_NAME}
        held = self._acknowledged_marker = self._last_marker
        marker = self._marker(wire)
        unanswered = _UnansweredCommit(commit, self._number, self._newest_in_hand)
        self._newest_in_hand, self._was_sent = 0, True

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                self._release_acknowledged()
            if isinstance(error, LinkError | BrokerFaultError):
                self._look_up(unanswered, error, now)
            else:
                commit.whole.end(now, error)
            return error

        request = self._asked = self._requests.open("COMMIT", commit.whole.subject, answered)
        ack = []
        if held is not None and self._dialect.transactional_ack:
            ack.append(Frame("ACK", {"id": held.arrival.ack_id, **wire}))
        last = Frame("COMMIT", {**wire, "receipt": request.receipt_id})
        self._outbox.transmit(*acks, marker, *ack, last)

    def _release_acknowledged(self) -> None:
        """Acknowledge the marker that goes with the commit which is confirmed, if its COMMIT took none along."""
        held = self._acknowledged_marker
        if held is not None and not self._dialect.transactional_ack:
            self._outbox.transmit(Frame("ACK", {"id": held.arrival.ack_id}))

    def _look_up(
        self, unanswered: _UnansweredCommit, error: LinkError | BrokerFaultError, now: float
    ) -> None:
        """End a commit that the broker has not answered with what the marker tells on the next link."""
        whole = unanswered.commit.whole
        if self._newest_in_hand == unanswered.sent:  # its marker was faster than its answer
            whole.end(now)
        elif not whole.done:
            self._unanswered = unanswered
            if isinstance(error, BrokerFaultError):  # the next link tells, as after a lost one
                self._outbox.disconnect(str(error))

    def lost(self) -> None:
        """Forget the markers in hand, because the link is gone; they come again on the next one."""
        self._last_marker = self._acknowledged_marker = None
        self._newest_in_hand = self._further = 0

    def give_up(self, now: float, gone: JmsxError) -> None:
        """End the commit in doubt with the error `gone`: there will be no next link that could tell its outcome."""
        doubt, self._unanswered = self._unanswered, None
        if doubt is not None:
            doubt.commit.whole.end(now, gone)

    def close(self) -> None:
        """Acknowledge the marker in hand, so that none stays on the broker; the link is being closed."""
        if self._last_marker is not None and self._last_marker is not self._acknowledged_marker:
            self._outbox.transmit(Frame("ACK", {"id": self._last_marker.arrival.ack_id}))
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
