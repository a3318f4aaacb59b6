"""What a client did with a scenario, and the line of JSON that tells it (FORMAT.md section 4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conformance.scenario import Json, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One run of one scenario: either its outcomes, or why it cannot be run."""

    scenario: Scenario
    outcomes: list[Json]
    impossible: str | None = None  #: why this client and broker cannot do the scenario at all

    def line(self) -> str:
        """Give the trace as one line of JSON."""
        told = {"outcomes": self.outcomes} if self.impossible is None else {"not": self.impossible}
        return json.dumps({"id": self.scenario.id, **told}, ensure_ascii=False)
