"""
Plain Python processes that do jobs of ours, without `multiprocessing`.

That would import the user's main script again in each of them, so that a script without a main guard would start
itself over and over; and it says no more of a process that was killed than that something broke.
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
    Has `job` done for each of `todo`, here or elsewhere, and gives what it returned, in their order.

    `job`, and each of `todo`, must be such that they can be sent to another process: no closures. It may be done twice,
    where a worker died. What `job` raises, the engine raises. `map` is an engine.
    """

    def __call__(self, job: Callable[[S], T], todo: Iterable[S], /) -> Iterable[T]:
        """Run `job` on each of `todo`; whoever calls must go through the results, for it is done meanwhile."""


#: Polars sets this variable when it is imported, in the parent too; in it the last word counts.
_ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
#: What a process needs to know before Polars is imported. Memory that was freed is kept for the next batch, by both
#: allocators, for as long as the process lives: to give it back and to be given it again takes an eighth of the CPU
#: time. What is kept is used first, so that a process has less at its worst than one that gives back what is a second
#: old: 300 MiB instead of 400. Where nothing is given back, a thread that looks for what to give back only wakes up.
ENVIRONMENT: Final[Mapping[str, str]] = {
    "POLARS_MAX_THREADS": "1",  # there is a process on each core
    _ALLOCATOR: "background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}

#: The modules of the parent may have been found by a path that only it knows.
_PROGRAM: Final = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from jmsx_report.processes import serve; serve()"
)


def set_up() -> None:
    """Have Polars work in this process as in those of `each`, unless it is imported already, or is told otherwise."""
    if "polars" not in sys.modules:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)


def serve() -> None:
    """Do the jobs that come in by standard input, until it ends: what runs in a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and then ends us
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
        Have `job(argument)` done, and return or raise what it does.

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
    Do `job` for all `arguments` in so many processes: the results, in their order.

    `job` must be a function of a module, or a `functools.partial` of one.

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
