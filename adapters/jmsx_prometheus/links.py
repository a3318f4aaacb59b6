"""What hangs on each socket: its subscriptions, the messages not yet settled, its being up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jmsx.core.events import LinkClosed, Source, SubscriptionOpened
    from jmsx_prometheus.consumers import ConsumerSeries
    from jmsx_prometheus.labels import LabelGuard
    from jmsx_prometheus.series import SeriesTable

#: What `LinkClosed` says today.
DISCONNECT_REASONS: Final = ("closed", "heartbeat", "error_frame", "io", "protocol")


class _Link:
    """One socket of one session."""

    __slots__ = ("broker", "epoch", "held", "is_up", "subscriptions")

    def __init__(self, broker: str, epoch: int) -> None:
        self.broker = broker
        self.epoch = epoch
        self.is_up = True
        self.held: Counter[ConsumerSeries] = Counter()  # messages received and not ended
        self.subscriptions: list[
            tuple[ConsumerSeries, int]
        ] = []  # with their prefetch, in messages

    def drop(self) -> None:
        """Take back all that hangs on this socket: the broker has it again."""
        for consumer in list(self.held):
            self.release(consumer)
        for consumer, _ in list(self.subscriptions):
            self.unsubscribe(consumer)
        self.is_up = False

    def release(self, consumer: ConsumerSeries) -> None:
        """All messages of `consumer` went back to the broker."""
        consumer.unsettled.value -= self.held.pop(consumer, 0)

    def unsubscribe(self, consumer: ConsumerSeries) -> None:
        """Forget one subscription of `consumer`, if there is one."""
        for index, (subscribed, prefetch) in enumerate(self.subscriptions):
            if subscribed is consumer:
                del self.subscriptions[index]
                consumer.subscriptions.value -= 1
                consumer.prefetch.value -= prefetch
                return


class Links:
    """The sockets of all sessions; an event of an older epoch moves no gauge."""

    def __init__(self, table: SeriesTable, brokers: LabelGuard, reasons: LabelGuard) -> None:
        self._table = table
        self._reasons = reasons
        self._brokers = brokers
        self._links: dict[str, _Link] = {}  # by session id

    def note_opened(self, source: Source, seconds: float) -> None:
        """Note that a socket is up, `seconds` after it was asked for."""
        before = self._links.get(source.session_id)
        if before is not None:
            before.drop()
        broker = self._make_series(source)
        self._links[source.session_id] = _Link(broker, source.epoch)
        if before is not None and before.broker != broker:  # it has gone to another broker
            self._show_up(before.broker)
        self._table.distribution("jmsx_connect_duration_seconds", broker=broker).observe(seconds)
        self._show_up(broker)

    def note_closed(self, source: Source, event: LinkClosed) -> None:
        """Note that a socket is gone; a session that we closed is not expected to have one."""
        broker = self._make_series(source)
        reason = self._reasons.admit(event.reason)
        self._table.tally("jmsx_disconnects_total", broker=broker, reason=reason).value += 1
        link = self._current(source)
        if link is not None:
            link.drop()
            if event.reason == "closed":
                del self._links[source.session_id]
            self._show_up(broker)

    def note_restored(self, source: Source, seconds: float) -> None:
        """Note that an outage of `seconds` is over."""
        broker = self._make_series(source)
        self._table.distribution("jmsx_reconnect_duration_seconds", broker=broker).observe(seconds)

    def note_error(self, source: Source) -> None:
        """Note that the broker sent ERROR."""
        broker = self._make_series(source)
        self._table.tally("jmsx_broker_error_frames_total", broker=broker).value += 1

    def note_subscribed(
        self, source: Source, consumer: ConsumerSeries, event: SubscriptionOpened
    ) -> None:
        """Note that a subscription is open."""
        link = self._current(source)
        if link is not None:
            link.subscriptions.append((consumer, event.prefetch))
            consumer.subscriptions.value += 1
            consumer.prefetch.value += event.prefetch

    def note_unsubscribed(self, source: Source, consumer: ConsumerSeries) -> None:
        """Note that a subscription was closed: what it had not settled is the broker's again."""
        link = self._current(source)
        if link is not None:
            link.unsubscribe(consumer)
            if all(subscribed is not consumer for subscribed, _ in link.subscriptions):
                link.release(consumer)

    def note_received(self, source: Source, consumer: ConsumerSeries, messages: int) -> None:
        """Note that so many more messages wait to be settled."""
        link = self._current(source)
        if link is not None:
            link.held[consumer] += messages
            consumer.unsettled.value += messages

    def note_ended(self, source: Source, consumer: ConsumerSeries, messages: int) -> None:
        """Note that so many messages wait no longer, unless their socket is gone already."""
        link = self._current(source)
        if link is not None:
            ended = min(link.held[consumer], messages)
            link.held[consumer] -= ended
            consumer.unsettled.value -= ended

    def _current(self, source: Source) -> _Link | None:
        link = self._links.get(source.session_id)
        return link if link is not None and link.epoch == source.epoch else None

    def _make_series(self, source: Source) -> str:
        """Let the broker's counters start at 0; returns the broker's label."""
        broker = self._brokers.admit(source.broker)
        for reason in DISCONNECT_REASONS:
            self._table.tally("jmsx_disconnects_total", broker=broker, reason=reason)
        self._table.tally("jmsx_broker_error_frames_total", broker=broker)
        return broker

    def _show_up(self, broker: str) -> None:
        states = [link.is_up for link in self._links.values() if link.broker == broker]
        if states:
            self._table.tally("jmsx_connection_up", broker=broker).value = int(all(states))
        else:
            self._table.forget("jmsx_connection_up", broker=broker)
