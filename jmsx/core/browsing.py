"""Looking into a queue without taking anything: messages come in, none is owed an acknowledgement."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx.core.requests import answered, subscribing
from jmsx.errors import ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.core.actions import Outbox
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.requests import Request, Requests
    from jmsx.core.sight import Sight


class _Browsing:
    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.ended = False


class Browsings:
    """
    The browser subscriptions of a session.

    Source: the end of a queue is a MESSAGE with `browser:end` (classic.md 2.5, StompQueueBrowserSubscription).
    """

    def __init__(self, dialect: Dialect, requests: Requests, outbox: Outbox, sight: Sight) -> None:
        self._dialect = dialect
        self._sight = sight
        self._requests = requests
        self._outbox = outbox
        self._open: dict[str, _Browsing] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, subscription_id: str, destination: str, headers: Mapping[str, str]) -> Request:
        """Begin to look; `headers` are the dialect's for SUBSCRIBE."""
        request = self._requests.open("SUBSCRIBE", destination)
        self._open[subscription_id] = _Browsing()
        confirmed = self._dialect.confirms_subscribe(destination)
        wanted = self._dialect.untranslated(headers) if self._sight.doubted else headers
        named = {"id": subscription_id, **wanted}
        self._outbox.transmit(*subscribing(named, request, confirmed=confirmed))
        return request

    def accept(self, subscription_id: str, deliveries: list[Delivery]) -> None:
        """Take what the broker shows; what is for no open browser is let go."""
        browsing = self._open.get(subscription_id)
        if browsing is None:
            return
        for delivery in deliveries:
            if delivery.headers.get("browser") == "end":
                browsing.ended = True
            else:
                browsing.waiting.append(delivery)

    def look(self, subscription_id: str) -> tuple[Delivery | None, bool]:
        """
        The next message, if it is here; and, if not, whether there will be no more.

        Raises ConnectionFailedError if the link was lost since it was opened.
        """
        browsing = self._open.get(subscription_id)
        if browsing is None:
            raise ConnectionFailedError("the connection was lost while the queue was browsed")
        if browsing.waiting:
            return browsing.waiting.popleft(), False
        return None, browsing.ended

    def close(
        self, subscription_id: str, destination: str, taken: Delivery | None = None
    ) -> Request:
        """
        Look no more; `taken` is acknowledged first, where the subscription is no browser's but takes what it is shown.

        With `ack:auto` Artemis acknowledges on its own, and if UNSUBSCRIBE is quicker it fails the next ACK of the
        session, whosever it is. Source: `StompSession.sendMessage`, `ServerSessionImpl.findConsumer` (2.44.0).
        """
        if self._open.pop(subscription_id, None) is None:  # the link was lost, and with it this
            return answered("UNSUBSCRIBE", destination)
        request = self._requests.open("UNSUBSCRIBE", destination)
        acks = [] if taken is None else [Frame("ACK", {"id": taken.ack_id})]
        headers = {"id": subscription_id, "receipt": request.receipt_id}
        self._outbox.transmit(*acks, Frame("UNSUBSCRIBE", headers))
        return request

    def clear(self) -> None:
        """The link is gone."""
        self._open.clear()
