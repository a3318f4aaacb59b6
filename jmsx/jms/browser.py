"""The queue browser: an iterator over what lies in a queue."""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from jmsx.core.browsers import lost
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.translating import beyond, until_bodiless
from jmsx.errors import IllegalStateError, LinkError
from jmsx.jms.destination import Destination
from jmsx.jms.link import SessionLink
from jmsx.jms.message import Message
from jmsx.jms.subscribing import stated
from jmsx.jms.translation import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping


class QueueBrowser:
    """
    Shows what lies in a queue, and takes nothing; made by `Session.create_browser`.

    Iterate over it for the messages; each iteration looks anew, from the head of the queue.

    The broker shows only as many messages as fit into its memory, and also those that it has already sent to a
    consumer. Expired messages are left out, as in Java (`JmsQueueBrowserExpirationTest`), although the broker shows
    them until it removes them.
    """

    def __init__(self, link: SessionLink, queue: Destination, selector: str | None) -> None:
        self.queue = queue
        self._link = link
        self._selector = stated(selector)
        self._open: set[str] = set()  #: subscription ids of running iterations
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
        with closing(self._shown(headers)) as shown:
            yield from self._unexpired(shown)

    def _shown(self, headers: Mapping[str, str]) -> Generator[Delivery, None, None]:
        """Yield what the broker shows, translated from the first message on that came without its body."""
        dialect = self._link.dialect
        plain = dialect.untranslated(headers)
        seen, epochs = Counter[str](), set[int]()
        if plain != headers:
            with closing(self._look(plain, epochs)) as shown:
                if (yield from until_bodiless(shown, seen, dialect, partial(_lacks_body, dialect))):
                    return
        with closing(self._look(headers, epochs)) as shown:
            yield from beyond(seen, shown, dialect)

    def _look(
        self, headers: Mapping[str, str], epochs: set[int]
    ) -> Generator[Delivery, None, None]:
        """
        Begin to browse, yield what is shown, and end it.

        Raises ConnectionFailedError on another link than that of the `epochs`, which get its own.
        """
        link, uri = self._link, self.queue.uri
        name = link.next_subscription_id()
        link.calls.ask(
            f"SUBSCRIBE {uri}",
            lambda core, _now: core.browsers.open(name, uri, headers),
            repeat=True,
        )
        self._open.add(name)
        if self._closed:  # by another thread, in the meantime
            self._end(name)
        try:
            epochs.add(link.engine.core.epoch)
            if len(epochs) > 1:
                raise lost(link.broker, uri)
            yield from self._deliveries(name, uri)
        finally:
            self._end(name)

    def _deliveries(self, name: str, uri: str) -> Iterator[Delivery]:
        look = self._link.calls.look
        while name in self._open and (delivery := look(name, uri)) is not None:
            yield delivery

    def _unexpired(self, shown: Iterable[Delivery]) -> Iterator[Message]:
        link = self._link
        for delivery in shown:
            message = _message(delivery, link.dialect)
            if not 0 < message.expiration <= link.machine.wall():
                yield message

    def close(self) -> None:
        """End all iterations; a new one then raises IllegalStateError. Idempotent."""
        self._closed = True
        for name in list(self._open):
            self._end(name)

    def _end(self, name: str) -> None:
        if name not in self._open:
            return
        self._open.discard(name)
        link, uri = self._link, self.queue.uri
        if link.engine.error is None and not link.closed:
            with suppress(LinkError):  # a lost link has ended the subscription, too
                link.calls.finish(lambda core, _now: core.browsers.close(name, uri))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lacks_body(dialect: Dialect, delivery: Delivery) -> bool:
    return not dialect.reading.carries(delivery.headers, delivery.frame.body)


def _message(delivery: Delivery, dialect: Dialect) -> Message:
    """Return the message as it is shown: one that cannot be understood, without the headers that may be the cause."""
    try:
        return ReceivedMessage(delivery, dialect)
    except Exception as error:  # noqa: BLE001 - one message must not end the browsing
        delivery.mark_undecodable(error)
        return ReceivedMessage(delivery, dialect)
