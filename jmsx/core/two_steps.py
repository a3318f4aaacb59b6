"""
Commits where ACKs take no part in transactions: first what was sent is committed, then what was received acknowledged.

A crash between the two steps delivers again what was received; what is then sent again carries the same identity, by
which the broker knows it. With `commit_markers` a commit whose link is lost before its ACKs are confirmed still ends
well: what was received is acknowledged when it comes again, without being handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.commit_ways import Commit, plain_acks
from jmsx.core.consumer import ConsumerCore
from jmsx.core.frames import Frame, Outbox
from jmsx.core.lost_deliveries import LostDeliveries
from jmsx.core.requests import Requests
from jmsx.core.sends import Sends
from jmsx.core.transaction import Transaction
from jmsx.errors import JmsxError, LinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TwoSteps:
    """Takes both steps for the commits of one session."""

    def __init__(
        self,
        requests: Requests,
        outbox: Outbox,
        *,
        sending: Sends,
        consumers: Iterable[ConsumerCore],
        lost_deliveries: LostDeliveries,
        releases: Callable[[], list[Frame]],
        clears_up: bool,
    ) -> None:
        """`clears_up`: a commit whose link is lost at its ACKs ends well on the next one; else it is in doubt."""
        self._requests = requests
        self._outbox = outbox
        self._sending = sending
        self._consumers = consumers  #: all of the session's
        self._lost_deliveries = lost_deliveries
        self._releases = releases  #: returns frames that end transactions which keep windows open
        self._clears_up = clears_up
        self._cut: Commit | None = None  #: the commit whose link was lost at its ACKs

    @property
    def in_doubt(self) -> bool:
        """Whether a commit has lost its link at its ACKs, and the next one ends it."""
        return self._cut is not None and not self._cut.whole.done

    def commit(self, commit: Commit, repeats: Callable[[Commit, JmsxError], bool]) -> None:
        """Commit what was sent, then `acknowledge`; `repeats` returns whether it takes over a commit that failed."""

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if commit.whole.done:
                return error
            if error is None and commit.transaction.rollback_only is None:
                self.acknowledge(commit, now)
            elif error is None or not repeats(commit, error):
                commit.whole.end(now, error)
            return error

        request = self._requests.open("COMMIT", commit.whole.subject, answered)
        headers = {"transaction": Transaction.WIRE_NAME, "receipt": request.receipt_id}
        self._outbox.transmit(*self._releases(), Frame("COMMIT", headers))

    def acknowledge(self, commit: Commit, now: float) -> None:
        """Take the second step: the broker has what was sent, and this session still holds what was received."""
        self._sending.report_all(commit.transaction, "confirmed", now)
        commit.transaction.sent = True
        if not commit.batches:
            commit.whole.end(now)
            return

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            if isinstance(error, LinkError) and self._clears_up and not commit.whole.done:
                self._cut = commit
            else:
                commit.whole.end(now, error)
            return error

        request = self._requests.open("ACK", commit.whole.subject, answered)
        self._outbox.transmit(*plain_acks(commit.batches, request.receipt_id))

    def owe(self, commit: Commit, now: float) -> None:
        """End `commit`, all of whose sends the broker has: when what it received comes again, only ACKs are owed."""
        if commit.whole.done:
            return
        for consumer, batch in commit.batches:
            self._lost_deliveries.note(consumer, batch, handed_out=False, processed=True)
        for consumer in self._consumers:
            for delivery in consumer.waiting:
                self._lost_deliveries.recall(consumer, delivery)
        commit.whole.end(now)

    def resume(self, now: float) -> None:
        """End a commit whose link was lost at its ACKs: they are owed on the new one."""
        cut, self._cut = self._cut, None
        if cut is not None:
            self.owe(cut, now)

    def give_up(self, now: float, gone: JmsxError) -> None:
        """End the commit in doubt with the error `gone`: there will be no other link."""
        cut, self._cut = self._cut, None
        if cut is not None:
            cut.whole.end(now, gone)
