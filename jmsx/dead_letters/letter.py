"""
One dead letter: what its headers tell of why it died, or else an event log; which are meant, and groups of a kind.

All of it was written by whoever sent the message, or its copy: it is shown, and it decides nothing but which messages
an operator means. Where one goes back to is shown to him before it goes.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jmsx.core.destination_names import is_pattern, one_of
from jmsx.core.headers import INT, KEY_HEADER, sent_ms, time_ms, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: How dead letter queues are called: shared or individual ones, by a broker's default or by habit.
NAMES: Final = re.compile(
    r"(?:^|[.\-_])(?:DLQ|dead|deadletters?|dead-letters?)(?:$|[.\-_])", re.IGNORECASE
)

#: The headers by which senders and copies name a message; `DeadLetter.names` has them, and the broker's id.
NAMING_HEADERS: Final = (KEY_HEADER, "jmsx_original_key", "jmsx_original_message_id")

#: The reason of a dead letter that tells none: its broker has moved it, or somebody has put it there.
UNTOLD: Final = "untold"

#: The reason of a message that failed as often as its consumer allows; of what a Java client gave up, too.
GIVEN_UP: Final = "max_redeliveries"

#: The reason of what expired; jmsx's word and, for what the broker moved, its adapter's.
EXPIRED: Final = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """
    A message in a dead letter queue. Times are epoch seconds; a text that nobody told is empty.

    `id` names it in its queue, and to the broker alone: it is another one when the message has come back. On Classic
    two messages may have one id. Two letters are equal if no `Choice` can tell them apart; nothing that a broker counts
    is in it, so a letter stays what it is for as long as it lies there.
    """

    id: str
    message_id: str  #: under which it was consumed, as log and events have it
    key: str  #: its sender's, as told; else empty
    broker_key: str  #: its broker's, by which log lines and events name what no sender gave a key
    origin: str  #: URI of where it was consumed
    reason: str  #: `max_redeliveries`, `rejected`, `expired`, `undecodable` or `untold`
    error: str  #: type of the last exception
    error_message: str
    consumer: str
    deliveries: int | None
    first_failure: float | None
    last_failure: float | None
    sent_at: float | None  #: as its headers say; of a copy on Artemis: when that was made
    size: int | None  #: of the body, bytes
    stuck: str  #: why it cannot be sent anywhere, a clause; empty: it can
    astray: str  #: why it cannot go back to where it came from; empty: it can
    headers: Mapping[str, str] = field(compare=False)
    #: A traceback, or what a log has of it: the way to the error in one line.
    stack: str = field(default="", compare=False)
    body: bytes | None = field(default=None, compare=False)  #: None: it was not asked for

    @property
    def seen(self) -> float | None:
        """When it died, or else when it was sent."""
        return self.sent_at if self.last_failure is None else self.last_failure

    @property
    def names(self) -> frozenset[str]:
        """All that it may be called by, to name it to a command."""
        return frozenset(filter(None, (self.id, self.message_id, self.key, self.broker_key)))

    @property
    def logged_as(self) -> list[str]:
        """
        How an event log may call it, the surest name first.

        Never by its message id: Artemis' are numbers that each broker gives to some message.
        """
        return [name for name in (self.key, self.broker_key) if name]

    def obstacle(self, to: str | None = None) -> str:
        """Return why it cannot be sent to `to` (URI; None: back to where it came from); empty: it can."""
        return self.stuck or (self.astray if to is None else no_single_queue(to))


def no_single_queue(uri: str) -> str:
    """
    Return why what is sent to `uri` would not lie in one queue then, a clause; empty: it would.

    A topic, a list or a pattern may give it to several, and loses it where there is none. Without a name, or with
    nothing but blanks, which Classic takes for none, a SEND would fail, and its transaction with it.
    """
    name = uri.partition("?")[0].removeprefix("queue://")
    one = uri.startswith("queue://") and name.strip() and not is_pattern(uri) and uri.isprintable()
    return "" if one else f"{uri} is not one queue"


def read(
    id: str,  # noqa: A002 - it fills the field of that name
    headers: Mapping[str, str],
    *,
    origin: str | None,
    message_id: str | None = None,
    broker_key: str | None = None,
    reason: str = UNTOLD,
    error: str = "",
    error_message: str = "",
    deliveries: int | None = None,
    size: int | None = None,
    stuck: str = "",
    astray: str = "",
    body: bytes | None = None,
) -> DeadLetter:
    """
    Read what `headers` tell of a dead letter.

    `origin` is where the adapter would send it back to; `message_id`, `reason`, the error and `deliveries` are what the
    broker tells, and count where no copy of jmsx's says more. `broker_key` is as `Reading.message_key` has it; None: it
    is the message id. A copy has an id and a key of its own, and tells those of its original.
    """
    told = headers.get
    count = whole(told("jmsx_delivery_count"), most=INT)
    return DeadLetter(
        id=id,
        message_id=told("jmsx_original_message_id") or message_id or id,
        key=told(KEY_HEADER, ""),
        broker_key=told("jmsx_original_key")
        or ((message_id or id) if broker_key is None else broker_key),
        origin=origin or told("jmsx_original_destination", ""),
        reason=told("jmsx_death_reason") or reason,
        error=told("jmsx_exception", error),
        error_message=told("jmsx_exception_message", error_message),
        consumer=told("jmsx_consumer", ""),
        deliveries=deliveries if count is None else count,
        first_failure=_seconds(time_ms(told("jmsx_first_failure"))),
        last_failure=_seconds(time_ms(told("jmsx_last_failure"))),
        sent_at=_seconds(sent_ms(headers)),
        size=size,
        stuck=stuck,
        astray=astray,
        headers=headers,
        stack=told("jmsx_stack", ""),
        body=body,
    )


class _Death(NamedTuple):
    """What of a line of the log is kept: there may be millions. A text that the line has not is empty."""

    destination: str  #: as it was subscribed
    consumer: str
    message_id: str
    reason: str
    error: str
    error_message: str
    stack: str
    attempts: int | None
    at_us: int  #: since the epoch


class Deaths:
    """What event logs tell of dead letters whose own headers tell no cause, as the broker itself has moved them."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take lines of the kind `dlq`, and others with a `reason`, in any order; one may come several times."""
        self._by_key: dict[str, tuple[_Death, ...]] = {}
        #: Of most texts there are few
        self._texts: dict[str, str] = {}
        for line in lines:
            death, key = self._death(line), line["msg_key"]
            others = [one for one in self._by_key.get(key, ()) if one[:3] != death[:3]]
            same = [one for one in self._by_key.get(key, ()) if one[:3] == death[:3]]
            latest = max([*same, death], key=_at)
            self._by_key[key] = (*others, latest)

    def _death(self, line: Mapping[str, Any]) -> _Death:
        def text(name: str) -> str:
            told = str(line.get(name, ""))
            return self._texts.setdefault(told, told)

        return _Death(
            text("dest"),
            text("consumer"),
            str(line.get("msg_id", "")),
            text("reason"),
            text("error_type"),
            text("error_message"),
            text("error_stack"),
            line.get("attempts"),
            line["ts_us"],
        )

    def told(self, letter: DeadLetter) -> DeadLetter:
        """
        Return `letter` with what is known of its death; as it is where it tells a cause itself, or no line tells of it.

        A line is about it by the key that the log has, and by the destination: a message id alone may be that of
        another broker's message, or of another queue's copy. Of several with its key those count that have its message
        id, too. Of a queue's message the latest death counts, for it may have gone back and died again. Of a topic's
        each consumer had one of its own, and nobody knows whose it is.
        """
        if letter.reason != UNTOLD or not letter.origin:
            return letter
        known = [
            death
            for key in dict.fromkeys((letter.broker_key, letter.key))
            for death in self._by_key.get(key, ())
            if one_of(death.destination, letter.origin) == letter.origin
        ]
        same = [death for death in known if death.message_id == letter.message_id]
        deaths = sorted(same or known, key=_at)
        if not deaths:
            return letter
        by_consumer = {death.consumer: death for death in deaths}
        last = [*by_consumer.values()] if letter.origin.startswith("topic://") else deaths[-1:]
        attempts = {death.attempts for death in last}
        return replace(
            letter,
            reason=_either(death.reason for death in last),
            error=_either(death.error for death in last),
            error_message=_either(death.error_message for death in last),
            consumer=_either(death.consumer for death in last),
            deliveries=attempts.pop() if len(attempts) == 1 else None,
            last_failure=deaths[-1].at_us / 1_000_000,
            stack=_either(death.stack for death in last),
        )


_at = operator.attrgetter("at_us")


def _either(texts: Iterable[str]) -> str:
    """Return the one text that is given, or all different ones, joined by `or`; empty texts tell nothing."""
    return " or ".join(sorted({text for text in texts if text}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which dead letters are meant: those that fit all that is said; by default every one."""

    ids: frozenset[str] = frozenset()  #: of `id`, `message_id` or `key`
    reason: str | None = None
    error: str | None = None  #: the type, or how its message begins
    consumer: str | None = None
    origin: str | None = None  #: URI
    since: float | None = None  #: epoch seconds of `seen`
    until: float | None = None

    def fits(self, letter: DeadLetter) -> bool:
        """Return whether `letter` is one of them; one that tells no time is outside of every period."""
        if self.ids and self.ids.isdisjoint(letter.names):
            return False
        if self.error is not None and not (
            letter.error == self.error or letter.error_message.startswith(self.error)
        ):
            return False
        for wanted, told in (
            (self.reason, letter.reason),
            (self.consumer, letter.consumer),
            (self.origin, letter.origin),
        ):
            if wanted is not None and wanted != told:
                return False
        if not self._asks_when:
            return True
        seen = letter.seen
        return seen is not None and (self.since or 0) <= seen < (self.until or float("inf"))

    def may_fit(self, letter: DeadLetter) -> bool:
        """Return whether `letter`, which does not fit, might do so if it told all of why and when it died."""
        untold, undated = letter.reason == UNTOLD, letter.last_failure is None
        silent = untold or letter.reason == GIVEN_UP
        asked = replace(
            self,
            reason=None if untold else self.reason,
            error=None if silent and not letter.error else self.error,
            consumer=None if silent and not letter.consumer else self.consumer,
            since=None if undated else self.since,  # it died later than it was sent
            until=None if letter.seen is None else self.until,
        )
        return asked != self and asked.fits(letter)

    @property
    def asks(self) -> str:
        """What a letter must tell before this choice knows whether it is meant: `when` it died, `why`, or both."""
        when = self._asks_when
        why = any(one is not None for one in (self.reason, self.error, self.consumer))
        return " or ".join(["when"] * when + ["why"] * why)

    @property
    def _asks_when(self) -> bool:
        return self.since is not None or self.until is not None

    def guesses(self, letter: DeadLetter) -> bool:
        """Return whether `letter`, which fits, does so by the time of its sending, as it tells none of its death."""
        return letter.last_failure is None and self._asks_when


@dataclass(slots=True)
class Group:
    """Dead letters of one cause, consumer and destination. Times are epoch seconds."""

    origin: str
    reason: str
    error: str
    consumer: str
    count: int = 0
    stuck: int = 0  #: those of them that cannot be sent back
    first: float | None = None
    last: float | None = None
    example: str = ""  #: id of the newest

    def add(self, letter: DeadLetter) -> None:
        """Count one more."""
        self.count += 1
        self.stuck += bool(letter.obstacle())
        seen = letter.seen
        if seen is not None:
            self.first = seen if self.first is None else min(self.first, seen)
        if self.last is None or (seen is not None and seen >= self.last):
            self.last, self.example = seen, letter.id


def groups(letters: Iterable[DeadLetter]) -> list[Group]:
    """Return groups by destination, reason, error and consumer; the largest first."""
    found: dict[tuple[str, str, str, str], Group] = {}
    for letter in letters:
        of = (letter.origin, letter.reason, letter.error, letter.consumer)
        found.setdefault(of, Group(*of)).add(letter)
    return sorted(found.values(), key=lambda one: (-one.count, one.origin, one.reason, one.error))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
