"""How a run is spread over worker processes, and what every test may rely on."""

from __future__ import annotations

import gc
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import depth, interrupting, telling
from tests.spreading import Spreading, in_turn

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.remote import Producer

#: Worker processes of a whole run: most tests wait for a broker. On two processors a run with its temporary files in
#: memory, as CI's, took 14 min 25 s with five of them (20 min of CPU) and 14 min 4 s with seven, which kept both
#: processors busy nearly all the time; with the files on the disk 15 min 56 s and 14 min 21 s (23 min of CPU each).
#: Since tests compute and wait less, six took 15 min 37 s and seven 14 min 22 s of one night; with seven both
#: processors were busy throughout, and two tests failed that pass alone.
_WORKERS = 6

#: Folders whose tests are many and need no broker, and worker processes for them: some wait for time to pass, in which
#: three workers leave the processors idle for a seventh of the run; a fifth worker costs what it gains.
_BUSY, _BUSY_WORKERS = ("unit", "property"), 4

#: New objects after which the garbage collector looks at them.
_GARBAGE = 20_000


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """
    Let Ctrl-C do what it does in a terminal, and workers say little; where all is busy try a part, Polars in a thread.

    Where a shell has put us in the background, SIGINT is ignored, and would be by every process that a test starts.
    With a thread for each processor in each worker, the report's unit tests take a quarter more processor time.
    A whole run keeps them: with one thread floats always add up to the same last bit, with two they do not
    (measured), and tables that do are what tests/pipeline is about.
    """
    busy = _named(config) <= _busy(config)
    if busy:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    if not hasattr(config, "workerinput"):  # workers inherit it
        (depth.try_a_part if busy else depth.try_all)()
    # a busy machine is no fault of an example
    settings.register_profile("jmsx", deadline=None, max_examples=depth.rounds(100))
    settings.load_profile("jmsx")
    telling.briefly(config)
    interrupting.fail_alone(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many as the run is worth: none where files, small folders or tests were named."""
    named = _named(config)
    if named & {config.rootpath, config.rootpath / "tests"}:
        return _WORKERS
    return _BUSY_WORKERS if named & _busy(config) else 0


def _named(config: pytest.Config) -> set[Path]:
    return {Path(argument).resolve() for argument in config.args}


def _busy(config: pytest.Config) -> set[Path]:
    return {config.rootpath / "tests" / folder for folder in _BUSY}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spreading:
    """Keep together what shares fixtures."""
    return Spreading(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """
    Have the garbage collector pass over the tests and all that they import.

    They are a million objects, at which it would look again and again: a sixth of the time of the unit tests, and more
    than a third of that of collecting. It does not look once either: what little of it nobody needs is kept. Of what
    comes later it looks at more at once: a tenth of the unit tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items[:] = in_turn(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """
    Leave nothing of what a command sets for the log of its own process to the tests behind it.

    As a fixture of each test it took a tenth of the processor time of an empty one.
    """
    loggers = [logging.getLogger(), logging.getLogger("jmsx")]
    levels = [one.level for one in loggers]
    try:
        return (yield)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            if logger.level != level:
                logger.setLevel(level)
