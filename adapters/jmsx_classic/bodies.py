"""The headers by which the type of a message body is recognized on Classic."""

from __future__ import annotations

from typing import Final

from jmsx.core.map_body import BEGINNING

#: On a SUBSCRIBE this header has the broker translate maps into text; on a MESSAGE it says that the broker did.
TRANSLATION_HEADER: Final = "transformation"

#: Marks bodies that would be mistaken for another type: a text with a NUL or in the form of a map, or no body at all.
TEXT_HEADER: Final = "jmsx_text"
NO_TEXT: Final = "none"  #: a message without a body, which would arrive as an empty text
A_MAP: Final = "map"  #: a map, whose body is missing if nothing translates it


def looks_like_map(body: bytes) -> bool:
    """Return whether a text could be taken for a MapMessage, so that its sender should mark it as text."""
    return BEGINNING.match(body) is not None
