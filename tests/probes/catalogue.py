"""All probes. A probe is a function that is named after its fact and what it shows, as `c5_who_does_not_read_…`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.probes import artemis, artemis_faults, artemis_versions, classic, classic_faults

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Returns what it measured, in one line; raises OtherwiseError if the broker does otherwise than the fact says.
    Probe = Callable[[], str]

_NAME: Final = re.compile(r"[ac]\d+_\w+")

PROBES: Final[tuple[Probe, ...]] = tuple(
    function
    for module in (classic, classic_faults, artemis, artemis_faults, artemis_versions)
    for name, function in vars(module).items()
    if _NAME.fullmatch(name)
)


def fact_of(probe: Probe) -> str:
    """The number of its fact in BROKER.md, as C5."""
    return probe.__name__.partition("_")[0].upper()
