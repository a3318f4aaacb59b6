"""
When a failed message is delivered again, and when no more.

Source: `RedeliveryPolicy.java:35-123` and `ActiveMQMessageConsumer.java:1301-1307` of ActiveMQ 6.3.1; the map is
`RedeliveryPolicyMap.java:38-44`. Artemis: `QueueImpl.java:3369-3419,4064-4083` and `AddressSettings.java:54-64,963-992`
of 2.56.0. Delays are whole milliseconds there, so every step truncates to one here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from jmsx.core.destination_names import REST, matches, split_name
from jmsx.core.durations import Default, Seconds, SecondsOrNone, read_durations
from jmsx.core.option_checks import (
    by_name,
    check_flag,
    check_number,
    check_seconds,
    check_whole,
    kind_of,
    offers,
    wrong_type,
)
from jmsx.errors import ConfigurationError, InvalidDestinationError

if TYPE_CHECKING:
    from collections.abc import Callable

#: The limit that means: redeliver for ever.
UNLIMITED: Final = -1

#: The longest delay, in milliseconds: what a Java long can hold.
_LONGEST_MS: Final = 2**63 - 1


def no_jitter() -> float:
    """Draw the middle of the range, which means no collision avoidance."""
    return 0.0


class RedeliveryMode(StrEnum):
    """Who keeps a message until its redelivery."""

    LOCAL = "local"  #: this session, unacknowledged
    SCHEDULED = "scheduled"  #: the broker's scheduler; `local` where it has none, and for topics


class Policy(Protocol):
    """The questions that a consumer asks a redelivery policy, whichever broker's formula it follows."""

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries after the first delivery; -1: for ever."""

    @property
    def pre_dispatch_check(self) -> bool:
        """Whether a message over the limit on arrival is a dead letter: in transacted sessions, and with a ledger."""

    @property
    def mode(self) -> str:
        """Who keeps a message until its redelivery: a RedeliveryMode."""

    @property
    def non_blocking(self) -> bool:
        """Whether later messages are delivered while a failed one waits, whatever the connection's option says."""

    def exhausted(self, redelivery_count: int) -> bool:
        """Return whether a message that failed for the `redelivery_count`-th time (from 1) is a dead letter."""

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """Return seconds to wait before redelivery number `redelivery` (from 1); `draw` returns chance in [-1, 1]."""


def check_policy(name: str, given: object) -> None:
    """Raise ConfigurationError, naming the option `name`, if `given` is no redelivery policy."""
    try:
        if offers(given, Policy, but=("pre_dispatch_check",)):  # optional for the application's own
            return
    except Exception as raised:
        raise ConfigurationError(
            f"{name}: {kind_of(given)} whose settings cannot be read: {type(raised).__name__}: {raised}"
        ) from raised
    hint = ""
    if isinstance(given, int) and not isinstance(given, bool):
        hint = f"; did you mean RedeliveryPolicy(maximum_redeliveries={given})?"
    elif isinstance(given, RedeliveryPolicyMap):
        hint = "; give a map to App(redelivery_policies=...)"
    elif isinstance(given, type):
        hint = f"; write {given.__name__}(...)"
    error = wrong_type(name, "a RedeliveryPolicy", given)
    raise ConfigurationError(f"{error}{hint}")


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """
    ActiveMQ's redelivery policy, with its defaults; delays are seconds, a timedelta, or a text such as "2s".

    Raises ConfigurationError when a field is out of range.

    Args:
        maximum_redeliveries: redeliveries after the first delivery, 6; then it is a dead letter. -1: for ever.
        initial_redelivery_delay: before the first redelivery, 1 s.
        redelivery_delay: before each further one, 1 s, unless it backs off exponentially.
        back_off_multiplier: factor of the delay from each redelivery to the next, 5, if it backs off exponentially.
        use_exponential_back_off: whether the delay grows from redelivery to redelivery; False.
        maximum_redelivery_delay: cap of the exponential back-off; None, or -1: there is none.
        collision_avoidance_factor: the largest random change of a delay; 0.15, the default: by 15 % up or down.
        use_collision_avoidance: whether delays are changed at random; False.
        pre_dispatch_check: whether a message over the limit on arrival is a dead letter at once: in transacted
            sessions, and with a ledger in all; True.
        mode: who keeps a message until its redelivery: `local`, the default, this session; `scheduled` the broker.

    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay: Seconds = Default(1.0)
    redelivery_delay: Seconds = Default(1.0)
    back_off_multiplier: float = 5.0
    use_exponential_back_off: bool = False
    maximum_redelivery_delay: SecondsOrNone = Default(None)
    collision_avoidance_factor: float = 0.15
    use_collision_avoidance: bool = False
    pre_dispatch_check: bool = True
    mode: str = RedeliveryMode.LOCAL

    def __post_init__(self) -> None:
        read_durations(self)
        check_whole("maximum_redeliveries", self.maximum_redeliveries, UNLIMITED)
        check_seconds("initial_redelivery_delay", self.initial_redelivery_delay)
        check_number("redelivery_delay", self.redelivery_delay, -math.inf)
        check_number("back_off_multiplier", self.back_off_multiplier, 0.0)
        for name in ("use_exponential_back_off", "use_collision_avoidance", "pre_dispatch_check"):
            check_flag(name, getattr(self, name))
        if self.maximum_redelivery_delay not in (None, UNLIMITED):
            check_seconds("maximum_redelivery_delay", self.maximum_redelivery_delay)
        _check_factor(self.collision_avoidance_factor)
        _check_mode(self.mode)

    @property
    def non_blocking(self) -> bool:
        """Always False: this policy leaves it to the connection's option."""
        return False

    def exhausted(self, redelivery_count: int) -> bool:
        """Return whether a message that failed for the `redelivery_count`-th time (from 1) is a dead letter."""
        return (
            self.maximum_redeliveries != UNLIMITED and redelivery_count > self.maximum_redeliveries
        )

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """
        Return seconds to wait before redelivery number `redelivery`, counted from 1.

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
            cap = self.maximum_redelivery_delay
            if cap is not None and cap != UNLIMITED and delay_ms > _ms(cap):
                delay_ms = max(_ms(cap), floor_ms)
        if self.use_collision_avoidance:
            delay_ms = int(delay_ms + delay_ms * self.collision_avoidance_factor * draw())
        return delay_ms


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisRedeliveryPolicy:
    """
    Artemis' redelivery policy, with its defaults and formula; delays are seconds, a timedelta, or a text such as "2s".

    Unlike ActiveMQ's it counts deliveries, not redeliveries, has no initial delay of its own, and never blocks: later
    messages go on while a failed one waits. Raises ConfigurationError when a field is out of range.

    Args:
        redelivery_delay: before the first redelivery, 0 s.
        multiplier: factor of the delay from each redelivery to the next, 1.
        collision_avoidance_factor: the largest random change of a delay, such as 0.15: by 15 % up or down; 0.
        max_redelivery_delay: the longest delay; None: ten times redelivery_delay.
        max_delivery_attempts: deliveries in all, 10; then it is a dead letter. -1: for ever.
        mode: who keeps a message until its redelivery: `local`, the default, this session; `scheduled` the broker.

    """

    redelivery_delay: Seconds = Default(0.0)
    multiplier: float = 1.0
    collision_avoidance_factor: float = 0.0
    max_redelivery_delay: SecondsOrNone = Default(None)
    max_delivery_attempts: int = 10
    mode: str = RedeliveryMode.LOCAL

    def __post_init__(self) -> None:
        read_durations(self)
        check_whole("max_delivery_attempts", self.max_delivery_attempts, UNLIMITED)
        check_number("multiplier", self.multiplier, 0.0)
        if self.max_delivery_attempts < 1 and self.max_delivery_attempts != UNLIMITED:
            raise ConfigurationError(
                f"max_delivery_attempts must be -1 (for ever) or 1 or more, not {self.max_delivery_attempts}"
            )
        check_seconds("redelivery_delay", self.redelivery_delay)
        if self.max_redelivery_delay is not None:
            check_seconds("max_redelivery_delay", self.max_redelivery_delay)
        if not 0 < self.multiplier < math.inf:
            raise ConfigurationError(f"multiplier must be more than 0: {self.multiplier}")
        _check_factor(self.collision_avoidance_factor)
        _check_mode(self.mode)

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries after the first delivery; -1: for ever."""
        if self.max_delivery_attempts == UNLIMITED:
            return UNLIMITED
        return self.max_delivery_attempts - 1

    @property
    def pre_dispatch_check(self) -> bool:
        """Always: Artemis dispatches nothing that is over its limit."""
        return True

    @property
    def non_blocking(self) -> bool:
        """Always: Artemis schedules a failed message and goes on with the next one."""
        return True

    def exhausted(self, redelivery_count: int) -> bool:
        """Return whether a message that failed for the `redelivery_count`-th time (from 1) is a dead letter."""
        return (
            self.max_delivery_attempts != UNLIMITED
            and redelivery_count >= self.max_delivery_attempts
        )

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """
        Return seconds to wait before redelivery number `redelivery`, counted from 1.

        `draw` gives the next random number in [-1, 1] for collision avoidance, which is applied before the cap.
        """
        base_ms = _ms(self.redelivery_delay)
        delay_ms = _truncated(base_ms * _power(self.multiplier, max(redelivery - 1, 0)))
        if self.collision_avoidance_factor > 0:
            delay_ms += int(delay_ms * (self.collision_avoidance_factor * draw()))
        cap = self.max_redelivery_delay
        return min(delay_ms, base_ms * 10 if cap is None else _ms(cap)) / 1000


def _check_mode(mode: str) -> None:
    if mode not in tuple(RedeliveryMode):  # a set would have to hash what was given
        raise ConfigurationError(f"mode must be one of {', '.join(RedeliveryMode)}, not {mode!r}")


def _check_factor(factor: float) -> None:
    check_number("collision_avoidance_factor", factor, -math.inf)
    if not 0 <= factor <= 1:
        raise ConfigurationError(f"collision_avoidance_factor must be in 0..1: {factor}")


def _power(base: float, exponent: int) -> float:
    try:
        return float(base) ** exponent
    except OverflowError:
        return math.inf


def _truncated(milliseconds: float) -> int:
    """Return milliseconds as a whole number, as Java's cast to long makes it."""
    return 0 if math.isnan(milliseconds) else int(min(milliseconds, _LONGEST_MS))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class PolicyByError:
    """
    A default policy, and others for failures with certain errors.

    The policy for an error goes along with its failure (`Failure.policy`); all methods of `Policy` are the default's.
    """

    default: Policy
    by_error: Mapping[type[BaseException], Policy]

    def policy(self, error: BaseException) -> Policy:
        """Return the policy for `error`: that of the nearest of its classes, else the default."""
        for each in type(error).__mro__:
            if each in self.by_error:
                return self.by_error[each]
        return self.default

    @property
    def all(self) -> tuple[Policy, ...]:
        """The default policy, and those of single classes of errors."""
        return (self.default, *self.by_error.values())

    def given_up(self, redelivery_count: int) -> bool:
        """Return whether a message that failed so often is a dead letter by each of the policies."""
        return all(policy.exhausted(redelivery_count) for policy in self.all)

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries after the first delivery; -1: for ever."""
        return self.default.maximum_redeliveries

    @property
    def pre_dispatch_check(self) -> bool:
        """Whether a message over the limit on arrival is a dead letter."""
        return self.default.pre_dispatch_check

    @property
    def mode(self) -> str:
        """Who keeps a message until its redelivery."""
        return self.default.mode

    @property
    def non_blocking(self) -> bool:
        """Whether later messages go on while a failed one waits."""
        return self.default.non_blocking

    def exhausted(self, redelivery_count: int) -> bool:
        """Return whether a message that failed for the `redelivery_count`-th time (from 1) is a dead letter."""
        return self.default.exhausted(redelivery_count)

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """Return seconds to wait before redelivery number `redelivery` (from 1)."""
        return self.default.delay(redelivery, draw)


def given_up(policy: Policy, redelivery_count: int) -> bool:
    """Return whether a message that failed so often is a dead letter by `policy`, whatever error it failed with."""
    if isinstance(policy, PolicyByError):
        return policy.given_up(redelivery_count)
    return policy.exhausted(redelivery_count)


@dataclass(frozen=True, slots=True)
class RedeliveryPolicyMap:
    """
    Policies by destination, such as `{"queue://orders.>": policy}`, and one for all others.

    Names are split at `.`. `*` matches one part; `>`, as ActiveMQ writes it, or `#`, as Artemis does, matches all that
    follows, even nothing. A key without `queue://` or `topic://` is a queue. The most specific pattern wins: read from
    the left, a name before `*` before `>`. A map with a `#` in it is read as Artemis reads its address settings:
    patterns that end in `#` or `>` yield to all others, and the longest of them wins.

    Keys are spelt as destinations are. Raises ConfigurationError for a key that can match nothing. `default` is the
    policy where no pattern fits, RedeliveryPolicy(); `entries` are the policies by pattern, none.
    Source: `RedeliveryPolicyMap.java:38-44`; Artemis' `HierarchicalObjectRepository.MatchComparator`, `Match.verify`.
    """

    default: Policy = field(default_factory=RedeliveryPolicy)
    entries: Mapping[str, Policy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_policy("default of a RedeliveryPolicyMap", self.default)
        if not isinstance(self.entries, Mapping):
            raise wrong_type(
                "entries of a RedeliveryPolicyMap", "policies by pattern", self.entries
            )
        for pattern, policy in self.entries.items():
            check_policy(f"redelivery policy for {pattern!r}", policy)
            try:
                _, parts = _parted(pattern)
            except InvalidDestinationError as error:
                raise ConfigurationError(f"redelivery policies: {error}") from None
            if "#" in parts[:-1]:
                raise ConfigurationError(f"{pattern!r}: # must be the last part, as in Artemis")

    def policy(self, destination: str) -> Policy:
        """Return the policy for `destination`, such as `queue://orders.eu`."""
        kind, parts = _parted(destination)
        patterns = [(*_parted(pattern), policy) for pattern, policy in self.entries.items()]
        rank = _artemis_rank if any("#" in pattern for _, pattern, _ in patterns) else _rank
        fitting = [
            (rank(pattern), policy)
            for pattern_kind, pattern, policy in patterns
            if pattern_kind == kind and matches(pattern, parts)
        ]
        return max(fitting, key=lambda ranked: ranked[0])[1] if fitting else self.default


def _rank(pattern: list[str]) -> tuple[int, ...]:
    return (*(0 if part in REST else 1 if part == "*" else 2 for part in pattern), 3)


def _artemis_rank(pattern: list[str]) -> tuple[int, ...]:
    if pattern[-1] in REST:
        return (0, len(".".join(pattern)), *_rank(pattern))
    return (1, *_rank(pattern))


def _parted(destination: str) -> tuple[str, list[str]]:
    kind, name = split_name(destination)
    return kind, name.partition("?")[0].split(".")
