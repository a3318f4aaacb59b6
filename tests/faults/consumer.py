"""The consuming program, made to be killed: `python -m tests.faults.consumer TASK`."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import mmap
import os
import signal
import sqlite3
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from jmsx import AcknowledgeMode, BatchError, Message, Queue, RedeliveryPolicy
from jmsx.app import App
from jmsx.stores import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver
from tests.faults.account import Delivery, End
from tests.faults.books import numbers
from tests.faults.settings import HEARTBEAT, MARK, SLOW, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path


class RefusedError(Exception):
    """A handler's, for a marked message."""


def main(text: str) -> None:
    """Run one consumer until SIGTERM."""
    faulthandler.register(signal.SIGUSR1)  # the bench asks where it hangs
    threading.Thread(target=_end_with_bench, daemon=True).start()
    task = Task.loads(text)
    plan = task.plan
    if plan.stepped:
        step_clock(task.clock)
    metrics = PrometheusObserver()
    app = application(task, metrics)
    app.run()
    told = {"pid": os.getpid(), "numbers": numbers(metrics)}
    task.metrics.mkdir(exist_ok=True)
    task.metrics.joinpath(str(os.getpid())).write_text(json.dumps(told), "utf-8")


def application(task: Task, metrics: PrometheusObserver) -> App:
    """The app of such a task."""
    plan = task.plan
    app = App(
        task.way.url,
        tls=task.way.tls,
        heartbeat=HEARTBEAT,
        ledger=task.ledger if plan.ledger else None,
        commit_markers=plan.markers,
        observers=[EventLog(task.events, service="faults"), metrics],
    )
    settings: dict[str, Any] = {}
    if plan.batch is not None:
        settings = {"batch": plan.batch, "batch_timeout": plan.batch_timeout}
    app.consumer(
        Queue(task.queue),
        mode=AcknowledgeMode[plan.mode],
        redelivery=RedeliveryPolicy(
            maximum_redeliveries=plan.maximum_redeliveries,
            initial_redelivery_delay=plan.delay,
            redelivery_delay=plan.delay,
            mode="scheduled" if plan.scheduled else "local",
        ),
        dead_letter=task.dead_letter,
        non_blocking_redelivery=plan.non_blocking,
        optimize_acknowledge=plan.optimized,
        concurrency=plan.concurrency,
        prefetch=plan.prefetch,
        dedupe=_store(task),
        **settings,
    )(_handler(Work(task, app), task))
    return app


class Work:
    """What the handlers do; each message is written down before anything is done with it, and when all is done."""

    def __init__(self, task: Task, app: App) -> None:
        self._task = task
        self._app = app
        self._journal, self._ends = (
            os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            for file in (task.journal, task.ends)
        )
        task.failures.mkdir(exist_ok=True)

    async def do(self, messages: list[Message], database: sqlite3.Connection | None = None) -> None:
        """
        Handle one message, or a batch.

        Raises RefusedError, and BatchError where messages that failed are named.
        """
        plan, now = self._task.plan, time.monotonic()
        begun = {one: Delivery(now, one.redelivered, one.text, os.getpid()) for one in messages}
        self._write(self._journal, map(Delivery.line, begun.values()))
        failed: dict[Message, RefusedError] = {}
        for message in messages:
            try:
                await self._treat(message)
            except RefusedError as error:
                failed[message] = error
                continue
            await self._pause(plan.work)
            if plan.forwards:
                await self._forward(message.text)
            if database is not None:
                database.execute("INSERT INTO bookings VALUES (?)", (message.text,))
        whole = bool(failed) and (plan.mode == "SESSION_TRANSACTED" or database is not None)
        rest = End.UNDONE if whole else End.OK
        if failed and not plan.named:
            failed = dict.fromkeys(messages, next(iter(failed.values())))
        self._write(
            self._ends,
            (
                each._replace(
                    end=End.FAILED if one in failed else rest, ended=time.monotonic()
                ).end_line()
                for one, each in begun.items()
            ),
        )
        if failed and plan.batch is not None and plan.named:
            raise BatchError(failed)
        if failed:
            raise next(iter(failed.values()))

    async def _treat(self, message: Message) -> None:
        """As its mark says."""
        match message.text.partition(MARK)[2]:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise RefusedError(message.text)
            case "retry" if not message.redelivered:
                raise RefusedError(message.text)
            case "once" | "twice" as word:
                self._fail(message.text, 1 if word == "once" else 2)
            case "slow":
                await self._pause(SLOW)

    def _fail(self, body: str, times: int) -> None:
        """Raise RefusedError so many times, whichever processes it comes to."""
        for number in range(times):
            with contextlib.suppress(FileExistsError):
                self._task.failures.joinpath(f"{body.rpartition('/')[2]}.{number}").touch(
                    exist_ok=False
                )
                raise RefusedError(body)

    async def _pause(self, seconds: float) -> None:
        if self._task.plan.asynchronous:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs this

    async def _forward(self, body: str) -> None:
        send = self._app.asend if self._task.plan.asynchronous else self._send
        await send(
            Queue(self._task.output),
            body,
            dedupe_id=body if self._task.plan.dedupe_outputs else None,
        )

    async def _send(self, *told: Any, **options: Any) -> str:
        return self._app.send(*told, **options)

    @staticmethod
    def _write(file: int, lines: Iterable[str]) -> None:
        """In one call, so that none is torn."""
        os.write(file, "".join(lines).encode())


def _handler(work: Work, task: Task) -> Callable[..., Any]:
    """A handler of the kind that the plan has."""
    plan = task.plan

    async def one(message: Message) -> None:
        await work.do([message])

    async def one_booked(message: Message, *, db: sqlite3.Connection) -> None:
        await work.do([message], db)

    async def some(messages: list[Message]) -> None:
        await work.do(messages)

    async def some_booked(messages: list[Message], *, db: sqlite3.Connection) -> None:
        await work.do(messages, db)

    def one_at_once(message: Message) -> None:
        _run(one(message))

    def one_booked_at_once(message: Message, *, db: sqlite3.Connection) -> None:
        _run(one_booked(message, db=db))

    def some_at_once(messages: list[Message]) -> None:
        _run(some(messages))

    def some_booked_at_once(messages: list[Message], *, db: sqlite3.Connection) -> None:
        _run(some_booked(messages, db=db))

    handlers: dict[tuple[bool, ...], Callable[..., Any]] = {
        (True, False, False): one,
        (True, False, True): one_booked,
        (True, True, False): some,
        (True, True, True): some_booked,
        (False, False, False): one_at_once,
        (False, False, True): one_booked_at_once,
        (False, True, False): some_at_once,
        (False, True, True): some_booked_at_once,
    }
    return handlers[plan.asynchronous, plan.batch is not None, plan.store == "database"]


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to its end what waits for no event loop."""
    with contextlib.suppress(StopIteration):
        work.send(None)


def _store(task: Task) -> IdempotencyStore | None:
    """What knows what was done."""
    match task.plan.store:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(task.done)
        case "database":
            # the connection is made on one thread, and an asynchronous handler is on another
            store = DatabaseStore(
                lambda: sqlite3.connect(task.bookings, 30, check_same_thread=False)
            )
            with contextlib.closing(sqlite3.connect(task.bookings, 30)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS bookings (body TEXT NOT NULL)")
            store.create_table()
            return store
        case _:
            return None


def _end_with_bench() -> None:
    """Nobody closes our standard input but the death of the bench."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def step_clock(file: Path) -> None:
    """Let `time.time()` be ahead of the true time by what stands in `file`, at every moment."""
    with file.open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    true_time = time.time
    time.time = lambda: true_time() + struct.unpack("d", ahead)[0]


if __name__ == "__main__":
    main(sys.argv[1])
