"""
When a failed message is delivered again, and when no more.

Source: `RedeliveryPolicy.java:35-123` and `ActiveMQMessageConsumer.java:1301-1307` of ActiveMQ 6.3.1; the map is
`RedeliveryPolicyMap.java:38-44`. Delays are whole milliseconds there, so every step truncates to one here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: `maximum_redeliveries` that never gives up.
UNLIMITED: Final = -1

#: The longest delay, in milliseconds: what a Java long can hold.
_LONGEST_MS: Final = 2**63 - 1


def no_jitter() -> float:
    """No collision avoidance: the middle of the range."""
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """
    ActiveMQ's redelivery policy, with its defaults; all times in seconds.

    Raises ConfigurationError when a field is out of range.
    """

    maximum_redeliveries: int = 6  #: redeliveries after the first delivery; -1: for ever
    initial_redelivery_delay: float = 1.0  #: before the first redelivery
    redelivery_delay: float = 1.0  #: before each further one, unless it backs off exponentially
    back_off_multiplier: float = 5.0
    use_exponential_back_off: bool = False
    maximum_redelivery_delay: float | None = None  #: cap of the exponential back-off
    collision_avoidance_factor: float = 0.15  #: 0.15 means plus or minus 15 %
    use_collision_avoidance: bool = False
    pre_dispatch_check: bool = (
        True  #: transacted sessions: over the limit on arrival is a dead letter
    )

    def __post_init__(self) -> None:
        if self.maximum_redeliveries < UNLIMITED:
            raise ConfigurationError(
                f"maximum_redeliveries must be -1 (for ever) or more, not {self.maximum_redeliveries}"
            )
        if self.initial_redelivery_delay < 0:
            raise ConfigurationError(
                f"initial_redelivery_delay must not be negative: {self.initial_redelivery_delay}"
            )
        if not 0 <= self.collision_avoidance_factor <= 1:
            raise ConfigurationError(
                f"collision_avoidance_factor must be in 0..1: {self.collision_avoidance_factor}"
            )

    def exhausted(self, redelivery_count: int) -> bool:
        """Whether a message that failed for the `redelivery_count`-th time (from 1) is a dead letter."""
        return (
            self.maximum_redeliveries != UNLIMITED and redelivery_count > self.maximum_redeliveries
        )

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """
        Seconds to wait before redelivery number `redelivery`, counted from 1.

        `draw` gives the next random number in [-1, 1] for collision avoidance, which is applied after the cap and
        compounds from redelivery to redelivery.
        """
        delay_ms = _ms(self.initial_redelivery_delay)
        if redelivery > 1 and not self._compounds():
            return self._next_ms(delay_ms, draw) / 1000
        for _ in range(redelivery - 1):
            delay_ms = self._next_ms(delay_ms, draw)
        return delay_ms / 1000

    def _compounds(self) -> bool:
        return self.use_exponential_back_off and self.back_off_multiplier > 1

    def _next_ms(self, previous_ms: int, draw: Callable[[], float]) -> int:
        floor_ms = _ms(self.redelivery_delay)
        delay_ms = floor_ms
        if previous_ms > 0 and self._compounds():
            delay_ms = int(min(previous_ms * self.back_off_multiplier, _LONGEST_MS))
            if self.maximum_redelivery_delay is not None:
                cap_ms = _ms(self.maximum_redelivery_delay)
                if delay_ms > cap_ms:
                    delay_ms = max(cap_ms, floor_ms)
        if self.use_collision_avoidance:
            delay_ms = int(delay_ms + delay_ms * self.collision_avoidance_factor * draw())
        return delay_ms


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class RedeliveryPolicyMap:
    """
    Policies by destination, such as `{"queue://orders.>": policy}`, and one for all others.

    Patterns are ActiveMQ's: `.` parts names, `*` is one part, `>` is all that follows. A key without `queue://` or
    `topic://` is a queue. The most specific pattern wins: read from the left, a name before `*` before `>`.
    """

    default: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    entries: Mapping[str, RedeliveryPolicy] = field(default_factory=dict)

    def policy(self, destination: str) -> RedeliveryPolicy:
        """The policy for `destination`, such as `queue://orders.eu`."""
        kind, parts = _parted(destination)
        best: tuple[tuple[int, ...], RedeliveryPolicy] | None = None
        for pattern, policy in self.entries.items():
            pattern_kind, pattern_parts = _parted(pattern)
            if pattern_kind == kind and matches(pattern_parts, parts):
                rank = (*({">": 0, "*": 1}.get(part, 2) for part in pattern_parts), 3)
                if best is None or rank > best[0]:
                    best = (rank, policy)
        return self.default if best is None else best[1]


def matches(pattern: list[str], parts: list[str]) -> bool:
    """Whether a parted destination name fits a parted ActiveMQ wildcard pattern."""
    for index, wanted in enumerate(pattern):
        if wanted == ">":
            return True
        if index >= len(parts) or wanted not in ("*", parts[index]):
            return False
    return len(pattern) == len(parts)


def _parted(destination: str) -> tuple[str, list[str]]:
    kind, separator, name = destination.partition("://")
    if not separator:
        kind, name = "queue", destination
    return kind, name.partition("?")[0].split(".")
