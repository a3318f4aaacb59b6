"""
A real broker for development and tests: ActiveMQ Classic or Artemis as a process, in a container, or already running.

Names are loaded when first used: the pytest plugin of this package is imported in every test run of everyone who has
jmsx installed, and must cost them nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.plugins import on_demand as _on_demand

if TYPE_CHECKING:
    from jmsx_broker.artemis import ArtemisBroker
    from jmsx_broker.broker import Broker, ExternalBroker
    from jmsx_broker.certificates import Certificates, TlsOptions
    from jmsx_broker.classic import ClassicBroker
    from jmsx_broker.container import ArtemisContainer, ClassicContainer
    from jmsx_broker.statistics import BrowsedMessage, QueueStatistics

__all__ = [
    "ArtemisBroker",
    "ArtemisContainer",
    "Broker",
    "BrowsedMessage",
    "Certificates",
    "ClassicBroker",
    "ClassicContainer",
    "ExternalBroker",
    "QueueStatistics",
    "TlsOptions",
]

_HOMES: Final = {
    "ArtemisBroker": "jmsx_broker.artemis",
    "ArtemisContainer": "jmsx_broker.container",
    "BrowsedMessage": "jmsx_broker.statistics",
    "Broker": "jmsx_broker.broker",
    "Certificates": "jmsx_broker.certificates",
    "ClassicBroker": "jmsx_broker.classic",
    "ClassicContainer": "jmsx_broker.container",
    "ExternalBroker": "jmsx_broker.broker",
    "QueueStatistics": "jmsx_broker.statistics",
    "TlsOptions": "jmsx_broker.certificates",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = _on_demand(__name__, _HOMES)
