"""
Hand-outs before which a ledger is asked, or the broker.

A ledger is asked under the engine's lock, and is told afterwards how the hand-out ended. If it is away, its session
pauses: what it would count waits in front, as if it had never been offered. So does a message that came without its
body, until the broker has been asked for the body. That takes a link of its own, so whoever waits for the message asks,
without the lock: the session's heart-beats and its other calls go on meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.core.consumer import begun
from jmsx.core.delivery import WITHIN, Delivery, Held
from jmsx.core.frames import MessageFrame, Record
from jmsx.core.ledger import Entry, HandOutEnd, StagedLedger, StoreKey
from jmsx.core.session import SessionCore
from jmsx.errors import JmsxError, StoreError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


T = TypeVar("T")

#: Seconds before a ledger that was away is asked again; it knows itself how often its file may be tried.
AGAIN: Final = 1.0

#: Messages that came without a body, and all were maps: after so many there is no reason to look bodies up any longer.
MAPS: Final = 10

#: How a ledger says that it is away; anything else that it raises is a fault, or came from outside.
_AWAY: Final = (StoreError, sqlite3.Error)

_log = logger("jmsx.session")


class HandOuts:
    """Hands out one session's messages where a ledger or the broker is asked first."""

    def __init__(self, ledger: StagedLedger | None) -> None:
        self.ledger = ledger  #: counts hand-outs; None: nothing does
        #: Messages that are handed out wait before the application sees them; `reach` tells when it does.
        self.waits = False
        #: The application asks an idempotency store whether a message was done, even one that is over its limit.
        self.asks_store = False
        #: Looks for the body of a message that came without; raises JmsxError if the broker cannot be asked.
        self.look: Callable[[Delivery], MessageFrame | None] = lambda _delivery: None
        self._epoch = 0  #: in which bodies were last looked up
        self._maps = 0  #: messages that turned out to have a body
        self._others = 0  #: messages that turned out to have none
        #: The epoch in which many have come without a body, and all had one; None: that is not so
        self.only_maps_in: int | None = None
        self.away: str | None = None  #: why the ledger cannot be used
        self.withheld = False  #: the next message waits for the ledger, or for the broker
        #: The next message, if it came without its body: whoever waits for it is to look that up.
        self.bodiless: Delivery | None = None
        self._ask_at = -math.inf  #: when the ledger is asked again (seconds, monotonic)
        self._look_at = -math.inf  #: when the broker is asked again

    def deliver(
        self,
        core: SessionCore,
        subscription_ids: Collection[str],
        now: float,
        held: Held | None = None,
    ) -> Delivery | None:
        """
        Return the next message as `core.handing_out.deliver`; one over its limit by the ledger becomes a dead letter.

        None also while the next message is `withheld`. What is not counted is handed out all the same.
        """
        ledger = self.ledger
        held = Held() if held is None else held
        self.withheld, self.bodiless = False, None
        while (delivery := core.handing_out.offer(subscription_ids, now, held)) is not None:
            if core.handing_out.unclear(delivery):
                self.withheld = True
                self.bodiless = delivery if now >= self._look_at else None
                core.handing_out.decline(held)
                return None
            identity = None if ledger is None else core.handing_out.store_key(delivery)
            counted: list[Entry | None] = []
            try:
                if ledger is not None and identity is not None:
                    begin = ledger.take if self.waits else ledger.begin
                    self._ask(partial(_count, begin, identity, counted), now)
                    if self.away is not None:
                        self.withheld = True
                        core.handing_out.decline(held)
                        return None
                entry = counted[0] if counted else None
                if core.handing_out.admit(delivery, now, entry, asks_store=self.asks_store):
                    return delivery
            finally:
                # Nobody would ever say how it went: a signal came before, or the message was acknowledged already.
                entry = counted[0] if counted else None
                if ledger is not None and entry is not None and delivery.entry is not entry:
                    ledger.give_back([entry])
        if ledger is not None:
            self._ask(ledger.flush, now)
        return None

    def not_done(self, deliveries: Iterable[Delivery]) -> bool:
        """
        Mark messages over their limit as not known to the application's store; return whether there are any.

        The application is to give them back then: they become dead letters as soon as they are handed out again.
        """
        if not self.asks_store:
            return False
        over = [one for one in deliveries if one.decided.limit is not WITHIN]
        for one in over:
            one.note_not_done()
        return bool(over)

    def reach(self, deliveries: Iterable[Delivery], now: float) -> None:
        """
        Tell the ledger that the application sees these now, where it `waits` with them; without the engine's lock.

        Raises StoreError if the ledger is away: then it must not see them, and nothing is handed out for a while.
        """
        if not self.waits:
            return
        deliveries = list(deliveries)
        begun(deliveries)
        if (ledger := self.ledger) is None:
            return
        try:
            ledger.reach(_entries(deliveries))
        except _AWAY as error:
            self._gone(error, now)
            raise StoreError(f"delivery ledger failed: {error}") from error

    def returned(self, deliveries: Iterable[Delivery]) -> None:
        """
        Tell the ledger of last attempts that have succeeded, before an idempotency store notes that they did.

        If the process dies in between, the message comes once more, and the store knows whether it was done; by the
        ledger's count alone it would be a dead letter. The ledger is told so once a message: one at whose noting the
        process dies each time must not come for ever. The store is told even if the ledger is away.
        """
        ledger = self.ledger
        last = [
            one.entry
            for one in deliveries
            if one.decided.is_last and one.entry is not None and not one.entry.finished
        ]
        if ledger is not None and last:
            ledger.finish(last)
            with contextlib.suppress(StoreError, sqlite3.Error):
                ledger.flush()

    def looked(self, core: SessionCore, delivery: Delivery, shown: MessageFrame | None) -> None:
        """Keep what the broker has of `delivery`, as `look` told it; None: nothing more than came."""
        if delivery.arrival.looked_at:  # by another thread, which waited for it, too
            return
        if self._epoch != delivery.arrival.epoch:
            self._epoch, self._maps, self._others = delivery.arrival.epoch, 0, 0
        if shown is None:
            self._others += 1
        else:
            self._maps += 1
        self.only_maps_in = self._epoch if self._maps >= MAPS and not self._others else None
        core.handing_out.complete(delivery, shown)

    def unanswered(self, delivery: Delivery, error: JmsxError, now: float) -> None:
        """Let the message of `delivery` wait: the broker could not be asked for its body."""
        _log.warning(
            "message came without its body, and waits for it",
            destination=delivery.arrival.subscribed,
            message_id=delivery.message_id,
            error=str(error),
        )
        self._look_at = now + AGAIN

    def patience(self, now: float) -> float:
        """Return seconds until a ledger or broker that could not answer is asked again."""
        due = math.inf if self.away is None else self._ask_at
        looks = self._look_at if self._look_at > now else math.inf
        return max(min(due, looks) - now, 0.0)

    def record(self, told: Record) -> None:
        """Tell the ledger what became of hand-outs that it has."""
        ledger = self.ledger
        if ledger is None:
            return
        if told.end is HandOutEnd.SETTLED:
            ledger.settle(told.entries)
        elif told.end is HandOutEnd.FINISHED:
            ledger.finish(told.entries)
        elif told.end is HandOutEnd.UNSEEN:
            ledger.give_back(told.entries)
        else:
            ledger.fail(told.entries)

    def _ask(self, question: Callable[[], T], now: float) -> T | None:
        """Return what the ledger says; None if it is `away`, or was a moment ago."""
        if now < self._ask_at:
            return None
        try:
            answer = question()
        except _AWAY as error:
            self._gone(error, now)
            return None
        if self.away is not None:
            _log.info("delivery ledger back: the session goes on")
            self.away, self._ask_at = None, -math.inf
        return answer

    def _gone(self, error: Exception, now: float) -> None:
        if self.away is None:
            _log.info("session waits for its delivery ledger", error=str(error))
        self.away, self._ask_at = str(error), now + AGAIN


def _count(
    begin: Callable[[StoreKey], Entry | None], identity: StoreKey, counted: list[Entry | None]
) -> None:
    """Put the ledger's entry into `counted` in one step: no signal handler runs before the entry is kept."""
    counted.append(begin(identity))


def _entries(deliveries: Iterable[Delivery]) -> list[Entry]:
    """Return the ledger's entries of these hand-outs."""
    return [one.entry for one in deliveries if one.entry is not None]
