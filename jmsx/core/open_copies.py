"""Copies of a consumer's messages that the broker has not confirmed: dead letters, and what is sent back for later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class OpenCopies:
    """Of one consumer, on one link. Whoever sends something adds it, and takes it away when it is settled."""

    def __init__(self) -> None:
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
        """`copy` is on its way; `parks`: nothing is handed out meanwhile."""
        self._open.add(copy)
        if blocks:
            self._blocking.add(copy)

    def remove(self, copy: object) -> None:
        """`copy` is settled, or given up."""
        self._open.discard(copy)
        self._blocking.discard(copy)

    def no_others(self, copies: Iterable[object]) -> bool:
        """Whether nothing but `copies` is on its way."""
        return self._open <= set(copies)

    def when_clear(self, settle: Callable[[], None]) -> None:
        """Have `finish` run `settle` when nothing is awaited: a cumulative ACK would cover what is."""
        self._clear.append(settle)

    def after(self, then: Callable[[], None]) -> None:
        """The consumer is closing: have `finish` run `then`."""
        self._then = then

    def finish(self) -> None:
        """If nothing is awaited any more, do what was to come after it."""
        while self._clear and not self._open:
            self._clear.pop(0)()
        if self._then is not None and not self._open:
            then, self._then = self._then, None
            then()
