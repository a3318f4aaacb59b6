"""The queue browser: an iterator over what lies in a queue."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.errors import IllegalStateError, LinkError
from jmsx.jms.destination import Destination
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.subscribing import stated
from jmsx.jms.translation import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Iterator


class QueueBrowser:
    """
    Shows what lies in a queue, and takes nothing; made by `Session.create_browser`.

    Iterate over it for the messages; each iteration looks anew, from the head of the queue.

    The broker shows what fits into its memory; messages that are at a consumer are shown too. What has expired is not,
    although the broker shows it until it looks for it; so in Java (`JmsQueueBrowserExpirationTest`).
    """

    def __init__(self, link: SessionLink, queue: Destination, selector: str | None) -> None:
        self.queue = queue
        self._link = link
        self._selector = stated(selector)
        self._open: set[str] = set()  #: subscriptions of iterations that go on
        self._closed = False

    def __iter__(self) -> Iterator[Message]:
        link, calls = self._link, self._link.calls
        link.check_open()
        if self._closed:
            raise IllegalStateError(f"The Browser of {self.queue} is closed; create another one")
        name = link.next_subscription_id()
        headers = link.dialect.writing.browse_headers(
            destination=self.queue.uri,
            prefetch=link.options.prefetch_policy.queue_browser,
            selector=self._selector,
        )
        uri = self.queue.uri
        calls.ask(
            f"SUBSCRIBE {uri}",
            lambda core, _now: core.browsers.open(name, uri, headers),
            repeat=True,
        )
        self._open.add(name)
        try:
            yield from self._messages(name)
        finally:
            self._end(name)

    def _messages(self, name: str) -> Iterator[Message]:
        link = self._link
        while name in self._open and (delivery := link.calls.look(name)) is not None:
            message = _shown(delivery, link.dialect)
            if not 0 < message.expiration <= link.machine.wall():
                yield message

    def close(self) -> None:
        """End the iterations that go on, and give the broker its messages back; idempotent. No further one begins."""
        self._closed = True
        for name in list(self._open):
            self._end(name)

    def _end(self, name: str) -> None:
        if name not in self._open:
            return
        self._open.discard(name)
        link, uri = self._link, self.queue.uri
        if link.engine.error is None and not link.closed:
            with contextlib.suppress(LinkError):  # with its link it has ended, too
                link.calls.finish(lambda core, _now: core.browsers.close(name, uri))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shown(delivery: Delivery, dialect: Dialect) -> Message:
    """Return the message as it is shown: one that cannot be understood, without the headers that may be the cause."""
    try:
        return ReceivedMessage(delivery, dialect)
    except Exception as error:  # noqa: BLE001 - one message must not end the browsing
        delivery.mark_undecodable(error)
        return ReceivedMessage(delivery, dialect)
