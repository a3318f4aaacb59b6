"""
The event loop on which `async def` handlers run: the application's, or one of jmsx's on a thread of its own.

The session's thread hands the coroutine to the loop and waits for its end, so that order, settlement and transactions
are those of any other handler. If nothing has to be waited for between two messages, the loop goes on with the next
message without the session's thread, for waking two threads costs more than handling a message. A cancelled handler has
failed, unless the app cancelled it in order to stop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from jmsx.drivers.locks import mutex
from jmsx.drivers.process import Origin, keep_for_ever, tell_of_forks
from jmsx.drivers.threads import start
from jmsx.errors import IllegalStateError, JmsxError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

T = TypeVar("T")

#: A function that returns the coroutine of one call of a handler.
Work: TypeAlias = "Callable[[], Coroutine[Any, Any, Any]]"

_log = logger("jmsx.app")

#: Seconds between two checks whether a handler's loop still runs, and to wait until a loop begins to stop.
LOOK: Final = 0.5

#: Seconds to wait until the thread of jmsx's own loop has ended.
ENDING: Final = 5.0

#: Seconds that a web server waits for the app to start; during that time it hears no signal and serves no request.
ENTERING: Final = 5.0

#: The call of a handler in which this code runs, also in tasks that the handler has started.
CALL: Final[contextvars.ContextVar[object]] = contextvars.ContextVar("jmsx_call", default=None)


class NoThreadError(RuntimeError):
    """The process cannot start another thread, so the work for that thread has not begun."""


async def beside(work: Callable[..., T], *arguments: object) -> T:
    """
    Call `work` on a thread of its own, in the caller's context, without blocking the event loop; return its result.

    The thread finishes even if the caller is cancelled; but a program that ends does not wait for it, for code of the
    application may hang in it. Raises NoThreadError if the process cannot start the thread.
    """
    doing, do = _to_do(work, *arguments)
    thread = threading.Thread(target=do, name="jmsx-beside", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThreadError(*error.args) from error
    working = asyncio.wrap_future(doing)
    working.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(working)


def _to_do(
    work: Callable[..., T], *arguments: object
) -> tuple[concurrent.futures.Future[T], Callable[[], None]]:
    """Return what has the outcome of `work`, and what does it, in the caller's context, unless that is cancelled."""
    doing: concurrent.futures.Future[T] = concurrent.futures.Future()
    return doing, partial(_do, doing, partial(contextvars.copy_context().run, work, *arguments))


def _do(doing: concurrent.futures.Future[T], work: Callable[[], T]) -> None:
    if doing.set_running_or_notify_cancel():
        try:
            doing.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            doing.set_exception(error)
            del doing  # break the reference cycle of error and frame


async def in_thread(
    work: Callable[[], T], pool: concurrent.futures.Executor, *, to_its_end: bool
) -> T:
    """
    Call `work` on a thread of `pool`, in the caller's context, without blocking the event loop; return its result.

    With `to_its_end`, a cancellation waits for `work` to finish: if it sent a message after the rollback, that would be
    part of the next transaction. Raises NoThreadError if the process cannot start a thread; then `work` is not called.
    """
    doing, do = _to_do(work)
    try:
        pool.submit(do)
    except RuntimeError as error:
        # The pool keeps work for which it can start no thread, until one of its threads is free; so cancel it.
        if doing.cancel():
            raise NoThreadError(*error.args) from error
    working = asyncio.wrap_future(doing)
    if not to_its_end:
        return await working
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        with out_of_scope():
            while not working.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([working])
        raise


def out_of_scope() -> contextlib.AbstractContextManager[object]:
    """
    Return a context manager that shields its block from a cancelled scope of anyio, but not from `Task.cancel()`.

    Without it, a cancelled scope, such as that of a task group, would cancel every single `await` in the block.
    """
    scope = getattr(sys.modules.get("anyio"), "CancelScope", None)  # else there is no scope
    return contextlib.nullcontext() if scope is None else scope(shield=True)


@contextlib.asynccontextmanager
async def beside_a_server(
    app: contextlib.AbstractAsyncContextManager[Any], leave: Callable[[], object]
) -> AsyncIterator[None]:
    """
    Enter `app`; if that takes long, it goes on while the block runs, and `leave` ends it.

    Raises what entering `app` raises: at the end of the block, if the block has begun by then.
    """
    entering = asyncio.ensure_future(app.__aenter__())
    try:
        await asyncio.wait([entering], timeout=ENTERING)
    except asyncio.CancelledError as error:
        entering.cancel()
        with out_of_scope():
            await asyncio.wait([entering])
            if not entering.cancelled() and entering.exception() is None:  # entered just then
                await app.__aexit__(type(error), error, error.__traceback__)
        raise
    if entering.done():
        entering.result()
    else:
        _log.warning("the web server goes on without the app, which has not started yet")
        entering.add_done_callback(_tell_late_failure)
    try:
        yield
    except BaseException as error:
        if await _has_entered(entering, leave):
            await app.__aexit__(type(error), error, error.__traceback__)
        raise
    if await _has_entered(entering, leave):
        await app.__aexit__(None, None, None)


async def _has_entered(entering: asyncio.Future[Any], leave: Callable[[], object]) -> bool:
    if entering.done():
        entering.result()
        return True
    entering.remove_done_callback(_tell_late_failure)
    leave()
    with contextlib.suppress(JmsxError):  # the error of a start that was told to stop
        await entering
        return True
    return False


def _tell_late_failure(entering: asyncio.Future[Any]) -> None:
    error = None if entering.cancelled() else entering.exception()
    if error is not None:
        _log.error("the app did not start, and the web server goes on without it", exc_info=error)


@contextlib.contextmanager
def on_signals(loop: asyncio.AbstractEventLoop, signalled: Callable[[], object]) -> Iterator[None]:
    """
    Have SIGTERM and Ctrl-C call `signalled` on the loop, if it runs on the main thread.

    After the block the handlers from before are restored; but signal handlers that the program had set on the loop are
    restored only if it is asyncio's own, for uvloop does not say what they were.
    """
    told: dict[int, asyncio.Handle] = getattr(loop, "_signal_handlers", {})  # has no public name
    with contextlib.ExitStack() as undo:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                previous, by_program = signal.getsignal(number), told.get(number)
                loop.add_signal_handler(number, signalled)
                if by_program is not None:
                    undo.callback(loop.add_signal_handler, number, by_program._run)  # noqa: SLF001 - nor has what runs it
                else:
                    if previous not in (None, signal.getsignal(number)):
                        undo.callback(signal.signal, number, previous)
                    undo.callback(loop.remove_signal_handler, number)
        yield


class Loop:
    """An event loop for handlers: `given`, which runs on another thread, or a new one (None), which `open` starts."""

    def __init__(self, given: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = asyncio.new_event_loop() if given is None else given
        self._ending = False
        self._heard = threading.Event()  #: set when the loop begins to stop
        self._cancelled: set[asyncio.Task[None]] = set()  #: by us, as the app ends
        self._given_up: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._origin = Origin()
        self._forked: asyncio.Task[Any] | None = None  #: the task that has forked
        if given is None:
            self._thread = threading.Thread(target=self._run, name="jmsx-loop", daemon=True)

    def open(self) -> None:
        """Start the loop if it is jmsx's own; raises ResourceAllocationError if no thread can be started."""
        if self._thread is not None:
            start(self._thread, "async handlers got no event loop", "start the app again")
            tell_of_forks(self)

    def after_fork(self) -> None:
        """
        In the child of a fork, stop a loop of jmsx's own, for the files that it waits for are shared with the parent.

        A handler that has forked goes on until it ends or awaits something; then its thread ends, and the child, too.
        """
        keep_for_ever(self._loop)
        self._forked = asyncio.current_task(self._loop)
        self._ending = True
        # The callbacks that are due now are run by the parent; asyncio has no public name for them.
        for due in getattr(self._loop, "_ready", ()):
            due.cancel()
        self._loop.stop()

    @property
    def here(self) -> bool:
        """Whether the caller runs on this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def begin(
        self, work: Work, call: object, following: Callable[[Any], Work | None] = lambda _: None
    ) -> Running:
        """
        Start the coroutine that `work` makes; raises IllegalStateError, and starts nothing, if the loop is closed.

        When the coroutine has returned, `following` is called with its result, on the loop and in a context of its own,
        and may return the next work. The Running that this returns ends with the last work.
        """
        running = Running(self._loop, work, call, following, self._cancelled)
        try:
            self._loop.call_soon_threadsafe(running.start)
        except RuntimeError as error:
            raise IllegalStateError(
                "the event loop of the app was closed while the app ran: leave `async with app` first, or await"
                " app.serve()"
            ) from error
        return running

    def give_up(self, running: Running) -> None:
        """Do not wait for `running` in `close`: it was cancelled, has had time to clean up, and has not ended."""
        if (task := running.task) is not None:
            self._given_up.add(task)

    def close(self) -> None:
        """Stop the loop if it is jmsx's own, and cancel the tasks that run on it."""
        if self._thread is not None and self._thread.ident is None:
            self._loop.close()  # its thread was never started
        elif self._thread is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it is closed by now
                self._loop.call_soon_threadsafe(self._stop)
            # A loop that is blocked by a handler does not begin to stop; it had its time when the app drained.
            if not self.here and self._heard.wait(LOOK):
                self._thread.join(ENDING)

    def _stop(self) -> None:
        self._heard.set()
        if not self._ending:  # cancelling again would interrupt the tasks' cleanup
            self._ending = True
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._ending:
                # a handler may stop the loop, or exit by SystemExit: that fails one delivery, and the loop runs on
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
            if self._origin.here:
                self._end_tasks()
            elif self._forked is not None and not self._forked.done():
                _log.error("a child of fork() ends, for it cannot await on the parent's event loop")
        finally:
            if self._origin.here:
                self._loop.close()

    def _end_tasks(self) -> None:
        """End what runs on it, in good order."""
        left = asyncio.all_tasks(self._loop)
        for task in left - self._cancelled:  # cancelling again would interrupt its cleanup
            task.cancel()
        awaited = left - self._given_up
        ending = asyncio.wait(awaited, timeout=1.0) if awaited else _nothing()
        self._loop.run_until_complete(ending)
        for task in asyncio.all_tasks(self._loop):  # a task that went on is cancelled once more
            task.cancel()
        self._loop.run_until_complete(_nothing())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class Running:
    """
    Calls of a handler on a loop, one after the other, for which one thread waits.

    The loop and the thread wait for each other, so only one callback and one lock are used between them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Work,
        call: object,
        following: Callable[[Any], Work | None],
        cancelled: set[asyncio.Task[None]],
    ) -> None:
        self.cancelled_by_us = False
        self._cancelled = cancelled  #: receives the tasks that jmsx cancels
        self.loop_closed = False  #: whether it was closed during the call
        self._loop = loop
        self._work = work
        self._call = call
        self._following = following
        self.task: asyncio.Task[None] | None = None  #: that of the last call, once begun
        self._over = mutex()  #: held until it has ended
        self._over.acquire()
        self._ended = False
        self._returned: Any = None
        self._raised: BaseException | None = None
        self._context: contextvars.Context  #: the thread's, of which each call has a copy

    def start(self) -> None:
        """Begin the call's work as a task; call this on the loop's thread."""
        self._context = contextvars.copy_context()
        CALL.set(self._call)  # in this call's own context, of which the task gets a copy
        self._begin_or_end(self._work, contextvars.copy_context())

    def _begin_or_end(self, work: Work, context: contextvars.Context) -> None:
        """Do as `_begin` does; the end of all, if that raises, or the app has cancelled it meanwhile."""
        if self.cancelled_by_us:
            self._end(asyncio.CancelledError())
            return
        try:
            self._begin(work, context)
        except BaseException as error:
            self._end(error)
            raise

    def _begin(self, work: Work, context: contextvars.Context) -> None:
        """Make a task of one call; raises what a task factory of the program's does."""
        call = self._run(work)
        try:
            # Not by `create_task(context=)`, for a task factory need not accept that argument.
            task = context.run(self._loop.create_task, call)
        except BaseException:
            call.close()
            raise
        if not task.done():  # an eager task may be done, and the next is begun below
            self.task = task

    def _goes_on(self, returned: Any) -> bool:
        """Return whether there is another call behind the one that has `returned`; it is begun then, or about to."""
        if self.cancelled_by_us:
            return False
        context = self._context.copy()
        work = context.run(self._following, returned)
        if work is None:
            return False
        if self._loop.get_task_factory() is None:
            self._begin(work, context)
        else:  # an eager task would run the next call inside of this one
            self.task = None
            self._loop.call_soon(self._begin_or_end, work, context)
        return True

    def result(self) -> Any:
        """
        Wait for the last call, and return its result; raises what the call raises.

        Raises asyncio.CancelledError if it was cancelled, IllegalStateError if the loop was closed while it ran.
        """
        while not self._over.acquire(timeout=LOOK):
            task = self.task
            gone = (task is not None and task.done()) or self._loop.is_closed()
            # Asked in this order, for it tells, or begins another task, before its own is done.
            if gone and task is self.task and not self._ended:
                raise self._untold()
        if isinstance(self._raised, asyncio.CancelledError):
            raise asyncio.CancelledError("the handler was cancelled") from self._raised
        if self._raised is not None:
            raise self._raised
        return self._returned

    def cancel(self) -> None:
        """Cancel the handler, because the app ends; it may catch that, so only when `result` returns has it ended."""
        self.cancelled_by_us = True

        def cancel() -> None:
            if self.task is not None:
                self._cancelled.add(self.task)
                self.task.cancel("the app ends")

        with contextlib.suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(cancel)

    async def _run(self, work: Work) -> None:
        try:
            returned = await work()
            goes_on = self._goes_on(returned)
        except asyncio.CancelledError as error:
            self._end(error)
            raise
        except KeyboardInterrupt as error:
            self._end(error)
            task = asyncio.current_task()
            if task is not None:  # retrieve its exception, or asyncio would log that nobody did
                task.add_done_callback(lambda ended: ended.exception())
            raise
        except GeneratorExit:  # mostly because the loop no longer exists
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too fails this delivery, and ends no loop
            self._end(error)
        else:
            if not goes_on:
                self._returned = returned
                self._end(None)

    def _end(self, raised: BaseException | None) -> None:
        if self._ended:  # an eager task calls this twice
            return
        self._ended = True
        self._raised = raised
        self._over.release()

    def _untold(self) -> BaseException:
        """Return why it ends without a word: it was cancelled before its first step, or its loop is gone."""
        if self.task is not None and self.task.done():
            error = None if self.task.cancelled() else self.task.exception()
            return error or asyncio.CancelledError("the handler was cancelled")
        self.loop_closed = True
        return IllegalStateError("the event loop was closed while a handler ran on it")


async def _nothing() -> None:
    """No tasks are left."""
