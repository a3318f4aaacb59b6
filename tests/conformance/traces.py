"""What a client did with a scenario, and the line of JSON that tells it (FORMAT.md section 4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conformance.scenario import Json, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One run of one scenario: its outcomes, and why they are no verdict if they are none."""

    scenario: Scenario
    outcomes: list[Json]
    impossible: str | None = None  #: why this client and broker cannot do the scenario at all

    def line(self) -> str:
        """Give the trace as one line of JSON."""
        told: Json = {"id": self.scenario.id}
        if self.impossible is not None:
            told["not"] = self.impossible
        if self.outcomes or self.impossible is None:
            told["outcomes"] = self.outcomes
        return json.dumps(told, ensure_ascii=False)
