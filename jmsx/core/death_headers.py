"""
Why a message is a dead letter, as headers of its copy.

Names are safe in selectors. Values are cut to what fits a header line: Classic closes the connection over a line longer
than 10,240 bytes (`StompWireFormat.java:46-50`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx.core.frames import escape
from jmsx.core.headers import COUNT_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LIMIT: Final = 1024  #: bytes of jmsx_exception_message
STACK_LIMIT: Final = 8192  #: bytes of jmsx_stack, of which the end is kept

#: Header of a copy: how many headers of its original are cut or missing, because no SEND could carry them.
CUT_HEADER: Final = "jmsx_headers_cut"


class Room(NamedTuple):
    """Limits of what a copy may take over from its original, so that the broker still accepts it."""

    lines: int  #: how many headers
    line: int  #: bytes of each header
    total: int  #: bytes of all headers


def fitting(headers: Mapping[str, str], room: Room) -> dict[str, str]:
    """Return `headers` as far as they fit, the first ones first; `CUT_HEADER` tells how many did not."""
    fit: dict[str, str] = {}
    lacking, left = 0, room.total
    for name, value in headers.items():
        space = min(room.line, left) - len(escape(name).encode("utf-8", "replace"))
        if len(fit) >= room.lines or space <= 0:
            lacking += 1
            continue
        fit[name] = cut(value, space)
        lacking += fit[name] != value
        left -= len(escape(f"{name}{fit[name]}").encode("utf-8", "replace")) + 2
    return {**fit, CUT_HEADER: str(lacking)} if lacking else fit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathRecord:
    """Why a message is a dead letter; times in epoch milliseconds."""

    reason: str  #: `max_redeliveries`, `rejected`, `expired`
    destination: str  #: where it was consumed, as URI
    delivery_count: int
    consumer: str
    error_type: str | None = None
    error_message: str | None = None
    stack: str | None = None
    limit: int | None = None  #: maximum_redeliveries
    host: str = ""
    first_failure: int | None = None  #: in this process
    last_failure: int | None = None
    key: str = ""  #: the name of the message in log lines and events
    origin: str = ""  #: lasting name of the queue or subscription that it was consumed from

    def headers(self, message_id: str) -> dict[str, str]:
        """Return the `jmsx_` headers of the copy of message `message_id`."""
        told = {
            "jmsx_death_reason": self.reason,
            "jmsx_original_destination": self.destination,
            "jmsx_original_message_id": message_id,
            "jmsx_delivery_count": str(self.delivery_count),
            "jmsx_consumer": self.consumer,
            "jmsx_host": self.host,
        }
        if self.key:
            told["jmsx_original_key"] = self.key
        if self.first_failure is not None:
            told["jmsx_first_failure"] = str(self.first_failure)
        if self.last_failure is not None:
            told["jmsx_last_failure"] = str(self.last_failure)
        if self.error_type is not None:
            told["jmsx_exception"] = self.error_type
        if self.error_message is not None:
            told["jmsx_exception_message"] = cut(self.error_message, MESSAGE_LIMIT)
        if self.stack is not None:
            told["jmsx_stack"] = cut(self.stack, STACK_LIMIT, keep_end=True)
        return told


#: What a copy of a copy must not inherit.
DEATH_HEADERS: Final = frozenset(
    {
        "jmsx_death_reason", "jmsx_original_destination", "jmsx_original_message_id", "jmsx_original_key",
        "jmsx_delivery_count", "jmsx_consumer", "jmsx_host", "jmsx_first_failure", "jmsx_last_failure",
        "jmsx_exception", "jmsx_exception_message", "jmsx_stack", COUNT_HEADER, CUT_HEADER,
    }
)  # fmt: skip


def cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Shorten `text` to at most `limit` bytes of a header line, escapes included, without a broken character."""
    # An exception may speak of a file that is no UTF-8
    clean = text.encode("utf-8", "replace").decode()
    while (size := len(escape(clean).encode())) > limit:
        keep = max(len(clean) * limit // size, len(clean) - size + limit)
        keep = min(keep, len(clean) - 1)
        clean = clean[-keep:] if keep_end and keep else clean[:keep]
    return clean
