"""What an operator sets on an Artemis broker, and what there is no setting for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jmsx.testing.artemis.names import Routing


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

    Source: artemis-server 2.44.0 AddressSettings.
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
