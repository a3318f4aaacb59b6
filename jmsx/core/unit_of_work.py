"""
What a session does inside a STOMP transaction: sends, commits and rollbacks.

Where ACKs take no part in transactions (Artemis), a commit has two steps: first what was sent is committed, then what
was received is acknowledged. A crash between them delivers again what was received; what is then sent again carries the
same identity, by which the broker knows it.

The rules that keep messages from being lost on Classic (BROKER.md C29-C33 and C35): one transaction at a time on a
link; no receipt on a frame inside it, save COMMIT and what is awaited, because a failing frame with a receipt does not
spoil the transaction; after any other ERROR it can only be rolled back; no NACK and no UNSUBSCRIBE inside it; after a
refused COMMIT the link is dropped, because the broker can neither abort that transaction nor give its messages back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from jmsx.core.actions import Outbox
from jmsx.core.commit_markers import CommitMarkers
from jmsx.core.commit_repeat import CommitRepeat, repeatable
from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery
from jmsx.core.delivery_state import DeliveryInput
from jmsx.core.destination_names import is_foreign_temporary
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger, Outcome, TransactionOutcome
from jmsx.core.frames import Frame
from jmsx.core.journal_barrier import journal_barrier
from jmsx.core.lost_deliveries import LostDeliveries
from jmsx.core.requests import Request, Requests, answered, silent, unanswered
from jmsx.core.sends import Sends
from jmsx.core.transaction import Transaction, TxInput, TxSend, TxState
from jmsx.core.values import SessionSettings
from jmsx.errors import (
    BrokerFaultError,
    ConnectionFailedError,
    IllegalStateError,
    InvalidDestinationError,
    JmsxError,
    LinkError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: What a transaction settles, consumer by consumer, each oldest first.
Batches: TypeAlias = "list[tuple[ConsumerCore, list[Delivery]]]"


#: What is known when only the second step of a commit failed.
_HALF = (
    "what was sent is committed, but what was received may not be acknowledged and may come again"
)


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
        lost_deliveries: LostDeliveries,
        releases: Callable[[], list[Frame]],
    ) -> None:
        self.settings = settings  #: of the link that is up
        self._dialect = dialect
        self._requests = requests
        self._outbox = outbox
        self._sending = sending
        self._lost_deliveries = lost_deliveries
        self._releases = releases  #: what ends every transaction that keeps a window open
        self._transaction = Transaction(settings.session_id)
        self._repeat: CommitRepeat | None = None
        self.markers: CommitMarkers | None = None
        #: Whether a commit that was not answered is done once more on the next link
        self._repeats_unanswered = False
        if settings.marker_day is not None and dialect.transactional_ack:
            self.markers = CommitMarkers(
                settings.session_id, settings.marker_day, dialect, requests, outbox
            )
        elif settings.marker_day is not None:
            self._repeats_unanswered = True

    @property
    def in_doubt(self) -> bool:
        """Whether a commit has lost its link, and its outcome is still unknown."""
        return self.markers is not None and self.markers.in_doubt

    @property
    def committing(self) -> bool:
        """Whether a commit waits for its answer."""
        return self._transaction.state is TxState.COMMITTING

    @property
    def bound(self) -> bool:
        """Whether an open transaction or commit markers bind the session to its link."""
        return self._transaction.begun or (self.markers is not None and self.markers.opened)

    @property
    def open(self) -> bool:
        """Whether the transaction is on the wire, begun or being committed."""
        return self._transaction.state is not TxState.IDLE

    def touch(self, consumer: ConsumerCore, delivery: Delivery, now: float) -> None:
        """Note that `delivery` was handed out in the transaction; what is sent from here on is said to come of it."""
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
        (measured on Classic 6.1.8), so the sender hears of it and decides. And what may have been sent before waits
        until the broker knows whether it was (journal_barrier.py).

        Raises IllegalStateError if the transaction can only be rolled back.
        """
        transaction = self._transaction
        if transaction.rollback_only is not None:
            raise IllegalStateError(
                f"SEND {sent.destination} was not sent to {self.settings.broker}: the transaction can only be"
                f" rolled back: {transaction.rollback_only}"
            )
        if not transaction.begun:
            transaction.step(TxInput.BEGIN)
            begin = Frame("BEGIN", {"transaction": transaction.WIRE_NAME})
            self._outbox.transmit(begin, waits=True)
        transaction.touch(sent.at)
        output = transaction.next_output(self._dialect, of_none=self._repeats_unanswered)
        known = {} if output is None else self._dialect.output_headers(output)
        if known:
            headers = {**known, **sent.frame.headers}
            sent = replace(sent, frame=replace(sent.frame, headers=headers))
        transaction.sends.append(sent)
        if known and transaction.repeats:
            return self._send_behind_barrier(sent)
        return self._write(sent)

    def _send_behind_barrier(self, sent: TxSend) -> Request:
        """Write the SEND when the broker knows what it has; until then the transaction cannot be committed."""
        transaction = self._transaction
        transaction.repeats = False
        transaction.rollback_only = f"SEND {sent.destination} waits for the broker"

        def then(_now: float, error: JmsxError | None) -> JmsxError | None:
            if transaction.sends[-1:] != [sent]:  # nobody has waited, and it is rolled back
                return error
            transaction.rollback_only = None
            if error is None:
                self._write(sent)
            elif isinstance(error, LinkError):  # the commit tells, as of all that it loses
                return None
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

    def may_commit(self, consumers: Sequence[ConsumerCore]) -> bool:
        """
        Return whether `commit` may be called on the present link; asks for a marker where one is needed.

        `consumers` are those of which the application holds messages, here and for `commit`.
        """
        if self.markers is None or self._transaction.rollback_only is not None:
            return True
        if not (self._transaction.sends or consumers):
            return True  # there is nothing to commit
        self.markers.prepare()
        if self.markers.error is not None:
            raise self.markers.error
        return self.markers.ready

    def commit(
        self, consumers: Sequence[ConsumerCore], now: float, then: Callable[[float], None]
    ) -> Request:
        """
        Commit; `then(now)` runs when the transaction has ended, and its link has not.

        A transaction with nothing in it is committed at once.
        """
        batches = [(each, list(each.delivered)) for each in consumers]
        transaction, broker = self._transaction, self.settings.broker
        if not batches and not transaction.sends:
            self._abort()
            then(now)
            return answered("COMMIT", transaction.transaction_id)

        def answer(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None and transaction.rollback_only is not None:
                error = BrokerFaultError(f"it was confirmed, but {transaction.rollback_only}")
            if error is None:
                self._committed(batches, now)
                then(now)
                return None
            told = self._not_committed(batches, error, now, broker)
            if isinstance(error, TransactionRolledBackError):  # told on a link that stays
                then(now)
            return told

        if self.markers is not None:
            frames = self._in_a_transaction(batches)
            name = transaction.transaction_id
            request = self.markers.commit(name, broker, frames, answer)
        elif (
            transaction.sends
            and (batches or self._repeats_unanswered)
            and not self._dialect.transactional_ack
        ):
            request = self._commit_in_two_steps(batches, answer)
        else:
            request = self._requests.open("COMMIT", transaction.transaction_id, answer)
            self._outbox.transmit(*self._commit_frames(batches, request.receipt_id))
        refusable = (
            bool(transaction.sends) or self.markers is not None or not self._is_plain(batches)
        )
        for consumer in consumers:
            consumer.copies.committing = refusable and not consumer.settings.individual
            for delivery in consumer.take_delivered():
                delivery.step(DeliveryInput.COMMIT)
        transaction.step(TxInput.COMMIT)
        return request

    def rollback(self, now: float) -> None:
        """Undo the sends; the caller gives back what was delivered."""
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

    def set_rollback_only(self, cause: str) -> None:
        """
        Note that the broker refused a frame without a receipt: the open transaction can only be rolled back.

        While it is being committed, the `cause` tells why the broker will refuse that. The first cause is kept: it
        causes those that follow it.
        """
        if self._transaction.state is not TxState.IDLE and not self.is_rollback_only:
            self._transaction.rollback_only = f"the broker refused a part of it: {cause}"

    def refusal(self) -> TransactionRolledBackError | None:
        """
        Return the error for committing a transaction that can only be rolled back, or
        None if it can be committed.
        """
        cause = self._transaction.rollback_only
        if cause is None:
            return None
        return TransactionRolledBackError(
            f"transaction {self._transaction.transaction_id} on {self.settings.broker}"
            f" was rolled back: {cause}"
        )

    def lost(self, now: float) -> None:
        """
        Roll back the open transaction, because the link is gone and the broker rolls it back, too.

        The application has to call `rollback`. Source: `ActiveMQMessageConsumer.java:761-771`.
        """
        if self.markers is not None:
            self.markers.lost()
        if self._repeat is not None or self.in_doubt:
            return
        transaction = self._transaction
        cause, transaction_id = transaction.rollback_only, transaction.transaction_id
        self._sending.report_all(transaction, "rolled_back", now)
        if transaction.started_at is not None:
            self._sending.report_end(transaction, TransactionOutcome.ROLLED_BACK, 0, now)
            cause = cause or f"the connection was lost while {transaction_id} was open"
        transaction.step(TxInput.LOST)
        transaction.rollback_only = cause

    # Inside ----------------------------------------------------------------------------------------------------------

    def _commit_frames(self, batches: Batches, receipt_id: str) -> list[Frame]:
        """
        Return the frames that commit.

        A single receive needs no transaction. Several do, although one cumulative ACK would cover them: Classic removes
        them one by one, and a broker that was killed meanwhile had 805 to 888 of 900 left (measured).
        """
        wire = {"transaction": Transaction.WIRE_NAME}
        receipt = {"receipt": receipt_id}
        if not batches:
            return [*self._releases(), Frame("COMMIT", {**wire, **receipt})]
        if self._is_plain(batches):
            return _acks(batches, receipt)
        frames = self._in_a_transaction(batches)
        return [*frames, Frame("COMMIT", {**wire, **receipt})]

    def _is_plain(self, batches: Batches) -> bool:
        """Return whether `batches` are settled outside a transaction."""
        if not self._dialect.transactional_ack:
            return True
        return not self._transaction.begun and sum(len(batch) for _, batch in batches) == 1

    def _in_a_transaction(self, batches: Batches) -> list[Frame]:
        """Return the ACKs of `batches` in the transaction, behind its BEGIN if it is not begun."""
        wire = {"transaction": Transaction.WIRE_NAME}
        frames = self._releases()
        frames += [] if self._transaction.begun else [Frame("BEGIN", wire)]
        for consumer, batch in batches:
            frames += consumer.ack_frames(batch, **wire)
            consumer.reset_window()
        return frames

    def give_up(self, now: float) -> None:
        """End a commit that waits for the next link: it stays in doubt, because there will be none."""
        gone = ConnectionFailedError(f"the connection to {self.settings.broker} is gone")
        if self.markers is not None:
            self.markers.give_up(now, gone)
        if self._repeat is not None:
            self._repeat.whole.end(now, gone)

    def _commit_in_two_steps(
        self,
        batches: Batches,
        answer: Callable[[float, JmsxError | None], JmsxError | None],
    ) -> Request:
        """COMMIT what was sent; when that is confirmed, acknowledge what was received."""
        transaction = self._transaction
        whole = Request("COMMIT", transaction.transaction_id, then=answer)

        def end(now: float, error: JmsxError | None) -> JmsxError | None:
            if not self._tries_again(batches, whole, error):
                whole.end(now, error)
            return error

        def settle(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is not None or whole.done:
                return end(now, error)
            self._sending.report_all(transaction, "confirmed", now)
            transaction.sent = True
            if not batches:
                return end(now, None)
            request = self._requests.open("ACK", transaction.transaction_id, end)
            self._outbox.transmit(*_acks(batches, {"receipt": request.receipt_id}))
            return None

        request = self._requests.open("COMMIT", transaction.transaction_id, settle)
        self._outbox.transmit(*self._commit_frames([], request.receipt_id))
        return whole

    def _tries_again(self, batches: Batches, whole: Request, error: JmsxError | None) -> bool:
        """
        Return whether a commit that failed is repeated on the next link, message by message.

        That is so if it was refused, or failed in the broker, perhaps because something that it received was received
        once before; or if its answer is lost. A commit that received nothing is not repeated when it was refused: of
        sends that are refused together some would be taken singly.
        """
        sends = list(self._transaction.sends)
        refused = (
            bool(batches) and error is not None and not (silent(error) or self._transaction.sent)
        )
        lost = isinstance(error, LinkError) and self._repeats_unanswered and not whole.done
        if not (refused or lost) or not repeatable(sends, self._dialect):
            return False
        self._repeat = CommitRepeat(sends, batches, whole, self.settings.broker)
        # What it is told now is about what is sent once more
        self._transaction.rollback_only = None
        if not lost:
            self._outbox.disconnect(
                f"{self.settings.broker} did not commit {whole.subject}: {error}"
            )
        return True

    def resume(self, broker: str, now: float, then: Callable[[], None]) -> bool:
        """
        Repeat, on a new link to `broker`, a commit that failed on the last one; False if there is none.

        If there is one, nothing else may be written until it runs `then`. It may fail, and with it the link: a consumer
        that Artemis makes while it closes a connection is there for ever, and holds messages for nobody (measured on
        2.44.0).
        """
        if self._repeat is not None and self._repeat.broker == broker:
            self._resend(self._repeat, then)
            return True
        if self._repeat is not None:
            repeat, self._repeat = self._repeat, None
            text = f"{broker}, to which the session goes now, cannot know what {repeat.broker} has"
            repeat.whole.end(now, ConnectionFailedError(text))
        if self.markers is not None and self.markers.opened:
            self.markers.open()
        return False

    def _resend(self, repeat: CommitRepeat, then: Callable[[], None]) -> None:
        """Send everything again, as soon as the broker knows what it has of it."""

        def passed(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is not None:
                return sent(now, error)
            request = self._requests.open("SEND", repeat.whole.subject, sent)
            self._outbox.transmit(*repeat.frames(request.receipt_id))
            return None

        def sent(now: float, error: JmsxError | None) -> JmsxError | None:
            lost = error is not None and silent(error) and not self.is_rollback_only
            if self._repeat is not repeat or lost:
                return error  # the next link, if there is one, tries again
            self._repeat = None
            repeat.whole.end(now, error)
            if error is None:
                repeat.settle(self._lost_deliveries)
                then()
            return error

        request = self._requests.open("SEND", repeat.whole.subject, passed)
        first = repeat.sends[0].frame
        self._outbox.transmit(*journal_barrier(first, request.receipt_id))

    def _committed(self, batches: Batches, now: float) -> None:
        transaction = self._transaction
        for consumer, batch in batches:
            consumer.reports.acknowledged(batch, AckTrigger.COMMIT, now)
            consumer.end(batch, Outcome.COMMITTED, now, transaction.transaction_id)
            for delivery in batch:
                delivery.step(DeliveryInput.SETTLE)
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
        complained = self.is_rollback_only or isinstance(error, BrokerFaultError)
        failed = not in_doubt or (complained and not transaction.sent)
        self._repeat = None
        for consumer, batch in batches:
            for delivery in batch if not failed else ():
                delivery.not_failed += 1
            consumer.end(batch, Outcome.ABANDONED, now, transaction.transaction_id)
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
        if isinstance(error, TransactionRolledBackError):  # as its marker has told on the next link
            transaction.step(TxInput.LOST)
            return error
        transaction.step(TxInput.REFUSED)
        self._note_refused(batches)
        self._outbox.disconnect(f"{broker} refused to commit {name}")
        return TransactionRolledBackError(f"{broker} refused to commit {name}: {words}")

    def _note_refused(self, batches: Batches) -> None:
        for consumer, batch in batches:
            self._lost_deliveries.note(consumer, batch, handed_out=True, refused=True)


def _acks(batches: Batches, receipt: dict[str, str]) -> list[Frame]:
    """Return the ACKs that settle `batches` outside a transaction, with a receipt on the last of them."""
    frames = []
    for consumer, batch in batches:
        frames += consumer.ack_frames(batch)
        consumer.settled(batch)
    *others, last = frames
    return [*others, Frame("ACK", {**last.headers, **receipt})]
