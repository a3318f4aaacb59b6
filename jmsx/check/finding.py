"""
What a broker can be asked about itself: `jmsx check` collects findings, an app the counts of its queues.

Adapters add what only they can ask their broker, by the entry point group `jmsx.inspections`: a function of a started
session and queue names that yields findings, and takes nothing from any queue; and by `jmsx.counts`: a function of
the same session and URIs of queues that returns `QueueCounts` of each that exists, or None if it is not told. What a
session knows of its broker beyond JMS, such as the broker's address, they get by `jmsx.jms.session.link_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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


class QueueCounts(NamedTuple):
    """What a broker itself counts of one queue, in messages; all but the size since its start, or the queue's."""

    enqueued: int
    dequeued: int  #: acknowledged, dead-lettered or expired
    expired: int
    size: int  #: in it now, at consumers too
