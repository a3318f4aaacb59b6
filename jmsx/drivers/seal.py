"""
The mark of a link, by which its frames are told from what senders write.

The broker repeats the id of a subscription in each MESSAGE, and that of a receipt in each RECEIPT. Both get a suffix
that is drawn anew for each link, and that nobody but this link and its broker knows. It is put on where frames are
written and taken off where they are read (splitter.py), so nothing in between shows it.
"""

from __future__ import annotations

import secrets
from typing import Final

from jmsx.core.frames import Frame

#: Bytes of chance in a mark.
_SIZE: Final = 8

#: Commands whose `id` is that of a subscription.
_SUBSCRIBING: Final = ("SUBSCRIBE", "UNSUBSCRIBE")


class Seal:
    """That of one link."""

    def __init__(self) -> None:
        self._suffix = f"~{secrets.token_hex(_SIZE)}"

    @property
    def mark(self) -> bytes:
        """What every MESSAGE and RECEIPT of the link has in its head."""
        return self._suffix.encode()

    def put_on(self, frame: Frame) -> Frame:
        """`frame` as it is written."""
        names = [name for name in ("id", "receipt") if name in frame.headers]
        if "id" in names and frame.command not in _SUBSCRIBING:
            names.remove("id")
        if not names:
            return frame
        sealed = {name: frame.headers[name] + self._suffix for name in names}
        return Frame(frame.command, {**frame.headers, **sealed}, frame.body)
