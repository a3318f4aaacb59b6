"""The habits of ActiveMQ Artemis, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from jmsx.testing.artemis.house import ArtemisHouse
from jmsx.testing.artemis.names import Routing
from jmsx.testing.house import Manners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.testing.fake_broker import FakeBroker


class Loss(StrEnum):
    """
    What the death of a socket, or silence for the time to live, does to messages in flight on a link of STOMP 1.2.

    On a real broker two threads race for it, and either may win: OLDEST in about 70 of 100 (seen live on 2.44.0). In
    the older versions it is always ALL.
    """

    ALL = "all"  #: each counts as an attempt and is `redelivered`, and none waits for the redelivery delay
    OLDEST = "oldest"  #: only each subscription's oldest counts, and all wait for the delay: as after DISCONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings:
    """
    What an `<address-setting>` says; the defaults are those of a broker made by `artemis create`.

    Source: artemis.md 2; artemis-server 2.44.0 AddressSettings.
    """

    max_delivery_attempts: int = 10  #: after so many a message is dead; below 1: never
    redelivery_delay: float = 0.0  #: seconds
    redelivery_delay_multiplier: float = 1.0
    max_redelivery_delay: float | None = None  #: seconds; None: ten times the delay
    dead_letter_address: str | None = "DLQ"  #: None: dead messages are dropped
    expiry_address: str | None = "ExpiryQueue"  #: None: expired messages are dropped
    default_routing: Routing = Routing.MULTICAST  #: of an address that is made by its first use

    def delay_ms(self, delivery_count: int) -> int:
        """
        Milliseconds to wait before the next delivery of a message that was given out so many times.

        Source: QueueImpl.calculateRedeliveryDelay; without its collision avoidance, which is chance.
        """
        attempt = max(delivery_count - 1, 0)
        delay = int(self.redelivery_delay * 1000 * self.redelivery_delay_multiplier**attempt)
        longest = self.max_redelivery_delay
        return min(
            delay, round((10 * self.redelivery_delay if longest is None else longest) * 1000)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisManners(Manners):
    """
    The habits of ActiveMQ Artemis, with the numbers of a broker made by `artemis create`.

    Source: artemis.md, probes-artemis-stomppy.md part A (live), artemis-server and artemis-stomp-protocol 2.44.0.
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
