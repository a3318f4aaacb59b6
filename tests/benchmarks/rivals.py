"""
One client, one run: `python -m tests.benchmarks.rivals JSON` takes or sends messages one way, and prints JSON.

Measured from the first message handled, or the first send, until the broker has confirmed the last acknowledgement or
send and the farewell. CPU is user and system time of this process over the same span. Each rival is written as its own
documentation writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds after which a run has failed.
PATIENCE: Final = 120.0

#: Messages a transaction, or a cumulative ACK.
BATCH: Final = 100

#: Bytes of a message's body.
SIZE: Final = 256

#: Bytes that the raw socket reads at once.
CHUNK: Final = 262_144

_COMMIT: Final = b"COMMIT\ntransaction:t\nreceipt:r%d\n\n\0"


def cpu() -> float:
    """Seconds of processor time of this process."""
    return used()[0]


def used() -> tuple[float, float, int]:
    """Of this process: seconds of processor time, those of them in the kernel, and how often a thread went to wait."""
    told = resource.getrusage(resource.RUSAGE_SELF)
    return told.ru_utime + told.ru_stime, told.ru_stime, told.ru_nvcsw


def most_memory() -> float:
    """Megabytes of memory of this process at its most; `ru_maxrss` would tell its parent's where that had more."""
    told = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    return int(told.split()[0]) / 1024


class Meter:
    """Counts messages; the first one starts the clock."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.seen = 0
        self.done = threading.Event()
        self.told: dict[str, float] = {}
        self._began = 0.0
        self._used = 0.0, 0.0, 0

    def start(self) -> None:
        """Begin to measure."""
        self._began, self._used = time.perf_counter(), used()

    def hit(self) -> None:
        """One message was handled."""
        if not self.seen:
            self.start()
        self.seen += 1
        if self.seen == self.messages:
            self.done.set()

    @property
    def batch_ends(self) -> bool:
        """Whether the last message is the last of its batch."""
        return self.seen % BATCH == 0 or self.seen == self.messages

    def end(self) -> None:
        """All is done and confirmed."""
        took = time.perf_counter() - self._began
        spent, kernel, waits = (now - then for now, then in zip(used(), self._used, strict=True))
        self.told |= {
            "messages": self.seen,
            "rate": self.seen / took,
            "us": spent / self.seen * 1e6,
            "kernel_us": kernel / self.seen * 1e6,
            "waits": waits / self.seen,
            "rss_mb": most_memory(),
        }


def where(given: dict[str, Any]) -> tuple[str, int]:
    """Host and port of the broker's STOMP."""
    parts = urlsplit(given["url"])
    return parts.hostname or "", parts.port or 0


def subscription(given: dict[str, Any], ack: str) -> dict[str, str]:
    """SUBSCRIBE's headers for a plain STOMP client, with the prefetch that jmsx has by default."""
    if given["broker"] == "classic":
        return {**target(given), "ack": ack, "activemq.prefetchSize": "1000"}
    return {
        "destination": given["queue"],
        "subscription-type": "ANYCAST",
        "ack": ack,
        "consumer-window-size": str(1 << 20),
    }


def target(given: dict[str, Any]) -> dict[str, str]:
    """The headers that say where a plain STOMP client sends to."""
    if given["broker"] == "classic":
        return {"destination": f"/queue/{given['queue']}"}
    return {"destination": given["queue"], "destination-type": "ANYCAST"}


# The raw socket ------------------------------------------------------------------------------------------------------


def frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A STOMP frame, nothing escaped."""
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def ack_id(message: bytes) -> bytes:
    """The header `ack` of a MESSAGE."""
    start = message.find(b"\nack:") + 5
    return message[start : message.find(b"\n", start)]


class Raw:
    """No library: a socket, and frames split at NUL."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.socket = socket.create_connection(where(given))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kept = b""
        headers = {"accept-version": "1.2", "host": "/", "heart-beat": "0,0"}
        self.socket.sendall(frame("CONNECT", headers))
        if not self.frames()[0].startswith(b"CONNECTED"):
            raise SystemExit("the broker did not say CONNECTED")

    def frames(self) -> list[bytes]:
        """The next frames; at least one."""
        while True:
            if b"\0" not in self._kept:
                self._kept += self._read()
                continue
            *frames, self._kept = self._kept.split(b"\0")
            return [one.lstrip(b"\n") for one in frames]

    def _read(self) -> bytes:
        # As jmsx does while it waits for an answer: else Classic's is held back until the kernel's delayed ACK
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        data = self.socket.recv(CHUNK)
        if not data:
            raise SystemExit("the broker closed the connection")
        return data

    def receipt(self, name: str) -> list[bytes]:
        """Wait for a RECEIPT; what came before it."""
        before: list[bytes] = []
        while True:
            for position, one in enumerate(frames := self.frames()):
                if one.startswith(b"ERROR"):
                    raise SystemExit(one.decode())
                if one.startswith(b"RECEIPT") and b"receipt-id:" + name.encode() in one:
                    return before + frames[position + 1 :]
                before.append(one)

    def bye(self) -> None:
        """Say DISCONNECT, and wait for the answer."""
        self.socket.sendall(frame("DISCONNECT", {"receipt": "bye"}))
        self.receipt("bye")
        self.socket.close()


def raw_consume(given: dict[str, Any], meter: Meter) -> None:
    """Acknowledge each, every hundredth, or in transactions."""
    mode, raw = given["mode"], Raw(given)
    ack = "client-individual" if mode == "each" else "client"
    raw.socket.sendall(frame("SUBSCRIBE", {"id": "1", **subscription(given, ack)}))
    batch = 1 if mode == "tx1" else BATCH
    waiting: list[bytes] = []
    commits = 0
    while meter.seen < meter.messages:
        written, frames, waiting = [], waiting or raw.frames(), []
        for position, one in enumerate(frames):
            if not one.startswith(b"MESSAGE"):
                raise SystemExit(one.decode())
            meter.hit()
            ends = meter.seen % batch == 0 or meter.seen == meter.messages
            if mode == "each" or (mode == "cumulative" and ends):
                written.append(b"ACK\nid:%b\n\n\0" % ack_id(one))
            elif mode.startswith("tx") and ends:
                commits += 1
                raw.socket.sendall(_committed(one, commits, given["broker"]))
                waiting = frames[position + 1 :] + raw.receipt(f"r{commits}")
                break
        if written:
            raw.socket.sendall(b"".join(written))
    raw.bye()
    meter.end()


def _committed(message: bytes, number: int, broker: str) -> bytes:
    """A transaction that takes all up to `message`; Artemis ACKs need none to be all or nothing."""
    own = ack_id(message)
    if broker == "artemis":
        return b"ACK\nid:%b\nreceipt:r%d\n\n\0" % (own, number)
    begun = b"BEGIN\ntransaction:t\n\n\0ACK\nid:%b\ntransaction:t\n\n\0" % own
    return begun + _COMMIT % number


def raw_produce(given: dict[str, Any], meter: Meter) -> None:
    """Frames are made before the clock runs, but for their receipts."""
    mode, raw, body = given["mode"], Raw(given), b"x" * SIZE
    headers = {**target(given), "persistent": "false" if mode == "unconfirmed" else "true"}
    meter.start()
    if mode == "each":
        for number in range(meter.messages):
            raw.socket.sendall(frame("SEND", {**headers, "receipt": str(number)}, body))
            raw.receipt(str(number))
    elif mode == "pipelined":

        def read() -> None:
            left = meter.messages
            while left:
                left -= sum(one.startswith(b"RECEIPT") for one in raw.frames())

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(meter.messages):
            raw.socket.sendall(frame("SEND", {**headers, "receipt": str(number)}, body))
        reader.join()
    elif mode == "tx100":
        sends = frame("SEND", {**headers, "transaction": "t"}, body) * BATCH
        for number in range(meter.messages // BATCH):
            raw.socket.sendall(b"BEGIN\ntransaction:t\n\n\0" + sends + _COMMIT % number)
            raw.receipt(f"r{number}")
    else:
        one = frame("SEND", headers, body)
        for _ in range(meter.messages):
            raw.socket.sendall(one)
    meter.seen = meter.messages
    raw.bye()
    meter.end()


def raw_latency(given: dict[str, Any], meter: Meter, take: Callable[[bytes], None]) -> None:
    """One ACK for each message."""
    raw = Raw(given)
    headers = {"id": "1", **subscription(given, "client-individual")}
    raw.socket.sendall(frame("SUBSCRIBE", headers))
    _ready()
    while meter.seen < meter.messages:
        for one in raw.frames():
            take(one[one.index(b"\n\n") + 2 :])
            raw.socket.sendall(b"ACK\nid:%b\n\n\0" % ack_id(one))
    raw.bye()


# stomp.py ------------------------------------------------------------------------------------------------------------


def _stomp_py(given: dict[str, Any], ack: str, on_message: Callable[[Any, Any], None]) -> Any:
    """A connection whose listener is called on stomp.py's own thread, as its documentation does."""
    import stomp  # noqa: PLC0415 - a client's import is none of the others' cost

    connection = stomp.Connection12([where(given)])

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # ships no types
        def on_message(self, message: Any) -> None:
            on_message(connection, message)

    connection.set_listener("", Listener())
    connection.connect(wait=True)
    headers = subscription(given, ack)
    destination, ack = headers.pop("destination"), headers.pop("ack")
    connection.subscribe(destination, "1", ack, headers)
    return connection


def _stomp_py_bye(connection: Any) -> None:
    connection.disconnect(receipt="bye")
    limit = time.monotonic() + 5
    while connection.is_connected() and time.monotonic() < limit:
        time.sleep(0.0005)


def stomp_py_consume(given: dict[str, Any], meter: Meter) -> None:
    """Acknowledge each, or every hundredth."""
    each = given["mode"] == "each"

    def on_message(connection: Any, message: Any) -> None:
        meter.hit()
        if each or meter.batch_ends:
            connection.ack(message.headers["ack"])

    connection = _stomp_py(given, "client-individual" if each else "client", on_message)
    meter.done.wait(PATIENCE)
    _stomp_py_bye(connection)
    meter.end()


def stomp_py_produce(given: dict[str, Any], meter: Meter) -> None:
    """Receipts are counted by a listener."""
    import stomp  # noqa: PLC0415 - a client's import is none of the others' cost

    mode, text = given["mode"], "x" * SIZE
    got = threading.Semaphore(0)

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # ships no types
        def on_receipt(self, _frame: Any) -> None:
            got.release()

    connection = stomp.Connection12([where(given)])
    connection.connect(wait=True)
    connection.set_listener("", Listener())
    headers = {**target(given), "persistent": "false" if mode == "unconfirmed" else "true"}
    to = headers.pop("destination")
    meter.start()
    if mode == "tx100":
        for number in range(meter.messages // BATCH):
            transaction = connection.begin()
            for _ in range(BATCH):
                connection.send(to, text, headers=headers, transaction=transaction)
            connection.commit(transaction, headers={"receipt": str(number)})
            got.acquire()
    else:
        for number in range(meter.messages):
            receipt = {} if mode == "unconfirmed" else {"receipt": str(number)}
            connection.send(to, text, headers={**headers, **receipt})
            if mode == "each":
                got.acquire()
        for _ in range(meter.messages if mode == "pipelined" else 0):
            got.acquire()
    meter.seen = meter.messages
    _stomp_py_bye(connection)
    meter.end()


def stomp_py_latency(given: dict[str, Any], meter: Meter, take: Callable[[bytes], None]) -> None:
    """One ACK for each message."""

    def on_message(connection: Any, message: Any) -> None:
        take(message.body.encode())
        connection.ack(message.headers["ack"])

    connection = _stomp_py(given, "client-individual", on_message)
    _ready()
    meter.done.wait(PATIENCE)
    connection.disconnect()


# stompman ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stompman(given: dict[str, Any]) -> Any:
    import stompman  # noqa: PLC0415 - a client's import is none of the others' cost

    host, port = where(given)
    server = stompman.ConnectionParameters(host, port, "x", "x")
    async with stompman.Client([server]) as client:
        yield client


def stompman_consume(given: dict[str, Any], meter: Meter) -> None:
    """It acknowledges each by itself; every hundredth is the handler's affair."""

    async def main() -> None:
        done = asyncio.Event()
        each = given["mode"] == "each"
        headers = subscription(given, "client-individual" if each else "client")
        to, ack = headers.pop("destination"), headers.pop("ack")

        async def handle(message: Any) -> None:
            meter.hit()
            if not each and meter.batch_ends:
                await message.ack()
            if meter.seen == meter.messages:
                done.set()

        async with _stompman(given) as client:
            if each:
                told = await client.subscribe(
                    to, handle, ack=ack, headers=headers, on_suppressed_exception=_raise
                )
            else:
                told = await client.subscribe_with_manual_ack(to, handle, ack=ack, headers=headers)
            await asyncio.wait_for(done.wait(), PATIENCE)
            await told.unsubscribe()
        meter.end()

    asyncio.run(main())


def stompman_produce(given: dict[str, Any], meter: Meter) -> None:
    """In transactions, or without confirmation: it has no other way."""

    async def main() -> None:
        headers = target(given)
        to, body = headers.pop("destination"), b"x" * SIZE
        headers["persistent"] = "false" if given["mode"] == "unconfirmed" else "true"
        async with _stompman(given) as client:
            meter.start()
            if given["mode"] == "tx100":
                for _ in range(meter.messages // BATCH):
                    async with client.begin() as transaction:
                        for _ in range(BATCH):
                            await transaction.send(body, to, headers=headers)
            else:
                for _ in range(meter.messages):
                    await client.send(body, to, headers=headers)
            meter.seen = meter.messages
        meter.end()

    asyncio.run(main())


def stompman_latency(given: dict[str, Any], meter: Meter, take: Callable[[bytes], None]) -> None:
    """It acknowledges each by itself."""

    async def main() -> None:
        done = asyncio.Event()
        headers = subscription(given, "client-individual")
        to, ack = headers.pop("destination"), headers.pop("ack")

        async def handle(message: Any) -> None:
            take(message.body)
            if meter.seen == meter.messages:
                done.set()

        async with _stompman(given) as client:
            told = await client.subscribe(
                to, handle, ack=ack, headers=headers, on_suppressed_exception=_raise
            )
            await asyncio.to_thread(_ready)
            await done.wait()
            await told.unsubscribe()

    asyncio.run(main())


def _raise(error: Exception, _frame: Any) -> None:
    raise error


# jmsx ----------------------------------------------------------------------------------------------------------------

_MODES: Final = {
    "auto": "AUTO_ACKNOWLEDGE",
    "optimized": "AUTO_ACKNOWLEDGE",
    "client100": "CLIENT_ACKNOWLEDGE",
    "individual": "INDIVIDUAL_ACKNOWLEDGE",
    "dups_ok": "DUPS_OK_ACKNOWLEDGE",
    "tx1": "SESSION_TRANSACTED",
    "tx100": "SESSION_TRANSACTED",
}


@contextlib.contextmanager
def _watched(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options by which a connection has the observers that are asked for."""
    made: list[Any] = []
    wanted = given["observers"]
    with tempfile.TemporaryDirectory(prefix="jmsx-bench-") as folder:
        if wanted in ("metrics", "both"):
            from jmsx_prometheus import PrometheusObserver  # noqa: PLC0415 - a client's import is none of the others' cost

            made.append(PrometheusObserver())
        if wanted in ("log", "both"):
            from jmsx_eventlog import EventLog  # noqa: PLC0415 - a client's import is none of the others' cost

            made.append(EventLog(Path(folder), service="bench"))
        ledger = {"ledger": Path(folder) / "ledger.db"} if wanted == "ledger" else {}
        yield {"observers": made, **ledger}
        for one in made:
            one.close()


def _after(mode: str, session: Any, meter: Meter) -> Callable[[Any], None]:
    """What a program does with a message that it has handled."""
    if mode == "individual":
        return lambda message: message.acknowledge()
    if mode == "tx1":
        return lambda _message: session.commit()
    if mode == "client100":
        return lambda message: message.acknowledge() if meter.batch_ends else None
    if mode == "tx100":
        return lambda _message: session.commit() if meter.batch_ends else None
    return lambda _message: None


def jmsx_consume(given: dict[str, Any], meter: Meter) -> None:
    """By the face that is asked for."""
    with _watched(given) as watched:
        (_app_consume if given["face"] == "app" else _jms_consume)(given, meter, watched)


def _app_consume(given: dict[str, Any], meter: Meter, watched: dict[str, Any]) -> None:
    import jmsx  # noqa: PLC0415 - a client's import is none of the others' cost
    from jmsx.app import App  # noqa: PLC0415 - a client's import is none of the others' cost

    app = App(given["url"], **watched)
    mode = given["mode"]

    def handle(_message: Any) -> None:
        meter.hit()  # the app acknowledges what its handler has returned for, in each mode

    async def handle_later(_message: Any) -> None:
        meter.hit()

    app.consumer(
        f"queue://{given['queue']}",
        mode=getattr(jmsx.AcknowledgeMode, _MODES[mode]),
        name="bench",
        optimize_acknowledge=True if mode == "optimized" else None,
    )(handle_later if given["asynchronous"] else handle)
    app.start()
    meter.done.wait(PATIENCE)
    app.stop()
    meter.end()


def _jms_consume(given: dict[str, Any], meter: Meter, watched: dict[str, Any]) -> None:
    import jmsx  # noqa: PLC0415 - a client's import is none of the others' cost

    mode = given["mode"]
    optimized = mode == "optimized"
    connection = jmsx.Connection(given["url"], optimize_acknowledge=optimized, **watched)
    connection.start()
    session = connection.create_session(getattr(jmsx.AcknowledgeMode, _MODES[mode]))
    consumer = session.create_consumer(jmsx.Queue(given["queue"]))
    after = _after(mode, session, meter)
    if given["face"] == "listener":

        def listen(message: Any) -> None:
            meter.hit()
            after(message)

        consumer.set_listener(listen)
        meter.done.wait(PATIENCE)
    else:
        while meter.seen < meter.messages:
            message = consumer.receive(30)
            if message is None:
                raise SystemExit(f"stalled at {meter.seen}")
            meter.hit()
            after(message)
    connection.close()
    meter.end()


def jmsx_produce(given: dict[str, Any], meter: Meter) -> None:
    """One producer, one thread."""
    import jmsx  # noqa: PLC0415 - a client's import is none of the others' cost

    mode, text = given["mode"], "x" * SIZE
    with _watched(given) as watched:
        connection = jmsx.Connection(given["url"], use_async_send=mode == "pipelined", **watched)
        connection.start()
        modes = jmsx.AcknowledgeMode
        session = connection.create_session(
            modes.SESSION_TRANSACTED if mode == "tx100" else modes.AUTO_ACKNOWLEDGE
        )
        producer = session.create_producer(jmsx.Queue(given["queue"]))
        meter.start()
        for number in range(meter.messages):
            producer.send(jmsx.Message(text), persistent=mode != "unconfirmed")
            if mode == "tx100" and number % BATCH == BATCH - 1:
                session.commit()
        meter.seen = meter.messages
        connection.close()
        meter.end()


def jmsx_latency(given: dict[str, Any], meter: Meter, take: Callable[[bytes], None]) -> None:
    """AUTO, by the face that is asked for."""
    import jmsx  # noqa: PLC0415 - a client's import is none of the others' cost
    from jmsx.app import App  # noqa: PLC0415 - a client's import is none of the others' cost

    def read(message: Any) -> None:
        take(message.body.encode())

    with _watched(given) as watched:
        if given["face"] == "app":
            app = App(given["url"], **watched)
            app.consumer(f"queue://{given['queue']}", name="bench")(read)
            app.start()
            _ready()
            meter.done.wait(PATIENCE)
            app.stop()
            return
        connection = jmsx.Connection(given["url"], **watched)
        connection.start()
        consumer = connection.create_session().create_consumer(jmsx.Queue(given["queue"]))
        if given["face"] == "listener":
            consumer.set_listener(read)
            _ready()
            meter.done.wait(PATIENCE)
        else:
            _ready()
            while meter.seen < meter.messages:
                read(consumer.receive(30))
        connection.close()


# The run -------------------------------------------------------------------------------------------------------------


def _ready() -> None:
    """The consumer is there: whoever sends may begin."""
    time.sleep(0.3)
    print("ready", flush=True)


def latency(given: dict[str, Any], meter: Meter) -> None:
    """Bodies begin with the sender's monotonic nanoseconds, 19 digits; quantiles are microseconds."""
    delays: list[int] = []

    def take(body: bytes) -> None:
        delays.append(time.monotonic_ns() - int(body[:19]))
        meter.hit()

    _LATENCY[given["who"]](given, meter, take)
    meter.end()
    delays.sort()
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        meter.told[name] = delays[min(len(delays) - 1, int(len(delays) * part))] / 1000


_CONSUME: Final = {
    "raw": raw_consume,
    "stomp.py": stomp_py_consume,
    "stompman": stompman_consume,
    "jmsx": jmsx_consume,
}
_PRODUCE: Final = {
    "raw": raw_produce,
    "stomp.py": stomp_py_produce,
    "stompman": stompman_produce,
    "jmsx": jmsx_produce,
}
_LATENCY: Final = {
    "raw": raw_latency,
    "stomp.py": stomp_py_latency,
    "stompman": stompman_latency,
    "jmsx": jmsx_latency,
}


def main() -> None:
    """Do what the first argument says, and print what it took."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    meter = Meter(given["messages"])
    if given["work"] == "latency":
        latency(given, meter)
    else:
        (_CONSUME if given["work"] == "consume" else _PRODUCE)[given["who"]](given, meter)
    print(json.dumps(meter.told), flush=True)
    os._exit(0)  # what a rival leaves running is none of its cost


if __name__ == "__main__":
    main()
