"""What an honest audit may say of a situation, and what it must."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BALANCED: Final = frozenset({"balanced"})
SUSPECT: Final = frozenset({"suspect"})
UNVERIFIABLE: Final = frozenset({"unverifiable"})
#: Not shown to be well; whether that is a proof of harm is for the audit to say.
NOT_BALANCED: Final = SUSPECT | UNVERIFIABLE
#: Not shown to be ill.
NOT_SUSPECT: Final = BALANCED | UNVERIFIABLE
ANY: Final = BALANCED | SUSPECT | UNVERIFIABLE

EXIT_OF: Final = {"balanced": 0, "suspect": 2, "unverifiable": 3}

_HOURLY: Final = ("sent", "settled", "done", "unaccounted", "duplicates")

#: One number, or those that may be said.
Allowed: TypeAlias = "int | frozenset[int]"


def either(*numbers: int) -> frozenset[int]:
    """Any of these is right, as the words of the number leave it open."""
    return frozenset(numbers)


@dataclass
class Said:
    """What a report said of a log."""

    audit: Mapping[str, Any]  #: summary.json
    exit_code: int | None = None  #: of `jmsx report`, where that was run
    put_aside: tuple[str, ...] = ()  #: the files of the lines in the table `quarantine`


@dataclass
class Truth:
    """
    What may be said; what is not named here is not looked at.

    Verdicts are sets of allowed words. Numbers are exact. `findings` are groups of words; each group must stand
    together in one thing that the report says beside its numbers (a finding, a fault), in any case.
    """

    verdict: frozenset[str]
    numbers: dict[str, Allowed] = field(default_factory=dict)
    by_destination: dict[str, dict[str, Allowed]] = field(default_factory=dict)
    verdicts: dict[str, frozenset[str]] = field(default_factory=dict)  #: of destinations
    hours: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    findings: list[tuple[str, ...]] = field(default_factory=list)
    quarantined: Allowed | None = None
    complete: bool | None = None
    exit_codes: frozenset[int] | None = None  #: None: those that belong to `verdict`
    lost_keys: frozenset[str] = frozenset()  #: each must be named, where there are at most five
    may_be_lost: frozenset[str] | None = None  #: no other key may be called lost; None: any may
    options: dict[str, Any] = field(default_factory=dict)  #: of the report: deadline, expect

    def faults(self, said: Said) -> list[str]:
        """What is wrong with what was said; empty where nothing is."""
        return [
            *self._wrong_words(said),
            *self._wrong_numbers(said.audit),
            *self._wrongly_lost(said.audit),
            *self._unnamed(said),
        ]

    def _wrong_words(self, said: Said) -> Iterator[str]:
        verdict = said.audit.get("verdict")
        if verdict not in self.verdict:
            yield f"verdict {verdict}, allowed {_words(self.verdict)}"
        codes = self.exit_codes or frozenset(EXIT_OF[word] for word in self.verdict)
        if said.exit_code is not None and said.exit_code not in codes:
            yield f"exit {said.exit_code}, allowed {sorted(codes)}"
        destinations = said.audit.get("destinations", {})
        for name, allowed in self.verdicts.items():
            found = destinations.get(name, {}).get("verdict", "(not audited)")
            if found not in allowed:
                yield f"{name}: verdict {found}, allowed {_words(allowed)}"
        if self.hours:
            hours = hours_of(said.audit)
            for (name, hour_us), allowed in self.hours.items():
                found = hours.get((name, hour_us), "(not audited)")
                if found not in allowed:
                    yield f"{name} hour {hour_us}: verdict {found}, allowed {_words(allowed)}"

    def _wrong_numbers(self, audit: Mapping[str, Any]) -> Iterator[str]:
        yield from _compared("", self.numbers, audit)
        destinations = audit.get("destinations", {})
        for name, numbers in self.by_destination.items():
            yield from _compared(f"{name}: ", numbers, destinations.get(name, {}))
        yield from _unlike_their_hours(audit)
        if self.quarantined is not None:
            yield from _compared("", {"quarantined": self.quarantined}, audit)
        complete = audit.get("completeness", {}).get("complete")
        if self.complete is not None and complete is not self.complete:
            yield f"completeness.complete is {complete}, not {self.complete}"

    def _wrongly_lost(self, audit: Mapping[str, Any]) -> Iterator[str]:
        called = {row["msg_key"] for row in audit.get("lost", ())}
        for key in sorted(called - (called if self.may_be_lost is None else self.may_be_lost)):
            yield f"{key} is called lost"
        proven = audit.get("unaccounted", 0) - audit.get("explained", 0)
        if len(called) > proven:
            yield f"{len(called)} keys are called lost, and {proven} losses are proven"

    def _unnamed(self, said: Said) -> Iterator[str]:
        told = [*told_of(said.audit), *(path.lower() for path in said.put_aside)]
        for words in self.findings:
            if not any(all(word.lower() in text for word in words) for text in told):
                yield f"nothing tells of {' + '.join(words)}"
        if 0 < len(self.lost_keys) <= 5:
            everything = json.dumps(said.audit)
            for key in sorted(self.lost_keys):
                if key not in everything:
                    yield f"the lost key {key} is not named"


def _words(allowed: frozenset[str]) -> str:
    return " or ".join(sorted(allowed))


def _compared(
    where: str, allowed: Mapping[str, Allowed], found: Mapping[str, Any]
) -> Iterator[str]:
    for name, expected in allowed.items():
        number = found.get(name, 0 if where else None)
        right = expected if isinstance(expected, frozenset) else frozenset({expected})
        if isinstance(number, bool) or number not in right:
            yield f"{where}{name} is {number}, not {' or '.join(map(str, sorted(right)))}"


def _unlike_their_hours(audit: Mapping[str, Any]) -> Iterator[str]:
    """The numbers of destinations that those of their hours do not add up to, whatever the truth is."""
    added = {name: Counter[str]() for name in audit.get("destinations", {})}
    for hour in audit.get("hours", ()):
        added.setdefault(hour["dest"], Counter()).update({name: hour[name] for name in _HOURLY})
    for dest, numbers in added.items():
        for name in _HOURLY:
            whole = audit["destinations"].get(dest, {}).get(name, 0)
            if numbers[name] != whole:
                yield f"{dest}: its hours have {name} {numbers[name]}, not {whole}"


def told_of(audit: Mapping[str, Any]) -> list[str]:
    """Each thing that the report says in words, in small letters."""
    completeness = audit.get("completeness", {})
    told = [
        *_each(audit.get("findings", ())),
        *_each(completeness.get("faults", ())),
        *_each(completeness.get("open_segments", ())),
    ]
    return [(text if isinstance(text, str) else json.dumps(text)).lower() for text in told]


def _each(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return [{name: value} for name, value in found.items()]
    return list(found)


def hours_of(audit: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """The verdict of each destination and hour (microseconds since the epoch, its beginning)."""
    found: dict[tuple[str, int], str] = {}
    for row in audit.get("hours", ()):
        found[row["dest"], row["hour_us"]] = row["verdict"]
    return found


def totals(by_destination: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Add up the numbers of all destinations."""
    total: Counter[str] = Counter()
    for numbers in by_destination.values():
        total.update(numbers)
    return total
