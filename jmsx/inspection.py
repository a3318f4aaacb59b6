"""
What can be said about a broker or an application before it runs: `jmsx check` collects findings.

Adapters add what only they can ask their broker, by the entry point group `jmsx.inspections`: a function of a started
session and queue names that yields findings, and takes nothing from any queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jmsx.jms.session import Session


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"  #: tried, and it works
    NOTE = "note"  #: good to know
    WARNING = "warning"  #: works, but not as most people mean it
    FAILURE = "failure"  #: does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str  #: what, in a word or two
    level: Level
    told: str  #: what was found, and what to do about it


class Inspect(Protocol):
    """What an adapter registers for its kind of broker."""

    def __call__(self, session: Session, queues: Sequence[str]) -> Iterator[Finding]:
        """Look at the broker and at `queues` (names) through `session`; raises JmsxError when it does not answer."""
