"""What the tests of idempotency stores work with."""

from __future__ import annotations

from jmsx.core.ledger import StoreKey

A = StoreKey("queue://q", "a")
B = StoreKey("queue://q", "b")


class Clock:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall(self) -> float:
        """Epoch seconds."""
        return self.now


class Handler:
    """Counts its calls; raises what it is given."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None

    def __call__(self, _connection: object) -> None:
        """Do the work."""
        self.calls += 1
        if self.error is not None:
            raise self.error
