"""How the type of a message body is recognized on Artemis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


#: The header in which jmsx sends the body's type: over STOMP Artemis tells neither a map from a text nor a message
#: without a body from one with an empty body (BROKER.md A51).
TYPE_HEADER: Final = "jmsx_type"
NO_TEXT: Final = "none"  #: a message without a body


def has_bytes(headers: Mapping[str, str]) -> bool:
    """
    Return whether a MESSAGE is a BytesMessage: its content-length precedes its message-id, while a text's comes last.

    An empty BytesMessage has the content-length of its sender.
    Source: `VersionedStompFrameHandler.java:325-365`, from 2.33 to 2.56.
    """
    for name in headers:
        if name in ("content-length", "message-id"):
            return name == "content-length" or headers.get("content-length") == "0"
    return False
