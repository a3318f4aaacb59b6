"""
What a process remembers of messages that it was handed, to recognise those that come again.

A broker that is killed forgets what it has dispatched and what was acknowledged: it delivers those messages again as if
for the first time. Artemis flags at most the oldest message of a consumer that ended. So a message that was
acknowledged, was lost with its link, or was handed out and would not be flagged, is remembered, and is recognised when
it comes again to any session of the process. A dead letter is forgotten: whoever moves it back wants it to be new.

Classic flags all that was on its way to a consumer that ended, handed out or not. So messages that came and were not
handed out are remembered, too, and count as new when they come again. If another process had one in between, that one
delivery is overlooked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol

from jmsx.core.delivery import HANDED_OUT, Delivery
from jmsx.core.destination_names import is_pattern
from jmsx.core.dialect import Dialect
from jmsx.core.history import NEW, Remembered
from jmsx.core.identity import place
from jmsx.core.values import ConsumerSettings, DestinationKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


#: Messages that are remembered at most; the oldest are forgotten, and count again from the broker's flag.
LIMIT: Final = 8_000

#: Messages that came and were not handed out, remembered at most: more than the prefetch of a busy process.
UNSEEN: Final = 32_000


#: What a message is known by: its queue or durable subscription, its id and its time, as the broker tells them, and
#: its body. The time is in it because brokers number their messages: another one may give the same number. The body is
#: in it because on Classic the id and the time may be properties of the application.
Name = tuple[str, str, str, bytes]


#: What is remembered of a message that came and was not handed out.
NEVER: Final = Remembered(0, 0)

#: What is remembered of most messages: handed out once, and not failed.
ONCE: Final = Remembered(1, 0)


class Lock(Protocol):
    """What keeps other threads out, as `threading.Lock` does."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: Any, error: Any, traceback: Any, /) -> object: ...  # noqa: PYI036 - as any lock has them


class Unlocked:
    """A lock for sessions that have no process memory in common: it locks nothing."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_error: object) -> None: ...


class ProcessMemory:
    """
    Remembers the messages of a process, oldest first; for one thread, or for many with a `lock`.

    Names are kept as their hashes, which halves what a message takes (174 bytes, not 356; a busy process knows `LIMIT`
    of them all the time). One new message in 10^15 has the hash of another one, and is flagged without need.
    """

    def __init__(self, limit: int = LIMIT, lock: Lock | None = None) -> None:
        self._limit = limit
        self._lock = Unlocked() if lock is None else lock
        self._known: OrderedDict[int, Remembered] = OrderedDict()
        self._unseen: dict[int, Remembered] = {}  #: messages that came and were never handed out

    def __len__(self) -> int:
        return len(self._known) + len(self._unseen)

    def __contains__(self, name: Hashable) -> bool:
        key = hash(name)
        return key in self._known or key in self._unseen

    def note(self, pasts: Iterable[tuple[Hashable, Remembered]]) -> None:
        """Remember these messages by their names, unless more is known of them already."""
        with self._lock:
            self._note(pasts)

    def _note(self, pasts: Iterable[tuple[Hashable, Remembered]]) -> None:
        """Do as `note`, under the lock; why that is another function, tests/packaging/test_exception_tables.py says."""
        known, unseen = self._known, self._unseen
        for name, past in pasts:
            key = hash(name)
            before = known.pop(key, None)
            if before is not None and (before.deliveries > past.deliveries or past.only_flagged):
                known[key] = before
            elif before is not None and (before.sent_back or before.only_ack_owed):
                known[key] = _with_copies(past, before)
            elif before is not None or past.deliveries:
                known[key] = past
            else:
                unseen[key] = NEVER
        while len(known) > self._limit:
            known.popitem(last=False)
        while len(unseen) > UNSEEN:
            try:
                unseen.pop(next(iter(unseen)), None)
            except (RuntimeError, StopIteration):  # a signal handler has changed it in between
                continue

    def recall(self, name: Hashable) -> Remembered | None:
        """
        Return what is known of a message that is handed out, or None; one that came but was never handed out is
        forgotten.
        """
        key = hash(name)
        with self._lock:
            return self._known.get(key) or self._unseen.pop(key, None)

    def deliveries(self, name: Hashable) -> int:
        """Return how often the message was handed out, as far as is remembered; nothing is forgotten by that."""
        past = self._known.get(hash(name))
        return 0 if past is None else past.deliveries

    def forget(self, names: Iterable[Hashable]) -> None:
        """Forget these messages, which are dead letters or expired."""
        with self._lock:
            for name in names:
                self._known.pop(hash(name), None)
                self._unseen.pop(hash(name), None)


def _with_copies(past: Remembered, before: Remembered) -> Remembered:
    """Return `past`, with what `before` says of copies of the message: that stays true."""
    return past._replace(
        sent_back=past.sent_back or before.sent_back,
        only_ack_owed=past.only_ack_owed or before.only_ack_owed,
    )


def _returned(delivery: Delivery) -> Remembered:
    """Return what is known of a delivery that was given back, and has not failed: of some, nothing but their flag."""
    history, handed_out = delivery.history, delivery.progress is HANDED_OUT
    return Remembered(
        history.on_arrival + handed_out,
        delivery.failures,
        only_flagged=history.guessed and history.on_arrival == 1 and not handed_out,
        guessed=history.guessed,
    )


def _handed_out(delivery: Delivery) -> Remembered:
    """Return what is known of a delivery that was handed out, as the broker counts."""
    history = delivery.history
    if history is NEW:
        return ONCE
    return Remembered(history.on_arrival + 1, history.failures, guessed=history.guessed)


def _told(delivery: Delivery) -> Remembered:
    """Return what is known of a delivery that was handed out, as the application was told."""
    history = delivery.history
    if history is NEW:
        return ONCE
    return Remembered(delivery.delivery_count, history.failures, guessed=history.guessed)


class ConsumerMemory:
    """Remembers and recalls the messages of one consumer in the memory of its process."""

    def __init__(self, memory: ProcessMemory, settings: ConsumerSettings, dialect: Dialect) -> None:
        self._memory = memory
        self._settings = settings
        self._dialect = dialect
        #: A topic's message without a durable subscription does not come again.
        self._able = settings.kind is not DestinationKind.TOPIC
        self._place = None if is_pattern(settings.origin) else settings.origin
        self._written_anew = dialect.reading.written_anew

    def recall(self, delivery: Delivery) -> Remembered | None:
        """
        Return what the process remembers of a message that is about to be handed out for the first time, or None.

        Call it only now, not when the message comes: until now another session may have had it, on a dying link.
        None also for a message that is to be a dead letter, which will not be handed out.
        """
        if delivery.decided.dead_letter_cause is not None or not (self._able and len(self._memory)):
            return None
        return self._memory.recall(self.key(delivery))

    def handed_out(self, delivery: Delivery) -> None:
        """
        Note that the application gets the message: the broker may not flag it when it comes again.

        A message with the flag is noted as well: another session here, which got it and did not hand it out, would take
        the flag for that. It is noted now, because others may get it again before this session knows its link is lost.
        """
        if delivery.history.flagged or not self._dialect.flags_redelivery:
            self.in_hand([delivery])

    def in_hand(self, batch: Iterable[Delivery]) -> None:
        """Remember messages that were handed out, and of which nobody knows yet whether they failed."""
        self._note((one, _handed_out(one)) for one in batch)

    def was_handed_out_again(self, delivery: Delivery) -> bool:
        """Return whether somebody in the process was handed the message after `delivery`, which was the last here."""
        return self._memory.deliveries(self.key(delivery)) > delivery.history.on_arrival + 1

    def lost(self, batch: Iterable[Delivery]) -> None:
        """Remember messages that were handed out, which the broker now delivers again, to any consumer."""
        self._note(
            (one, _handed_out(one)._replace(failures=one.failures + 1))
            for one in batch
            if not one.decided.unseen
        )

    def given_back(self, batch: Iterable[Delivery]) -> None:
        """
        Remember messages that were not handed out, or not again: if they come with the broker's flag, it says no more
        than that.
        """
        self._note(
            (one, _returned(one))
            for one in batch
            if one.progress is HANDED_OUT
            or not (one.history.flagged and self._able and self.key(one) in self._memory)
        )

    def acknowledged(self, batch: Iterable[Delivery]) -> None:
        """Remember messages that did not fail, and were acknowledged."""
        self._note([(one, _told(one)) for one in batch])

    def processed(self, batch: Iterable[Delivery]) -> None:
        """Remember messages that did not fail, and whose ACK the broker has refused: only that is owed."""
        self._note((one, _told(one)._replace(only_ack_owed=True)) for one in batch)

    def copied(self, batch: Iterable[Delivery], *, only_ack_owed: bool) -> None:
        """Remember messages that failed and became dead letters by copy, and whether their ACK is still to be done."""
        self._note(
            (one, _told(one)._replace(failures=one.failures + 1, only_ack_owed=only_ack_owed))
            for one in batch
        )

    def dying(self, delivery: Delivery) -> None:
        """Remember a message whose copy was on its way to a dead letter queue when the link was lost, and why."""
        history = delivery.history
        past = Remembered(history.deliveries, history.failures, guessed=history.guessed)
        self._note([(delivery, past._replace(dead_letter_cause=delivery.dead_letter_cause))])

    def sent_back(self, batch: Iterable[Delivery]) -> None:
        """Remember messages that failed, whose copies are on their way to the broker's scheduler."""
        self._note((one, _handed_out(one)._replace(sent_back=True)) for one in batch)

    def not_sent_back(self, batch: Iterable[Delivery]) -> None:
        """Remember messages of which the broker has refused the copies: they failed, and the originals are there."""
        batch = list(batch)
        self.forget(batch)
        self.given_back(batch)

    def perhaps_dead_lettered(self, batch: Iterable[Delivery]) -> None:
        """Remember messages that may be dead letters: if somebody moves one back, it is tried as often as a new one."""
        self._note((one, Remembered(one.redelivery_count, 0)) for one in batch)

    def forget(self, batch: Iterable[Delivery]) -> None:
        """Forget messages that will not come again."""
        if self._able and len(self._memory):
            self._memory.forget([self.key(one) for one in batch])

    def key(self, delivery: Delivery) -> int:
        """Return the hash of the name that `delivery` is remembered by, made at the first call."""
        arrival = delivery.arrival
        key = arrival.memory_key
        if key is None:
            key = arrival.memory_key = hash(self.name(delivery))
        return key

    def name(self, delivery: Delivery) -> Name:
        """Return the name that `delivery` is remembered by."""
        where = self._place or place(delivery, self._settings, self._dialect.reading)
        arrival = delivery.arrival
        headers, content = arrival.frame.headers, arrival.frame.body
        if self._written_anew is not None and self._written_anew.match(content):
            content = self._dialect.reading.content(headers, content)
        return where, arrival.message_id, headers.get("timestamp", ""), content

    def _note(self, pasts: Iterable[tuple[Delivery, Remembered]]) -> None:
        if self._able:
            self._memory.note([(self.key(delivery), past) for delivery, past in pasts])
