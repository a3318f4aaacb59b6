"""
What a message costs on one thread, without broker, sockets and wake-ups: the figures that a busy machine cannot spoil.

`uv run python -m tests.benchmarks.one_thread [--messages N] [--rounds R] [--profile WAY]` prints CPU microseconds a
message, the least of all rounds, for each way of receiving and sending; with `--profile` the functions of one of them.

A session is made of all its own parts. Its socket is a recording of Classic's: what is written is looked at for
receipts, which are answered, and where a thread would wait, it reads the next chunk and takes the engine's turn itself.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import itertools
import pstats
import queue
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import jmsx
from jmsx import plugins
from jmsx.config.uri import parse_broker_uri
from jmsx.drivers.changed import Changed
from jmsx.drivers.engine import Engine
from jmsx.drivers.link import StompLink
from jmsx.drivers.machine import Machine
from jmsx.drivers.opened_link import OpenedLink
from jmsx.drivers.reconnect import Connected, Connector
from jmsx.jms.link import ConnectionLinks, SessionLink
from jmsx.jms.session import Session
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jmsx.observe import Observer

#: A MESSAGE as Classic 6.1.8 writes it for a STOMP client's SEND of 256 bytes.
HEAD: Final = (
    "MESSAGE\nexpires:0\ndestination:/queue/bench\nack:ID\\cbench-35499-1795308494655-7\\c{number}\n"
    "subscription:{subscription}\npriority:4\nmessage-id:ID\\cbench-35499-1795308494655-{sender}\\c2\\c-1\\c1\\c{number}\n"
    "persistent:true\ntimestamp:1795308543183\n\n"
)
GREETING: Final = (
    b"CONNECTED\nserver:ActiveMQ/6.1.8\nheart-beat:0,0\nsession:ID\\cbench-35499-1795308494655-6\\c2\n"
    b"version:1.2\n\n\0\n"
)

#: Messages in one chunk that is read.
CHUNK: Final = 100

#: Subscriptions of a session that has many: each message is for the next one.
MANY: Final = 1_000

#: Seconds between lone messages; the processor's caches have other things in them by then.
APART: Final = 0.001

#: One lone message is measured for so many others.
SLOW: Final = 8

_RECEIPT: Final = re.compile(rb"\nreceipt:([^\n]+)")
#: Of each recording, or the process would take its messages for those that another one lost.
_SENDERS: Final = itertools.count(6)
_SUBSCRIBED: Final = re.compile(rb"(?<![\w])SUBSCRIBE\n(?:[^\n]+\n)*?id:([^\n]+)")


class Recording:
    """A broker's side of one connection: a Stream, read by whoever would else wait."""

    taken = False
    aside = 0.0  #: of all recordings, seconds of CPU between lone messages and to open many subscriptions

    def __init__(self, messages: int, *, lone: bool = False, subscriptions: int = 1) -> None:
        self.left = messages
        self._lone = lone
        self._awaited = subscriptions
        self.writes = 0
        self._number = 0
        self._sender = next(_SENDERS)
        self._subscriptions: list[str] = []
        self._answers: list[bytes] = []

    def read(self) -> bytes:
        """Receipts that are due, or else the next messages; b"" if there are none."""
        if self._answers:
            answers, self._answers = self._answers, []
            return b"".join(answers)
        if len(self._subscriptions) < self._awaited:
            return b""
        count = min(self.left, CHUNK)
        if self._lone:
            count = min(count, 1)
            _rest()
        self.left -= count
        first, self._number = self._number, self._number + count
        body = "x" * 256 + "\0\n"
        return "".join(
            HEAD.format(
                number=number,
                subscription=self._subscriptions[number % self._awaited],
                sender=self._sender,
            )
            + body
            for number in range(first, self._number)
        ).encode()

    def unread(self) -> bool:
        """Nothing comes unasked."""
        return False

    def send(self, data: bytes) -> None:
        """Look for what has to be answered."""
        self.writes += 1
        if b"receipt:" in data:
            self._answers += [
                b"RECEIPT\nreceipt-id:%b\n\n\0\n" % one for one in _RECEIPT.findall(data)
            ]
        if len(self._subscriptions) < self._awaited:  # to search costs as much as a send
            self._subscriptions += [found.decode() for found in _SUBSCRIBED.findall(data)]

    def written(self, data: bytes) -> int:
        """All of it, always."""
        return len(data)

    def shutdown(self) -> None:
        """Nothing is open."""

    close = shutdown


def _rest() -> None:
    """Until the next lone message is due; whoever is measured pays nothing for it."""
    began = time.thread_time()
    time.sleep(APART)
    Recording.aside += time.thread_time() - began


class _Turns(Changed):
    """Whoever waits reads the next chunk, and takes the engine's turn."""

    def __init__(self, engine: Engine, link: StompLink, recording: Recording) -> None:
        super().__init__(engine.lock, lambda: None)
        self._engine = engine
        self._transport = link._transport
        self._recording = recording

    def wait(self, timeout: float | None = None) -> bool:
        """Never waits."""
        data = self._recording.read()
        if data:
            self._transport._sink(self._transport.splitter.feed(data))
        elif timeout is None:
            raise SystemExit("nothing more is recorded")
        self._engine._listen(0.0)
        return True


def _start_nothing(self: Any) -> None:
    """In place of an engine's start."""


class OneThread:
    """A session on a recording of so many messages, each by itself if `lone`; `observers` are told its events."""

    def __init__(
        self,
        mode: jmsx.AcknowledgeMode,
        messages: int,
        observers: Iterable[Observer] = (),
        *,
        lone: bool = False,
        subscriptions: int = 1,
        **options: Any,
    ) -> None:
        uri = parse_broker_uri(
            "stomp://127.0.0.1:61613", jmsx.ConnectionOptions.of(heartbeat=(0.0, 0.0), **options)
        )
        self.recording = Recording(messages, lone=lone, subscriptions=subscriptions)
        self._subscriptions = subscriptions
        shared = ConnectionLinks(uri, observers, Machine())
        shared.started = True
        self.link = SessionLink(mode, shared, self._open(uri, shared), "bench-1")
        self.session = Session(self.link)

    def _open(self, uri: Any, shared: ConnectionLinks) -> OpenedLink:
        """An open link, with no thread started and no socket opened."""
        inbox: Any = queue.SimpleQueue()
        link = StompLink(uri.addresses[0], uri.options, inbox)
        transport = link._transport
        stream: Any = self.recording
        transport.socket = stream
        transport._sink(transport.splitter.feed(GREETING))
        greeting = link._connected
        assert greeting is not None
        connector = Connector(uri, None, inbox, shared.machine)
        connected = Connected(link, greeting, plugins.load("jmsx.dialects", "classic"), 0.0)
        connector.first = lambda *, patient: connected  # type: ignore[method-assign]  # noqa: ARG005 - the parameter's name is a part of the call
        started, Engine.start = Engine.start, _start_nothing  # type: ignore[method-assign]  # this one engine has no thread
        made = OpenedLink(connector, shared.machine, shared._observers)
        try:
            made.open(patient=False)
        finally:
            Engine.start = started  # type: ignore[method-assign]  # puts back what was there
        made.engine.changed = _Turns(made.engine, link, self.recording)
        return made

    def consumer(self) -> jmsx.MessageConsumer:
        """A consumer of the recorded messages."""
        return self.session.create_consumer(jmsx.Queue("bench"))

    def listen(self, listener: Callable[[Any], object], messages: int) -> None:
        """Have a listener take so many messages, on this thread."""
        dispatcher, seen = self.link.dispatcher, 0

        def counted(message: Any) -> None:
            nonlocal seen
            listener(message)
            seen += 1
            dispatcher._stopped = seen == messages

        dispatcher._thread = threading.current_thread()
        began = time.thread_time()
        for _ in range(self._subscriptions):
            self.consumer().set_listener(counted)
        if self._subscriptions > 1:
            Recording.aside += time.thread_time() - began
        dispatcher._run()


def received(mode: jmsx.AcknowledgeMode, after: str = "", **options: Any) -> Callable[..., None]:
    """receive(), and what a program does then."""

    def run(messages: int, observers: Iterable[Observer]) -> None:
        one = OneThread(mode, messages, observers, **options)
        consumer, session = one.consumer(), one.session
        for number in range(1, messages + 1):
            message = consumer.receive(1)
            assert message is not None
            if after == "acknowledge" or (after == "acknowledge 100" and number % 100 == 0):
                message.acknowledge()
            elif after == "commit 100" and number % 100 == 0:
                session.commit()

    return run


def listened(
    mode: jmsx.AcknowledgeMode,
    listener: Callable[[Any], object] = lambda _message: None,
    **more: Any,
) -> Callable[..., None]:
    """A listener."""

    def run(messages: int, observers: Iterable[Observer]) -> None:
        OneThread(mode, messages, observers, **more).listen(listener, messages)

    return run


def sent(mode: jmsx.AcknowledgeMode, *, persistent: bool, commit: bool) -> Callable[..., None]:
    """send()."""

    def run(messages: int, observers: Iterable[Observer]) -> None:
        one = OneThread(mode, 0, observers)
        producer = one.session.create_producer(jmsx.Queue("bench"))
        text = "x" * 256
        for number in range(1, messages + 1):
            producer.send(jmsx.Message(text), persistent=persistent)
            if commit and number % 100 == 0:
                one.session.commit()

    return run


_MODE: Final = jmsx.AcknowledgeMode

WAYS: Final[dict[str, Callable[..., None]]] = {
    "listener auto": listened(_MODE.AUTO_ACKNOWLEDGE),
    "listener auto, body read": listened(_MODE.AUTO_ACKNOWLEDGE, lambda message: message.body),
    "listener individual": listened(
        _MODE.INDIVIDUAL_ACKNOWLEDGE, lambda message: message.acknowledge()
    ),
    "listener auto, 1,000 subscriptions": listened(_MODE.AUTO_ACKNOWLEDGE, subscriptions=MANY),
    "listener individual, 1,000 subscriptions": listened(
        _MODE.INDIVIDUAL_ACKNOWLEDGE, lambda message: message.acknowledge(), subscriptions=MANY
    ),
    "listener, lone": listened(_MODE.AUTO_ACKNOWLEDGE, lone=True),
    "receive auto": received(_MODE.AUTO_ACKNOWLEDGE),
    "receive, lone": received(_MODE.AUTO_ACKNOWLEDGE, lone=True),
    "receive optimized": received(_MODE.AUTO_ACKNOWLEDGE, optimize_acknowledge=True),
    "receive dups_ok": received(_MODE.DUPS_OK_ACKNOWLEDGE),
    "receive individual": received(_MODE.INDIVIDUAL_ACKNOWLEDGE, "acknowledge"),
    "receive client100": received(_MODE.CLIENT_ACKNOWLEDGE, "acknowledge 100"),
    "receive tx100": received(_MODE.SESSION_TRANSACTED, "commit 100"),
    "send unconfirmed": sent(_MODE.AUTO_ACKNOWLEDGE, persistent=False, commit=False),
    "send confirmed": sent(_MODE.AUTO_ACKNOWLEDGE, persistent=True, commit=False),
    "send tx100": sent(_MODE.SESSION_TRANSACTED, persistent=True, commit=True),
}


def cost(way: str, messages: int, *, observed: bool = False) -> float:
    """CPU microseconds of this thread a message; `observed`: by metrics and an event log, its writer not counted."""
    with ExitStack() as stack:
        observers: list[Any] = []
        if observed:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            observers = [PrometheusObserver(), EventLog(folder, service="bench")]
        gc.collect()
        began = time.thread_time() - Recording.aside
        WAYS[way](messages, observers)
        took = time.thread_time() - Recording.aside - began
        for one in observers:
            one.close()
    return took / messages * 1e6


def costs(messages: int, rounds: int, ways: Iterable[str] = WAYS) -> dict[str, tuple[float, float]]:
    """Of each way the least of all rounds, in turns: without observers, and with both."""
    least = {way: (float("inf"), float("inf")) for way in ways}
    for _ in range(rounds):
        for way, (alone, seen) in least.items():
            some = messages // SLOW if "lone" in way else messages
            least[way] = (
                min(alone, cost(way, some)),
                min(seen, cost(way, some, observed=True)),
            )
    return least


def main() -> None:
    """Print the table, or the functions of one way."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.one_thread", description=__doc__
    )
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="part of the ways' names")
    parser.add_argument("--profile", metavar="WAY", help="one way's functions, by own time")
    given = parser.parse_args()
    if given.profile:
        profile = cProfile.Profile(time.thread_time)
        WAYS[given.profile](100, [])
        profile.runcall(WAYS[given.profile], given.messages, [])
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        return
    ways = [way for way in WAYS if given.only in way]
    print(f"{'CPU us a message':28} {'alone':>7} {'observed':>9}")
    for way, (alone, seen) in costs(given.messages, given.rounds, ways).items():
        print(f"{way:28} {alone:7.1f} {seen:9.1f}")


if __name__ == "__main__":
    main()
