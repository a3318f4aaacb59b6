"""
What a session does inside a STOMP transaction: sends, commits and rollbacks.

It picks one of the ways to commit a transaction (commit_ways.py), and does the simplest itself: all in one burst.
Whatever the way, this module ends what is in the transaction.

The rules that keep messages from being lost on Classic (BROKER.md C29-C33 and C35): one transaction at a time on a
link; no receipt on a frame inside it, save COMMIT and what is awaited, because a failing frame with a receipt does not
spoil the transaction; after any other ERROR it can only be rolled back; no NACK and no UNSUBSCRIBE inside it; after a
refused COMMIT the link is dropped, because the broker can neither abort that transaction nor give its messages back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from jmsx.core.broker_errors import About, Complaint
from jmsx.core.commit_markers import CommitMarkers
from jmsx.core.commit_repeat import CommitRepeats
from jmsx.core.commit_ways import Batches, Commit, Way, plain_acks
from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery
from jmsx.core.delivery_state import COMMIT, SETTLE
from jmsx.core.destination_names import is_foreign_temporary
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger, Outcome, TransactionOutcome
from jmsx.core.frames import Frame, Outbox
from jmsx.core.held_on_lost_links import HeldOnLostLinks
from jmsx.core.journal_barrier import journal_barrier
from jmsx.core.lost_deliveries import LostDeliveries
from jmsx.core.requests import Request, Requests, answered, unanswered
from jmsx.core.sends import Sends
from jmsx.core.transaction import ALL_AGAIN, COMMITTING, Transaction, TxInput, TxSend, TxState
from jmsx.core.two_steps import TwoSteps
from jmsx.core.values import SessionSettings
from jmsx.errors import (
    BrokerFaultError,
    BrokerTimeoutError,
    ConnectionFailedError,
    IllegalStateError,
    InvalidDestinationError,
    JmsxError,
    LinkError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: What is known when only the second step of a commit failed.
_HALF = (
    "what was sent is committed, but what was received may not be acknowledged and may come again"
)


#: Complaints that no held message has caused; what the broker refuses after such a one, it has not looked at.
_BLAMELESS: Final = frozenset({About.COPY, About.SUBSCRIPTION, About.LINK})


class UnitOfWork:
    """Sends, commits and rolls back in the transactions of one session."""

    def __init__(
        self,
        settings: SessionSettings,
        dialect: Dialect,
        requests: Requests,
        outbox: Outbox,
        *,
        sending: Sends,
        consumers: Iterable[ConsumerCore],
        on_lost_links: HeldOnLostLinks,
        lost_deliveries: LostDeliveries,
        releases: Callable[[], list[Frame]],
        subscribe_wholly: Callable[[float], None],
    ) -> None:
        self.settings = settings  #: of the link that is up
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._sending = sending
        self._consumers = consumers  #: all of the session's
        self._on_lost_links = on_lost_links
        self._lost_deliveries = lost_deliveries
        self._releases = releases  #: returns frames that end transactions which keep windows open
        #: Lets consumers get all messages again, after only those that a commit in doubt has received
        self._subscribe_wholly = subscribe_wholly
        self._transaction = Transaction(settings.session_id)
        #: In this transaction, on this link, the broker has complained of what may have been sent for a message
        self.complained = False
        self._blameless = False  #: the link ends for what no message held here has caused
        self._commit: Commit | None = None  #: the commit that is under way
        self.last_commit: Request | None = None  #: the newest commit's, ended or not
        #: Whether a commit that was not answered is cleared up on the next link by what it received
        self._clears_up = settings.marker_day is not None and not dialect.transactional_ack
        self._two_steps = TwoSteps(
            requests,
            outbox,
            sending=sending,
            consumers=consumers,
            lost_deliveries=lost_deliveries,
            releases=releases,
            clears_up=self._clears_up,
        )
        self._repeats = CommitRepeats(
            dialect,
            requests,
            outbox,
            consumers,
            two_steps=self._two_steps,
            clears_up=self._clears_up,
            anywhere=settings.anywhere,
        )
        self.markers: CommitMarkers | None = None
        if settings.marker_day is not None:
            self.markers = CommitMarkers(
                settings.session_id, settings.marker_day, dialect, requests, outbox
            )

    @property
    def in_doubt(self) -> bool:
        """Whether a commit has lost its link, and its outcome will show on the next one."""
        marked = self.markers is not None and self.markers.in_doubt
        return marked or self._two_steps.in_doubt or self._repeats.in_doubt

    @property
    def committing(self) -> bool:
        """Whether a commit waits for its answer."""
        return self._transaction.state is COMMITTING

    @property
    def bound(self) -> bool:
        """Whether an open transaction or commit markers bind the session to its link."""
        return self._transaction.begun or (self.markers is not None and self.markers.opened)

    @property
    def open(self) -> bool:
        """Whether the transaction is on the wire, begun or being committed."""
        return self._transaction.state is not TxState.IDLE

    def touch(self, consumer: ConsumerCore, delivery: Delivery, now: float) -> None:
        """Note that `delivery` was handed out in the transaction; what is sent from here on counts as sent for it."""
        self._transaction.touch(now)
        self._transaction.take(consumer.settings.origin, delivery)

    def untouch(self, delivery: Delivery) -> None:
        """Note that `delivery` was handed out and not returned to the application."""
        self._transaction.take_back(delivery)

    # Sending ---------------------------------------------------------------------------------------------------------

    def send(self, sent: TxSend) -> Request | None:
        """
        Send in the transaction. There is nothing to wait for, and a failure shows at commit.

        Only a SEND to another connection's temporary destination is awaited: its owner may be gone, and a commit that
        is refused for that costs the link each time. A SEND that fails with a receipt leaves the transaction as it was
        (measured on Classic 6.1.8), so the sender hears of it and decides. And a send that an older commit may have
        done already waits until the broker knows whether it did (journal_barrier.py).

        Raises IllegalStateError if the transaction can only be rolled back.
        """
        transaction = self._transaction
        if transaction.rollback_only is not None:
            raise IllegalStateError(
                f"SEND {sent.destination} was not sent to {self.settings.broker}: the transaction can only be"
                f" rolled back: {transaction.rollback_only}; call rollback(), and do all of it again"
            )
        if not transaction.begun:
            transaction.step(TxInput.BEGIN)
            begin = Frame("BEGIN", {"transaction": transaction.WIRE_NAME})
            self._outbox.transmit(begin, waits=True)
        transaction.touch(sent.at)
        output = transaction.next_output(self._dialect, of_none=self._clears_up)
        known = {} if output is None else self._dialect.output_headers(output)
        if known:
            headers = {**known, **sent.frame.headers}
            sent = replace(sent, frame=replace(sent.frame, headers=headers))
        transaction.sends.append(sent)
        if known and (transaction.repeats or transaction.unwritten):
            return self._send_behind_barrier(sent)
        return self._write(sent)

    def _send_behind_barrier(self, sent: TxSend) -> Request:
        """
        Write the SEND after a journal barrier; until then the transaction cannot be committed.

        What other threads send meanwhile waits behind a barrier of its own, so each comes behind the one before.
        """
        transaction = self._transaction
        transaction.repeats = False
        transaction.unwritten.append(sent)

        def then(_now: float, error: JmsxError | None) -> JmsxError | None:
            if sent not in transaction.unwritten:  # rolled back, as nobody waited for it
                return error
            if isinstance(error, LinkError):  # the commit reports it, with all that is lost
                return None
            transaction.unwritten.remove(sent)
            if error is None:
                self._write(sent)
            else:
                self.set_rollback_only(str(error))
            return error

        request = self._requests.open("SEND", sent.destination, then)
        self._outbox.transmit(*journal_barrier(sent.frame, request.receipt_id))
        return request

    def _write(self, sent: TxSend) -> Request | None:
        """Write the SEND in the transaction that is begun."""
        transaction = self._transaction
        headers = {**sent.frame.headers, "transaction": transaction.WIRE_NAME}
        if not is_foreign_temporary(sent.destination):
            self._outbox.transmit(Frame("SEND", headers, sent.frame.body), waits=True)
            return None

        def then(now: float, error: JmsxError | None) -> JmsxError | None:
            if isinstance(error, InvalidDestinationError) and transaction.sends[-1:] == [sent]:
                transaction.sends.pop()
                self._sending.report(sent, now, "error")
            elif error is not None:
                self.set_rollback_only(str(error))
            return error

        request = self._requests.open("SEND", sent.destination, then)
        headers["receipt"] = request.receipt_id
        self._outbox.transmit(Frame("SEND", headers, sent.frame.body))
        return request

    # The end of a transaction ----------------------------------------------------------------------------------------

    def may_commit(self, consumers: Sequence[ConsumerCore], *, linked: bool) -> bool:
        """
        Return whether `commit` may be called; if it is `linked`, asks for a marker where one is needed.

        `consumers` are those of which the application holds messages, here and for `commit`.
        """
        if self.markers is None:
            return True
        self.markers.check()
        if self._obstacle is not None or not linked:
            return True
        if not (self._transaction.sends or consumers) or not self._uses_markers():
            return True  # there is nothing to commit, or nothing that a marker could tell
        self.markers.prepare()
        return self.markers.ready

    def _uses_markers(self) -> bool:
        """
        Return whether commits have a marker now.

        Where ACKs take no part in transactions, the received messages tell as much when they come again; and if a
        session holds messages of two subscriptions when its socket breaks, Artemis keeps one for nobody three times as
        often (BROKER.md A66). So there only a session without consumers reads markers.
        """
        if self.markers is None:
            return False
        return self._dialect.transactional_ack or next(iter(self._consumers), None) is None

    def commit(
        self, consumers: Sequence[ConsumerCore], now: float, then: Callable[[float], None]
    ) -> Request:
        """
        Commit; `then(now)` runs when the transaction has ended, and its link has not.

        A transaction with nothing in it is committed at once.
        """
        self.complained = False
        batches = [(each, list(each.delivered)) for each in consumers]
        transaction = self._transaction
        if not batches and not transaction.sends:
            self._abort()
            then(now)
            return answered("COMMIT", transaction.transaction_id)

        def ended(now: float, error: JmsxError | None) -> JmsxError | None:
            return self._ended(commit, now, error)

        whole = Request("COMMIT", transaction.transaction_id, then=ended)
        commit = Commit(
            transaction, batches, whole, self.settings.broker, then, begun=transaction.begun
        )
        refusable = (
            bool(transaction.sends) or self.markers is not None or not self._is_plain(commit)
        )
        way = self._way(commit)
        # All of it is being committed before anything is asked for: a signal handler may raise anywhere.
        self._commit, self.last_commit = commit, whole
        for consumer in consumers:
            consumer.copies.committing = refusable and not consumer.settings.individual
            for delivery in consumer.take_delivered():
                delivery.step(COMMIT)
        transaction.step(TxInput.COMMIT)
        self._begin(commit, way)
        return whole

    def _begin(self, commit: Commit, way: Way) -> None:
        """Write the first frames of `commit`; its `whole` ends when the broker has answered the last ones."""
        match way:
            case Way.MARKED if self.markers is not None:
                self.markers.commit(commit, self._in_a_transaction(commit))
            case Way.TWO_STEPS:
                self._two_steps.commit(commit, self._repeats.take)
            case Way.REPEATED:
                self._repeats.commit(commit)
            case _:
                self._commit_in_one_burst(commit)

    def _way(self, commit: Commit) -> Way:
        """Return how `commit` is done."""
        if self._uses_markers():
            return Way.MARKED
        if self._dialect.transactional_ack or not commit.transaction.sends:
            return Way.ONE_BURST
        if self._repeats.would_be_refused(commit):
            return Way.REPEATED
        return Way.TWO_STEPS

    def rollback(self, now: float) -> None:
        """Undo the sends; the caller gives back what was delivered."""
        self.complained = False
        self._on_lost_links.forget()
        transaction = self._transaction
        self._sending.report_all(transaction, "rolled_back", now)
        if transaction.started_at is not None:
            self._sending.report_end(transaction, TransactionOutcome.ROLLED_BACK, 0, now)
        self._abort()

    def _abort(self) -> None:
        transaction = self._transaction
        if transaction.begun:
            self._outbox.transmit(Frame("ABORT", {"transaction": transaction.WIRE_NAME}))
        transaction.step(TxInput.ABORT)

    @property
    def is_rollback_only(self) -> bool:
        """Whether the open transaction can only be rolled back."""
        return self._transaction.rollback_only is not None

    @property
    def _obstacle(self) -> str | None:
        """Why the open transaction cannot be committed; None: it can."""
        transaction = self._transaction
        if transaction.rollback_only is None and transaction.unwritten:
            return f"SEND {transaction.unwritten[0].destination} waits for the broker"
        return transaction.rollback_only

    def hear(self, complaint: Complaint) -> None:
        """Note a complaint of the broker, before the request that it answers is ended."""
        about = complaint.about
        self._blameless = about in _BLAMELESS
        self.complained |= about is About.WORK
        # Whatever it is about, a SEND behind it is perhaps not done, and the COMMIT behind that confirmed
        # (BROKER.md A74 of Artemis)
        if complaint.request is None:
            self.set_rollback_only(complaint.words)

    def set_rollback_only(self, cause: str) -> None:
        """
        Note that the broker refused a part of the open transaction, which can only be rolled back.

        While it is being committed, the `cause` tells why the broker will refuse that; of what is committed already it
        refuses nothing any more. The first cause is kept: it causes those that follow it.
        """
        transaction = self._transaction
        if transaction.state is TxState.IDLE or transaction.sent or self.is_rollback_only:
            return
        transaction.rollback_only = f"the broker refused a part of it: {cause}"

    def refusal(self) -> TransactionRolledBackError | None:
        """
        Return the error for committing a transaction that can only be rolled back, or
        None if it can be committed.
        """
        cause = self._obstacle
        if cause is None:
            return None
        return TransactionRolledBackError(
            f"transaction {self._transaction.transaction_id} on {self.settings.broker}"
            f" was rolled back: {cause}; {ALL_AGAIN}"
        )

    def lost(self, epoch: int, now: float) -> None:
        """
        Roll back the open transaction, because the link is gone and the broker rolls it back, too.

        What was received on it counts as failed if the broker has complained, because it would complain each time of
        what is sent for such a message. The application has to call `rollback`. Source:
        `ActiveMQMessageConsumer.java:761-771`.
        """
        if self.complained:
            self._on_lost_links.refuse(epoch)
        self.complained = self._blameless = False
        if self.markers is not None:
            self.markers.lost()
        self._repeats.lost()
        if self.in_doubt:
            for consumer, batch in () if self._commit is None else self._commit.batches:
                consumer.memory.in_hand(batch)  # others may get it before the doubt has its end
            return
        if self._commit is not None:  # it was interrupted before anything was asked for
            self._abandon(self._commit.batches, now, failed=False)
            self._commit = None
        transaction = self._transaction
        cause, transaction_id = transaction.rollback_only, transaction.transaction_id
        self._sending.report_all(transaction, "rolled_back", now)
        if transaction.started_at is not None:
            self._sending.report_end(transaction, TransactionOutcome.ROLLED_BACK, 0, now)
            cause = cause or f"the connection was lost while {transaction_id} was open"
        transaction.step(TxInput.LOST)
        transaction.rollback_only = cause

    def give_up(self, now: float) -> None:
        """End a commit that waits for the next link: it stays in doubt, because there will be none."""
        gone = ConnectionFailedError(f"the connection to {self.settings.broker} is gone")
        if self.markers is not None:
            self.markers.give_up(now, gone)
        self._two_steps.give_up(now, gone)
        self._repeats.give_up(now, gone)

    def resume(
        self, broker: str, now: float, subscribe: Callable[[Sequence[Delivery]], None]
    ) -> bool:
        """
        Go on, on a new link to `broker`, with a commit that was not ended on the last one.

        Returns whether a journal barrier comes first (commit_repeat.py); then nothing else may be written until this
        runs `subscribe` with what the session waits for.
        """

        def reopened(now: float, awaited: Sequence[Delivery]) -> None:
            self._reopen(now)
            subscribe(awaited)

        rehearsed = self._repeats.resume(broker, now, reopened)
        if not rehearsed:
            self._reopen(now)
        return rehearsed

    def _reopen(self, now: float) -> None:
        """Go on with a commit, if there is one, on a link on which consumers are about to be subscribed."""
        self._two_steps.resume(now)
        if self.markers is not None and self.markers.opened:
            self.markers.open()

    def received(self) -> None:
        """Go on with a commit that waits for what it received, if all of that has come again to this session."""
        self._repeats.received()

    def next_timer(self) -> float | None:
        """Return when `handle_timer` is next due (seconds, monotonic), or None."""
        return self._repeats.next_timer()

    def handle_timer(self, now: float) -> None:
        """Do what a repeated commit has to do by `now`; `next_timer` tells when."""
        self._repeats.handle_timer(now)

    # Inside ----------------------------------------------------------------------------------------------------------

    def _commit_in_one_burst(self, commit: Commit) -> None:
        """
        Write all that commits at once.

        A single receive needs no transaction, unless the broker may have miscounted. Several do, although one
        cumulative ACK would cover them: Classic removes them one by one, and a broker that was killed meanwhile had 805
        to 888 of 900 left (measured).
        """

        def answered(now: float, error: JmsxError | None) -> JmsxError | None:
            commit.whole.end(now, error)
            return error

        receipt_id = self._requests.open("COMMIT", commit.whole.subject, answered).receipt_id
        if commit.batches and self._is_plain(commit):
            self._outbox.transmit(*plain_acks(commit.batches, receipt_id))
            return
        headers = {"transaction": Transaction.WIRE_NAME, "receipt": receipt_id}
        frames = self._in_a_transaction(commit)
        self._outbox.transmit(*frames, Frame("COMMIT", headers))

    def _is_plain(self, commit: Commit) -> bool:
        """Return whether what `commit` received is settled outside a transaction."""
        if not self._dialect.transactional_ack:
            return True
        if commit.begun or any(consumer.miscounted for consumer, _ in commit.batches):
            return False
        return sum(len(batch) for _, batch in commit.batches) == 1

    def _in_a_transaction(self, commit: Commit) -> list[Frame]:
        """Return the ACKs of `commit` in its transaction, behind the BEGIN of that if it is not begun."""
        wire = {"transaction": Transaction.WIRE_NAME}
        frames = self._releases()
        frames += [] if commit.begun else [Frame("BEGIN", wire)]
        for consumer, batch in commit.batches:
            frames += consumer.ack_frames(batch, **wire)
            consumer.reset_window()
        return frames

    def _ended(self, commit: Commit, now: float, error: JmsxError | None) -> JmsxError | None:
        """End all that is in `commit`; return the error for its caller, if any."""
        self._commit = None
        complaint = commit.transaction.rollback_only
        if error is None and complaint is not None:
            error = BrokerFaultError(f"it was confirmed, but {complaint}")
        if error is None:
            self._committed(commit.batches, now)
            self._subscribe_wholly(now)
            commit.then(now)
            return None
        told = self._not_committed(commit.batches, error, now, commit.broker)
        # The commit waits no longer; after any other error the link is gone or dropped.
        if isinstance(error, BrokerTimeoutError):
            self._subscribe_wholly(now)
        if isinstance(error, TransactionRolledBackError):  # told on a link that stays
            commit.then(now)
        return told

    def _committed(self, batches: Batches, now: float) -> None:
        transaction = self._transaction
        for consumer, batch in batches:
            consumer.reports.acknowledged(batch, AckTrigger.COMMIT, now)
            consumer.end(batch, Outcome.COMMITTED, now, transaction.transaction_id)
            for delivery in batch:
                delivery.step(SETTLE)
        if not transaction.sent:
            self._sending.report_all(transaction, "confirmed", now)
        self._sending.report_end(
            self._transaction,
            TransactionOutcome.COMMITTED,
            sum(len(batch) for _, batch in batches),
            now,
        )
        transaction.step(TxInput.RECEIPT)
        for consumer, _ in batches:
            consumer.copies.committing = False
            consumer.copies.finish(now)

    def _not_committed(
        self,
        batches: Batches,
        error: JmsxError,
        now: float,
        broker: str,
    ) -> JmsxError:
        """
        Return the error for a commit that failed: rolled back if it was refused, in doubt if nobody knows.

        A lost link is not the fault of what was received. A complaint of the broker may be, and a message that it never
        accepts would come again for ever, so that counts as a failure. A link with a complaint is dropped.
        """
        transaction = self._transaction
        in_doubt = unanswered(error) or transaction.sent
        told_by_marker = isinstance(error, TransactionRolledBackError)  # on the next link
        complained = self.is_rollback_only or isinstance(error, BrokerFaultError)
        refused = not (in_doubt or told_by_marker)
        failed = not self._blameless and (refused or (complained and not transaction.sent))
        self._abandon(batches, now, failed=failed)
        if not transaction.sent:
            self._sending.report_all(
                self._transaction, "unconfirmed" if in_doubt else "rolled_back", now
            )
        name = transaction.transaction_id
        outcome = TransactionOutcome.IN_DOUBT if in_doubt else TransactionOutcome.ROLLED_BACK
        self._sending.report_end(transaction, outcome, 0, now)
        told, complaint = str(error), transaction.rollback_only
        words = f"{complaint}; {told}" if complaint and complaint not in told else told
        if in_doubt:
            cause = f"{_HALF}: {words}" if transaction.sent else words
            transaction.step(TxInput.LOST)
            if failed:
                self._note_refused(batches)
            if isinstance(error, BrokerFaultError):
                self._outbox.disconnect(f"{broker} failed to commit {name}")
            return TransactionInDoubtError(name, broker, cause)
        if told_by_marker:
            transaction.step(TxInput.LOST)
            return error
        transaction.step(TxInput.REFUSED)
        if failed:
            self._note_refused(batches)
        self._outbox.disconnect(f"{broker} refused to commit {name}")
        return TransactionRolledBackError(
            f"{broker} refused to commit {name}: {words}; {ALL_AGAIN}"
        )

    def _abandon(self, batches: Batches, now: float, *, failed: bool) -> None:
        for consumer, batch in batches:
            if not failed:
                for delivery in batch:
                    delivery.count_not_failed()
                self._outbox.finish(delivery.entry for delivery in batch)
            consumer.end(batch, Outcome.ABANDONED, now, self._transaction.transaction_id)

    def _note_refused(self, batches: Batches) -> None:
        for consumer, batch in batches:
            self._lost_deliveries.note(consumer, batch, handed_out=True, refused=True)
