"""The queue browser: an iterator over what lies in a queue."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Self

from jmsx.core.browsers import lost
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.errors import IllegalStateError, LinkError, ProtocolError
from jmsx.jms.destination import Destination
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.subscribing import stated
from jmsx.jms.translation import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping


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
        link = self._link
        link.check_open()
        if self._closed:
            raise IllegalStateError(f"The Browser of {self.queue} is closed; create another one")
        headers = link.dialect.writing.browse_headers(
            destination=self.queue.uri,
            prefetch=link.options.prefetch_policy.queue_browser,
            selector=self._selector,
        )
        # A broker that translates writes into what others are just being sent: it is asked to when a body is missing
        plain = link.dialect.untranslated(headers)
        seen = _Seen()
        if not (yield from self._look(plain, seen, bodiless=plain == headers)):
            yield from self._look(headers, seen, bodiless=True)

    def _look(
        self, headers: Mapping[str, str], seen: _Seen, *, bodiless: bool
    ) -> Generator[Message, None, bool]:
        """
        Begin to browse, yield what `_messages` yields, and end it; returns what that returns.

        Raises ConnectionFailedError on another link than that of what was `seen`.
        """
        link, uri = self._link, self.queue.uri
        name = link.next_subscription_id()
        link.calls.ask(
            f"SUBSCRIBE {uri}",
            lambda core, _now: core.browsers.open(name, uri, headers),
            repeat=True,
        )
        self._open.add(name)
        if self._closed:  # meanwhile
            self._end(name)
        try:
            epoch = link.engine.core.epoch
            if seen.on_epoch not in (None, epoch):
                raise lost()
            seen.on_epoch = epoch
            return (yield from self._messages(name, seen, bodiless=bodiless))
        finally:
            self._end(name)

    def _messages(
        self, name: str, seen: _Seen, *, bodiless: bool
    ) -> Generator[Message, None, bool]:
        """
        Yield what is shown beside what was `seen`, by its ids; return whether that is all.

        Else it ends before the first without a body, unless it shows these, too, and has added to what was `seen`.
        """
        link, known = self._link, seen.ids.copy()
        while name in self._open and (delivery := link.calls.look(name)) is not None:
            if known[delivery.message_id]:
                known[delivery.message_id] -= 1
                continue
            if not bodiless:
                if not _carries(delivery, link.dialect):
                    return False
                seen.ids[delivery.message_id] += 1
            message = _shown(delivery, link.dialect)
            if not 0 < message.expiration <= link.machine.wall():
                yield message
        return True

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


class _Seen:
    """What one iteration was shown before it looked again."""

    def __init__(self) -> None:
        self.ids = Counter[str]()
        self.on_epoch: int | None = None  #: of the link on which it looks; None: it has not yet


def _carries(delivery: Delivery, dialect: Dialect) -> bool:
    """Return whether the message has come with its body, as far as can be told."""
    try:
        return dialect.reading.carries(delivery.headers, delivery.frame.body)
    except ProtocolError:  # of its headers: no translation helps
        return True


def _shown(delivery: Delivery, dialect: Dialect) -> Message:
    """Return the message as it is shown: one that cannot be understood, without the headers that may be the cause."""
    try:
        return ReceivedMessage(delivery, dialect)
    except Exception as error:  # noqa: BLE001 - one message must not end the browsing
        delivery.mark_undecodable(error)
        return ReceivedMessage(delivery, dialect)
