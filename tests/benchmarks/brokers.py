"""A real broker with a normal Java machine, the Java clients beside it, and runs of one way on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from jmsx_broker import ArtemisBroker, ClassicBroker
from jmsx_broker.artefacts import libraries
from jmsx_broker.java import find_java
from jmsx_broker.products import ARTEMIS, CLASSIC
from jmsx_broker.recipe import JAVA_OPTIONS
from tests.benchmarks.rivals import SIZE, Raw, ack_id, frame, subscription, target
from tests.benchmarks.ways import Way

#: The broker's Java as one would run it: both compilers, the parallel collector, room for a backlog.
NORMAL: Final = ("-Xmx1g", "-XX:+UseParallelGC", "-Djava.awt.headless=true")

#: Seconds for one run of one client.
PATIENCE: Final = 150.0

#: SENDs in one transaction while a queue is filled.
_STEP: Final = 500

_SOURCE: Final = Path(__file__).parent / "java" / "Rival.java"


def _normal(command: list[str | Path]) -> list[str | Path]:
    """The command of a broker, with the options of a normal Java machine instead of a short-lived one's."""
    java, *others = [one for one in command if one not in JAVA_OPTIONS]
    return [java, *NORMAL, *others]


class _Classic(ClassicBroker):
    def _prepare(self) -> None:
        super()._prepare()
        self._command = _normal(self._command)


class _Artemis(ArtemisBroker):
    def _prepare(self) -> None:
        super()._prepare()
        self._command = _normal(self._command)


class Broker:
    """One broker, `classic` or `artemis`, and what runs on it; a context manager."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._stack = ExitStack()
        self._java: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        maker = _Classic if self.kind == "classic" else _Artemis
        self._broker = self._stack.enter_context(maker())
        self.url = self._broker.url
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="jmsx-bench-")))
        self._start_java("java", "openwire", folder)
        if self.kind == "artemis":
            self._start_java("java core", "core", folder)
        return self

    def __exit__(self, *_: object) -> None:
        for java in self._java.values():
            if java.stdin is not None:
                java.stdin.close()
            java.wait(10)
        self._stack.close()

    def _start_java(self, who: str, api: str, folder: Path) -> None:
        """Compile the Java client for `api`, and have it wait for what to do."""
        product, package = (ARTEMIS, "javax") if api == "core" else (CLASSIC, "jakarta")
        java = find_java()
        jars = libraries(product, java)
        place = folder / api
        place.mkdir()
        source = place / _SOURCE.name
        source.write_text(_SOURCE.read_text().replace("JMSPKG", package))
        compiler = java.resolve().parent / "javac"
        subprocess.run([compiler, "-nowarn", "-cp", f"{jars}/*", "-d", place, source], check=True)
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        path = f"{place}{os.pathsep}{jars}/*"
        url = self._broker.openwire_url
        self._java[who] = subprocess.Popen(
            [java, "-Xmx512m", quiet, "-cp", path, "Rival", api, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._heard(who)

    def _heard(self, who: str) -> str:
        """The next line of a Java client."""
        answers = self._java[who].stdout
        return answers.readline() if answers is not None else ""

    def _say(self, way: Way, messages: int, queue: str) -> None:
        orders = self._java[way.who].stdin
        if orders is not None:
            orders.write(f"{way.work} {way.mode or '-'} {messages} {queue}\n")
            orders.flush()

    def cpu(self) -> float:
        """Seconds of processor time of the broker."""
        fields = Path(f"/proc/{self._broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def place(self, queue: str, messages: int = 0) -> dict[str, Any]:
        """Where `messages` messages are."""
        return {"url": self.url, "broker": self.kind, "queue": queue, "messages": messages}

    def fill(self, queue: str, messages: int, size: int = SIZE) -> None:
        """Put persistent messages into `queue`."""
        place = self.place(queue)
        raw, body = Raw(place), b"x" * size
        headers = {**target(place), "persistent": "true", "priority": "4", "transaction": "t"}
        send = frame("SEND", headers, body)
        for start in range(0, messages, _STEP):
            sends = send * min(_STEP, messages - start)
            commit = f"COMMIT\ntransaction:t\nreceipt:r{start}\n\n\0".encode()
            raw.socket.sendall(b"BEGIN\ntransaction:t\n\n\0" + sends + commit)
            raw.receipt(f"r{start}")
        raw.bye()

    def drain(self, queue: str) -> None:
        """Empty a queue: a broker that is full holds its senders back."""
        place = self.place(queue)
        raw = Raw(place)
        raw.socket.sendall(frame("SUBSCRIBE", {"id": "1", **subscription(place, "client")}))
        raw.socket.settimeout(0.7)
        try:
            while True:
                last = raw.frames()[-1]
                raw.socket.sendall(b"ACK\nid:%b\n\n\0" % ack_id(last))
        except TimeoutError:
            raw.socket.settimeout(None)
            raw.bye()

    def run(self, way: Way, messages: int) -> dict[str, float]:
        """
        One run of one way, with a queue of its own; what it measured, and the broker's CPU a message.

        Empty if it failed, which is told on stderr.
        """
        queue = f"bench.{uuid.uuid4().hex[:8]}"
        if way.work == "consume":
            self.fill(queue, messages)
        used = self.cpu()
        told = self._latency(way, messages, queue) if way.work == "latency" else None
        if told is None:
            told = self._measured(way, messages, queue)
        if way.work != "consume":
            self.drain(queue)
        if "us" not in told:
            print(f"! {way.label}: {told}", file=sys.stderr)
            return {}
        return {**told, "broker_us": (self.cpu() - used) / messages * 1e6}

    def _measured(self, way: Way, messages: int, queue: str) -> dict[str, Any]:
        if way.who in self._java:
            self._say(way, messages, queue)
            return _read(self._heard(way.who))
        try:
            ended = subprocess.run(
                self._command(way, messages, queue),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {PATIENCE:g} s"}
        return _read(ended.stdout) or {"error": ended.stderr[-300:]}

    def _command(self, way: Way, messages: int, queue: str) -> list[str]:
        told = json.dumps(way.told(**self.place(queue, messages)))
        return [sys.executable, "-m", "tests.benchmarks.rivals", told]

    def _latency(self, way: Way, messages: int, queue: str) -> dict[str, Any]:
        """Send `messages`, one each millisecond, to whoever waits; not persistent, or one would see the disk."""
        if way.who in self._java:
            self._say(way, messages, queue)
            self._heard(way.who)
            self._send_steadily(queue, messages)
            return _read(self._heard(way.who))
        command = self._command(way, messages, queue)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            try:
                if client.stdout is None or client.stdout.readline() != "ready\n":
                    return {"error": "it did not start"}
                self._send_steadily(queue, messages)
                return _read(client.communicate(timeout=PATIENCE)[0])
            except subprocess.TimeoutExpired:
                return {"error": f"not done in {PATIENCE:g} s"}
            finally:
                client.kill()

    def _send_steadily(self, queue: str, messages: int) -> None:
        place = self.place(queue)
        raw = Raw(place)
        head = frame("SEND", {**target(place), "persistent": "false"})[:-1]
        began = time.perf_counter()
        for number in range(messages):
            time.sleep(max(0.0, began + number / 1000 - time.perf_counter()))
            stamp = f"{time.monotonic_ns():019d}".encode()
            raw.socket.sendall(head + stamp + b"x" * (SIZE - len(stamp)) + b"\0")
        raw.bye()


def _read(text: str) -> dict[str, Any]:
    """The JSON of the last line; nothing if it is none."""
    try:
        told: dict[str, Any] = json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return {}
    return told
