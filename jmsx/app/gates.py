"""The gates (rate limit and circuit breaker) before an app's consumers, and telling observers of their pauses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jmsx.app.pacing import Bucket, Circuit, Gate, RateLimit
from jmsx.app.registration import Consumer
from jmsx.errors import from_a_signal
from jmsx.log import logger
from jmsx.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_log = logger("jmsx.app")


class Gates:
    """
    A Gate for each of `consumers`; consumers with the same RateLimit object share its rate.

    Each of `observers` that shows pauses is told when one begins or ends, and at first that no consumer pauses.
    """

    def __init__(
        self, consumers: Iterable[Consumer] = (), observers: Sequence[Observer] = ()
    ) -> None:
        self._observers = observers
        buckets: dict[int, Bucket] = {}
        self._by_name: dict[str, Gate] = {}
        for consumer in consumers:
            limit, bucket = consumer.rate_limit, None
            if isinstance(limit, RateLimit):
                bucket = buckets.setdefault(id(limit), Bucket(limit))
            self._by_name[consumer.name] = Gate(bucket, self._circuit(consumer))

    def __getitem__(self, consumer: str) -> Gate:
        """Return the gate before the consumer of that name."""
        return self._by_name[consumer]

    def close(self) -> None:
        """End all pauses, for the consumers have stopped."""
        for gate in self._by_name.values():
            gate.close()

    def _circuit(self, consumer: Consumer) -> Circuit | None:
        if consumer.breaker is None:
            return None
        told = partial(self._tell, consumer)
        told(False)  # noqa: FBT003 - tells that nothing is paused
        return Circuit(consumer.breaker, consumer.name, told)

    def _tell(self, consumer: Consumer, paused: bool) -> None:  # noqa: FBT001 - called with the one value that there is to tell
        """Have observers that show it know whether a consumer pauses; what one raises goes no further (D18)."""
        for observer in self._observers:
            note = getattr(observer, "note_paused", None)
            if note is None:
                continue
            try:
                note(consumer.destination.uri, consumer.name, paused=paused)
            except BaseException as error:
                if from_a_signal(error):
                    raise
                _log.error("observer failed", observer=type(observer).__name__, exc_info=error)
