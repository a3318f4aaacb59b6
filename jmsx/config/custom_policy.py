"""
A wrapper for redelivery policies that the application has written itself, whose answers may be wrong.

If a method of such a policy raises, or its answer makes no sense, the log and the consumer's health say so; the
message is treated as `RedeliveryPolicy()` would treat it, but with the custom policy's own limit if that makes sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jmsx.core.option_checks import LARGEST_INT, kind_of
from jmsx.core.policy import (
    UNLIMITED,
    ArtemisRedeliveryPolicy,
    Policy,
    PolicyByError,
    RedeliveryMode,
    RedeliveryPolicy,
    no_jitter,
)
from jmsx.errors import from_a_signal, text_of
from jmsx.log import logger, shortened

if TYPE_CHECKING:
    from collections.abc import Callable


#: The longest delay in seconds, some 30 years; more is taken for a mistake.
LONGEST_DELAY: Final = 1e9

#: The policy that answers in place of one that fails.
_DEFAULT: Final = RedeliveryPolicy()

_log = logger("jmsx.session")


def careful(policy: Policy) -> Policy:
    """Return `policy`, wrapped so that all its answers make sense; jmsx's own policies need no wrapper."""
    if type(policy) in (RedeliveryPolicy, ArtemisRedeliveryPolicy, CustomPolicy):
        return policy
    if isinstance(policy, PolicyByError):
        others = {error: careful(each) for error, each in policy.by_error.items()}
        return PolicyByError(careful(policy.default), others)
    return CustomPolicy(policy)


class CustomPolicy:
    """Wraps a redelivery policy of the application, and checks its answers."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._faults: dict[str, str] = {}  #: what was wrong with its last answers, by method
        self._told: set[str] = set()  #: kinds of faults that were logged

    @property
    def fault(self) -> str | None:
        """What was wrong with its last answers; None: nothing."""
        return next(iter(self._faults.copy().values()), None)

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries after the first delivery; -1: for ever."""
        limit: int = self._value("maximum_redeliveries")
        return limit

    @property
    def pre_dispatch_check(self) -> bool:
        """Whether a message that is over the limit when it arrives becomes a dead letter; by default True."""
        check: bool = self._value("pre_dispatch_check", _DEFAULT.pre_dispatch_check)
        return check

    @property
    def mode(self) -> str:
        """The RedeliveryMode: whether jmsx or the broker's scheduler keeps a message until its redelivery."""
        mode: str = self._value("mode")
        return mode

    @property
    def non_blocking(self) -> bool:
        """Whether later messages go on while a failed one waits."""
        goes_on: bool = self._value("non_blocking")
        return goes_on

    def exhausted(self, redelivery_count: int) -> bool:
        """Return whether a message that failed for the `redelivery_count`-th time (from 1) becomes a dead letter."""

        def by_the_limit() -> bool:
            limit = self.maximum_redeliveries
            return limit != UNLIMITED and redelivery_count > limit

        dead: bool = self._answer(
            "exhausted()", lambda: self._policy.exhausted(redelivery_count), by_the_limit
        )
        return dead

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """Return seconds to wait before redelivery number `redelivery` (from 1)."""
        return float(
            self._answer(
                "delay()",
                lambda: self._policy.delay(redelivery, draw),
                lambda: _DEFAULT.delay(redelivery, draw),
            )
        )

    def _value(self, name: str, *absent: object) -> Any:
        """Return an attribute; `absent`: what it is where there is none."""
        return self._answer(
            name, lambda: getattr(self._policy, name, *absent), lambda: getattr(_DEFAULT, name)
        )

    def _answer(self, what: str, question: Callable[[], Any], instead: Callable[[], Any]) -> Any:
        """Return the answer if it makes sense, and else what the default policy says `instead`."""
        try:
            answer = question()
        except BaseException as error:
            if from_a_signal(error):  # raised by a signal handler, not by the policy
                raise
            self._complain(what, f"raised {type(error).__name__}", text_of(error), error)
            return instead()
        if not _FITS[what](answer):
            self._complain(what, f"gave {kind_of(answer)}", _words(answer), None)
            return instead()
        self._faults.pop(what, None)
        return answer

    def _complain(self, what: str, how: str, words: str, error: BaseException | None) -> None:
        """Log each kind of fault once."""
        policy = type(self._policy).__name__
        fault = shortened(f"{policy}.{what} {how}{f': {words}' if words else ''}")
        self._faults[what] = fault
        if f"{what} {how}" not in self._told:
            self._told.add(f"{what} {how}")
            _log.error(
                "redelivery policy failed: the default policy's answer is taken instead",
                fault=fault,
                exc_info=error,
            )


def _words(answer: object) -> str:
    """Return a number, unless it has no end; nothing else is printed."""
    if type(answer) is int and abs(answer) > LONGEST_DELAY:
        return "out of range"
    return repr(answer) if type(answer) in (int, float, bool) else ""


def _is_number(given: object, kind: Any) -> bool:
    return isinstance(given, kind) and not isinstance(given, bool)


def _is_flag(given: object) -> bool:
    return isinstance(given, bool)


#: The check of each method's answer; NaN is in no range.
_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "maximum_redeliveries": lambda given: (
        _is_number(given, int) and UNLIMITED <= given <= LARGEST_INT
    ),
    "pre_dispatch_check": _is_flag,
    "mode": lambda given: isinstance(given, str) and given in set(RedeliveryMode),
    "non_blocking": _is_flag,
    "exhausted()": _is_flag,
    "delay()": lambda given: _is_number(given, int | float) and 0 <= given <= LONGEST_DELAY,
}
