"""
Looks up the body of a message that came without it, by a queue browser on a link of its own.

A browser sees messages that a consumer has, too. The broker shows it a MapMessage as text. At an ObjectMessage whose
class it does not trust it closes the connection without a word, which does no harm here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, MessageFrame, escape
from jmsx.core.headers import UNREADABLE_HEADER
from jmsx.core.translating import is_same, one_message, queue_of
from jmsx.core.values import ConsumerSettings
from jmsx.drivers.machine import Machine
from jmsx.drivers.request_link import RequestLink, bounded
from jmsx.errors import InvalidDestinationError, InvalidSelectorError, JmsxError, LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Connections that the broker closes at one message before that is known to be the reason.
SURE: Final = 2

#: Messages that a browser of a queue is sent ahead.
BROWSED: Final = 500

#: The id of the browser's subscription.
_NAME: Final = "look"


class BodyLookup:
    """Looks at single messages for one session, each time on a link of its own."""

    def __init__(self, dialect: Dialect, options: ConnectionOptions, machine: Machine) -> None:
        self._dialect = dialect
        self._options = bounded(options)
        self._machine = machine

    def look(self, delivery: Delivery, address: BrokerAddress) -> MessageFrame | None:
        """
        Return the frame of `delivery` as the broker shows it to a browser; None if that has nothing more.

        Raises JmsxError if the broker cannot be asked.
        """
        shown = None
        for _ in range(SURE):
            link = RequestLink(address, self._options, self._dialect, self._machine)
            try:
                link.connect()
                shown = self._shown(link, delivery)
            except _ClosedError:
                continue
            except (InvalidDestinationError, InvalidSelectorError):  # the sender's headers are odd
                return None
            finally:
                link.drop()
            break
        if shown is None or not is_same(shown, delivery.frame, self._dialect):
            return None
        if not (shown.body or self._dialect.reading.carries(shown.headers, b"")):
            return None
        return _merged(delivery.frame, shown, self._dialect.translation_header or "")

    def ends_links(self, settings: ConsumerSettings, address: BrokerAddress) -> bool:
        """
        Return whether the broker closes a connection because it translates what a consumer with these settings reads.

        What it was about to send is still paged in, so a browser is shown that, too, and its connection is closed. A
        second browser, which asks for no translation, must be shown all of it; else the broker closes connections for
        another reason. False if it cannot be asked.
        """
        headers = self._dialect.writing.browse_headers(
            destination=settings.destination, prefetch=BROWSED, selector=None
        )
        if "selector" in settings.headers:
            headers["selector"] = settings.headers["selector"]
        try:
            return not self._shows_all(headers, settings.destination, address) and self._shows_all(
                self._dialect.untranslated(headers), settings.destination, address
            )
        except JmsxError:
            return False

    def _shows_all(
        self, headers: Mapping[str, str], destination: str, address: BrokerAddress
    ) -> bool:
        """Return whether a browser comes to its end; False if the broker closes the connection before."""
        link = RequestLink(address, self._options, self._dialect, self._machine)
        try:
            link.connect()
            link.send(Frame("SUBSCRIBE", {"id": _NAME, **headers}))
            return self._ends(link, destination)
        finally:
            link.drop()

    def _ends(self, link: RequestLink, destination: str) -> bool:
        try:
            while not self._dialect.ends_browsing(
                link.shown(_NAME, "SUBSCRIBE", destination).headers
            ):
                pass
        except LinkError:
            return False
        return True

    def _shown(self, link: RequestLink, delivery: Delivery) -> MessageFrame | None:
        destination = queue_of(delivery, self._dialect)
        headers = self._dialect.writing.browse_headers(
            destination=destination, prefetch=1, selector=one_message(delivery.message_id)
        )
        link.send(Frame("SUBSCRIBE", {"id": _NAME, **headers}))
        try:
            shown = link.shown(_NAME, "SUBSCRIBE", destination)
        except LinkError as error:
            raise _ClosedError from error
        link.send(Frame("DISCONNECT", {}))
        return None if self._dialect.ends_browsing(shown.headers) else shown


class _ClosedError(Exception):
    """The broker closed the connection at the message."""


def _merged(frame: MessageFrame, shown: MessageFrame, header: str) -> MessageFrame:
    """Return `frame` with the body that was shown, and with the headers that tell how to read that."""
    anew = [header] if UNREADABLE_HEADER in shown.headers else [header, UNREADABLE_HEADER]
    left = tuple(f"{name}:".encode() for name in anew)
    kept = [line for line in frame.block.split(b"\n") if not line.startswith(left)]
    told = shown.headers.get(header)
    if told is not None:
        kept.append(f"{header}:{escape(told)}".encode())
    return MessageFrame(b"\n".join(kept), shown.body)
