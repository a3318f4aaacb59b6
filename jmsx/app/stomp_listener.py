"""
Using a listener that was written for stomp.py as a handler: the first step of moving from stomp.py to jmsx.

::

    app.consumer("/queue/orders")(handler_of(Listener()))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jmsx.errors import ConfigurationError, MessageNotReadableError
from jmsx.jms.handlers import check_takes_message, is_async, name_of
from jmsx.jms.message import Message
from jmsx.jms.translation import delivery_of

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class StompFrame:
    """A MESSAGE frame with the attributes that stomp.py gives it."""

    cmd: str
    headers: dict[str, str]  #: as they came over the wire
    body: str | bytes  #: text, if it is valid text


class MessageListener(Protocol):
    """The part of `stomp.ConnectionListener` that handles messages."""

    def on_message(self, frame: Any, /) -> object:
        """Handle a MESSAGE."""


def handler_of(listener: MessageListener) -> Callable[[Message], None]:
    """
    Return a handler that calls `listener.on_message(frame)`.

    The message is acknowledged when `on_message` returns, and delivered again by the redelivery policy when it raises;
    so the listener must not acknowledge it. The listener's other methods (`on_error`, `on_disconnected`) are not
    called, for jmsx reconnects by itself. Raises ConfigurationError if the listener's class defines no plain
    `on_message` that takes a frame, as listeners for stomp.py do since its version 7.
    """
    on_message = getattr(listener, "on_message", None)
    if isinstance(listener, type) or not callable(on_message) or is_async(on_message):
        raise ConfigurationError(
            f"handler_of() takes an object with a plain on_message(frame), as stomp.py's listeners; not {listener!r}"
        )
    if getattr(on_message, "__module__", None) == "stomp.listener":
        raise ConfigurationError(
            f"{name_of(type(listener))} has no on_message but stomp.py's, so each message would be acknowledged unseen"
        )
    check_takes_message(on_message, "frame")

    def handle(message: Message) -> None:
        on_message(StompFrame("MESSAGE", dict(delivery_of(message).headers), _body(message)))

    handle.__qualname__ = handle.__name__ = name_of(type(listener))
    return handle


def _body(message: Message) -> str | bytes:
    try:
        return message.text
    except MessageNotReadableError:
        return delivery_of(message).frame.body
