"""
Runs jobs in plain Python processes, without `multiprocessing`.

`multiprocessing` would import the user's main script again in each process, so that a script without a main guard would
start itself over and over; and of a process that was killed it only says that something broke.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


S = TypeVar("S")
T = TypeVar("T")


class Engine(Protocol):
    """
    Runs `job` on each of `todo`, here or elsewhere, and yields the results in the order of `todo`.

    `job` and each of `todo` must be picklable, so no closures. A job may be done twice if a worker died. The engine
    raises what `job` raises. `map` is an engine.
    """

    def __call__(self, job: Callable[[S], T], todo: Iterable[S], /) -> Iterable[T]:
        """Run `job` on each of `todo`; the caller must consume the results, because jobs may run only meanwhile."""


#: The variable with the options of Polars' allocator, which Polars sets at import; of repeated options the last counts.
_ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
#: Environment variables that must be set before Polars is imported. Both allocators keep freed memory for the next
#: batch as long as the process lives: returning it to the system and requesting it again takes an eighth of the CPU
#: time. Kept memory is reused first, so the peak is lower than with returning memory after a second: 300 MiB instead of
#: 400. As no memory is returned, the allocator's background thread would only wake up for nothing.
ENVIRONMENT: Final[Mapping[str, str]] = {
    "POLARS_MAX_THREADS": "1",  # there is a process on each core
    _ALLOCATOR: "background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}

#: The program of a process. It first gets the parent's `sys.path`, without which it may not find the same modules.
_PROGRAM: Final = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from jmsx_report.processes import serve; serve()"
)


def set_up() -> None:
    """Set ENVIRONMENT in this process, too, unless Polars is imported already; variables that are set stay."""
    if "polars" not in sys.modules:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)


def serve() -> None:
    """Run the jobs that arrive on standard input, until that ends; this is the main loop of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and then ends us
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    while True:
        try:
            job, argument = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, job(argument)))
        except BaseException as error:  # noqa: BLE001 - it is the parent's to raise
            error.add_note(traceback.format_exc())
            answer = pickle.dumps((False, error))
        try:
            answers.write(answer)
            answers.flush()
        except BrokenPipeError:
            return  # the parent has died


class _Process:
    """One process; use it as a context manager."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
        )
        assert self._process.stdin is not None  # noqa: S101 - for mypy: it is a pipe
        assert self._process.stdout is not None  # noqa: S101 - for mypy: it is a pipe
        self._jobs, self._answers = self._process.stdin, self._process.stdout
        self._told_path = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._answers.close()
        with suppress(BrokenPipeError):  # a job was still in it
            self._jobs.close()

    def do(self, job: Callable[[S], T], argument: S) -> T:
        """
        Run `job(argument)` in the process; return its result, or raise its exception.

        Raises:
            ConfigurationError: the process has died.

        """
        try:
            if not self._told_path:
                self._told_path = True
                self._jobs.write(pickle.dumps(sys.path))
            self._jobs.write(pickle.dumps((job, argument)))
            self._jobs.flush()
            done, answer = pickle.load(self._answers)  # noqa: S301 - from our own child
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            raise ConfigurationError(self._obituary()) from error
        if not done:
            raise answer
        return answer  # type: ignore[no-any-return]  # the child sends what the job returned

    def _obituary(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return (
                "a process of the report was killed (signal 9), most likely because the machine ran out of memory;"
                " what it had finished is kept: make the report again, with fewer processes or more memory"
            )
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"a process of the report ended {how}; what it had finished is kept: make the report again"


def each(job: Callable[[S], T], arguments: Sequence[S], processes: int) -> Iterator[T]:
    """
    Run `job` on all `arguments` in so many processes, and yield the results in order.

    `job` must be a module-level function, or a `functools.partial` of one.

    Raises:
        ConfigurationError: a process has died.

    """
    wishes = [os.environ.get(_ALLOCATOR), ENVIRONMENT[_ALLOCATOR]]
    environment = {
        **ENVIRONMENT,
        **os.environ,
        _ALLOCATOR: ",".join(filter(None, wishes)),
    }
    idle = SimpleQueue[_Process]()

    def do(argument: S) -> T:
        process = idle.get()
        try:
            return process.do(job, argument)
        finally:
            idle.put(process)

    with ExitStack() as stack, ThreadPoolExecutor(processes) as threads:
        for _ in range(processes):
            idle.put(stack.enter_context(_Process(environment)))
        yield from threads.map(do, arguments)
