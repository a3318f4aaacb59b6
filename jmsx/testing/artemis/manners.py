"""The habits of ActiveMQ Artemis, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from jmsx.testing.artemis.house import ArtemisHouse
from jmsx.testing.artemis.settings import AddressSettings, Loss
from jmsx.testing.house import Manners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.testing.fake_broker import FakeBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisManners(Manners):
    """
    The habits of ActiveMQ Artemis, with the numbers of a broker made by `artemis create`.

    Source: artemis-server and artemis-stomp-protocol 2.44.0 and a live broker; jmsx_artemis/BROKER.md.
    """

    server: str = "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"
    window: int = (
        10 * 1024
    )  #: bytes that a consumer may have in flight, if its SUBSCRIBE does not say
    connection_ttl: float = (
        60.0  #: seconds without a byte that a client without heart-beats survives
    )
    expiry_period: float = 30.0  #: seconds between two looks for expired messages
    loss: Loss = Loss.ALL
    settings: AddressSettings = field(default_factory=AddressSettings)
    #: For the addresses that match: a name, or `prefix.#`. The longest match is the only one that counts.
    settings_of: Mapping[str, AddressSettings] = field(default_factory=dict)

    def house(self, broker: FakeBroker) -> ArtemisHouse:
        """A new broker of this kind with its dead letter and expiry queues."""
        return ArtemisHouse(broker, self)

    def match(self, address: str) -> AddressSettings:
        """The settings of `address`."""
        fitting = [name for name in self.settings_of if _fits(name, address)]
        return self.settings_of[max(fitting, key=len)] if fitting else self.settings


def _fits(name: str, address: str) -> bool:
    prefix = name.removesuffix("#")
    return name == address or (prefix != name and f"{address}.".startswith(prefix))


#: ActiveMQ Artemis 2.44.0.
ARTEMIS: Final = ArtemisManners()
