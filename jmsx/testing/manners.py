"""The kinds of broker that `FakeBroker` can be like, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.testing.artemis.manners import ARTEMIS, ArtemisManners
from jmsx.testing.artemis.settings import AddressSettings, Loss
from jmsx.testing.classic.manners import CLASSIC, ClassicManners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.testing.house import Manners

__all__ = [
    "ARTEMIS",
    "CLASSIC",
    "MANNERS",
    "AddressSettings",
    "ArtemisManners",
    "ClassicManners",
    "Loss",
    "named",
]

MANNERS: Final[Mapping[str, Manners]] = {"classic": CLASSIC, "artemis": ARTEMIS}


def named(manners: Manners | str) -> Manners:
    """The manners called so, or those that were given; raises ValueError on an unknown name."""
    if not isinstance(manners, str):
        return manners
    if manners not in MANNERS:
        raise ValueError(
            f"no broker has manners called {manners!r}; there are {', '.join(MANNERS)}"
        )
    return MANNERS[manners]
