"""Open a session's first link, and hand it over to the session with the engine that drives it."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from jmsx.config.uri import BrokerAddress
from jmsx.core.events import Source
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.session import SessionCore
from jmsx.core.values import SessionSettings
from jmsx.drivers.calls import Calls
from jmsx.drivers.engine import Engine
from jmsx.drivers.machine import Machine
from jmsx.drivers.reconnect import Connector, failed
from jmsx.errors import JmsxError
from jmsx.observe import Observers

if TYPE_CHECKING:
    from collections.abc import Callable


class OpenedLink:
    """
    A link that is kept alive from `open` until a session takes it.

    In a `with` block, it is closed if the block raises, be it for Ctrl-C: nobody else could.
    """

    engine: Engine  #: once it is open
    calls: Calls  #: once it is open

    def __init__(self, connector: Connector, machine: Machine, observers: Observers) -> None:
        self.connector = connector
        self._machine = machine
        self._observers = observers
        self._close: Callable[[], None] = connector.abandon  #: closes what `open` has opened

    def open(self, *, patient: bool) -> None:
        """Open the link; raises what `Connector.first` does."""
        source = Source("", "", "", "idle", 0)  # the broker is another one with each attempt
        connector, machine, observers = self.connector, self._machine, self._observers

        # It is kept for longer than a link lives, and so refers to none.
        def tell(address: BrokerAddress, error: JmsxError) -> None:
            observers.observe(
                failed(error, machine.monotonic()), replace(source, broker=str(address))
            )

        connector.on_failure = tell
        self._connected = connector.first(patient=patient)
        self.client_id = connector.client_id
        self.dialect = self._connected.dialect
        broker = str(self._connected.link.address)
        idle = SessionSettings(
            mode=AcknowledgeMode.AUTO_ACKNOWLEDGE, broker=broker, session_id="idle"
        )
        self.engine = Engine(
            SessionCore(idle, self.dialect, _draw, ProcessMemory()),
            self._connected,
            connector,
            machine=self._machine,
            observers=self._observers,
            source=Source(broker, self.dialect.name, "", "idle", 1),
        )
        self._close = partial(self.engine.end, "not needed")
        self.calls = Calls(self.engine)
        self.engine.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.end()

    def end(self) -> None:
        """Close the link because nobody takes it, also where `open` was interrupted."""
        self._close()

    @property
    def broker(self) -> str:
        """The address of the broker that it leads to."""
        return self.engine.source.broker

    def attach(self, settings: SessionSettings, connection_id: str, memory: ProcessMemory) -> Calls:
        """Give the link to a session, which shares `memory` with others."""
        settings = replace(settings, broker=self.broker)
        core = SessionCore(settings, self.dialect, _draw, memory)
        source = Source(self.broker, self.dialect.name, connection_id, settings.session_id, 1)
        self.engine.adopt(core, source, self._connected.server, self._connected.seconds)
        return self.calls


def _draw() -> float:
    return random.uniform(-1.0, 1.0)  # noqa: S311 - collision avoidance is no secret
