"""Which tests of a run over several worker processes stay together, and what begins first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

#: Beginnings of names of files that share what costs more to start than to use: a Spark session.
_TOGETHER: Final = ("tests/pipeline/test_spark_",)

#: Tests that share nothing but the brokers of their worker, and take a minute or more together.
_APART: Final = (
    "tests/conformance/test_conformance.py::test_every_scenario_passes",
    "tests/integration/test_backlog.py::test_receive_takes_a_whole_backlog",
    "tests/integration/test_broker_installation.py::test_each_tool_fetches_the_same_jars",
    "tests/packaging/test_again.py::",
)

#: What takes longest begins first, or one worker would be left alone with it at the end.
_FIRST: Final = (
    *_TOGETHER,
    "tests/pipeline/",
    "tests/conformance/",
    "tests/integration/test_odd_senders",
    "tests/integration/",
    "tests/packaging/test_again",
    "tests/property/",
)


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """A file goes to one worker as a whole, so that its fixtures are made once; a few units are larger or smaller."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False  # which begins with the quickest files
        super().__init__(config, log)

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

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """Name the group of tests that this one belongs to."""
    for beginning in _TOGETHER:
        if nodeid.startswith(beginning):
            return beginning
    return nodeid if nodeid.startswith(_APART) else nodeid.partition("::")[0]


def turn(nodeid: str) -> int:
    """When a test begins, among others."""
    early = (number for number, folder in enumerate(_FIRST) if nodeid.startswith(folder))
    return next(early, len(_FIRST))
