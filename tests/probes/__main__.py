"""
Show the facts of BROKER.md that no test shows: `python -m tests.probes [classic|artemis] [C5 A32 ...]`.

Without a word all of them, one after the other. Each starts brokers of its own and prints a line: its fact, the seconds
that it took, and what it measured, or what the broker did otherwise. If one did, this ends with 1.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from tests.jdk import end_peers
from tests.probes.catalogue import PROBES, fact_of
from tests.probes.support import OtherwiseError

if TYPE_CHECKING:
    from tests.probes.catalogue import Probe

_KINDS: Final = {"classic": "C", "artemis": "A"}


def chosen(words: list[str]) -> list[Probe]:
    """The probes that are meant; raises SystemExit for a word that means none."""
    if not words:
        return list(PROBES)
    found: list[Probe] = []
    for word in words:
        meant = [
            probe
            for probe in PROBES
            if fact_of(probe) == word.upper() or fact_of(probe)[0] == _KINDS.get(word)
        ]
        if not meant:
            raise SystemExit(f"{word}: neither classic, artemis, nor a fact that has a probe")
        found += meant
    return found


def shows(probe: Probe) -> bool:
    """Run a probe and print its line; whether the broker does as the fact says."""
    began = time.monotonic()
    try:
        told, shown = probe(), True
    except OtherwiseError as error:
        told, shown = f"OTHERWISE: {error}", False
    except Exception as error:  # noqa: BLE001 - the others are to run all the same
        told, shown = f"FAILED: {type(error).__name__}: {error}", False
    print(
        f"{fact_of(probe):4} {probe.__name__} ({time.monotonic() - began:.0f} s): {told}",
        flush=True,
    )
    return shown


def main(words: list[str]) -> int:
    """Run what is meant; 0 if all is as BROKER.md says, else 1."""
    try:
        results = [shows(probe) for probe in chosen(words)]
    finally:
        end_peers()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
