"""
What a process remembers of messages that it was handed, so that a repetition is told as one.

A broker that is killed forgets what it has given and what was acknowledged: it gives those messages again as if for the
first time. Artemis flags at most the oldest message of a consumer that ended. So a message that was acknowledged, was
lost with its link, or was handed out by a broker that does not flag it, is known when it comes again, in whatever
session of the process. One that became a dead letter is forgotten: who moves it back wants it to be new.

And Classic flags all that was on its way to a consumer that ended, seen or not: what came and was not handed out is
known, too, and is as new when it comes again. Another process that had it in between is overlooked, once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx.core.destination_names import is_pattern
from jmsx.core.identity import place
from jmsx.core.values import DestinationKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.values import ConsumerSettings

#: Messages that are remembered at most; the oldest are forgotten, and count again from the broker's flag.
LIMIT: Final = 8_000

#: And so many that came and were not handed out: more than the prefetch of a busy process.
UNSEEN: Final = 32_000


#: What a message is known by: its queue or durable subscription, its id and its time, as the broker tells them, and
#: its body. The time is in it because brokers number their messages: another one may give the same number. The body is
#: in it because on Classic the id and the time may be properties of the application.
Name = tuple[str, str, str, bytes]


class Remembered(NamedTuple):
    """What is known of a message that was handed out."""

    deliveries: int  #: as the broker counts them, and Java's clients: those of its own, not ours
    failures: int  #: ours, too


#: It came, and was not handed out.
NEVER: Final = Remembered(0, 0)


class ProcessMemory:
    """
    The past of messages, oldest first; for one thread.

    Names are kept as their hashes, which halves what a message takes (174 bytes, not 356; a busy process knows `LIMIT`
    of them all the time). One new message in 10^15 has the hash of another one, and is flagged without need.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._known: OrderedDict[int, Remembered] = OrderedDict()
        self._unseen: dict[int, Remembered] = {}  #: others, that were never handed out

    def __len__(self) -> int:
        return len(self._known) + len(self._unseen)

    def __contains__(self, name: Name) -> bool:
        key = hash(name)
        return key in self._known or key in self._unseen

    def note(self, pasts: Iterable[tuple[Name, Remembered]]) -> None:
        """Remember these, unless more is known already."""
        known, unseen = self._known, self._unseen
        for name, past in pasts:
            key = hash(name)
            before = known.get(key)
            if before is None and not past.deliveries:
                unseen[key] = NEVER
            elif before is None:
                known[key] = past
            else:
                known[key] = past if past.deliveries >= before.deliveries else before
                known.move_to_end(key)
        while len(known) > self._limit:
            known.popitem(last=False)
        while len(unseen) > UNSEEN:
            del unseen[next(iter(unseen))]

    def recall(self, name: Name) -> Remembered | None:
        """What is known of a message that is handed out; that it never was before is known no more."""
        key = hash(name)
        return self._known.get(key) or self._unseen.pop(key, None)

    def forget(self, names: Iterable[Name]) -> None:
        """These are dead letters, or expired."""
        for name in names:
            self._known.pop(hash(name), None)
            self._unseen.pop(hash(name), None)


class ConsumerMemory:
    """The messages of one consumer in the memory of its process."""

    def __init__(self, memory: ProcessMemory, settings: ConsumerSettings, dialect: Dialect) -> None:
        self._memory = memory
        self._settings = settings
        self._dialect = dialect
        #: A topic's message without a durable subscription does not come again.
        self._able = settings.kind is not DestinationKind.TOPIC
        self._place = None if is_pattern(settings.origin) else settings.origin

    def recall(self, delivery: Delivery) -> None:
        """
        It is about to be handed out: what the broker has forgotten goes on where it was.

        That is not asked when it comes: until now another session may have had it, on a link that was dying. What this
        session knows of it is worth more, as long as nobody else got it; what is doomed will not be handed out.
        """
        if (
            delivery.seen
            or delivery.dead_letter_cause is not None
            or not (self._able and len(self._memory))
        ):
            return
        past = self._memory.recall(self.name(delivery))
        if past is not None and not (
            delivery.continued and past.deliveries <= delivery.redelivery_count
        ):
            delivery.recall(past.deliveries, past.failures)

    def handed_out(self, delivery: Delivery) -> None:
        """The application gets it, and the broker may not say so when it comes again."""
        delivery.seen = True
        if not self._dialect.flags_redelivery:
            self.lost([delivery])

    def lost(self, batch: Iterable[Delivery]) -> None:
        """These were handed out, and the broker gives them to whomever it likes."""
        self._note((one, Remembered(one.base + 1, one.failures + 1)) for one in batch)

    def given_back(self, batch: Iterable[Delivery]) -> None:
        """These came and were not handed out, or not again; that the broker flags them says no more than that."""
        self._note(
            (one, Remembered(one.base + one.seen, one.failures))
            for one in batch
            if one.seen or not (one.flagged and self._able and self.name(one) in self._memory)
        )

    def acknowledged(self, batch: Iterable[Delivery]) -> None:
        """These did not fail, and the broker was told so."""
        self._note((one, Remembered(one.delivery_count, one.failures)) for one in batch)

    def copied(self, batch: Iterable[Delivery]) -> None:
        """These failed, copies of them are dead letters, and the broker was told to forget them."""
        self._note((one, Remembered(one.delivery_count, one.failures + 1)) for one in batch)

    def perhaps_dead_lettered(self, batch: Iterable[Delivery]) -> None:
        """These may be dead letters that are moved back, to be tried as often as new ones; or the broker kept them."""
        self._note((one, Remembered(one.delivery_count, 0)) for one in batch)

    def forget(self, batch: Iterable[Delivery]) -> None:
        """These are gone for ever."""
        if self._able and len(self._memory):
            self._memory.forget([self.name(one) for one in batch])

    def name(self, delivery: Delivery) -> Name:
        """What `delivery` is known by."""
        where = self._place or place(delivery, self._settings, self._dialect)
        headers = delivery.frame.headers
        content = self._dialect.content(headers, delivery.frame.body)
        return where, delivery.message_id, headers.get("timestamp", ""), content

    def _note(self, pasts: Iterable[tuple[Delivery, Remembered]]) -> None:
        if self._able:
            self._memory.note([(self.name(delivery), past) for delivery, past in pasts])
