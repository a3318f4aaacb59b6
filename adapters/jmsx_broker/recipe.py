"""How a kind of broker is started, wherever it runs: what it is made of, its configuration, its Java's command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from jmsx_broker.certificates import TlsConnector
from jmsx_broker.products import Product

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Options of the Java machine. The heap holds the 256 MB of messages that the configurations allow.
JAVA_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",  # these two halve the processor time of a broker that lives for seconds or minutes
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # perf data would stay in the temp folder after a kill
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Where a broker listens."""

    host: str  #: the address of all of them
    stomp: int  #: port
    openwire: int  #: port, for Java clients
    tls: TlsConnector | None = None  #: STOMP over TLS


class Recipe(Protocol):
    """One kind of broker with all its options except its ports. Paths are relative to its working folder."""

    @property
    def product(self) -> Product:
        """Which broker it is, in which version."""

    @property
    def users(self) -> Mapping[str, str]:
        """Passwords by user name; others are refused. If it is empty, everybody may connect."""

    @property
    def main(self) -> tuple[str, ...]:
        """The Java command line: options, main class, and its arguments."""

    @property
    def up(self) -> tuple[str, ...]:
        """The log lines that say that all connectors listen."""

    def files(self, listeners: Listeners) -> dict[str, str]:
        """Return the broker's configuration files for its working folder: contents by path."""
