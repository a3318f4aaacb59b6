"""What an operator may do with the dead letters of a broker: the seam that adapters fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jmsx.dead_letters.letter import DeadLetter
from jmsx.errors import InvalidDestinationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


class Access(Protocol):
    """
    What one kind of broker lets an operator do with dead letters. Queues are names, without scheme.

    Every call raises JmsxError where the broker does not answer or refuses.
    """

    @property
    def remedy(self) -> str:
        """What to do where `look` shows less than `count` tells, a clause."""

    def queues(self) -> list[str]:
        """Return the dead letter queues that the broker's settings, or their names, tell of; sorted."""

    def count(self, queue: str) -> int | None:
        """Return how many messages lie in `queue`; None: there is no such queue, or nobody tells."""

    def counts(self, queues: Sequence[str]) -> dict[str, int | None]:
        """Return what `count` does, of each of `queues`; one of many is not as dear as alone."""

    def is_same(self, queue: str, uri: str) -> bool:
        """Return whether what is sent to the queue with that URI lies in `queue`."""

    def look(
        self, queue: str, *, bodies: bool = False, names: Collection[str] = ()
    ) -> Iterator[DeadLetter]:
        """
        Return what lies in `queue`, from its head, as far as the broker shows it; nothing is taken. Raises `no_queue`,
        where it can tell.

        With `bodies` each message whole, where it comes. With `names` what one of them names, as `DeadLetter.names` has
        it; others may come, too.
        """

    def replay(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        to: str | None = None,
        *,
        at_once: int | None = None,
    ) -> Iterator[list[str]]:
        """
        Send `letters` of `queue` back to where they came from, or to the queue `to` (URI).

        Yields the ids of those that have been moved, some at a time, and no more than `at_once`; what is missing at the
        end was not there any more.
        Whoever stops the iteration, or kills the process, leaves each message in exactly one of the two queues.
        """

    def remove(self, queue: str, letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
        """Delete `letters` from `queue` for good; yields as `replay`."""


def no_queue(name: str) -> InvalidDestinationError:
    """Return what is raised for a queue that the broker does not have."""
    return InvalidDestinationError(f"there is no queue {name}")
