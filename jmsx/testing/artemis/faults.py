"""
What Artemis refuses, in its words.

Source: artemis-stomp-protocol 2.44.0 ActiveMQStompException and ActiveMQStompProtocolMessageBundle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.testing.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping


class Refused(Fault):
    """
    STOMP's side of the broker refuses a frame: ERROR, and in STOMP 1.2 the end of the connection.

    Args:
        message: the header of that name.
        body: of the ERROR, where it has one.
        headers: further headers of the ERROR.
        fatal: it ends the connection in the older versions too.
        answers: it says for which receipt it stands.
    """

    def __init__(
        self,
        message: str,
        *,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        fatal: bool = False,
        answers: bool = True,
    ) -> None:
        super().__init__(message)
        self.body = body
        self.headers = headers or {}
        self.fatal = fatal
        self.answers = answers


def bundled(number: int, text: str) -> Refused:
    """One of the messages with a number; such lose their colons, and never say the cause."""
    return Refused(f"AMQ{number} {text}".replace(":", ""))


def carried(text: str) -> Refused:
    """An exception from deeper down: its text is the message, without colons, and the body."""
    return Refused(text.replace(":", ""), body=text)
