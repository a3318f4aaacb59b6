"""
A program that forks in every way while it consumes and sends: `python -m tests.integration.forking WHAT URL QUEUE`.

The last line that it writes is JSON, for the test that runs it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import jmsx
from jmsx.app import App
from jmsx.stores import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a child that hangs is killed.
LONGEST = 20

#: How a child ends.
ENDS = ("_exit", "sys.exit", "return", "raise", "multiprocessing")


def fork() -> tuple[int, int]:
    """The process id (0: it is the child) and the end of a pipe that leads from the child to the parent."""
    reader, writer = os.pipe()
    pid = os.fork()
    os.close(writer if pid else reader)
    if pid == 0:
        signal.alarm(LONGEST)
    return pid, reader if pid else writer


def tried(call: Callable[[], object]) -> str:
    """What became of a call."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - told to the parent
        named = "fork()" in str(error) and "in the child" in str(error)
        return f"{type(error).__name__}{' names fork()' if named else f': {error}'}"
    return "done"


class JmsFace:
    """A connection in the middle of its work."""

    def __init__(self, url: str, queue: str) -> None:
        self.connection = jmsx.Connection(url, heartbeat=(1, 1), request_timeout=10)
        self.connection.start()
        client = jmsx.AcknowledgeMode.CLIENT_ACKNOWLEDGE
        self.session = self.connection.create_session(client)
        self.consumer = self.session.create_consumer(f"queue://{queue}.jms")
        self.producer = self.session.create_producer(f"queue://{queue}.jms")
        self.transacted = self.connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        self.output = self.transacted.create_producer(f"queue://{queue}.output")
        self.producer.send("first")
        self.producer.send("second")
        self.output.send("in a transaction")
        first = self.consumer.receive(10)
        assert first is not None
        self.message = first

    def try_all(self) -> dict[str, str]:
        """What becomes of each call in a child: first what must be refused, then what must do nothing."""
        refused: dict[str, Callable[[], object]] = {
            "send": lambda: self.producer.send("of a child"),
            "receive": lambda: self.consumer.receive(1),
            "acknowledge": self.message.acknowledge,
            "commit": self.transacted.commit,
            "rollback": self.transacted.rollback,
            "recover": self.session.recover,
            "create_session": self.connection.create_session,
            "start": self.connection.start,
            "stop": self.connection.stop,
        }
        quiet: dict[str, Callable[[], object]] = {
            "consumer.close": self.consumer.close,
            "session.close": self.session.close,
            "close": self.connection.close,
            "abort": self.connection.abort,
        }
        return {name: tried(call) for name, call in {**refused, **quiet}.items()}

    def finish(self) -> list[str]:
        """In the parent: what the broker still owes it."""
        self.transacted.commit()
        self.message.acknowledge()
        second = self.consumer.receive(10)
        assert second is not None
        second.acknowledge()
        assert self.consumer.receive(0.5) is None
        return [self.message.text, second.text]


def undisturbed(url: str, queue: str) -> dict[str, Any]:
    """A parent that consumes and sends all the time, and children that try everything and end in every way."""
    app = App(url, heartbeat=(1, 1), ledger=f"{queue}.ledger")
    got: list[str] = []
    sent: list[str] = []
    stop = threading.Event()

    @app.consumer(f"queue://{queue}", dedupe=SqliteStore(f"{queue}.done"))
    def take(message: jmsx.Message) -> None:
        got.append(message.text)

    def keep_sending() -> None:
        while not stop.is_set():
            text = str(len(sent))
            app.send(f"queue://{queue}", text)
            sent.append(text)

    told: dict[str, Any] = {}
    jms = JmsFace(url, queue)
    with jms.connection, app:
        sender = threading.Thread(target=keep_sending, daemon=True)
        sender.start()
        for end in ENDS:
            time.sleep(0.2)
            answer = _child(end, app, jms, queue)
            if answer is None:
                atexit.register(lambda: None)
                if end == "sys.exit":
                    sys.exit(0)
                if end == "raise":
                    raise KeyboardInterrupt
                return {}
            told[end] = answer
        stop.set()
        sender.join(LONGEST)
        deadline = time.monotonic() + LONGEST
        while len(got) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
        told["received"] = jms.finish()
        told["running"] = app.ready().ok
    told["sent"], told["missing"] = len(sent), sorted(set(sent) - set(got))
    told["handled twice"] = len(got) - len(set(got))
    return told


def _child(end: str, app: App, jms: JmsFace, queue: str) -> dict[str, Any] | None:
    """What a child says, and how it ended; None: this is the child, and it is to end."""

    def work() -> dict[str, str]:
        return {
            **jms.try_all(),
            "app.start": tried(app.start),
            "app.wait": tried(app.wait),
            "app.send": tried(lambda: app.send(f"queue://{queue}.children", end)),
            "app.stop": tried(app.stop),
        }

    if end == "multiprocessing":
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        process = context.Process(target=lambda: answers.put(work()))
        process.start()
        process.join(LONGEST)
        return {"calls": answers.get(), "status": process.exitcode}
    pid, pipe = fork()
    if pid == 0:
        os.write(pipe, json.dumps(work()).encode())
        os.close(pipe)
        if end == "_exit":
            os._exit(0)
        return None
    with os.fdopen(pipe, "rb") as said:
        calls = json.loads(said.read() or b"{}")
    _, status = os.waitpid(pid, 0)
    return {"calls": calls, "status": os.waitstatus_to_exitcode(status)}


def preloaded(url: str, queue: str) -> dict[str, Any]:
    """An app that is defined, and has sent, before the fork; five children send, the last one consumes, too."""
    app = App(url, ledger=f"{queue}.ledger")
    handled: list[str] = []

    @app.consumer(f"queue://{queue}.work", dedupe=MemoryStore())
    def take(message: jmsx.Message) -> None:
        handled.append(message.text)
        app.quit()

    app.send(f"queue://{queue}", "parent")
    children = []
    for number in range(5):
        pid, pipe = fork()
        if pid == 0:
            for message in range(10):
                app.send(f"queue://{queue}", f"{number} {message}")
            if number == 4:
                app.send(f"queue://{queue}.work", "work")
                app.run()
            os.write(pipe, json.dumps(handled).encode())
            return {}
        children.append((pid, pipe))
    app.send(f"queue://{queue}", "parent again")
    told: list[list[str]] = []
    codes: list[int] = []
    for pid, pipe in children:
        with os.fdopen(pipe, "rb") as said:
            told.append(json.loads(said.read() or b"null"))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return {"handled": told, "codes": codes}


def returning(url: str, queue: str) -> dict[str, Any]:
    """Handlers that fork, and return in the child, too."""
    app = App(url, heartbeat=(1, 1))
    codes: list[int] = []
    got: list[str] = []

    def forking(message: jmsx.Message) -> None:
        app.send(f"queue://{queue}.output", message.text)
        pid, _ = fork()
        if pid == 0:
            return
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        got.append(message.text)

    for mode in ("auto", "transacted", "client", "individual"):
        app.consumer(f"queue://{queue}.{mode}", mode=_MODES[mode], name=mode)(forking)
    app.consumer(f"queue://{queue}.dedupe", name="dedupe", dedupe=SqliteStore(f"{queue}.x"))(
        forking
    )

    async def forking_on_the_loop(message: jmsx.Message) -> None:
        await asyncio.sleep(0)
        forking(message)

    loop = [f"async {mode}" for mode in _MODES]
    for mode, name in zip(_MODES, loop, strict=True):
        app.consumer(f"queue://{queue}.{name}", mode=_MODES[mode], name=name)(forking_on_the_loop)
    with app:
        for mode in (names := (*_MODES, "dedupe", *loop)):
            app.send(f"queue://{queue}.{mode}", mode)
        deadline = time.monotonic() + LONGEST
        while len(got) < len(names) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # whoever is repeated comes now
    return {"got": sorted(got), "codes": codes}


_MODES = {
    "auto": jmsx.AcknowledgeMode.AUTO_ACKNOWLEDGE,
    "transacted": jmsx.AcknowledgeMode.SESSION_TRANSACTED,
    "client": jmsx.AcknowledgeMode.CLIENT_ACKNOWLEDGE,
    "individual": jmsx.AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE,
}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # of a fork with threads
    parent = os.getpid()
    told = {"undisturbed": undisturbed, "preloaded": preloaded, "returning": returning}[
        sys.argv[1]
    ](*sys.argv[2:])
    if os.getpid() == parent:
        sys.stdout.write(json.dumps(told) + "\n")
