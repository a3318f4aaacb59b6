"""The copies of a consumer's messages that the broker has not confirmed: dead letters, and scheduled redeliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class OpenCopies:
    """
    Tracks the unconfirmed copies of one consumer on one link. Whoever sends one adds it, and removes it when it is
    settled.
    """

    def __init__(self, changes: Callable[[], None]) -> None:
        """`changes` is called before what blocks, or does no longer, changes."""
        self._changes = changes
        self._open: set[object] = set()
        self._blocking: set[object] = set()
        self.single_acks = 0  #: written in transactions of ours, where ACKs are single
        self._clear: list[Callable[[], None]] = []
        self._then: Callable[[], None] | None = None

    @property
    def blocks_dispatch(self) -> bool:
        """Whether nothing may be handed out, because the ACK of a later message would cover an original."""
        return bool(self._blocking)

    @property
    def closing(self) -> bool:
        """Whether the consumer closes as soon as everything is settled."""
        return self._then is not None

    def add(self, copy: object, *, blocks: bool) -> None:
        """Track `copy`, which is being sent. `blocks`: nothing is handed out until it is removed."""
        self._changes()
        self._open.add(copy)
        if blocks:
            self._blocking.add(copy)

    def remove(self, copy: object) -> None:
        """Stop tracking `copy`, which is settled or given up."""
        self._changes()
        self._open.discard(copy)
        self._blocking.discard(copy)

    def no_others(self, copies: Iterable[object]) -> bool:
        """Return whether no other copies than `copies` are unconfirmed."""
        return self._open <= set(copies)

    def when_clear(self, settle: Callable[[], None]) -> None:
        """Have `finish` run `settle` when no copy is unconfirmed: a cumulative ACK would cover their originals."""
        self._clear.append(settle)

    def after(self, then: Callable[[], None]) -> None:
        """Have `finish` run `then`, which closes the consumer, when no copy is unconfirmed."""
        self._then = then

    def finish(self) -> None:
        """Run what waits for the copies, if none is unconfirmed. Call it after `remove`."""
        while self._clear and not self._open:
            self._clear.pop(0)()
        if self._then is not None and not self._open:
            then, self._then = self._then, None
            then()
