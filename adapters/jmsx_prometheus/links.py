"""The state of each socket for gauges: its subscriptions, its unsettled messages, and whether it is up."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from jmsx.core.events import (
    ClockCompared,
    ConnectFailed,
    ConsumerMeasured,
    DeliveryEnded,
    LinkClosed,
    LinkMeasured,
    LinkOpened,
    MessagesReceived,
    Outcome,
    ReceiptMissed,
    RedeliveryScheduled,
    Source,
    SubscriptionOpened,
)
from jmsx_prometheus.consumers import ConsumerSeries
from jmsx_prometheus.labels import LabelGuard
from jmsx_prometheus.series import SeriesTable, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable


#: The reasons that `LinkClosed` has at present.
DISCONNECT_REASONS: Final = ("closed", "heartbeat", "error_frame", "io", "protocol")


#: A broker's answer is shown for so many intervals between questions: the broker may be slow once or twice.
LOOKS: Final = 3

#: Commands that usually have a receipt.
ANSWERED: Final = ("SEND", "ACK", "COMMIT", "SUBSCRIBE", "DISCONNECT")
#: The results of an attempt to connect.
RESULTS: Final = ("ok", "refused", "credentials", "timeout", "tls", "settings")
_DIRECTIONS: Final = ("in", "out")
#: Looked up once: in Python 3.11 the look-up of an enum member takes three times as long as the comparison.
_ROLLED_BACK: Final = Outcome.ROLLED_BACK


class _Link:
    """One socket of one session."""

    __slots__ = (
        "broker",
        "due",
        "epoch",
        "heard",
        "held",
        "here",
        "is_up",
        "measured",
        "subscriptions",
        "unanswered",
    )

    def __init__(self, broker: str, epoch: int, heard: float) -> None:
        self.broker = broker
        self.epoch = epoch
        self.is_up = True
        self.heard = heard  #: when the broker last was, seconds since the epoch
        #: Frames in and out, bytes in and out, that are counted already.
        self.measured = (0, 0, 0, 0)
        self.unanswered = 0  #: frames, when it was last measured
        #: Buffered messages, and those in process, at the last measurement
        self.here: dict[ConsumerSeries, tuple[int, int]] = {}
        #: When each message was received that has not ended, in the order of events; seconds, monotonic.
        self.held: dict[ConsumerSeries, list[float]] = {}
        #: When redelivery delays end (seconds, monotonic): heaps, by consumer and whether later messages wait, too.
        self.due: dict[tuple[ConsumerSeries, bool], list[float]] = {}
        self.subscriptions: list[
            tuple[ConsumerSeries, int]
        ] = []  # with their prefetch, in messages

    def drop(self) -> None:
        """Reset the gauges of this socket: the broker has all its messages again."""
        for consumer in list(self.held):
            self.release(consumer)
        for consumer, _ in list(self.subscriptions):
            self.unsubscribe(consumer)
        self.here.clear()
        self.is_up = False
        self.unanswered = 0

    def release(self, consumer: ConsumerSeries) -> None:
        """Note that all messages of `consumer` went back to the broker."""
        consumer.unsettled.value -= len(self.held.pop(consumer, ()))
        self.here.pop(consumer, None)
        self.due.pop((consumer, False), None)
        self.due.pop((consumer, True), None)

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

    def __init__(
        self, table: SeriesTable, brokers: LabelGuard, reasons: LabelGuard, commands: LabelGuard
    ) -> None:
        self._table = table
        self._reasons = reasons
        self._commands = commands
        self._brokers = brokers
        self._links: dict[str, _Link] = {}  # by session id
        self._in_doubt: set[str] = set()  # sessions whose COMMIT has no answer yet
        self._tally_in_doubt = table.tally("jmsx_transactions_in_doubt")

    def note_opened(self, source: Source, event: LinkOpened, offset: float) -> None:
        """Note that a socket is up; `offset` is wall clock minus monotonic clock, in seconds."""
        before = self._links.get(source.session_id)
        if before is not None:
            before.drop()
        broker = self._make_series(source)
        self._links[source.session_id] = _Link(broker, source.epoch, event.at + offset)
        self._attempts(broker, "ok").value += 1
        if before is not None and before.broker != broker:  # it has gone to another broker
            self._show_up(before.broker)
        self._table.distribution("jmsx_connect_duration_seconds", broker=broker).observe(
            event.seconds
        )
        self._show_up(broker)

    def note_closed(self, source: Source, event: LinkClosed) -> None:
        """Note that a socket is closed; if the session itself was closed, no new socket is expected."""
        broker = self._make_series(source)
        reason = self._reasons.admit(event.reason)
        self._table.tally("jmsx_disconnects_total", broker=broker, reason=reason).value += 1
        self._note_in_doubt(source, in_doubt=event.in_doubt)
        link = self._latest(source)
        if link is not None:
            link.drop()
            if event.reason == "closed":
                del self._links[source.session_id]
            self._show_up(broker)

    def note_transaction(self, source: Source) -> None:
        """Note that the end of a transaction is known, or never will be."""
        self._note_in_doubt(source, in_doubt=False)

    def note_restored(self, source: Source, seconds: float) -> None:
        """Note that an outage of `seconds` is over."""
        broker = self._make_series(source)
        self._table.distribution("jmsx_reconnect_duration_seconds", broker=broker).observe(seconds)

    def note_failed(self, source: Source, event: ConnectFailed) -> None:
        """Note that an attempt to connect failed."""
        broker = self._make_series(source)
        self._attempts(broker, self._reasons.admit(event.result)).value += 1

    def note_measured(self, source: Source, event: LinkMeasured, offset: float) -> None:
        """Count frames and bytes on a socket since the last measurement; `offset` as for `note_opened`."""
        link = self._latest(source)
        if link is None:
            return
        measured = (event.frames_in, event.frames_out, event.bytes_in, event.bytes_out)
        grown = [now - before for now, before in zip(measured, link.measured, strict=True)]
        names = ("jmsx_frames_total", "jmsx_link_bytes_total")
        series = [(name, direction) for name in names for direction in _DIRECTIONS]
        for (name, direction), more in zip(series, grown, strict=True):
            self._table.tally(name, broker=link.broker, direction=direction).value += max(more, 0)
        link.measured = measured
        link.unanswered = event.unanswered
        link.heard = max(link.heard, event.heard_at + offset)
        limit = self._table.tally("jmsx_silence_limit_seconds", broker=link.broker)
        limit.value = event.silence_limit
        self._show_up(link.broker)

    def note_consumer(
        self, source: Source, consumer: ConsumerSeries, event: ConsumerMeasured
    ) -> None:
        """Note how many messages of a consumer are buffered and in process."""
        link = self._current(source)
        if link is not None:
            link.here[consumer] = event.buffered, event.in_process

    def note_clock(self, source: Source, event: ClockCompared) -> None:
        """Show the difference to the broker's clock, until it is outdated."""
        broker = self._brokers.admit(source.broker)
        name, until = "jmsx_broker_clock_ahead_seconds", event.at + LOOKS * event.every
        self._table.show(name, event.ahead, until=until, broker=broker)

    def note_missed(self, source: Source, event: ReceiptMissed) -> None:
        """Note that a receipt did not come in time."""
        broker = self._make_series(source)
        command = self._commands.admit(event.command)
        self._table.tally("jmsx_receipt_timeouts_total", broker=broker, command=command).value += 1

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
        """Note that a subscription was closed: the broker has its unsettled messages again."""
        link = self._current(source)
        if link is not None:
            link.unsubscribe(consumer)
            if all(subscribed is not consumer for subscribed, _ in link.subscriptions):
                link.release(consumer)

    def note_received(
        self, source: Source, consumer: ConsumerSeries, events: Iterable[MessagesReceived]
    ) -> None:
        """Note that more messages wait to be settled."""
        link = self._current(source)
        if link is not None:
            held = link.held.setdefault(consumer, [])
            before = len(held)
            for event in events:
                if event.messages == 1:  # making a list of one takes four times as long
                    held.append(event.at)
                else:
                    held += [event.at] * event.messages
            consumer.unsettled.value += len(held) - before

    def note_ended(
        self, source: Source, consumer: ConsumerSeries, events: Iterable[DeliveryEnded]
    ) -> None:
        """Note which messages no longer wait: all except those redelivered here, or whose socket is already gone."""
        link = self._current(source)
        held = link.held.get(consumer) if link is not None else None
        came = [one.received_at for one in events if one.outcome is not _ROLLED_BACK]
        if held and came:
            before = len(held)
            _take_out(came, held)
            consumer.unsettled.value -= before - len(held)

    def note_redelivery(
        self, source: Source, consumer: ConsumerSeries, event: RedeliveryScheduled
    ) -> None:
        """Note that a message waits for the end of its back-off."""
        link = self._current(source)
        if link is not None and event.delay > 0:
            due = link.due.setdefault((consumer, event.blocking), [])
            _drop_over(due, event.at)  # otherwise only a scrape does it, and there may be none
            heappush(due, event.at + event.delay)

    def note_waiting(self, consumers: Iterable[ConsumerSeries], now: float) -> None:
        """Let `consumers` show how long messages wait and how many are in back-off; `now` in seconds, monotonic."""
        for consumer in consumers:
            consumer.oldest.value = consumer.pending.value = consumer.pending_blocking.value = 0
            consumer.buffered.value = consumer.in_process.value = 0
        for link in self._links.values():
            for consumer, held in link.held.items():
                since = min(held, default=now)
                consumer.oldest.value = max(consumer.oldest.value, now - since)
            for (consumer, blocking), due in link.due.items():
                _drop_over(due, now)
                (consumer.pending_blocking if blocking else consumer.pending).value += len(due)
            for consumer, (buffered, in_process) in link.here.items():
                consumer.buffered.value += buffered
                consumer.in_process.value += in_process

    def _latest(self, source: Source) -> _Link | None:
        """Return the link that `source` names, or None if its session has a later link."""
        link = self._links.get(source.session_id)
        return link if link is not None and link.epoch == source.epoch else None

    def _current(self, source: Source) -> _Link | None:
        """Return the link that `source` names, if it is the latest and up: a lost one's messages are at the broker."""
        link = self._latest(source)
        return link if link is not None and link.is_up else None

    def _make_series(self, source: Source) -> str:
        """Make the broker's counters, which start at 0; returns the broker's label."""
        broker = self._brokers.admit(source.broker)
        for reason in DISCONNECT_REASONS:
            self._table.tally("jmsx_disconnects_total", broker=broker, reason=reason)
        self._table.tally("jmsx_broker_error_frames_total", broker=broker)
        for result in RESULTS:
            self._attempts(broker, result)
        for command in ANSWERED:
            self._table.tally("jmsx_receipt_timeouts_total", broker=broker, command=command)
        for direction in _DIRECTIONS:
            self._table.tally("jmsx_frames_total", broker=broker, direction=direction)
            self._table.tally("jmsx_link_bytes_total", broker=broker, direction=direction)
        return broker

    def _attempts(self, broker: str, result: str) -> Tally:
        return self._table.tally("jmsx_connection_attempts_total", broker=broker, result=result)

    def _note_in_doubt(self, source: Source, *, in_doubt: bool) -> None:
        if in_doubt:
            self._in_doubt.add(source.session_id)
        else:
            self._in_doubt.discard(source.session_id)
        self._tally_in_doubt.value = len(self._in_doubt)

    def _show_up(self, broker: str) -> None:
        links = [link for link in self._links.values() if link.broker == broker]
        if links:
            up = self._table.tally("jmsx_connection_up", broker=broker)
            up.value = int(all(link.is_up for link in links))
        else:
            self._table.forget("jmsx_connection_up", broker=broker)
        owed = self._table.tally("jmsx_unanswered_frames", broker=broker)
        owed.value = sum(link.unanswered for link in links)
        heard = "jmsx_last_frame_received_timestamp_seconds"
        listening = [link.heard for link in links if link.is_up]  # the others are down, not silent
        if listening:
            self._table.tally(heard, broker=broker).value = min(listening)
        else:
            self._table.forget(heard, broker=broker)


def _drop_over(due: list[float], now: float) -> None:
    """Remove from the heap `due` the redelivery delays that are over at `now` (seconds, monotonic)."""
    while due and due[0] <= now:
        heappop(due)


def _take_out(came: list[float], held: list[float]) -> None:
    """Remove the times `came` from `held`; for each that is not in it, remove the first."""
    first = 0 if held[:1] == came[:1] else bisect_left(held, came[0])
    last = first + len(came)
    if held[first:last] == came:  # one after the other, as mostly
        del held[first:last]
        return
    for at in came[: len(held)]:
        del held[_place(at, held)]


def _place(at: float, held: list[float]) -> int:
    """Return the index in `held` of a message that came `at`; `held` is sorted unless consumers share a label."""
    index = bisect_left(held, at)
    if held[index : index + 1] == [at]:
        return index
    return held.index(at) if at in held else 0
