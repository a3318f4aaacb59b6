"""
Decides whether the broker translates the bodies of messages, or leaves them alone.

Classic has to be asked to write a MapMessage as text, and then takes Java's ObjectMessages to pieces, too. At a class
that it does not trust it closes the connection without a word (BROKER.md C67). So after such an end the next link goes
without translation: what comes without a body there may be a map, and a browser looks at it (drivers/body_lookup.py)
before the application gets it. If nothing was wrong but the network, that is all that it costs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import is_pattern
from jmsx.core.dialect import Dialect
from jmsx.core.frames import MessageFrame
from jmsx.core.headers import UNREADABLE_HEADER
from jmsx.core.selectors import literal
from jmsx.core.values import ConsumerSettings, DestinationKind

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping


Shown = TypeVar("Shown", Delivery, MessageFrame)

#: Seconds after something new, a link or a message, within which the end of a link may be for what the broker meant to
#: send next.
SOON: Final = 2.0

#: Ends of links in a row before topics go without translation, too: their messages cannot be looked up by a browser.
OFTEN: Final = 2

#: Headers that differ between two showings of one message, beside the one that tells of its translation.
_OWN: Final = ("ack", "subscription", "redelivered", UNREADABLE_HEADER)


class Translating:
    """Decides for one session, over its links, which consumers get translated bodies; times are seconds, monotonic."""

    def __init__(self) -> None:
        self._ends = 0  #: how many links in a row ended perhaps because of an ObjectMessage
        self.suspects_translation = False  #: the last one may have ended because of one
        self._heard_at = -math.inf

    def heard(self, now: float) -> None:
        """Note that a link was opened, or that messages came."""
        self._heard_at = now

    def closed(self, reason: str, now: float) -> None:
        """Note that the link is gone, for `reason` as in `LinkClosed`."""
        suspicious = reason == "io" and now - self._heard_at <= SOON
        self._ends = self._ends + 1 if suspicious else 0
        self.suspects_translation = suspicious

    def ended_by_translation(self) -> None:
        """Note that the last link has ended because of an ObjectMessage, as was found out elsewhere."""
        self._ends = max(self._ends, 1)
        self.suspects_translation = True

    def untranslated(self, settings: ConsumerSettings) -> bool:
        """Return whether this consumer goes without translation on the next link."""
        return self._ends >= (1 if is_browsable(settings) else OFTEN)


def is_browsable(settings: ConsumerSettings) -> bool:
    """Return whether others can browse what the consumer reads, while it has the messages."""
    temporary = settings.destination.startswith("temp-")
    return settings.kind is DestinationKind.QUEUE and not temporary


def one_message(message_id: str) -> str:
    """Return the selector of the message with that id."""
    return f"JMSMessageID = {literal(message_id)}"


def queue_of(delivery: Delivery, dialect: Dialect) -> str:
    """Return the URI of the message's queue; only where its consumer reads several, a header tells it."""
    subscribed = delivery.arrival.subscribed
    if subscribed and not is_pattern(subscribed):
        return subscribed
    return dialect.reading.addresses(delivery.headers).destination or ""


def doubted(untranslated: MessageFrame, dialect: Dialect) -> MessageFrame:
    """
    Return the message without its body if what came may not be all of it.

    With that, `carries` of the dialect tells of an untranslated message, too, whether its body is missing.
    """
    hides = dialect.reading.may_hide_body(untranslated.headers, untranslated.body)
    return untranslated.without_body() if hides else untranslated


def until_bodiless(
    untranslated: Iterable[Shown],
    seen: Counter[str],
    dialect: Dialect,
    lacks_body: Callable[[Shown], bool],
) -> Generator[Shown, None, bool]:
    """
    Yield what a browser is shown before the first message that lacks its body, and count it in `seen`.

    Returns whether that is all. Else browse once more, with translation, and show what is `beyond`. Translation is
    asked for only if it is needed: the broker writes it into messages that others are just being sent.
    """
    for one in untranslated:
        if lacks_body(one):
            return False
        seen[dialect.reading.message_id(one.headers)] += 1
        yield one
    return True


def beyond(seen: Counter[str], shown: Iterable[Shown], dialect: Dialect) -> Iterator[Shown]:
    """Yield what a browser is shown that is not in `seen`, by message id; changes of `seen` meanwhile do not count."""
    left = seen.copy()
    for one in shown:
        message_id = dialect.reading.message_id(one.headers)
        if left[message_id]:
            left[message_id] -= 1
        else:
            yield one


def is_same(shown: MessageFrame, known: MessageFrame, dialect: Dialect) -> bool:
    """
    Return whether both frames are of one message; the message id alone does not tell, for a sender may have written it.

    A truncated frame is compared by all lines that came, in any order: the broker may write headers in another one.
    """
    own = (*_OWN, dialect.translation_header or "")
    if shown.broken or known.broken:
        return bool(known.raw) and _lines(shown.raw, own) == _lines(known.raw, own)
    return _lasting(shown.headers, own) == _lasting(known.headers, own)


def _lasting(headers: Mapping[str, str], left: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in left}


def _lines(raw: bytes, left: Iterable[str]) -> list[bytes]:
    own = tuple(f"{name}:".encode() for name in left)
    return sorted(line for line in raw.rstrip(b"\n").split(b"\n") if not line.startswith(own))
