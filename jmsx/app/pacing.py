"""
Rate limits and circuit breakers, which decide when a consumer's handler may be called.

A message whose handler may not be called yet waits here, unacknowledged, and counts as no delivery. Draining returns it
to the broker at once.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from jmsx.core.durations import Duration, bounded
from jmsx.core.option_checks import by_name, check_whole, wrong_type
from jmsx.drivers.locks import mutex, reentrant
from jmsx.drivers.machine import Machine
from jmsx.errors import ConfigurationError, class_of, text_of
from jmsx.jms.outcomes import BatchError, Retry, Steering, told_by
from jmsx.log import logger, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: Seconds between two checks whether the probe has ended.
LOOK: Final = 0.25

_RATE: Final = re.compile(r"\s*(\d+)\s*/\s*(\d*)\s*([a-z]+)\s*")

_log = logger("jmsx.app")


class RateLimit:
    """
    Limits how many messages a consumer handles in a time, evenly spaced: `RateLimit("100/s")`, `"5/min"`, `"1/10s"`.

    All sessions of a consumer share its limit, and so do several consumers to which the same object is given. It
    applies to this process only. Raises ConfigurationError if `rate` is no rate.
    """

    def __init__(self, rate: str) -> None:
        found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
        if found is None or int(found[1]) == 0:
            raise ConfigurationError(
                f"rate_limit={rate!r} is no rate; write a number of messages and a time, such as 100/s or 5/min"
            )
        time = f"{found[2] or 1}{found[3]}"
        self.rate = rate
        self.interval: float = bounded("rate_limit", time, zero=False) / int(found[1])  #: seconds

    def __repr__(self) -> str:
        return f"RateLimit({self.rate!r})"


@by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """
    Pauses a consumer after several failures in a row, and then tries a single message, the probe.

    While the breaker is open no handler is called, so no redeliveries are used up. If the probe succeeds, the consumer
    goes on; if it fails, the next pause begins. Failures of all the consumer's sessions in this process count. The
    failure of a probe is a failed delivery as any other. Raises ConfigurationError for arguments that make no sense.

    Args:
        failures: how many calls of the handler in a row have to fail, 5.
        pause: the time from the last of these failures to the probe, 30 s.
        on: the errors that count, one class or several: those which say that a service is not available. Others, and
            Reject and Discard, do not count. By default every Exception counts.

    """

    failures: int = 5
    pause: Duration = 30.0
    on: type[BaseException] | Collection[type[BaseException]] = Exception

    def __post_init__(self) -> None:
        check_whole("failures of a CircuitBreaker", self.failures, 1)
        bounded("pause of a CircuitBreaker", self.pause, zero=False)
        object.__setattr__(self, "on", error_types("on", self.on))


class _State(Enum):
    """The state of a circuit breaker."""

    CLOSED = auto()  #: handlers are called
    OPEN = auto()  #: none is called
    PROBING = auto()  #: one is called, as the probe


class Circuit:
    """The breaker of one consumer, shared by its sessions; times are seconds, monotonic."""

    def __init__(
        self,
        breaker: CircuitBreaker,
        consumer: str,
        told: Callable[[bool], object] = lambda _open: None,
    ) -> None:
        self._breaker = breaker
        self._on: Any = breaker.on
        self._pause = bounded("pause", breaker.pause)
        self._consumer = consumer
        self._told = told  #: called with whether it is open
        self._lock = reentrant()  #: a signal handler may call `close` inside another call
        self._state = _State.CLOSED
        self._failed = 0  #: failures in a row
        self._until = 0.0  #: when the probe is due
        self._prober = 0  #: id of the thread of the probe
        self._why = ""
        #: Whether the app has ended; results of handlers that end after it are not counted
        self._over = False

    @property
    def is_closed(self) -> bool:
        """Whether the breaker is closed, so that handlers are called."""
        return self._state is _State.CLOSED

    def paused(self, now: float) -> str | None:
        """Return why no handler is called; None: handlers are called."""
        if self._state is _State.CLOSED:
            return None
        left = max(self._until - now, 0.0)
        when = f"tries one message in {left:.0f} s" if left > 0 else "tries one message"
        return f"paused after {self._failed} failures in a row, {when}: {self._why}"

    def wait(self, now: float) -> float:
        """Return seconds after which the caller may ask again whether its handler may be called; 0: it may."""
        with self._lock:
            match self._state:
                case _State.CLOSED:
                    return 0.0
                case _State.OPEN if now >= self._until:
                    self._state, self._prober = _State.PROBING, threading.get_ident()
                    return 0.0
                case _State.OPEN:
                    return self._until - now
                case _State.PROBING:
                    return 0.0 if self._prober == threading.get_ident() else LOOK

    def ended(self, error: BaseException | None, now: float) -> None:
        """Note that a call of the handler has ended, or was not made."""
        counted = error if error is not None and self._counts(error) else None
        with self._lock:
            if self._over:
                return
            before, mine = self._state, self._prober == threading.get_ident()
            if error is None and (before is _State.CLOSED or mine):
                self._state, self._failed, self._prober = _State.CLOSED, 0, 0
            elif counted is not None and (before is _State.CLOSED or mine):
                self._failed += 1
                self._why = shortened(f"{class_of(counted)}: {text_of(counted)}")
                if mine or self._failed >= self._breaker.failures:
                    self._state, self._prober = _State.OPEN, 0
                    self._until = now + self._pause
            elif mine:  # this error does not count: the next message is the probe
                self._state, self._prober, self._until = _State.OPEN, 0, now
            after, failed = self._state, self._failed
        if before is _State.CLOSED and after is _State.OPEN:
            _log.error(
                "consumer pauses",
                consumer=self._consumer,
                failures=failed,
                seconds=self._pause,
                error=self._why,
            )
            self._told(True)  # noqa: FBT003 - tells that it is open
        elif before is _State.PROBING and after is _State.CLOSED:
            _log.warning("consumer goes on", consumer=self._consumer)
            self._told(False)  # noqa: FBT003 - tells that it is closed

    def close(self) -> None:
        """End the pause because the consumer has stopped, and tell whoever is told of pauses."""
        with self._lock:
            paused, self._state = self._state is not _State.CLOSED, _State.CLOSED
            self._over = True
        if paused:
            self._told(False)  # noqa: FBT003 - tells that it is closed

    def _counts(self, error: BaseException) -> bool:
        """Return whether the breaker counts `error`; for a batch, whether it counts that of one of its messages."""
        if isinstance(error, Retry) and error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, BatchError):
            return any(self._is_counted(error.error_of(one)) for one in error.failed)
        return self._is_counted(error)

    def _is_counted(self, error: BaseException) -> bool:
        if isinstance(error, Steering) and not isinstance(error, Retry):
            return False
        return isinstance(told_by(error), self._on)


class Bucket:
    """Computes when the next messages may be handled under a RateLimit."""

    def __init__(self, limit: RateLimit) -> None:
        self._interval = limit.interval
        self._lock = mutex()
        self._free_at = 0.0

    def take(self, messages: int, now: float) -> float:
        """Reserve the next turns for so many messages; returns in how many seconds they may be handled."""
        with self._lock:
            start = max(self._free_at, now)
            self._free_at = start + messages * self._interval
            return start - now

    def give_back(self, messages: int, now: float) -> None:
        """Return the turns of messages that are not handled after all; later reserved turns stay as they are."""
        with self._lock:
            start = self._free_at - messages * self._interval
            if start <= now:
                self._free_at = start


class Gate:
    """Holds a consumer's messages back as its rate limit and circuit breaker say; shared by its sessions."""

    def __init__(self, bucket: Bucket | None = None, circuit: Circuit | None = None) -> None:
        self._bucket = bucket
        self.circuit = circuit
        self.is_open = bucket is None and circuit is None  #: neither limit nor breaker

    @property
    def one_only(self) -> bool:
        """Whether the next batch must be a single message, because it is the circuit breaker's probe."""
        return self.circuit is not None and not self.circuit.is_closed

    def enter(self, messages: int, machine: Machine, pause: Callable[[float], object]) -> bool:
        """Call `pause(seconds)` until the handler may be called; return whether that was necessary."""
        waited = self._pass_circuit(machine, pause)
        if self._bucket is not None:
            left = self._bucket.take(messages, machine.monotonic())
            if left > 0:
                waited = True
                pause(left)
                # The circuit breaker may have opened during the pause for the rate
                self._pass_circuit(machine, pause)
        return waited

    def _pass_circuit(self, machine: Machine, pause: Callable[[float], object]) -> bool:
        waited = False
        while self.circuit is not None and (left := self.circuit.wait(machine.monotonic())) > 0:
            waited = True
            pause(left)
        return waited

    def leave(self, messages: int, now: float) -> None:
        """Note that the handler is not called for these messages, although `enter` has let them pass."""
        if self._bucket is not None:
            self._bucket.give_back(messages, now)

    def ended(self, error: BaseException | None, now: float) -> None:
        """Note how the handler's call has ended, if it was called."""
        if self.circuit is not None:
            self.circuit.ended(error, now)

    def close(self) -> None:
        """Note that the consumer has stopped."""
        if self.circuit is not None:
            self.circuit.close()

    def paused(self, now: float) -> str | None:
        """Return why no handler is called: the circuit breaker is open; None: handlers are called."""
        return None if self.circuit is None else self.circuit.paused(now)


def rate_limit_of(given: object) -> RateLimit | None:
    """Return `given` as a RateLimit; it may be one, or a text such as "100/s", or None."""
    if given is None or isinstance(given, RateLimit):
        return given
    if isinstance(given, str):
        return RateLimit(given)
    raise wrong_type("rate_limit", "a rate, such as 100/s, or a RateLimit", given)


def error_types(name: str, given: object) -> tuple[type[BaseException], ...]:
    """Return one or several exception classes as a tuple; raises ConfigurationError if something else is among them."""
    several = given if isinstance(given, tuple | list | set | frozenset) else (given,)
    for each in several:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise ConfigurationError(
                f"{name} takes classes of errors, such as (ValueError,), and not {each!r}"
            )
    return tuple(several)
