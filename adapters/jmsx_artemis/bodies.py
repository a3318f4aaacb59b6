"""How Artemis and jmsx tell what the body of a message is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Tells maps from texts, and empty bodies apart, which Artemis does not over STOMP (BROKER.md A51).
TYPE_HEADER: Final = "jmsx_type"
NO_TEXT: Final = "none"  #: a message without a body


def has_bytes(headers: Mapping[str, str]) -> bool:
    """
    Return whether a MESSAGE shows a BytesMessage: its length stands before its id, a text's at the end.

    Source: `VersionedStompFrameHandler.java:325-365`, from 2.33 to 2.56. An empty one has its sender's length.
    """
    for name in headers:
        if name in ("content-length", "message-id"):
            return name == "content-length" or headers.get("content-length") == "0"
    return False
