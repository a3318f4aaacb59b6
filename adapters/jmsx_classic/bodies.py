"""The headers by which Classic and jmsx tell what the body of a message is."""

from __future__ import annotations

from typing import Final

from jmsx.core.map_body import BEGINNING

#: On SUBSCRIBE it has the broker write maps as text, on a MESSAGE it says that it did.
TRANSLATION_HEADER: Final = "transformation"

#: Marks a text that would be taken for something else: one with a NUL in it, of the form of a map, or none at all.
TEXT_HEADER: Final = "jmsx_text"
NO_TEXT: Final = "none"  #: a message without a body, which would come as a text without characters
A_MAP: Final = "map"  #: a map, which comes without a body where nothing transforms it


def looks_like_map(body: bytes) -> bool:
    """Return whether a text could be taken for a MapMessage, so that its sender should mark it as text."""
    return BEGINNING.match(body) is not None
