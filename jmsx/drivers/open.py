"""Open a session's link: try the brokers in turn, and pick the dialect by the broker's own word for itself."""

from __future__ import annotations

import queue
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jmsx import plugins
from jmsx.core.events import Source
from jmsx.core.session import SessionCore
from jmsx.core.values import AcknowledgeMode, SessionSettings
from jmsx.drivers.link import Inbox, StompLink
from jmsx.drivers.pump import Pump
from jmsx.errors import ConfigurationError, ConnectionFailedError, JmsxError

if TYPE_CHECKING:
    from jmsx.clock import Clock
    from jmsx.core.dialect import Dialect
    from jmsx.core.frames import Frame
    from jmsx.observe import Observers
    from jmsx.uri import BrokerUri


@dataclass(frozen=True, slots=True)
class Connected:
    """A link that has just said CONNECTED."""

    link: StompLink
    frame: Frame
    dialect: Dialect
    seconds: float  #: how long that took


def connect(uri: BrokerUri, client_id: str | None, inbox: Inbox, clock: Clock) -> Connected:
    """
    Connect to the first broker of `uri` that lets us in.

    Raises ConnectionFailedError, BrokerTimeoutError, SecurityError, InvalidClientIdError or ConfigurationError.
    """
    began = clock.monotonic()
    link, frame = _first(uri, client_id, inbox)
    try:
        dialect = find_dialect(frame, uri.options.dialect, str(link.address))
    except JmsxError:
        link.drop()
        raise
    return Connected(link, frame, dialect, clock.monotonic() - began)


class OpenLink:
    """A link that is kept alive until a session takes it."""

    def __init__(
        self, uri: BrokerUri, client_id: str | None, clock: Clock, observers: Observers
    ) -> None:
        inbox: Inbox = queue.SimpleQueue()
        self._connected = connect(uri, client_id, inbox, clock)
        self.client_id = client_id
        self.broker = str(self._connected.link.address)
        self.dialect = self._connected.dialect
        idle = SessionSettings(
            mode=AcknowledgeMode.AUTO_ACKNOWLEDGE, broker=self.broker, session_id="idle"
        )
        self.pump = Pump(
            SessionCore(idle, self.dialect, _draw),
            self._connected.link,
            inbox,
            clock=clock,
            observers=observers,
            source=Source(self.broker, self.dialect.name, "", "idle", 1),
            request_timeout=uri.options.request_timeout,
        )
        self.pump.start(self._connected.frame, uri.options.heartbeat)

    def attach(self, settings: SessionSettings, connection_id: str) -> Pump:
        """Give the link to a session."""
        core = SessionCore(replace(settings, broker=self.broker), self.dialect, _draw)
        source = Source(self.broker, self.dialect.name, connection_id, settings.session_id, 1)
        server = self._connected.frame.headers.get("server", "")
        self.pump.adopt(core, source, server, self._connected.seconds)
        return self.pump


def find_dialect(connected: Frame, name: str | None, broker: str) -> Dialect:
    """The dialect called `name`, or the one that knows CONNECTED's server; raises ConfigurationError."""
    server = connected.headers.get("server", "")
    known = plugins.names("jmsx.dialects")
    for candidate in [name] if name is not None else known:
        dialect: Dialect = plugins.load("jmsx.dialects", candidate)
        if name is not None or dialect.speaks(server):
            return dialect
    raise ConfigurationError(
        f"{broker} calls itself {server!r}, which no dialect knows ({', '.join(known)});"
        " name one with the option dialect= if you are sure"
    )


def _draw() -> float:
    return random.uniform(-1.0, 1.0)  # noqa: S311 - collision avoidance is no secret


def _first(
    uri: BrokerUri,
    client_id: str | None,
    inbox: Inbox,
) -> tuple[StompLink, Frame]:
    """The first broker that lets us in; the error tells of every one that did not."""
    addresses = list(uri.addresses)
    if uri.options.reconnect is not None and uri.options.reconnect.randomize:
        random.shuffle(addresses)
    failures: list[JmsxError] = []
    for address in addresses:
        link = StompLink(address, uri.options, inbox)
        try:
            return link, link.open(client_id)
        except JmsxError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    raise ConnectionFailedError("; ".join(str(failure) for failure in failures))
