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
    "-XX:-UsePerfData",  # leaves a file in the temp folder when killed
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
    """One kind of broker with all its options but where it listens. Paths are relative to its working folder."""

    @property
    def product(self) -> Product:
        """Which broker it is, in which version."""

    @property
    def users(self) -> Mapping[str, str]:
        """Passwords by name; whoever is none of them is refused, and without any everybody is welcome."""

    @property
    def main(self) -> tuple[str, ...]:
        """Options and main class of its Java, and the arguments of that."""

    @property
    def up(self) -> tuple[str, ...]:
        """What its log says when its connectors listen."""

    def files(self, listeners: Listeners) -> dict[str, str]:
        """Return its configuration: what it wants in its working folder, texts by path."""
