"""
All that an application may hand to jmsx to be called: what raises, or answers nonsense, never ends a session.

Handlers stand in `test_unrun_handlers` and `test_raising`, answers of a policy one by one in `test_custom_policy`.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import Connection, Message, RedeliveryPolicy
from jmsx.app import App
from jmsx.errors import StoreError
from jmsx.jms.session import link_of
from jmsx.stores import DatabaseStore, MemoryStore
from tests.integration.broker_support import eventually
from tests.integration.support import QUICK, TRANSACTED, Diary

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx import Queue
    from jmsx.core.events import Event, Source
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: Said of a policy that fails.
POLICY = "redelivery policy failed"


def failing(question: str, answer: Any) -> RedeliveryPolicy:
    """A policy with one method or field that gives this, or raises it, once it is in use."""

    def say(*_: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    method = question in ("delay", "exhausted")
    made: type[RedeliveryPolicy] = type(
        "Failing", (RedeliveryPolicy,), {question: say if method else property(say)}
    )
    policy = made.__new__(made)
    for name in RedeliveryPolicy.__slots__:
        if name != question:
            object.__setattr__(policy, name, getattr(QUICK, name))
    return policy


#: What a store may return that has not called the handler; False alone says that it knows the message.
_ANSWERS: Final[dict[str, Any]] = {"True": True, "None": None, "0": 0}


class RaisingStore(MemoryStore):
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def once(self, identity: Any, work: Any) -> bool:
        """Raise, for one of the messages."""
        if self.method == "once":
            raise KeyError(identity)
        if self.method in _ANSWERS:
            return _ANSWERS[self.method]  # type: ignore[no-any-return]  # as somebody may
        return super().once(identity, work)

    def close(self) -> None:
        """Raise."""
        if self.method == "close":
            raise RuntimeError("cannot close")


class RaisingLedger:
    """Raises in one of its methods, `times` times."""

    def __init__(self, method: str, times: int, answer: Any = None) -> None:
        self.left = {method: times}
        self.answer = answer

    def _say(self, method: str) -> Any:
        if self.left.get(method, 0) > 0:
            self.left[method] -= 1
            if self.answer is None:
                raise RuntimeError("no ledger")
            return self.answer
        return None

    def begin(self, _identity: Any) -> Any:
        """Count nothing."""
        return self._say("begin")

    def finish(self, _entries: Any) -> None:
        """Do nothing."""
        self._say("finish")

    def settle(self, _entries: Any) -> None:
        """Do nothing."""
        self._say("settle")

    def flush(self) -> None:
        """Do nothing."""
        self._say("flush")


class RaisingObserver(Diary):
    """Raises at each event, and at the end."""

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - as Observer wants it
        """Raise."""
        raise SystemExit("observer")

    def close(self) -> None:
        """Raise."""
        raise SystemExit("observer")


def refusing(*_: Any) -> Any:
    """Raise, whatever comes."""
    raise ValueError("refused")


class Unprintable:
    """A key that has no words."""

    def __str__(self) -> str:
        raise ValueError("no words")


@dataclass(frozen=True)
class Case:
    """What is given, and what becomes of two messages, of which the handler fails at `bad` once."""

    options: Callable[[], dict[str, Any]] = dict  #: of the App
    consumer: Callable[[], dict[str, Any]] = dict  #: of the consumer
    handled: tuple[str, ...] = ("bad", "good")  #: at last; what is not is a dead letter
    said: tuple[str, ...] = ()  #: parts of log lines
    ready: str = ""  #: what `/readyz` says, if it is not well
    mode: Any = field(default=TRANSACTED)


CASES = {
    "delay raises": Case(
        consumer=lambda: {"redelivery": failing("delay", ValueError("x"))},
        said=(POLICY, "Failing.delay() raised ValueError: x"),
        ready="its redelivery policy fails",
    ),
    "delay exits": Case(
        consumer=lambda: {"redelivery": failing("delay", SystemExit(1))}, said=(POLICY,)
    ),
    "delay is NaN": Case(
        consumer=lambda: {"redelivery": failing("delay", math.nan)}, said=(POLICY,)
    ),
    "delay is negative": Case(
        consumer=lambda: {"redelivery": failing("delay", -1)}, said=(POLICY,)
    ),
    "delay is endless": Case(
        consumer=lambda: {"redelivery": failing("delay", math.inf)}, said=(POLICY,)
    ),
    "delay is text": Case(consumer=lambda: {"redelivery": failing("delay", "1")}, said=(POLICY,)),
    "delay is nothing": Case(
        consumer=lambda: {"redelivery": failing("delay", None), "non_blocking_redelivery": True},
        said=(POLICY,),
    ),
    "exhausted raises": Case(
        consumer=lambda: {"redelivery": failing("exhausted", ValueError("x"))}, said=(POLICY,)
    ),
    "exhausted is nothing": Case(
        consumer=lambda: {"redelivery": failing("exhausted", None)}, said=(POLICY,)
    ),
    "limit is text": Case(
        consumer=lambda: {"redelivery": failing("maximum_redeliveries", "6")}, said=(POLICY,)
    ),
    "mode is nothing": Case(consumer=lambda: {"redelivery": failing("mode", None)}, said=(POLICY,)),
    "check is text": Case(
        consumer=lambda: {"redelivery": failing("pre_dispatch_check", "no")}, said=(POLICY,)
    ),
    "observer": Case(options=lambda: {"observers": [RaisingObserver()]}, said=("observer failed",)),
    "dedupe_by raises": Case(
        consumer=lambda: {"dedupe": MemoryStore(), "dedupe_by": refusing},
        handled=(),
        said=("handler failed", "ValueError: refused"),
    ),
    "dedupe_by gives no key": Case(
        consumer=lambda: {"dedupe": MemoryStore(), "dedupe_by": lambda _: Unprintable()},
        handled=(),
        said=("handler failed", "return a text, a finite number"),
    ),
    "store raises": Case(
        consumer=lambda: {"dedupe": RaisingStore("once")},
        handled=(),
        said=("handler failed", "KeyError"),
    ),
    "store does not close": Case(
        consumer=lambda: {"dedupe": RaisingStore("close")}, said=("store not closed",)
    ),
    "database does not take back": Case(
        consumer=lambda: {"dedupe": database(release=refusing)}, said=("connection not released",)
    ),
    "ledger raises at once": Case(
        options=lambda: {"ledger": RaisingLedger("begin", 2)},
        said=(
            "waits for its delivery ledger",
            "RaisingLedger.begin() failed: RuntimeError: no ledger",
        ),
    ),
    "ledger answers nonsense": Case(
        options=lambda: {"ledger": RaisingLedger("begin", 2, "seven")},
        said=("waits for its delivery ledger", "gave a str"),
    ),
    "ledger raises when idle": Case(options=lambda: {"ledger": RaisingLedger("flush", 2)}),
}

CASES |= {
    f"store says {answer}": Case(
        consumer=partial(dict, dedupe=RaisingStore(answer)),
        handled=(),
        said=("handler failed", "has not called the handler"),
    )
    for answer in _ANSWERS
}


def database(**options: Any) -> DatabaseStore:
    """A store in a database of this process."""
    shared = sqlite3.connect(":memory:", check_same_thread=False)
    store = DatabaseStore(lambda: shared, **{"release": lambda _: None, **options})
    DatabaseStore(lambda: shared, release=lambda _: None).create_table()
    weakref.finalize(store, shared.close)
    return store


def put(broker: Broker, queue: Queue, *texts: str) -> None:
    """Send them, confirmed."""
    with Connection(broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for text in texts:
            producer.send(Message(text))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_an_app_calls(
    broker: Broker, queue: Queue, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on: messages are handled or dead letters, and those that come later are handled in the same way."""
    caplog.set_level(logging.INFO)
    failed: set[str] = set()
    handled: list[str] = []

    def handle(message: Message) -> None:
        if message.text.startswith("bad") and message.text not in failed:
            failed.add(message.text)
            raise LookupError(message.text)
        handled.append(message.text)

    def has_handled(texts: set[str]) -> bool:
        return texts <= set(handled)

    options = {"redelivery_policy": QUICK, **case.options()}
    app = App(broker.url, **options)
    app.consumer(queue, name="read", mode=case.mode, **case.consumer())(handle)
    app.start()
    try:
        for wave in ("", " again"):
            expected = {f"{text}{wave}" for text in case.handled}
            put(broker, queue, f"bad{wave}", f"good{wave}")
            assert eventually(partial(has_handled, expected), 20)
            assert eventually(lambda: broker.statistics(queue.name).size == 0, 20)
        assert app.live().ok
        told = " ".join(app.ready().body["reasons"])
        assert case.ready in told
    finally:
        app.stop()
    assert len(handled) == 2 * len(case.handled)
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert [part for part in case.said if part not in lines] == []


@pytest.mark.parametrize("answer", [ValueError("x"), None, math.nan])
def test_a_policy_of_a_plain_session(broker: Broker, queue: Queue, answer: Any) -> None:
    """`rollback()` and `recover()` do not raise what a policy raises."""
    with Connection(broker.url, redelivery_policy=failing("delay", answer)) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        put(broker, queue, "a")
        for _ in range(2):
            message = consumer.receive(10)
            assert message is not None
            session.rollback()
        assert consumer.receive(10) is not None
        session.commit()


def test_a_listener_for_exceptions_that_raises(broker: Broker) -> None:
    """It is told in the log, and closing works."""
    called = threading.Event()

    def listener(_error: object) -> None:
        called.set()
        raise SystemExit("listener")

    connection = Connection(broker.url)
    connection.set_exception_listener(listener)
    session = connection.create_session()
    link_of(session).engine.fault(RuntimeError("a fault"))
    assert called.wait(10)
    connection.close()


def test_words_that_cannot_be_announced(
    broker: Broker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """A terminal that is gone is no reason to abort: what runs is drained."""
    handled: list[str] = []
    app = App(broker.url, health="127.0.0.1:0")

    def handle(message: Message) -> None:
        app.quit()
        threading.Event().wait(0.2)
        handled.append(message.text)

    app.consumer(queue)(handle)
    put(broker, queue, "a")
    app.run(announce=refusing)
    assert handled == ["a"]
    assert broker.statistics(queue.name).size == 0
    assert "announcement failed" in caplog.text


def test_a_store_that_does_not_open(broker: Broker, queue: Queue) -> None:
    """The start ends with what it raises: nothing was taken yet."""
    app = App(broker.url)
    app.consumer(queue, dedupe=DatabaseStore(refusing))(lambda message: message)
    with pytest.raises(StoreError, match="refused"):
        app.start()
    app.abort()
