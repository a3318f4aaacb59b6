"""How a run is spread over worker processes, and what every test may rely on."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.spreading import Spreading, in_turn

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from xdist.remote import Producer

#: Worker processes of a whole run: most tests wait for a broker, so that five keep two processors busy. With three
#: they were idle for a third of the time of the integration tests (measured).
_WORKERS = 5

#: Folders whose tests are many and wait for nothing, and worker processes for them.
_BUSY, _BUSY_WORKERS = ("unit", "property"), 2

settings.register_profile("jmsx", deadline=None)  # a busy machine is no fault of an example
settings.load_profile("jmsx")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """
    Let Ctrl-C do what it does in a terminal, and keep what Python has compiled.

    Where a shell has put us in the background, SIGINT is ignored, and would be by every process that a test starts.
    Where PYTHONDONTWRITEBYTECODE is set, each of those would compile all that it imports: a seventh of the processor
    time of the unit tests (measured). So it is kept, but not beside the sources.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(config.rootpath / ".pytest_cache" / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many as the run is worth: none where files, small folders or tests were named."""
    tests = config.rootpath / "tests"
    named = {Path(argument).resolve() for argument in config.args}
    if named & {config.rootpath, tests}:
        return _WORKERS
    return _BUSY_WORKERS if named & {tests / folder for folder in _BUSY} else 0


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spreading:
    """Keep together what shares fixtures."""
    return Spreading(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """
    Have the garbage collector pass over the tests and all that they import.

    They are a million objects, at which it would look again and again: a sixth of the time of the unit tests, and more
    than a third of that of collecting.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items[:] = in_turn(items)


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """What a command sets for its own process is not left to the tests behind it."""
    loggers = [logging.getLogger(), logging.getLogger("jmsx")]
    levels = [one.level for one in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
