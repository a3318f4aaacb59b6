"""
The headers that jmsx itself writes, and how numbers in headers are read, which any sender may have written.

`str.isdigit` is true for `²`, `int` takes `٣` and `1_000`, and raises for 5,000 digits; so whole numbers are read here
and nowhere else (tests/packaging/test_wire_numbers.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The greatest of Java's `long`, which all of the brokers' numbers fit in.
LONG: Final = 2**63 - 1

#: The greatest of Java's `int`, as which JMS counts deliveries and numbers the messages of a group.
INT: Final = 2**31 - 1

#: The last millisecond of the year 9999, which is the last that Python's `datetime` knows.
LAST_MS: Final = 253_402_300_799_999

#: Separates a consumer's id from the rest in the ids of its further subscriptions.
SUBSCRIPTION_SEPARATOR: Final = "+"

#: Header of a message that was sent back for a later redelivery: how often it was redelivered before.
COUNT_HEADER: Final = "jmsx_redelivery_count"

#: Header that jmsx senders put on each message: its identity wherever it goes.
KEY_HEADER: Final = "jmsx_key"

#: Header beside it: a digest of what the key was made for (identity.py).
DIGEST_HEADER: Final = "jmsx_digest"

#: Properties of a message's group, which Classic does not show to STOMP consumers, and the headers that tell of them.
GROUP_HEADERS: Final = {"JMSXGroupID": "jmsx_group_id", "JMSXGroupSeq": "jmsx_group_seq"}

#: Header that tells which connection sent a message; written while a consumer of that connection has `no_local`.
SENDER_HEADER: Final = "jmsx_connection"

#: Header that tells the types of properties that are no strings, such as `i=count,size b=urgent`.
TYPES_HEADER: Final = "jmsx_types"

#: Header that tells when a message was sent, where its `timestamp` is left out or 0; epoch milliseconds.
TIME_HEADER: Final = "jmsx_timestamp"

#: Header of a copy whose original had a body that STOMP does not carry.
UNREADABLE_HEADER: Final = "jmsx_unreadable"

_WHOLE: Final = re.compile("[+-]?[0-9]{1,19}")


def whole(text: str | None, *, least: int = 0, most: int = LONG) -> int | None:
    """
    Return `text` as a whole number; None unless it is an optional sign and 1 to 19 ASCII digits, in `least`..`most`.

    Source: `java.lang.Long.parseLong`, but for digits of other alphabets.
    """
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if least <= number <= most else None


def time_ms(text: str | None) -> int | None:
    """Return a point in time (epoch milliseconds); None if there is none, if it is 0, or if no calendar has it."""
    return whole(text, least=1, most=LAST_MS)


def sent_ms(headers: Mapping[str, str]) -> int | None:
    """Return when a message was sent (epoch milliseconds), by its broker, else by its sender; None: neither tells."""
    return time_ms(headers.get("timestamp")) or time_ms(headers.get(TIME_HEADER))
