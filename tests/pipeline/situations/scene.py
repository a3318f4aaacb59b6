"""A situation: a function that writes a log into a scene and returns what may be said of it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.situations.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.pipeline.situations.fleet import Segment
    from tests.pipeline.situations.truth import Truth


@dataclass(frozen=True)
class Scene:
    """Where a situation writes its log, and by which chance."""

    directory: Path
    seed: int
    messages: int = 240
    #: clocks are some minutes wrong where the situation does not say how they go
    skewed: bool = False

    def shop(self, **options: Any) -> Shop:
        """Open a shop; options as `Shop`."""
        return Shop(self.seed, **({"messages": self.messages} | self._skews() | options))

    def _skews(self) -> dict[str, Any]:
        if not self.skewed:
            return {}
        chance = random.Random(self.seed)
        clocks = tuple(chance.randrange(-200, 200) for _ in range(4))
        return {"skews": clocks, "broker_skew": chance.randrange(-60, 60)}

    def write(self, segments: list[Segment]) -> None:
        """Write segments that were changed after they were cut."""
        for segment in segments:
            segment.write(self.directory)


@dataclass(frozen=True)
class Situation:
    """One kind of situation."""

    name: str
    family: str
    make: Callable[[Scene], Truth | list[Truth]]

    @property
    def told(self) -> str:
        """The first line of what it is."""
        return (self.make.__doc__ or "").strip().splitlines()[0]


SITUATIONS: Final[dict[str, Situation]] = {}


def situation(
    make: Callable[[Scene], Truth | list[Truth]],
) -> Callable[[Scene], Truth | list[Truth]]:
    """Add a situation to those that are judged; several truths: any of them may be told."""
    name, family = make.__name__, make.__module__.rpartition(".")[2]
    if name in SITUATIONS:
        raise ValueError(f"two situations are called {name}")
    SITUATIONS[name] = Situation(name, family, make)
    return make
