"""Which tests of a run over several worker processes stay together, and what begins first."""

from __future__ import annotations

import functools
from itertools import groupby
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

#: Beginnings of names of files that share what costs more to start than to use: a Spark session, brokers in containers.
_TOGETHER: Final = ("tests/pipeline/test_spark_", "tests/containers/")

#: Tests that share nothing but the brokers of their worker, and take a minute or more together.
_APART: Final = (
    "tests/conformance/test_conformance.py::test_every_scenario_passes",
    "tests/dashboards/test_mutants.py::",
    "tests/guarantees/test_check.py::",
    "tests/integration/test_backlog.py::test_receive_takes_a_whole_backlog",
    "tests/integration/test_broker_installation.py::test_each_tool_fetches_the_same_jars",
    "tests/packaging/test_again.py::",
)

#: Files of tests/integration that take a minute or more: one that began among the last would end after all others.
_MINUTES: Final = (
    "dead_letter_access",
    "workers",
    "broker_process",
    "full_broker",
    "app_faults",
    "user_callables",
    "async",
    "interrupts",
    "demo",
)

#: Files of tests/unit that take more than two seconds, beside the folders that begin first: one of six began last.
_SECONDS: Final = (
    "jms/test_interrupted_opening",
    "core/test_torn_frames",
    "core/test_interrupted",
    "testing/test_harness",
    "stores/test_ledger",
    "jms/test_durations",
    "core/test_wire",
    "drivers/test_calls",
    "stores/test_stores",
    "test_benchmarks",
    "testing/test_page_stall",
)

#: What takes longest begins first, or one worker would be left alone with it at the end.
_FIRST: Final = (
    *_TOGETHER,
    "tests/pipeline/",
    "tests/conformance/",
    "tests/integration/test_broker_installation.py::test_each_tool_fetches_the_same_jars",
    "tests/integration/test_odd_senders",
    "tests/guarantees/",
    "tests/dashboards/",
    "tests/faults/",
    *(f"tests/integration/test_{name}.py" for name in _MINUTES),
    "tests/integration/",
    "tests/property/",
    "tests/unit/jmsx_report/",
    *(f"tests/unit/{name}.py" for name in _SECONDS),
    "tests/unit/app/",
    "tests/unit/cli/",
)

#: Those of them that are single tests; of all others the file alone tells when they begin.
_TESTS: Final = tuple(one for one in _FIRST if "::" in one)

#: Tests that wait for nothing: with them a processor is busy while other workers wait for brokers.
_BUSY: Final = ("tests/unit/", "tests/property/")

#: Where they begin and end, of the way through the others: first come reports, which need the processors themselves,
#: and at the end small files, that no worker is left alone with a large one.
_BUSY_FROM: Final = 0.25
_BUSY_TO: Final = 1.4


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """A file goes to one worker as a whole, so that its fixtures are made once; a few units are larger or smaller."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False  # which begins with the quickest files
        super().__init__(config, log)
        #: Where each test stands among those that a worker has collected.
        self._places: dict[WorkerController, dict[str, int]] = {}

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Note what a worker has collected."""
        super().add_node_collection(node, collection)
        self._places[node] = {test: place for place, test in enumerate(collection)}

    def remove_node(self, node: WorkerController) -> str | None:
        """
        Give back the test that a dead worker was at, and let others have the rest.

        xdist would give them that one too, which is beside the point if it passes and kills them as well if not.
        """
        units: dict[str, dict[str, bool]] = self.assigned_work[node]
        for work_unit in units.values():
            for test, completed in work_unit.items():
                if not completed:
                    work_unit[test] = True
                    super().remove_node(node)
                    return test
        nothing: str | None = super().remove_node(node)
        return nothing

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Note that a test is over, and forget a unit that is: xdist counts the tests of all that it has for each."""
        super().mark_test_complete(node, item_index, duration)
        units: dict[str, dict[str, bool]] = self.assigned_work[node]
        name = unit(self.registered_collections[node][item_index])
        if all(units[name].values()):
            del units[name]

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Have a worker run the next unit; xdist would go through the whole collection to find each test."""
        name, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][name] = tests
        places = self._places[node]
        node.send_runtest_some([places[test] for test, over in tests.items() if not over])

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """Name the group of tests that this one belongs to."""
    for beginning in _TOGETHER:
        if nodeid.startswith(beginning):
            return beginning
    return nodeid if nodeid.startswith(_APART) else nodeid.partition("::")[0]


def in_turn(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Put tests in the order in which they begin: what takes longest first, and between what waits what does not."""
    ordered = sorted(items, key=lambda item: _turn(item.nodeid))
    units = [list(tests) for _, tests in groupby(ordered, key=lambda item: unit(item.nodeid))]
    busy = [tests for tests in units if tests[0].nodeid.startswith(_BUSY)]
    others = [tests for tests in units if not tests[0].nodeid.startswith(_BUSY)]
    places = [number / len(others) for number in range(len(others))]
    step = (_BUSY_TO - _BUSY_FROM) / max(len(busy), 1)
    places += [_BUSY_FROM + step * number for number in range(len(busy))]
    placed = sorted(zip(places, others + busy, strict=True), key=lambda pair: pair[0])
    return [test for _, tests in placed for test in tests]


def _turn(nodeid: str) -> int:
    """When a test begins, among others."""
    return _turn_of(nodeid if nodeid.startswith(_TESTS) else nodeid.partition("::")[0])


@functools.cache
def _turn_of(beginning: str) -> int:
    early = (number for number, folder in enumerate(_FIRST) if beginning.startswith(folder))
    return next(early, len(_FIRST))
