"""
The session: JMS's unit of order, acknowledgement and transaction, on one STOMP link.

The way of a message: `receive` gives it to its consumer (subscriptions.py, consumer.py), which continues the count of a
message that was lost with an older link (lost_deliveries.py). `handing_out.deliver` gives it to the application, unless
it is over its limit and becomes a dead letter first (dead_letters.py). `consumed` notes that the application has done
it (batching.py), `failed` that it has not: then failed_deliveries.py decides whether the message is delivered again,
sent back to the broker, or made a dead letter. `acknowledge`, `commit`, `rollback` and `recover` are the application's
calls (unit_of_work.py). After every call do what `take_actions` returns, and call `handle_timer` at the time that
`next_timer` returns.

Source: `ActiveMQSession.java:724-824,1843-1848`, `ActiveMQMessageConsumer.java:941-1391` (6.3.1).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from jmsx.core import events
from jmsx.core.broker_errors import About, BrokerErrors
from jmsx.core.browsers import Browsers
from jmsx.core.commit_markers import SUBSCRIPTION
from jmsx.core.consumer import ConsumerCore
from jmsx.core.dead_letters import DeadLetters
from jmsx.core.delivery import Delivery, Held
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger
from jmsx.core.failed_deliveries import FailedDeliveries
from jmsx.core.frames import Action, Frame, MessageFrame, Outbox
from jmsx.core.handing_out import HandingOut
from jmsx.core.lost_deliveries import LostDeliveries
from jmsx.core.modes import Covers
from jmsx.core.policy import Policy
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.requests import Request, Requests, answered, barrier
from jmsx.core.scheduled_redelivery import ScheduledRedelivery
from jmsx.core.sends import Sends
from jmsx.core.subscriptions import Subscriptions
from jmsx.core.transaction import TxSend
from jmsx.core.translating import Translating
from jmsx.core.unit_of_work import UnitOfWork
from jmsx.core.values import (
    NO_FAILURE,
    ConsumerSettings,
    Disposition,
    Failure,
    SessionSettings,
)
from jmsx.errors import (
    ConnectionFailedError,
    IllegalStateError,
    JmsxError,
    LinkError,
    ProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


#: For a delivery that was not handled, and has not failed: it is given back.
_RELEASED: Final = Failure(disposition=Disposition.RELEASE)

#: With these a delivery has failed; with the others it is done, or was not tried.
_FAILED: Final = frozenset({Disposition.REDELIVER, Disposition.REJECT})


class SessionCore:
    """One session on one link after the other; each link is an epoch."""

    def __init__(
        self,
        settings: SessionSettings,
        dialect: Dialect,
        draw: Callable[[], float],
        memory: ProcessMemory,
    ) -> None:
        self.settings = settings
        self._does = settings.mode.does
        self._covers_nothing = self._does.acknowledge_covers is Covers.NOTHING
        self._covers_message = self._does.acknowledge_covers is Covers.MESSAGE
        self.transacted = self._does.transacted  #: it is SESSION_TRANSACTED
        self.epoch = 0
        self._dialect = dialect
        self._outbox = Outbox()
        self._requests = Requests(settings.session_id)
        self._translating = Translating()
        self.browsers = Browsers(dialect, self._requests, self._outbox, self._translating)
        self._arrivals = 0
        self._dead_letters = DeadLetters(
            settings,
            dialect,
            self._requests,
            self._outbox,
            releases=lambda: self._consumers.release_windows(),  # noqa: PLW0108 - they are made below
            in_transaction=lambda: self._work.open,
            browsers=self.browsers,
        )
        lost_deliveries = LostDeliveries()
        self._consumers = Subscriptions(
            dialect,
            self._requests,
            self._outbox,
            dead_letters=self._dead_letters,
            lost_deliveries=lost_deliveries,
            memory=memory,
            translating=self._translating,
            browsers=self.browsers,
        )
        scheduled = ScheduledRedelivery(
            dialect, self._requests, self._outbox, releases=self._consumers.release_windows
        )
        self._failed_deliveries = FailedDeliveries(scheduled, self._dead_letters, draw)
        self.broker_errors = BrokerErrors(dialect, self._requests, self._outbox)
        self.sending = Sends(self._requests, self._outbox, dialect)
        self._work = UnitOfWork(
            settings,
            dialect,
            self._requests,
            self._outbox,
            sending=self.sending,
            consumers=self._consumers,
            on_lost_links=self._consumers.on_lost_links,
            lost_deliveries=lost_deliveries,
            releases=self._consumers.release_windows,
            subscribe_wholly=self._consumers.subscribe_wholly,
        )
        self.handing_out = HandingOut(
            dialect,
            self._consumers,
            self._work if self.transacted else None,
            self._failed_deliveries,
            self._dead_letters,
        )
        self._further_timers = (
            self._dead_letters.next_timer,
            self.broker_errors.next_timer,
            self.browsers.next_timer,
        )

    @property
    def idle(self) -> bool:
        """Whether nothing binds the session to its link."""
        return not (self._consumers or self.browsers or self._requests or self._work.bound)

    def detail(self, *, wanted: bool, ends: bool = True) -> None:
        """
        Set whether the events of single messages are `wanted`, as they are at first; other events are always reported.

        Without `ends`, how each message was acknowledged and ended is left out, until the broker refuses a dead letter:
        whoever is told that has to know what becomes of the message. The setting holds until this is called again.
        """
        self._outbox.detailed, self._outbox.ends = wanted, wanted and ends

    @property
    def detailed(self) -> bool:
        """Whether the events of single messages are reported."""
        return self._outbox.detailed

    @property
    def awaits_answer(self) -> bool:
        """Whether the broker has yet to answer something that was written; may be asked without the session's lock."""
        return bool(self._requests)

    @property
    def owed(self) -> set[str]:
        """The ids of the receipts that the broker has yet to send."""
        return set(self._requests)

    @property
    def ended_at(self) -> float:
        """When a delivery ended last (seconds, monotonic; -inf: none has); may be asked without the session's lock."""
        return self._outbox.ended_at

    def measure(self, now: float) -> None:
        """Report how many messages are here, of each consumer."""
        if self._outbox.detailed:
            for consumer in self._consumers:
                consumer.measure(now)

    # The link --------------------------------------------------------------------------------------------------------

    @property
    def linked(self) -> bool:
        """Whether there is a link; without one, call only what needs none."""
        return self._consumers.linked

    def link_opened(
        self, server: str, seconds: float, now: float, *, broker: str | None = None
    ) -> list[Request]:
        """
        Start a new epoch on a new link: nothing of an older one is valid any more.

        Every consumer is subscribed again; the session is restored when the returned requests have ended without an
        error. `seconds`: how long it took to connect to `server`; `broker`: its address, if that has changed.
        """
        self.epoch += 1
        self._translating.heard(now)
        self._outbox.sends = 0
        where = broker or self.settings.broker
        if broker is not None:
            self.settings = self._work.settings = replace(self.settings, broker=broker)
        self._outbox.report(events.LinkOpened(at=now, server=server, seconds=seconds))
        waits = self._work.resume(where, now, self._consumers.subscribe)
        requests = self._consumers.reopen()
        if not waits:
            self._consumers.subscribe()
        return requests

    def link_closed(self, reason: str, detail: str, now: float) -> None:
        """End the epoch: the broker takes back what was unsettled, and open requests end with ConnectionFailedError."""
        self._translating.closed(reason, now)
        self.broker_errors.lost(now)
        self._requests.fail_all(
            now,
            lambda request: ConnectionFailedError(
                f"the connection to {self.settings.broker} was lost ({detail or reason})"
                f" before it answered {request.command} {request.subject}"
            ),
        )
        self._consumers.lose(now, refused=self._work.complained)
        self._work.lost(self.epoch, now)
        self.browsers.lose(self.settings.broker)
        in_doubt = self._work.in_doubt
        self._outbox.report(
            events.LinkClosed(at=now, reason=reason, detail=detail, in_doubt=in_doubt)
        )

    def suspected_consumers(self, reason: str) -> list[ConsumerSettings]:
        """
        Return the consumers whose messages may have made the broker end the link, which ended for `reason`.

        Find out whether one of these messages did it, and call `ended_by_translation` if so.
        """
        return self._consumers.translated() if reason == "io" else []

    def ended_by_translation(self) -> None:
        """Note that the broker ended the last link because it could not translate a message."""
        self._translating.ended_by_translation()

    def receive(self, frames: Iterable[Frame | MessageFrame], now: float, wall: float) -> None:
        """
        Take frames from the broker, in order; `wall` is the time of day in epoch seconds, for expiry.

        Then do what `take_actions` returns, and look whether a waiting application can get a message.
        """
        self._dead_letters.wall_offset = wall - now
        chunk: dict[str, list[Delivery]] = {}
        for frame in frames:
            if isinstance(frame, MessageFrame):
                if frame.late or (frame.unsure and not self._is_browsed(frame)):
                    self._truncated(frame)
                    continue
                self._arrivals += 1
                delivery = self._understand(frame, now, wall)
                chunk.setdefault(delivery.arrival.subscription_id, []).append(delivery)
            elif frame.command == "RECEIPT":
                self._requests.answer(frame.headers.get("receipt-id", ""), now)
            elif frame.command == "ERROR":
                self._refused(frame, now)
        if chunk:
            self._translating.heard(now)
        for subscription_id, deliveries in chunk.items():
            if subscription_id == SUBSCRIPTION and self._work.markers is not None:
                self._work.markers.accept(deliveries, now)
            elif not self._consumers.accept(subscription_id, deliveries, now):
                # A browser's, or its consumer was closed meanwhile and the broker takes them back.
                self.browsers.accept(subscription_id, deliveries, now)
        self._work.received()

    def take_actions(self) -> list[Action]:
        """Return what the driver must do now, oldest first."""
        return self._outbox.take()

    def next_timer(self) -> float | None:
        """Return when `handle_timer` is next due (seconds, monotonic), or None."""
        due = self._consumers.agenda.next_timer()
        if self.transacted:
            due = _earlier(due, self._work.next_timer())
        # This is asked after each call, and nearly always there is nothing else.
        if self._dead_letters.refused or self.broker_errors.held or self.browsers.questions:
            for next_timer in self._further_timers:
                due = _earlier(due, next_timer())
        return due

    def handle_timer(self, now: float, *, unread: bool = False, half: bool = False) -> None:
        """
        Do what is due.

        `unread`: bytes have come that were not passed to `receive` yet. What is due only because no message comes is
        put off then: call this again a moment later. `half`: only a part of the last frame has come.
        """
        if self._dead_letters.refused or self.broker_errors.held or self.browsers.questions:
            self._dead_letters.handle_timer(now)
            self.broker_errors.handle_timer(now)
            self.browsers.handle_timer(now, coming=half or unread)
        if self.transacted:
            self._work.handle_timer(now)
        for consumer in self._consumers.agenda.take_due(now):
            consumer.handle_timer(now, unread=unread)

    # Consumers -------------------------------------------------------------------------------------------------------

    def subscribe(self, settings: ConsumerSettings, now: float) -> Request:
        """Open a consumer; its messages come as soon as the broker has confirmed it."""
        return self._consumers.open(settings, now)

    def consumer_settings(self, subscription_id: str) -> ConsumerSettings | None:
        """Return the settings of a consumer, or None if it is closed."""
        consumer = self._consumers.get(subscription_id)
        return None if consumer is None else consumer.settings

    @property
    def policies(self) -> list[Policy]:
        """The redelivery policies of its consumers."""
        return [one.settings.policy for one in self._consumers]

    @property
    def in_hand(self) -> int:
        """How many messages its consumers have; without the session's lock a moment's count may be too low."""
        return sum(one.in_hand for one in self._consumers)

    def want(self, subscription_ids: Collection[str], now: float) -> None:
        """Note that the application waits for a message of these consumers, given as to `handing_out.deliver`."""
        self._consumers.want(subscription_ids, now)

    def has_next(self, subscription_id: str, now: float) -> bool:
        """Return whether a message of this consumer waits that may be handed out; False if it is closed."""
        consumer = self._consumers.get(subscription_id)
        return consumer is not None and consumer.is_ready(now)

    @property
    def ahead(self) -> float:
        """How many messages the broker may send without an acknowledgement, and so in front of an answer."""
        return math.inf if self.browsers.showing else self._consumers.prefetch

    def is_window_full(self, subscription_id: str) -> bool:
        """
        Return whether the broker sends this consumer nothing until its window is opened; raises IllegalStateError if
        closed.
        """
        return self._consumers.find(subscription_id).window_full

    def is_held_back(self, subscription_id: str) -> bool:
        """Return whether this consumer's messages wait until others are moved elsewhere; False if it is closed."""
        consumer = self._consumers.get(subscription_id)
        return consumer is not None and consumer.held_back

    def consumed(self, delivery: Delivery, now: float, *, returning: bool = False) -> bool:
        """
        Note that the application is done with a message: `receive()` is about to return it, or its listener has
        returned.

        Returns whether it was the last message that its consumer has, so that an ACK may be due at once.
        """
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if consumer is None:
            return False
        if self.is_lost(delivery):
            if not returning:
                consumer.ended_late(delivery, now)
            self._consumers.consumed_late(delivery, now)
        else:
            consumer.consumed(delivery, now, returning=returning)
        return not consumer.waiting

    def undecodable(self, delivery: Delivery, error: Exception, now: float) -> None:
        """Make `delivery`, which was just handed out and cannot be decoded, a dead letter."""
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if self.transacted:
            self._work.untouch(delivery)
        if consumer is not None and not self.is_lost(delivery):
            self._failed_deliveries.dead_letter_undecodable(consumer, delivery, error, now)

    def take_back(self, held: Held) -> bool:
        """
        Put back what a `receive()` that raises was given; it counts as no failure. See `HandingOut.take_back`.

        Returns False if the state of the message cannot be known after an interruption; then drop the link.
        """
        return self.handing_out.take_back(held, linked=self.epoch if self.linked else None)

    def is_lost(self, delivery: Delivery) -> bool:
        """Return whether a delivery was not acknowledged before its link was gone: the broker delivers it again."""
        return self._is_stale(delivery) and not delivery.is_acknowledged

    def failed(self, delivery: Delivery, failure: Failure, now: float) -> None:
        """
        Note that the listener raised.

        In CLIENT and TRANSACTED sessions the message counts as delivered, and the application has to recover or roll
        back. In DUPS_OK on a topic it counts as delivered, too, unless the failure's disposition ends it. Source:
        `ActiveMQMessageConsumer.java:1460-1470`.
        """
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if consumer is None:
            return
        if self.is_lost(delivery):
            self._told_late(consumer, delivery, failure, now)
            return
        if failure.disposition is Disposition.RELEASE:
            if self.transacted:
                self._work.untouch(delivery)
            consumer.release([delivery])
            return
        delivery.note_failure(failure, now)
        consumer.note_end(delivery, now)
        if not self._does.redelivers_raised:
            return
        if consumer.settings.lazy and failure.disposition is Disposition.REDELIVER:
            consumer.consumed(delivery, now, returning=False)
        else:
            only = delivery if delivery in consumer.delivered else None
            if only is not None or failure.disposition is Disposition.REDELIVER:
                self._failed_deliveries.give_back(consumer, failure, now, only=only)

    def ended_late(self, delivery: Delivery, failure: Failure | None, now: float) -> None:
        """Only report how a delivery went, because there will be no other link; `failure` None: it was done."""
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if consumer is not None:
            consumer.ended_late(delivery, now, failure)

    def close_consumer(self, subscription_id: str, now: float, *, idle: bool = True) -> Request:
        """
        Close a consumer; one with messages in an open transaction is closed when that ends.

        Not `idle`: its listener has not returned, so the broker delivers that message again.
        """
        return self._consumers.close(subscription_id, now, committing=self.committing, idle=idle)

    def is_open(self, subscription_id: str) -> bool:
        """Return whether the consumer is open; one that was closed in a transaction is, until that ends."""
        return subscription_id in self._consumers

    # The application's calls -----------------------------------------------------------------------------------------

    def send(
        self,
        frame: Frame,
        key: str,
        destination: str,
        now: float,
        *,
        cause_key: str | None = None,
        awaited: bool = True,
    ) -> Request | None:
        """
        Send the message `key` to the URI `destination`; `cause_key`: the message whose listener sends it, if any.

        The request is answered when the broker has the message. None: there is nothing to wait for, because the message
        is not persistent, or is in a transaction and goes to no temporary destination of another connection. Raises
        IllegalStateError if the transaction can only be rolled back.

        Outside a transaction, where it is not `awaited`, the exception listener is told if the broker refuses it.
        """
        sent = TxSend(destination, key, frame, now, cause_key)
        if not self.transacted:
            return self.sending.send(sent, awaited=awaited)
        return self._work.send(sent)

    @property
    def sends(self) -> int | None:
        """
        How many SENDs were written, or are about to be, on this link; None after an ERROR.

        The broker may not have counted a SEND that it refused; then it numbers the following ones differently.
        """
        return self._outbox.sends

    def consumes(self, destination: str) -> bool:
        """Return whether a consumer of this session reads the destination."""
        return any(one.settings.destination == destination for one in self._consumers)

    def acknowledge(self, delivery: Delivery, now: float) -> None:
        """
        Do as `message.acknowledge()`: CLIENT covers all that the session has delivered, INDIVIDUAL this message.

        In the other modes it does nothing. An acknowledgement of an older link's message is dropped and reported: the
        broker delivers that message again. Raises IllegalStateError if the consumer is closed. Source:
        `ActiveMQSession.java:1843-1848`, `ActiveMQMessageConsumer.java:620-638,1145-1172,1231-1240`.
        """
        if self._covers_nothing:
            return
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if consumer is None:
            raise IllegalStateError(
                f"The Consumer is closed: it has read {delivery.arrival.subscribed} on {self.settings.broker}, which"
                " has taken back what was not acknowledged before that"
            )
        if self._is_stale(delivery):
            consumer.reports.dropped(1, now)
            self._consumers.acknowledged_late(delivery, now, alone=self._covers_message)
        elif self._covers_message:
            consumer.acknowledge_one(delivery, now)
        else:
            self._consumers.note_held_done(now)
            for each in self._consumers.agenda.holding():
                each.acknowledge(each.take_delivered(), AckTrigger.EXPLICIT, now)

    def settle(self, outcomes: Sequence[tuple[Delivery, Failure | None]], now: float) -> None:
        """
        End several deliveries of one consumer (oldest first), each by its own failure; None acknowledges it.

        The session is INDIVIDUAL or transacted. A transacted one is rolled back by this: then no failure may be None,
        and all else that was handed out, by whatever consumer, waits again as if it had not been. The broker delivers
        again what came on an older link.
        """
        consumer = self._consumers.get(outcomes[0][0].arrival.subscription_id)
        # Before the rollback, which counts deliveries as failed whose end it was not told.
        if consumer is not None:
            self._settle_late(consumer, [one for one in outcomes if self.is_lost(one[0])], now)
        outcomes = [one for one in outcomes if not self.is_lost(one[0])]
        if self.transacted:
            self._consumers.end_held(_RELEASED, now)
            self._work.rollback(now)
            for other in self._consumers.agenda.holding():
                if other is not consumer:
                    self._settle(other, [], now)
        if consumer is not None:
            self._settle(consumer, outcomes, now)
        self._consumers.close_deferred(now)

    def recover(self, now: float, failure: Failure = NO_FAILURE) -> None:
        """Deliver again what was delivered and not acknowledged; raises IllegalStateError if transacted."""
        if self.transacted:
            raise IllegalStateError("recover() in a transacted session: use rollback()")
        self._tell_lost(failure, now)
        for consumer in self._consumers.agenda.holding():
            self._failed_deliveries.give_back(consumer, failure, now)

    def may_commit(self) -> bool:
        """
        Return whether `commit` may be called; if not, ask again whenever something has come.

        A session with commit markers needs the last one in hand; at its first commit it asks for one.
        """
        return self._work.may_commit(self._consumers.agenda.holding(), linked=self.linked)

    @property
    def committing(self) -> bool:
        """Whether a commit waits for its answer."""
        return self.transacted and self._work.committing

    @property
    def is_rollback_only(self) -> bool:
        """Whether the open transaction can only be rolled back, as where its link was lost."""
        return self.transacted and self._work.is_rollback_only

    @property
    def last_commit(self) -> Request | None:
        """The request of the last commit with anything in it, ended or not; also if `commit` was interrupted."""
        return self._work.last_commit

    @property
    def untranslated(self) -> bool:
        """Whether a consumer gets messages on this link that the broker does not translate."""
        return self._translating.suspects_translation and any(
            one.untranslated for one in self._consumers
        )

    def barrier(self) -> Request:
        """Ask the broker to confirm that it has done all that was written before; wait for the request."""
        request = self._requests.open("ABORT", "barrier")
        self._outbox.transmit(*barrier(request.receipt_id))
        return request

    @property
    def at_rest(self) -> bool:
        """Whether a new link would repeat nothing: no message is unsettled, and no transaction is open."""
        resting = all(one.resting for one in self._consumers)
        return resting and not (self._requests or self._work.bound)

    @property
    def lacks_marker(self) -> str:
        """Why no commit marker may tell the end of the commit in doubt, and what to do; empty if none is in doubt."""
        return "" if self._work.markers is None else self._work.markers.lacking

    @property
    def leaves_nothing(self) -> bool:
        """Whether closing now leaves no commit marker on the broker; if not, wait for the marker first."""
        return self._work.markers is None or not self.linked or self._work.markers.leaves_nothing

    def give_up(self, now: float) -> None:
        """
        Note that there will be no other link: a commit in doubt stays so, and ACKs that
        wait for a link are dropped.
        """
        self._work.give_up(now)
        for consumer in self._consumers:
            consumer.give_up(now)

    def commit(self, now: float) -> Request:
        """Make sends and receives of the transaction final; raises IllegalStateError if not transacted."""
        if not self.transacted:
            raise IllegalStateError(
                "commit() in a session that is not transacted; create it with AcknowledgeMode.SESSION_TRANSACTED"
            )
        refusal = self._work.refusal()
        if refusal is not None:
            self._consumers.note_held_done(now)
            self.rollback(now)
            return answered("COMMIT", "", refusal)
        holding = self._consumers.agenda.holding()
        return self._work.commit(holding, now, self._consumers.close_deferred)

    def rollback(self, now: float, failure: Failure = NO_FAILURE) -> None:
        """Undo the sends, and deliver again what was received; raises IllegalStateError if not transacted."""
        if not self.transacted:
            raise IllegalStateError(
                "rollback() needs a session that is transacted: create_session(AcknowledgeMode.SESSION_TRANSACTED)"
            )
        self._tell_lost(failure, now)
        self._work.rollback(now)
        holding = self._consumers.agenda.holding()
        for consumer in sorted(holding, key=lambda each: each.delivering_since):
            self._failed_deliveries.give_back(consumer, failure, now)
        self._consumers.close_deferred(now)

    def close(self, now: float, *, idle: bool = True) -> list[Request]:
        """
        Close every consumer, after rolling back; wait for the requests.

        Not `idle`: a listener has not returned, so the broker delivers its message again.
        """
        if self.transacted:
            self._work.give_up(now)
            self._consumers.on_lost_links.forget()  # a listener may run on: nobody tells how that goes
            if not self.committing:  # else what was written stands: the broker does it, or not
                self.rollback(now)
            if self._work.markers is not None:
                self._work.markers.close()
        return self._consumers.close_all(now, idle=idle)

    def unsubscribe_durable(self, name: str, subscription: str) -> Request:
        """
        Remove a durable subscription that no consumer uses; the request is answered when the broker has done it.

        `subscription` is its name in events.
        """

        def removed(now: float, error: JmsxError | None) -> JmsxError | None:
            if error is None:
                self.report_removed(subscription, now)
            return error

        request = self._requests.open("UNSUBSCRIBE", name, removed)
        headers = self._dialect.writing.unsubscribe_durable_headers(name)
        self._outbox.transmit(
            Frame("UNSUBSCRIBE", {"id": f"remove-{name}", **headers, "receipt": request.receipt_id})
        )
        return request

    def report_removed(self, subscription: str, now: float) -> None:
        """Report that a durable subscription is removed."""
        self._outbox.report(events.SubscriptionRemoved(at=now, subscription=subscription))

    def disconnect(self) -> Request:
        """Write DISCONNECT; close the link when the request is answered."""
        request = self._requests.open("DISCONNECT", self.settings.broker)
        self._outbox.transmit(Frame("DISCONNECT", {"receipt": request.receipt_id}))
        return request

    def abandon(self, request: Request, error: JmsxError, now: float) -> None:
        """
        End `request` with `error`, because nobody waits for its answer any longer, unless it has just come.

        An unanswered COMMIT drops the link.
        """
        if request.done:
            return
        self.broker_errors.explain(now)  # it may have been refused
        marked = self._work.in_doubt  # then its link is gone already
        self._requests.abandon(request)
        self._outbox.report(
            events.ReceiptMissed(at=now, command=request.command, subject=request.subject)
        )
        request.end(now, error)
        if request.command == "COMMIT" and marked:
            self._consumers.close_deferred(now)
        elif request.command == "COMMIT":
            self._outbox.disconnect(f"{request.command} {request.subject} was not answered")

    # Inside ----------------------------------------------------------------------------------------------------------

    def _settle(
        self,
        consumer: ConsumerCore,
        outcomes: Sequence[tuple[Delivery, Failure | None]],
        now: float,
    ) -> None:
        done = [one for one, failure in outcomes if failure is None]
        failed = [
            (one, failure)
            for one, failure in outcomes
            if failure is not None and one in consumer.delivered
        ]
        if self.transacted:  # what else was handed out waits again, too, each in its place
            named = dict(failed)
            failed = [(one, named.get(one, _RELEASED)) for one in consumer.delivered]
        consumer.acknowledge_some(done, now)
        self._failed_deliveries.give_back_each(consumer, failed, now)

    def _settle_late(
        self,
        consumer: ConsumerCore,
        outcomes: Sequence[tuple[Delivery, Failure | None]],
        now: float,
    ) -> None:
        """Note how deliveries of lost links went, which nobody can acknowledge any more."""
        for delivery, failure in outcomes:
            self._told_late(consumer, delivery, failure, now)
        done = sum(failure is None for _, failure in outcomes)
        if done:
            consumer.reports.dropped(done, now)

    def _tell_lost(self, failure: Failure, now: float) -> None:
        """Note, as `failure` says, whether deliveries of lost links have failed that the application still has."""
        self._consumers.end_held(failure, now)
        if failure.disposition in _FAILED:
            self._consumers.note_held_failed(failure)
        else:
            self._consumers.note_held_not_failed()

    def _told_late(
        self, consumer: ConsumerCore, delivery: Delivery, failure: Failure | None, now: float
    ) -> None:
        """Note how a delivery of a lost link went; `failure` None: it was done."""
        consumer.ended_late(delivery, now, failure)
        if failure is not None and failure.disposition in _FAILED:
            self._consumers.note_failed([delivery], failure)
        else:
            self._consumers.note_not_failed([delivery])

    def _understand(self, frame: MessageFrame, now: float, wall: float) -> Delivery:
        """
        Return the delivery of `frame`, marked as undecodable if it cannot be understood.

        Raises the error if not even its subscription or its ack id is known: no broker sends that.
        """
        try:
            if frame.broken:
                raise ProtocolError(frame.broken)  # noqa: TRY301 - as if it were found here
            return self._delivery(frame, now, wall)
        except Exception as error:
            delivery = self._delivery(frame.bare(), now, wall)
            arrival = delivery.arrival
            consumed = arrival.subscription_id in self._consumers
            if not arrival.wire_subscription or (consumed and not arrival.ack_id):
                raise
            delivery.mark_undecodable(error, frame)
            return delivery

    def _truncated(self, frame: MessageFrame) -> None:
        if frame.unsure or self._consumers.mark_truncated(frame):
            why = frame.broken or "nobody knows what settles it"
            self._outbox.disconnect(f"a truncated message has to be delivered again: {why}")

    def _is_browsed(self, frame: MessageFrame) -> bool:
        """Return whether a message that is not understood is for a browser, which acknowledges nothing."""
        return frame.bare().headers.get("subscription", "") in self.browsers

    def _refused(self, error: Frame, now: float) -> None:
        self._outbox.sends = None
        broker = self.settings.broker
        complaint = self.broker_errors.hear(error, broker, now)
        rollback_only = self._work.is_rollback_only
        if self.transacted:
            self._work.hear(complaint)
        if complaint.about is About.SUBSCRIPTION:
            self._consumers.refuse_further()
        if complaint.request is None and self._dialect.reading.breaks_limit(complaint.words):
            self._dead_letters.too_large()
        self.broker_errors.answer(complaint, broker, now, rollback_only=rollback_only)
        late = "receipt-id" in error.headers and not self.transacted
        # else an ACK is refused, whose message comes again; and the end of a link is told in any case
        tells = late or self.sending.without_receipt
        of_link = isinstance(complaint.error, LinkError)
        if complaint.request is None and tells and not of_link:
            self._outbox.refused(complaint.error, late=late)

    def _delivery(self, frame: MessageFrame, now: float, wall: float) -> Delivery:
        headers = frame.headers
        return Delivery.of(
            frame,
            self._arrivals,
            self._dialect.reading.message_id(headers),
            epoch=self.epoch,
            now=now,
            wall=wall,
            ack_id=headers.get(self._dialect.ack_header, ""),
        )

    def _is_stale(self, delivery: Delivery) -> bool:
        """Return whether a delivery came on a link that is gone, so that it cannot be settled any more."""
        return delivery.arrival.epoch != self.epoch or not self._consumers.linked


def _earlier(one: float | None, other: float | None) -> float | None:
    """Return the earlier of two times, of which there may be none."""
    return other if one is None or (other is not None and other < one) else one
