"""
The identity of a message: for the application, and for all that decides how it is settled.

jmsx gives each message that it sends a key. The header with the key is copied wherever the message goes: also to the
parts that a splitter makes of it, and to whatever a forwarder sends with the headers of another message. So a key
counts only if the header beside it has the digest of the key, destination and body of this very message; else the
broker's own identity counts. On Classic that is a header, too, which an application property may overwrite. So all
decisions go by a digest of the body, too, and two messages with different bodies are never taken for one.

There are two questions. An idempotency store asks whether a sender has sent the same once more: it goes by key and
body. The ledger, and the identity of what is sent for a message, ask whether the same message is delivered again: they
go by the broker's id and time of the message, which stay the same over redelivery, links and restarts. For them a
message that was sent back to the broker, or moved back by hand, is another one.

A digest is no signature: whoever may write to a queue may send the same message twice, and nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import Delivery, MessageIdentity
from jmsx.core.destination_names import is_pattern
from jmsx.core.dialect import Reading
from jmsx.core.frames import Frame
from jmsx.core.headers import COUNT_HEADER, DIGEST_HEADER, INT, KEY_HEADER, whole
from jmsx.core.ledger import StoreKey
from jmsx.core.values import ConsumerSettings, DestinationKind

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Bytes of a digest.
_SIZE: Final = 16

#: Characters of a key at most; a longer one is not jmsx's, and is replaced by its digest.
_LONGEST: Final = 255

#: The digest of a message to several destinations has this instead: each of them has it under its own name.
_SEVERAL: Final = ","

#: The digest of a message to a temporary destination has this instead of a name, which Classic changes by connection.
_TEMPORARY: Final = "temp-"


def stamp(
    headers: Mapping[str, str], body: bytes, key: str, destination: str, reading: Reading
) -> dict[str, str]:
    """Return the headers of a SEND to the URI `destination`, with the `key` and the digest that proves it."""
    digest = blake2b(reading.content(headers, body), digest_size=_SIZE)
    digest.update(_claim(key, headers.get(COUNT_HEADER, ""), _bound_to(destination)))
    return {**headers, KEY_HEADER: key, DIGEST_HEADER: digest.hexdigest()}


def stamp_again(copy: Frame, delivery: Delivery, destination: str, reading: Reading) -> Frame:
    """Return the SEND of a copy of `delivery`, with a digest made for the copy; unchanged if the key is not proven."""
    known = identify(delivery, reading)
    if not known.vouched:
        return copy
    return Frame("SEND", stamp(copy.headers, copy.body, known.key, destination, reading), copy.body)


def identify(delivery: Delivery, reading: Reading) -> MessageIdentity:
    """Return the identity of `delivery`, which is found at the first call. Never fails, whatever came in."""
    arrival = delivery.arrival
    if arrival.identity is None:
        try:
            arrival.identity = _identify(delivery, reading)
        except Exception:  # noqa: BLE001 - a message that nothing names must not end its session
            name = _short(arrival.message_id)
            arrival.identity = MessageIdentity(name, name, name, vouched=False)
    return arrival.identity


def key_of(delivery: Delivery, reading: Reading) -> str:
    """Return only the key of `delivery`; its body is not read if the sender gave it no key. Never fails."""
    if delivery.arrival.identity is None and KEY_HEADER not in (headers := delivery.frame.headers):
        try:
            return _short(reading.message_key(headers))
        except Exception:  # noqa: BLE001, S110 - `identify` below names it all the same
            pass
    return identify(delivery, reading).key


def count(delivery: Delivery, reading: Reading) -> int:
    """Return how often a message was redelivered before it was sent back for later; 0 unless jmsx wrote the count."""
    told = whole(delivery.headers.get(COUNT_HEADER), most=INT)
    return told if told and identify(delivery, reading).vouched else 0


def store_key(delivery: Delivery, settings: ConsumerSettings, reading: Reading) -> StoreKey | None:
    """
    Return the key under which a ledger counts `delivery`, or None if it is not counted.

    Each subscriber of a topic has a message of its own. Without durable subscription it dies with the connection, so
    there is nothing to count. What a sender sends twice is two messages, whose failures are counted apart.
    """
    if settings.kind is DestinationKind.TOPIC or delivery.is_acknowledged:
        return None
    copy = identify(delivery, reading).copy
    return StoreKey(place(delivery, settings, reading), copy) if copy else None


def place(delivery: Delivery, settings: ConsumerSettings, reading: Reading) -> str:
    """
    Return the queue or durable subscription that has `delivery`; where the consumer reads a pattern, the message's own
    queue.
    """
    if not is_pattern(settings.origin):
        return settings.origin
    return reading.addresses(delivery.headers).destination or settings.origin


def _identify(delivery: Delivery, reading: Reading) -> MessageIdentity:
    arrival, headers = delivery.arrival, delivery.frame.headers
    digest = blake2b(reading.content(headers, delivery.frame.body), digest_size=_SIZE)
    body = digest.hexdigest()
    given, told = headers.get(KEY_HEADER, ""), headers.get(DIGEST_HEADER, "")
    vouched = False
    if given and told and len(given) <= _LONGEST:
        where = reading.addresses(headers)
        died = headers.get("jmsx_original_destination")
        candidates = (where.destination, where.original, arrival.subscribed, died, _SEVERAL)
        repeated = headers.get(COUNT_HEADER, "")
        tried: set[str] = set()
        for candidate in candidates:  # nearly always it is the first
            destination = _bound(candidate or "")
            if not destination or destination in tried:
                continue
            tried.add(destination)
            claimed = digest.copy()
            claimed.update(_claim(given, repeated, destination))
            if claimed.hexdigest() == told:
                vouched = True
                break
    key = given if vouched else _short(reading.message_key(headers))
    name = f"{key}:{body}" if key else ""
    own = _short(f"{arrival.message_id}@{headers.get('timestamp', '')}")
    copy = f"{own}:{body}" if arrival.message_id else ""
    return MessageIdentity(key, name, copy, vouched)


def _claim(key: str, repeated: str, destination: str) -> bytes:
    """Return what a digest covers beside the body; no header holds a NUL."""
    return f"\0{key}\0{repeated}\0{destination}".encode("utf-8", "replace")


def _bound(destination: str) -> str:
    """
    Return the destination that goes into the digest of a key: a URI without options, or a constant for several or
    temporary ones.
    """
    if _SEVERAL in destination:
        return _SEVERAL
    if _TEMPORARY in destination.partition("://")[0]:
        return _TEMPORARY
    return destination.partition("?")[0]


#: As `_bound`, with a cache, for messages that are sent: they go to the same few destinations. Messages that come in
#: may name any, long ones too, and would fill the cache.
_bound_to: Final = lru_cache(maxsize=1024)(_bound)


def _short(key: str) -> str:
    if len(key) <= _LONGEST:
        return key
    return blake2b(key.encode("utf-8", "replace"), digest_size=_SIZE).hexdigest()
