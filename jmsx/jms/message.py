"""The message, as an application writes and reads it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jmsx.errors import IllegalStateError, MessageNotReadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.core.dialect import Body
    from jmsx.core.identity import Identity
    from jmsx.jms.destination import Destination

    #: What a property may be; STOMP carries it as text.
    Property = str | int | float | bool


class Message:
    """
    A message to send, or one that came in. Times are epoch seconds.

    A body of `str` is a JMS TextMessage, of `bytes` a BytesMessage, None a TextMessage without text; a mapping (of str,
    int, float, bool, bytes and None) is a MapMessage.
    """

    def __init__(
        self,
        body: Body = None,
        *,
        properties: Mapping[str, Property] | None = None,
        correlation_id: str | None = None,
        type: str | None = None,  # noqa: A002 - JMSType
        reply_to: Destination | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
    ) -> None:
        self.body = body
        self.properties: Mapping[str, Property] = MappingProxyType(dict(properties or {}))
        self.correlation_id = correlation_id
        self.type = type
        self.reply_to = reply_to
        self.group_id = group_id  #: JMSXGroupID; of what came in, if jmsx sent it
        self.group_sequence = group_sequence
        self.message_id: str | None = None
        self.destination: Destination | None = None
        self.original_destination: Destination | None = None  #: of a dead letter
        self.timestamp: float | None = None
        self.expiration = 0.0  #: 0: never
        self.priority = 4
        self.persistent = True
        self.delivery_count = 0  #: which delivery this is, from 1; across crashes at least this
        self.redelivered = False  #: it was, or may have been, delivered before (JMSRedelivered)
        self._acknowledge: Callable[[], None] | None = None
        self._identify: Callable[[], Identity] | None = None

    @property
    def key(self) -> str | None:
        """
        The identity that a jmsx sender gave this message, kept over all brokers and queues; else the broker's own.

        A key that was copied from another message counts for nothing. None: it did not come in.
        """
        return None if self._identify is None else self._identify().key

    @property
    def identity(self) -> str | None:
        """Its key and a digest of its body: what an idempotency store knows it by; None: nothing names it."""
        return None if self._identify is None else self._identify().name or None

    @property
    def text(self) -> str:
        """The body as text; raises MessageNotReadableError if it is something else."""
        if self.body is None or isinstance(self.body, str):
            return self.body or ""
        kind = type(self.body).__name__
        raise MessageNotReadableError(f"message {self.message_id} carries {kind}, not text")

    def acknowledge(self) -> None:
        """
        Settle it: in CLIENT mode all that its session has delivered, in INDIVIDUAL mode this one, else nothing.

        Raises IllegalStateError if its consumer is closed or it never came in, ConnectionFailedError if the link is
        gone.
        """
        if self._acknowledge is None:
            raise IllegalStateError("a message that was not received cannot be acknowledged")
        self._acknowledge()

    def __repr__(self) -> str:
        size = len(self.body) if self.body is not None else 0
        return f"<Message {self.message_id or 'unsent'} #{self.delivery_count} [{size}]>"

    def on_identify(self, identify: Callable[[], Identity]) -> None:
        """Set how it is known, which is found out when somebody asks; the session's affair."""
        self._identify = identify

    def on_acknowledge(self, acknowledge: Callable[[], None]) -> None:
        """Set what `acknowledge()` does; the session's affair."""
        self._acknowledge = acknowledge

    def __reduce__(self) -> Any:
        raise TypeError("a Message belongs to its session; pass on its body and properties instead")
