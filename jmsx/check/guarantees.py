"""
Checks of the table of guarantees on the user's own broker, of all rows for which no broker has to be killed.

Each row is tried on a connection of its own, with queues called `jmsx.check.…` from which nobody else consumes. The
queues are emptied after the row; if the broker keeps empty queues, three of them remain in all. The result of a row is
a text: behaviour that differs from the table is a failure, and behaviour that only some brokers have is a note.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jmsx import plugins
from jmsx.check.finding import Finding, Level
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.modes import MODES, AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from jmsx.errors import InvalidClientIdError, JmsxError, UnsupportedError
from jmsx.jms.connection import Connection
from jmsx.jms.consumer import MessageConsumer
from jmsx.jms.destination import Queue
from jmsx.jms.message import Message
from jmsx.jms.one_broker import connect_to
from jmsx.jms.session import link_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: Seconds to wait for messages that must come.
_PATIENCE: Final = 10.0

#: Seconds to wait for messages that must not come.
_SILENCE: Final = 0.5

#: The length of a terminal's line, in characters; the text of a finding must fit into one line.
_LINE: Final = 80

#: The acknowledge modes, except for the one that differs from another only on topics.
_MODES: Final = [mode for mode in MODES if not mode.does.batches_topics]

#: The modes in which a message is settled when the application acknowledges it, or commits.
_TOLD: Final = [mode for mode in _MODES if not mode.does.acknowledges_itself]

#: Those of `_TOLD` in which one ACK settles all messages before it, too.
_TOGETHER: Final = [mode for mode in _TOLD if not mode.does.single_acks]

#: How many messages the row puts into a queue: more than Classic reads of it at once (BROKER.md C10).
_BACKLOG: Final = 450

#: How many processes die with the message in hand; without a ledger, the redelivered flag shows only one of them.
_CRASHES: Final = 3

#: The delay of the delayed message, in seconds.
_DELAY: Final = 0.7

#: What Artemis may do when a socket breaks (its BROKER.md, A66).
_STRANDED: Final = (
    "the broker keeps the rest for a consumer that is gone, until it is started again"
)

#: The result of a row: its severity, and a clause that says what was found.
Result: TypeAlias = tuple[Level, str]


class _BrokenError(Exception):
    """The broker does not do what the table says."""


def guarantees(address: BrokerAddress, options: ConnectionOptions) -> Iterator[Finding]:
    """Try each row on one broker; if the broker raises an error for a row, that row is a failure."""
    given = replace(options, optimize_acknowledge=False, non_blocking_redelivery=False)
    names = f"jmsx.check.{uuid.uuid4().hex[:12]}"
    for row, probe in ROWS.items():
        bench = Bench(address, given, names)
        try:
            level, told = probe(bench)
        except (_BrokenError, JmsxError) as error:
            level, told = Level.FAILURE, str(error)
        finally:
            bench.clear()
        yield Finding(row, level, told)


class Bench:
    """The connections of one row, and its queues, from which nobody else consumes."""

    def __init__(self, address: BrokerAddress, options: ConnectionOptions, names: str) -> None:
        self._address = address
        self._options = options
        self._names = names
        self._open = ExitStack()
        self._queues: list[Queue] = []

    def connect(self, **changes: Any) -> Connection:
        """Return a started connection that redelivers at once; `changes` are further options."""
        at_once = RedeliveryPolicy(initial_redelivery_delay=0.0, redelivery_delay=0.0)
        own = {"redelivery_policy": at_once, **changes}
        connection = connect_to(self._address, self._options, **own)
        self._open.callback(connection.close)
        connection.start()
        return connection

    def queue(self) -> Queue:
        """Return a new queue that nobody else uses, emptied by `clear()`."""
        self._queues.append(Queue(f"{self._names}.{len(self._queues)}"))
        return self._queues[-1]

    def clear(self) -> None:
        """Close what the row has opened, and empty its queues."""
        with suppress(JmsxError):
            self._open.close()
        with suppress(JmsxError), connect_to(self._address, self._options) as connection:
            connection.start()
            session = connection.create_session()
            for queue in self._queues:
                for _ in came(session.create_consumer(queue)):
                    pass


def put(connection: Connection, queue: Queue, *bodies: Any, **properties: Any) -> None:
    """Send bodies in one transaction."""
    session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    for body in bodies:
        producer.send(Message(body), **properties)
    session.commit()
    session.close()


def came(consumer: MessageConsumer, count: int = 0) -> list[Message]:
    """Return the next `count` messages, or fewer if no more come in time, and any further ones that come."""
    found: list[Message] = []
    while (message := consumer.receive(_PATIENCE if len(found) < count else _SILENCE)) is not None:
        found.append(message)
    return found


def left(connection: Connection, queue: Queue, count: int = 0) -> list[Message]:
    """Return the messages that a new session gets from a queue, of which `count` are expected."""
    session = connection.create_session()
    found = came(session.create_consumer(queue), count)
    session.close()
    return found


def stranded(connection: Connection, queue: Queue) -> bool:
    """Return whether the broker keeps messages for a consumer that no longer exists; False if it cannot be asked."""
    session = connection.create_session()
    kind = link_of(session).dialect.name
    if kind not in plugins.names("jmsx.stranded"):
        return False
    return bool(plugins.load("jmsx.stranded", kind)(session, queue))


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise _BrokenError(f"{what}: {_brief(got)}, and not {_brief(wanted)}")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LINE else f"{text[: _LINE - 1]}…"


def _bodies(messages: Sequence[Message]) -> list[Any]:
    return [message.body for message in messages]


def _small(queue: Queue, prefetch: int) -> Queue:
    return Queue(f"{queue.name}?consumer.prefetchSize={prefetch}")


def _at_least_once(mode: AcknowledgeMode) -> Callable[[Bench], Result]:
    def probe(bench: Bench) -> Result:
        queue, connection = bench.queue(), bench.connect()
        put(connection, queue, *"abcdef")
        crashing = bench.connect()
        session = crashing.create_session(mode)
        consumer = session.create_consumer(queue)
        for _ in range(2):
            message = consumer.receive(_PATIENCE)
            if message is None:
                raise _BrokenError(f"nothing came in {_PATIENCE:g} s")
            message.acknowledge()
        if session.transacted:
            session.commit()
        consumer.receive(_PATIENCE)
        # In AUTO the third is acknowledged when receive() returns, and nothing answers that ACK
        time.sleep(_SILENCE)
        crashing.abort()
        wanted = list("def" if mode.does.acknowledges_itself else "cdef")
        again = left(connection, queue, len(wanted))
        if len(again) < len(wanted) and stranded(connection, queue):
            told = f"{len(again)} of {len(wanted)} came again: {_STRANDED}"
            return Level.WARNING, told
        _expect("after a crash came", _bodies(again), wanted)
        flagged = sum(message.redelivered for message in again)
        return (
            Level.OK,
            f"a crash had all come again that was not acknowledged, {flagged} of {len(wanted)} flagged",
        )

    return probe


def _receive_and_send(bench: Bench) -> Result:
    queue, target, connection = bench.queue(), bench.queue(), bench.connect()
    put(connection, queue, "in")
    session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
    consumer, producer = session.create_consumer(queue), session.create_producer(target)
    for commit in (False, False, True):
        _expect("received", _bodies(came_one(consumer)), ["in"])
        producer.send(Message("out"))
        if commit:
            session.commit()
        else:
            session.rollback()
            _expect("sent by a rollback", _bodies(left(connection, target)), [])
    session.close()
    _expect("sent by the commit", _bodies(left(connection, target, 1)), ["out"])
    _expect("left of the input", _bodies(left(connection, queue)), [])
    return Level.OK, "a rollback undid both, a commit did both, once"


def came_one(consumer: MessageConsumer) -> list[Message]:
    """Return the next message, in a list; empty if none came."""
    message = consumer.receive(_PATIENCE)
    return [] if message is None else [message]


def _order(mode: AcknowledgeMode) -> Callable[[Bench], Result]:
    def probe(bench: Bench) -> Result:
        queue, connection = bench.queue(), bench.connect()
        put(connection, queue, *"abcdef")
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        first = [body for _ in range(4) for body in _bodies(came_one(consumer))]
        _expect("at first came", first, list("abcd"))
        if session.transacted:
            session.rollback()
        else:
            session.recover()
        _expect("then came", _bodies(came(consumer, 6)), list("abcdef"))
        return Level.OK, "all came again in the order in which they had come"

    return probe


def _poison(mode: AcknowledgeMode) -> Callable[[Bench], Result]:
    def probe(bench: Bench) -> Result:
        queue, dead = bench.queue(), bench.queue()
        policy = RedeliveryPolicy(
            maximum_redeliveries=2, initial_redelivery_delay=0.0, redelivery_delay=0.0
        )
        connection = bench.connect(redelivery_policy=policy, dead_letter=dead.uri)
        put(connection, queue, "poison", "next")
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        deliveries = []
        for message in iter(lambda: consumer.receive(_PATIENCE), None):
            deliveries.append((message.body, message.delivery_count))
            if message.body == "next":
                break
            if session.transacted:
                session.rollback()
            else:
                session.recover()
        wanted = [("poison", 1), ("poison", 2), ("poison", 3), ("next", 1)]
        _expect("deliveries were", deliveries, wanted)
        _expect("dead letters are", _bodies(left(connection, dead, 1)), ["poison"])
        return Level.OK, "a dead letter after exactly 3 deliveries, and there once"

    return probe


def _not_persistent(bench: Bench) -> Result:
    queue, dead = bench.queue(), bench.queue()
    connection = bench.connect(
        redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0), dead_letter=dead.uri
    )
    put(connection, queue, "a", persistent=False)
    session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
    consumer = session.create_consumer(queue)
    _expect("received", _bodies(came_one(consumer)), ["a"])
    session.rollback()
    _expect("came again", _bodies(came(consumer)), [])
    _expect("dead letters are", _bodies(left(connection, dead, 1)), ["a"])
    return Level.OK, "it became a dead letter"


def _ledger(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    put(connection, queue, "a")
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(_CRASHES):
            crashing = bench.connect(ledger=Path(folder) / "deliveries.db")
            consumer = crashing.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE).create_consumer(
                queue
            )
            counts += [message.delivery_count for message in came_one(consumer)]
            crashing.abort()
    if len(counts) < _CRASHES and stranded(connection, queue):
        return Level.WARNING, f"it came {len(counts)} times: {_STRANDED}"
    _expect("deliveries were", counts, list(range(1, 1 + _CRASHES)))
    return Level.OK, "each process knew how often those before it had been given the message"


def _prefetch(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    put(connection, queue, *"abc")
    session = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(_small(queue, 1))
    _expect("received", _bodies(came_one(consumer)), ["a"])
    _expect("another consumer got", _bodies(left(connection, queue, 2)), ["b", "c"])
    return Level.OK, "with prefetch 1 nothing waits behind the message that is at work"


def _pull(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    put(connection, queue, *"abc")
    connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE).create_consumer(_small(queue, 0))
    got = len(left(connection, queue, 2))
    if got < 2:  # noqa: PLR2004 - of three, one may be kept
        raise _BrokenError(f"of 3 messages an idle consumer kept {3 - got}")
    return Level.OK, f"of 3 messages an idle consumer with prefetch 0 kept {3 - got}"


def _backlog(mode: AcknowledgeMode) -> Callable[[Bench], Result]:
    def probe(bench: Bench) -> Result:
        queue, connection = bench.queue(), bench.connect()
        put(connection, queue, *map(str, range(_BACKLOG)))
        consumer = connection.create_session(mode).create_consumer(_small(queue, 20))
        got = _bodies(came(consumer, _BACKLOG))
        _expect("came", len(got), _BACKLOG)
        _expect("in their order came", got, [str(number) for number in range(_BACKLOG)])
        return Level.OK, f"{_BACKLOG} came with prefetch 20, and none acknowledged"

    return probe


def _message_bodies(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    bodies: list[Any] = [
        "text", "", "grüße, 😀", "nul \0 inside", b"bytes \xff", b"", {"n": 1, "t": "007", "b": b"x", "f": 0.5},
    ]  # fmt: skip
    put(connection, queue, *bodies)
    _expect("came", _bodies(left(connection, queue, len(bodies))), bodies)
    return Level.OK, "text, bytes and maps came as they were sent"


def _properties(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    sent: Mapping[str, Any] = {"n": 7, "x": 0.5, "yes": True, "text": "7", "none": None}
    session = connection.create_session()
    session.create_producer(queue).send(Message("a", properties=sent, group_id="g"))
    [message] = left(connection, queue, 1) or [Message("")]
    _expect("came", {name: message.properties.get(name, "?") for name in sent}, dict(sent))
    _expect("the group was", message.group_id, "g")
    return Level.OK, "numbers, truth values, texts, None and the group came as they were sent"


def _priorities(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    put(connection, queue, "low", priority=1)
    put(connection, queue, "high", priority=8)
    got = _bodies(left(connection, queue, 2))
    _expect("came", sorted(got), ["high", "low"])
    if got == ["low", "high"]:
        setting = link_of(connection.create_session()).dialect.settings.priorities
        return Level.NOTE, f"this broker does not look at them here, but it may be told to{setting}"
    return Level.OK, "the urgent one came first"


def _delay(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    session = connection.create_session()
    dialect = link_of(session).dialect
    header = dialect.delay_header
    if header is None:
        return Level.NOTE, "a broker of this kind delays nothing"
    consumer = connection.create_session().create_consumer(queue)
    began = time.monotonic()
    delayed = Message("a", properties={header: round(_DELAY * 1000)})
    session.create_producer(queue).send(delayed)
    _expect("came", _bodies(came_one(consumer)), ["a"])
    if time.monotonic() - began < _DELAY * 0.9:
        return (
            Level.NOTE,
            f"what is delayed comes at once: the broker's scheduler is off{dialect.settings.scheduler}",
        )
    return Level.OK, "a message came when its delay was over"


def _client_id(bench: Bench) -> Result:
    name = f"jmsx.check.{uuid.uuid4().hex}"
    bench.connect(client_id=name)
    try:
        bench.connect(client_id=name)
    except InvalidClientIdError:
        return Level.OK, "a second connection with it was refused"
    return Level.NOTE, "this broker lets several connections have it"


def _browser(bench: Bench) -> Result:
    queue, connection = bench.queue(), bench.connect()
    put(connection, queue, *"ab")
    try:
        seen = _bodies(list(connection.create_session().create_browser(queue)))
    except UnsupportedError as error:
        return Level.NOTE, str(error)
    _expect("shown", seen, ["a", "b"])
    _expect("left", _bodies(left(connection, queue, 2)), ["a", "b"])
    return Level.OK, "it showed what lay there, and took nothing"


def _rows() -> Iterator[tuple[str, Callable[[Bench], Result]]]:
    for mode in _MODES:
        yield f"at least once, {mode.label}", _at_least_once(mode)
    yield "receive and send", _receive_and_send
    for mode in _TOGETHER:
        yield f"order, {mode.label}", _order(mode)
    for mode in _TOLD:
        yield f"poison, {mode.label}", _poison(mode)
    yield "non-persistent", _not_persistent
    yield "counts with a ledger", _ledger
    yield "prefetch 1", _prefetch
    yield "prefetch 0 (pull)", _pull
    for mode in _TOGETHER:
        yield f"backlog, {mode.label}", _backlog(mode)
    yield "bodies", _message_bodies
    yield "types of properties", _properties
    yield "priorities", _priorities
    yield "delivery delay", _delay
    yield "a client id", _client_id
    yield "queue browser", _browser


#: The check of each row, by the row's name.
ROWS: Final[Mapping[str, Callable[[Bench], Result]]] = dict(_rows())
