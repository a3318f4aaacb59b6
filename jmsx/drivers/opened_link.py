"""Open a session's first link, and hand it over to the session with the engine that drives it."""

from __future__ import annotations

import random
from dataclasses import replace

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


class OpenedLink:
    """A link that is kept alive until a session takes it; raises what `Connector.first` does."""

    def __init__(
        self, connector: Connector, machine: Machine, observers: Observers, *, patient: bool
    ) -> None:
        source = Source("", "", "", "idle", 0)  # the broker is another one with each attempt

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
            machine=machine,
            observers=observers,
            source=Source(broker, self.dialect.name, "", "idle", 1),
        )
        self.calls = Calls(self.engine)
        self.engine.start()

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
