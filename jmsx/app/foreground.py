"""
Running an app in the foreground: `App.run()` on the main thread, `App.serve()` and `async with app` on an event loop.

The app starts and stops on threads of their own, so that a signal or a cancellation can be handled in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from jmsx.app.loops import LOOK, NoThreadError, beside, on_signals, out_of_scope
from jmsx.app.overview import overview
from jmsx.app.service import Service
from jmsx.app.signals import Beside, Signals
from jmsx.app.start import Start
from jmsx.errors import JmsxError, from_a_signal
from jmsx.log import counted, logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

#: A function that is called with texts for the operator.
Announce: TypeAlias = "Callable[[str], object]"

#: Exceptions that, raised in a block of `with app:`, drain the app as the normal end of the block does.
IN_GOOD_ORDER: Final = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)

#: Longest time in seconds between two checks whether the app is idle.
LOOK_FOR_IDLENESS: Final = 1.0

_log = logger("jmsx.app")


def run(service: Service, limit: float, patience: float | None, announce: Announce) -> None:
    """Do as `App.run` does; `limit` and `patience` (None: for ever) are its two durations, in seconds."""
    service.lifecycle.check_not_running()  # before signal handlers are set, which may be those of a running app
    with Signals() as signals:
        start = Start(signals.wake)
        try:
            begun = service.lifecycle.start(start)
            if not (begun and _start_beside(service, start, limit, signals)):
                service.abort(start)
                return
            _tell_what_runs(start, announce)
            if patience is not None:
                idleness = partial(_leave_when_idle, service, start, patience)
                service.machine.thread(idleness, "jmsx-idle").start()
            number = signals.wait()
            busy = sum(1 for worker in start.workers if worker.call is not None)
            why = number.name if number is not None else "told to stop"
            _log.info("draining", why=why, running=busy, drain_timeout=limit)
            _tell(
                announce,
                f"{why}: waiting for {counted(busy, 'running handler')}, {limit:g} s at the most;"
                " a second signal aborts",
            )
            _wait_for_end(signals.beside(partial(service.stop, limit, start), "jmsx-stop"))
        except BaseException:
            service.abort(start)
            raise


async def serve(service: Service, limit: float, announce: Announce) -> None:
    """Do as `App.serve` does; it drains for `limit` seconds."""
    woken, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.current_task()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(woken.set)

    start = Start(wake, loop)

    def signalled() -> None:
        if start.told and task is not None:
            task.cancel()
        service.leave(start)

    service.lifecycle.check_not_running()  # before signal handlers are set, as above
    with on_signals(loop, signalled):
        begun = service.lifecycle.start(start)
        if not (begun and await _enter(service, start, service.bring_up_unless_told, limit)):
            await abort(service, start)
            return
        _tell_health(start, announce)
        try:
            await woken.wait()
        finally:
            _tell(announce, f"waiting for running handlers, {limit:g} s at the most")
            await leave(service, limit, start)


class Block(contextlib.AbstractAsyncContextManager["Start"]):
    """An `async with` block during which an app runs, in a `Start` that belongs to the block."""

    def __init__(self, service: Service, start: Start, drain_timeout: float) -> None:
        self._service, self._start, self._drain_timeout = service, start, drain_timeout

    def leave(self) -> None:
        """Tell the app to stop, also while the block is being entered."""
        self._service.leave(self._start)

    async def __aenter__(self) -> Start:
        """Do as `App.start` does, without blocking the event loop; see `_enter`."""
        service, start = self._service, self._start
        service.lifecycle.check_not_running()
        try:
            service.claim(start)
        except BaseException:
            await abort(service, start)
            raise
        await _enter(service, start, service.bring_up, self._drain_timeout)
        return start

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain the app if the block ended well or was cancelled, else abort it, as the end of `with app:` does."""
        if error is None or isinstance(error, IN_GOOD_ORDER):
            await leave(self._service, self._drain_timeout, self._start)
        else:
            await abort(self._service, self._start)


async def leave(service: Service, drain_timeout: float, start: Start) -> None:
    """Stop without blocking the event loop; if this is cancelled, it aborts."""
    with out_of_scope():
        try:
            await beside(service.stop, drain_timeout, start)
        except asyncio.CancelledError:
            await abort(service, start)
            raise
        except NoThreadError:
            service.abort(start)
            raise


async def abort(service: Service, start: Start) -> None:
    """Abort the start, without blocking the event loop if a thread can be had for it."""
    try:
        await beside(service.abort, start)
    except NoThreadError:
        service.abort(start)


async def _enter(
    service: Service, start: Start, bring_up: Callable[[Start], T], drain_timeout: float
) -> T:
    """
    Return what `bring_up` does, while the event loop goes on, on which `async def` handlers run from then on.

    Whoever is cancelled meanwhile drains, and aborts when cancelled once more.
    """
    starting = asyncio.ensure_future(beside(bring_up, start))
    try:
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if await _has_started(service, start, starting, drain_timeout):
                await leave(service, drain_timeout, start)
            raise
    except BaseException:
        with out_of_scope():
            await abort(service, start)
        raise


async def _has_started(
    service: Service, start: Start, starting: asyncio.Future[Any], drain_timeout: float
) -> bool:
    """Have a start end that is not wanted any more; whether it has, and messages flow all the same."""
    with out_of_scope(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain_timeout):
            while not starting.done():
                service.leave(start)  # again, for what it opens next
                await asyncio.wait([starting], timeout=LOOK)
    return starting.done() and starting.exception() is None


def _start_beside(service: Service, start: Start, limit: float, signals: Signals) -> bool:
    """
    Open the consumers beside the main thread, and let messages flow; False if a signal or `quit()` comes meanwhile.

    Whatever of the application's keeps the opening from ending then is waited for `limit` seconds at the most. Raises
    KeyboardInterrupt after a second signal.
    """
    opening = signals.beside(partial(service.open, start), "jmsx-start")
    try:
        if opening.wait() is not None:
            _leave_opening(service, start, opening, limit)
            return False
        service.begin(start)
    except JmsxError as error:
        service.check_told(error, start)
        return False
    return True


def _wait_for_end(stopping: Beside) -> None:
    """Return when the app has stopped; raises KeyboardInterrupt after a second signal."""
    if stopping.wait() is not None:
        raise KeyboardInterrupt


def _leave_opening(service: Service, start: Start, opening: Beside, limit: float) -> None:
    """Have it end that the app is opened, within `limit` seconds; raises what `_start_beside` does."""
    until = service.machine.monotonic() + limit
    while not opening.over and service.machine.monotonic() < until:
        service.leave(start)  # again, for what it opens next
        if opening.wait(LOOK) is not None:
            raise KeyboardInterrupt


def _leave_when_idle(service: Service, start: Start, patience: float) -> None:
    while not start.ending.wait(min(patience / 4, LOOK_FOR_IDLENESS)):
        since = service.machine.monotonic() - patience
        if start.workers.idle_since(since):
            _log.info("idle: the app ends", seconds=patience)
            service.leave(start)


def _tell_what_runs(start: Start, announce: Announce) -> None:
    _tell_health(start, announce)
    for line in overview(start.workers):
        _tell(announce, line)
    for state in start.workers.waiting():
        _tell(announce, f"{state.consumer} waits for its {state.away}")


def _tell_health(start: Start, announce: Announce) -> None:
    if (endpoint := start.endpoint) is not None:
        _tell(announce, f"health at {endpoint.url}")


def _tell(announce: Announce, words: str) -> None:
    """Say `words` to the operator; if that cannot be done, what runs goes on all the same."""
    try:
        announce(words)
    except BaseException as error:
        if from_a_signal(error):
            raise
        _log.error(
            "announcement failed: what was given as announce= has raised",
            words=words,
            exc_info=error,
        )
