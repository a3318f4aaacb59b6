"""
Draws programs of the session machines without end, other ones each time: `python -m tests.property.hunt MACHINE`.

The tests try the same few hundred in each run. What fails is told as the shortest program that does, which then belongs
into test_session_machine.py as an example that was found.
"""

from __future__ import annotations

import argparse
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machines import ArtemisMachine, ScheduledMachine, SessionMachine

MACHINES: Final = {
    "classic": SessionMachine,
    "artemis": ArtemisMachine,
    "scheduled": ScheduledMachine,
}


def main() -> None:
    """Run as many programs as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--programs", type=int, default=5_000, help="how many (default: 5000)")
    parser.add_argument("--steps", type=int, default=40, help="of each, at most (default: 40)")
    options = parser.parse_args()
    run_state_machine_as_test(
        MACHINES[options.machine],
        settings=settings(
            max_examples=options.programs,
            stateful_step_count=options.steps,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


if __name__ == "__main__":
    main()
