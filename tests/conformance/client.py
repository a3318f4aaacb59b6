"""
Scenarios run by jmsx, through its public JMS face only.

A scenario runs on a thread of its own, so that a step that never ends costs only its scenario.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.conformance.script import Script
from tests.conformance.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.conformance.brokers import Broker
    from tests.conformance.scenario import Json, Scenario

#: Seconds that a scenario may take; those of FORMAT.md stay under six.
_LIMIT: Final = 60.0
#: Seconds for closing what a scenario left open.
_TIDY_LIMIT: Final = 5.0
_STUCK: Final[Json] = {"error": "Runtime", "detail": "the step did not end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JmsxClient:
    """The client under test, over STOMP."""

    broker: Broker
    jobs: int = 8  #: scenarios at once

    def run(self, scenarios: Sequence[Scenario]) -> Iterator[Trace]:
        """Run `scenarios` and yield their traces as they end."""
        with ThreadPoolExecutor(self.jobs, thread_name_prefix="scenario") as pool:
            for done in as_completed([pool.submit(self._trace, one) for one in scenarios]):
                yield done.result()

    def _trace(self, scenario: Scenario) -> Trace:
        impossible = scenario.not_over_stomp
        if scenario.requires == "scheduler" and not self.broker.scheduler:
            impossible = "this broker has no scheduler"
        if impossible is not None:
            return Trace(scenario=scenario, outcomes=[], impossible=impossible)
        script = Script(scenario, self.broker)
        _run_in_thread(script.run, _LIMIT)
        outcomes = list(script.outcomes)
        outcomes += [_STUCK] * (len(scenario.steps) - len(outcomes))
        _run_in_thread(script.close, _TIDY_LIMIT)
        impossible = self.broker.limit(scenario, outcomes, script.stranded)
        return Trace(scenario=scenario, outcomes=outcomes, impossible=impossible)


def _run_in_thread(work: Callable[[], None], limit: float) -> None:
    """Do `work` on a daemon thread and wait for it `limit` seconds at most."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
