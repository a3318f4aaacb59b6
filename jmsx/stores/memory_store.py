"""An idempotency store in the memory of this process, for the messages that were handled lately."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from jmsx.clock import Clock, SystemClock
from jmsx.core.durations import Duration, as_number
from jmsx.core.ledger import StoreKey
from jmsx.core.option_checks import wrong_type
from jmsx.drivers.locks import mutex
from jmsx.drivers.process import tell_of_forks
from jmsx.errors import ConfigurationError
from jmsx.stores.idempotency import MessageLocks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


class MemoryStore:
    """
    Remembers the last `maximum` messages, each for `ttl` (seconds, a timedelta, or "1h") after it was last seen.

    It ends with its process, so it detects duplicates after a lost connection, or from a sender that repeats a message,
    but not those after a crash. Raises ConfigurationError for limits that make no sense.
    """

    connects = False

    def __init__(
        self, maximum: int = 100_000, *, ttl: Duration = 3600.0, clock: Clock | None = None
    ) -> None:
        seconds: float = as_number("ttl", ttl)
        for name, number in (("maximum", maximum), ("ttl", seconds)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise wrong_type(f"{name} of a MemoryStore", "a number", number)
        if maximum < 1 or not seconds > 0:
            raise ConfigurationError(
                f"MemoryStore: maximum and ttl must be more than 0: {maximum}, {ttl}"
            )
        self._maximum = maximum
        self._ttl = seconds
        self._clock = clock or SystemClock()
        self._lock = mutex()
        self._message_locks = MessageLocks()
        self._done: OrderedDict[StoreKey, float] = OrderedDict()  #: last seen, oldest first
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, keep what the parent knew, with a new lock."""
        self._lock = mutex()

    def open(self) -> None:
        """Do nothing: there is no file to open."""

    def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
        """Call `work(None)` unless the message is known; a second thread with an equal message waits for the first."""
        lock = self._message_locks.lock_of(identity)
        with lock:
            if self._known(identity):
                return False
            work(None)
            self._remember(identity)
        return True

    def once_each(
        self,
        identities: Sequence[StoreKey],
        work: Callable[[Any, frozenset[StoreKey]], Collection[StoreKey]],
    ) -> None:
        """Call `work(None, new)` with the messages of a batch that are not known."""

        def handle() -> None:
            new = frozenset(one for one in identities if not self._known(one))
            for identity in work(None, new):
                self._remember(identity)

        self._message_locks.call_with_all(identities, handle)

    def close(self) -> None:
        """Do nothing: what is known stays known as long as the object lives."""

    def _known(self, identity: StoreKey) -> bool:
        with self._lock:
            seen = self._done.pop(identity, None)
            if seen is None or self._clock.monotonic() > seen + self._ttl:
                return False
            self._done[identity] = self._clock.monotonic()
            return True

    def _remember(self, identity: StoreKey) -> None:
        with self._lock:
            self._done[identity] = self._clock.monotonic()
            if len(self._done) > self._maximum:
                self._done.popitem(last=False)
