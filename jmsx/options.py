"""The options of a connection, with the Java client's defaults; all times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jmsx.core.policy import RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.core.values import DeadLetterStrategy, DestinationKind, OptimizeAcknowledge
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from os import PathLike

    from jmsx.core.ledger import Ledger
    from jmsx.core.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchPolicy:
    """
    How many unacknowledged messages the broker sends ahead, by what is consumed.

    Source: `ActiveMQPrefetchPolicy.java:33-38`. Raises ConfigurationError on a negative number.
    """

    queue: int = 1000
    queue_browser: int = 500
    topic: int = 32767
    durable_topic: int = 100

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ConfigurationError(
                    f"prefetch of {name} must be 0 or more, not {getattr(self, name)}"
                )

    @classmethod
    def all(cls, prefetch: int) -> PrefetchPolicy:
        """The same prefetch for everything."""
        return cls(queue=prefetch, queue_browser=prefetch, topic=prefetch, durable_topic=prefetch)

    def prefetch(self, kind: DestinationKind) -> int:
        """The prefetch for a kind of destination, in messages."""
        if kind is DestinationKind.QUEUE:
            return self.queue
        return self.topic if kind is DestinationKind.TOPIC else self.durable_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """Which broker of several to try, and when to try again; as Java's failover transport names it."""

    randomize: bool = True
    initial_delay: float = 0.01
    maximum_delay: float = 30.0
    use_exponential_back_off: bool = True
    back_off_multiplier: float = 2.0
    maximum_attempts: int = -1  #: -1: for ever
    timeout: float = -1.0  #: a send waits this long for a connection; -1: for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """All that can be chosen for a connection."""

    client_id: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    prefetch_policy: PrefetchPolicy = field(default_factory=PrefetchPolicy)
    redelivery_policy: Policy = field(default_factory=RedeliveryPolicy)
    redelivery_policies: RedeliveryPolicyMap | None = None  #: wins over redelivery_policy
    optimize_acknowledge: bool = False  #: AUTO only
    optimize_acknowledge_timeout: float = 0.3  #: 0: off
    optimized_ack_scheduled_ack_interval: float = 0.0  #: 0: off
    non_blocking_redelivery: bool = False
    transacted_individual_ack: bool = False
    use_async_send: bool = False  #: persistent messages are sent without waiting for the receipt
    dead_letter: str = DeadLetterStrategy.SAFE  #: a strategy, or a destination URI for copies
    ledger: Ledger | str | PathLike[str] | None = None  #: counts deliveries beyond this process
    dialect: str | None = None  #: only where the broker's own word for itself is not enough
    heartbeat: tuple[float, float] = (10.0, 10.0)  #: (send every, expect every); 0: never
    connect_timeout: float = 10.0
    request_timeout: float = 30.0  #: for every answer of the broker
    reconnect: ReconnectPolicy | None = None  #: None: a lost connection stays lost

    def policy(self, destination: str) -> Policy:
        """The redelivery policy for a destination URI."""
        if self.redelivery_policies is None:
            return self.redelivery_policy
        return self.redelivery_policies.policy(destination)

    def optimize(self) -> OptimizeAcknowledge | None:
        """How AUTO acknowledgements are batched, if at all."""
        if not self.optimize_acknowledge:
            return None
        return OptimizeAcknowledge(
            timeout=self.optimize_acknowledge_timeout,
            scheduled_interval=self.optimized_ack_scheduled_ack_interval,
        )
