"""
The mark of a link, by which its frames are told from what senders write.

The broker repeats the id of a subscription in each MESSAGE, and that of a receipt in each RECEIPT. Both get a suffix
that is drawn anew for each link. It is put on where frames are written and taken off where they are read (wire.py),
so nothing in between shows it, and nobody but the link and its broker knows it.

Only where senders can write what looks like a frame (`Dialect.raw_names`). Artemis lets nobody, and it tells the
`receipt` of a SEND to whoever receives the message (BROKER.md A48): a mark would be known there, and what holds it in
its body would look torn.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame
from jmsx.drivers.link import StompLink

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Bytes of chance in a mark.
_SIZE: Final = 8

#: Commands whose `id` is that of a subscription.
_SUBSCRIBING: Final = ("SUBSCRIBE", "UNSUBSCRIBE")


class Seal:
    """That of one link; none before `impress`."""

    def __init__(self) -> None:
        self._suffix = ""

    @property
    def mark(self) -> bytes:
        """What every MESSAGE and RECEIPT of the link has in its head; empty: nothing."""
        return self._suffix.encode()

    def impress(self, link: StompLink, dialect: Dialect, greeting: Mapping[str, str]) -> None:
        """From now on the frames of `link` must have it, if they need one; `greeting`: the headers of its CONNECTED."""
        if dialect.raw_names:
            self._suffix = f"~{secrets.token_hex(_SIZE)}"
            # Classic's ids begin with host, port and start of the broker: `ID:host-35401-1700000000000-3:1`.
            before, dash, _ = greeting.get("session", "").rpartition("-")
            link.expect(self.mark, origin=before + dash)

    def put_on(self, frame: Frame) -> Frame:
        """`frame` as it is written."""
        if not self._suffix or (
            "receipt" not in frame.headers and frame.command not in _SUBSCRIBING
        ):
            return frame
        names = ("id", "receipt") if frame.command in _SUBSCRIBING else ("receipt",)
        sealed = {
            name: frame.headers[name] + self._suffix for name in names if name in frame.headers
        }
        return Frame(frame.command, {**frame.headers, **sealed}, frame.body) if sealed else frame
