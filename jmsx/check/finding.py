"""
The findings of `jmsx check` about a broker.

An adapter adds checks for its kind of broker by a function in the entry point group `jmsx.inspections`: it takes a
started session and queue names, yields findings, and must consume from no queue. `jmsx.jms.session.link_of` gives it
information beyond JMS, such as the broker's address.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"  #: it was tried, and works
    NOTE = "note"  #: good to know
    WARNING = "warning"  #: it works, but not as most users expect
    FAILURE = "failure"  #: it does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str  #: the subject, in a word or two
    level: Level
    told: str  #: the result, and what to do about it
