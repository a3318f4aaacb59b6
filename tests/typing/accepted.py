"""What type checkers must accept: programs as users write them. Checked, and never run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator  # noqa: TC003 - as a program has it
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal  # noqa: TC003 - pydantic asks what it is
from typing import Annotated, Any, TypedDict, assert_type

from pydantic import BaseModel

from jmsx import (
    AcknowledgeMode,
    App,
    ArtemisRedeliveryPolicy,
    BatchError,
    CircuitBreaker,
    Connection,
    ConnectionFailedError,
    ConsumerOptions,
    DatabaseStore,
    DeliveryLedger,
    Destination,
    Discard,
    Header,
    HealthLimits,
    JmsxError,
    Layer,
    MapMessage,
    MemoryStore,
    Message,
    MessageConsumer,
    MessageProducer,
    PrefetchPolicy,
    Property,
    Queue,
    QueueBrowser,
    RateLimit,
    ReconnectPolicy,
    RedeliveryPolicy,
    RedeliveryPolicyMap,
    Reject,
    Retry,
    Session,
    SqliteStore,
    TlsOptions,
    UnansweredError,
)
from jmsx.app.middleware import CallNext, close_old_connections
from jmsx.core.events import Event, MessageDeadLettered, Source
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver

URL = "stomp://localhost:61613"

app = App(
    URL,
    observers=[PrometheusObserver(), EventLog("events", service="shop")],
    reconnect=ReconnectPolicy(initial_delay="20ms", maximum_delay=timedelta(seconds=5)),
    health="127.0.0.1:8080",
    health_limits=HealthLimits(handler="10min"),
    client_id="shop",
    prefetch_policy=PrefetchPolicy.all(10),
    redelivery_policy=RedeliveryPolicy(maximum_redeliveries=3),
    redelivery_policies=RedeliveryPolicyMap(
        RedeliveryPolicy(redelivery_delay="2s"),
        {"orders.>": ArtemisRedeliveryPolicy(redelivery_delay=timedelta(seconds=2))},
    ),
    dead_letter="queue://dead",
    ledger=DeliveryLedger("deliveries.db"),
    heartbeat=("5s", 5),
    request_timeout=None,
    tls=TlsOptions(ca_file="ca.pem"),
)


alike = App(URL, redelivery=ArtemisRedeliveryPolicy(), prefetch=10, dead_letter="queue://dead")


@app.consumer("queue://orders", concurrency=4, prefetch=10, give_up_on=ValueError)
def book(order: Message) -> None:
    """Take a message alone."""
    assert_type(order.text, str)
    app.send("queue://booked", order.text, properties={"region": "EU", "rank": 3})
    app.send(
        Queue("later"),
        order.body,
        delay=timedelta(hours=1),
        expires="2h",
        priority=9,
        persistent=True,
        group=order.group_id,
        correlation_id=order.correlation_id,
        reply_to="queue://answers",
        dedupe_id="a",
        timeout=2.5,
        confirm=False,
    )


@app.consumer(Queue("moves"), mode=AcknowledgeMode.SESSION_TRANSACTED, name="moves")
def move(message: Message, session: Session) -> None:
    """Take the session, too."""
    producer = session.create_producer(Queue("moved"))
    producer.send(Message(message.body, properties=message.properties), priority=9)


@app.consumer(
    "queue://payments",
    dedupe=DatabaseStore(lambda: sqlite3.connect("shop.db")),
    dedupe_by=lambda message: message.properties["payment"],
)
def pay(message: Message, *, db: sqlite3.Connection) -> int:
    """Take the store's database connection; what a handler returns is nobody's."""
    return db.execute("INSERT INTO payments VALUES (?)", (message.text,)).rowcount


@app.consumer("queue://once", dedupe=SqliteStore("done.db"), give_up_on=(ValueError, KeyError))
def once(message: Message) -> None:
    """Say more than that it failed."""
    match message.properties.get("then"):
        case "retry":
            raise Retry(delay="2.5s")
        case "reject":
            raise Reject("not today")
        case "discard":
            raise Discard
        case _:
            pass


@app.consumer("queue://rows", batch=500, batch_timeout=0.5, prefetch=1000)
def write(rows: list[Message]) -> None:
    """Take many at once, and say which of them failed."""
    failed = [row for row in rows if not row.text]
    if failed:
        raise BatchError(failed)


@app.consumer("queue://moved", batch=10, mode="transacted")
def move_all(messages: list[Message], session: Session) -> None:
    """Take the session, too."""
    raise BatchError({messages[0]: Reject("no")}) from ValueError(str(session))


@app.consumer("queue://paid", batch=10, dedupe=DatabaseStore(lambda: sqlite3.connect("shop.db")))
def pay_all(messages: list[Message], *, db: sqlite3.Connection) -> None:
    """Take the store's database connection."""
    db.executemany("INSERT INTO payments VALUES (?)", [(one.text,) for one in messages])


@dataclass
class Order:
    """A body."""

    number: int


class Item(TypedDict):
    """Another one."""

    article: str


class Price(BaseModel):
    """And another one."""

    amount: Decimal


@app.consumer("queue://typed", concurrency=2)
def typed(  # noqa: PLR0917 - one of each kind
    order: Order,
    region: Annotated[str, Property()],
    rank: Annotated[int | None, Property("how_high")],
    message: Message,
    session: Session,
    priority: Annotated[int, Header("JMSPriority")] = 4,
) -> Item:
    """Take whatever is wanted."""
    del region, rank, message, session, priority
    return {"article": str(order.number)}


assert_type(typed(Order(1), "EU", None, Message(), Connection(URL).create_session()), Item)


@app.consumer("queue://typed", name="text")
def take_text(text: str) -> None:
    """Take text."""
    app.send("queue://a", text)


@app.consumer("queue://typed", name="json")
def take_json(body: dict[str, Any], session: Session) -> None:
    """Take a dict."""
    del body, session


@app.consumer("queue://typed", name="items")
def take_items(message: Message, items: list[Item] | Order) -> None:
    """Take one of several."""
    del message, items


@app.consumer("queue://typed", name="price")
async def take_price(price: Price) -> Price | None:
    """Take a model of pydantic's."""
    return price


@app.consumer("queue://typed", name="all", batch=10)
def take_all(prices: list[Price], messages: list[Message]) -> None:
    """Take many at once, and the messages that they came in."""
    raise BatchError([one for one, price in zip(messages, prices, strict=True) if not price.amount])


@app.consumer("queue://typed", name="db", dedupe=DatabaseStore(lambda: sqlite3.connect("shop.db")))
def take_with_connection(price: Price, *, db: sqlite3.Connection) -> None:
    """Take the store's database connection, too."""
    db.execute("INSERT INTO prices VALUES (?)", (str(price.amount),))


@app.consumer(
    "queue://typed",
    name="dbs",
    batch=10,
    dedupe=DatabaseStore(lambda: sqlite3.connect("shop.db")),
)
def take_all_with_connection(prices: list[Price], *, db: sqlite3.Connection) -> None:
    """Take the store's database connection, too."""
    del prices, db


@app.consumer("queue://later", concurrency=2)
async def later(message: Message) -> None:
    """Wait for others meanwhile."""
    assert_type(await app.asend("queue://done", message.text, delay="2s"), str)


@app.consumer("queue://rows", batch=500, batch_timeout="2s", name="rows")
async def write_later(rows: list[Message], session: Session) -> None:
    """Take many at once."""
    raise BatchError(rows) from ValueError(str(session))


def ask() -> None:
    """Send data, and wait for answers."""
    app.send("queue://a", Order(1), priority=3)
    app.send("queue://a", [Order(1), {"article": "x"}])
    app.send("queue://a", MapMessage({"a": 1, "b": b"x"}, correlation_id="x"))
    try:
        answer = app.request("queue://prices", Item(article="x"), timeout="5s", expires=5)
        assert_type(answer, Message)
    except UnansweredError as error:
        raise RuntimeError from error


async def aask() -> Message:
    """The same."""
    return await app.arequest("queue://prices", {"article": "x"}, timeout=5)


async def serve() -> None:
    """On the program's own event loop."""
    await app.serve(10.0, announce=print)
    async with app as running:
        assert_type(running, App)
    async with app.lifespan():
        pass


def timed(message: Message, call_next: CallNext) -> object:
    """Be around a handler."""
    assert_type(message.text, str)
    return call_next(message)


async def atimed(message: Message, call_next: CallNext) -> object:
    """Be around an async one."""
    return await call_next(message)


def counted(messages: list[Message], call_next: Callable[[list[Message]], object]) -> object:
    """Be around batches."""
    return call_next(messages[:1])


@contextmanager
def tagged(message: Message, to: str) -> Generator[None]:
    """Be around what is sent."""
    message.properties["to"] = to
    yield


guarded = App(URL, middleware=[Layer(timed, atimed, tagged), close_old_connections])


@guarded.consumer(
    "queue://guarded",
    middleware=[timed],
    retry_on=(OSError, TimeoutError),
    give_up_on=ValueError,
    redelivery_for={OSError: RedeliveryPolicy(), KeyError: ArtemisRedeliveryPolicy()},
    timeout="30s",
    rate_limit="100/s",
    breaker=CircuitBreaker(failures=3, pause=timedelta(minutes=1), on=OSError),
)
def guard(message: Message) -> None:
    """Have all of it."""
    del message


@guarded.consumer("queue://rows", batch=10, middleware=[counted], rate_limit=RateLimit("5/min"))
def guard_all(messages: list[Message]) -> None:
    """Have it in batches."""
    del messages


class Shop:
    """A program with methods."""

    def handle(self, message: Message, session: Session | None = None) -> None:
        """Take both, or one."""
        del message, session


app.consumer("queue://shop", mode="client", selector="region = 'EU'")(Shop().handle)
app.consumer("topic://news", durable="desk", dedupe=MemoryStore())(print)

# A handler is still the function that it was.
assert_type(pay(Message("x"), db=sqlite3.connect(":memory:")), int)


def by_hand(options: dict[str, str], ranks: dict[str, int]) -> datetime | None:
    """Use the JMS face."""
    with Connection(URL, username="u", password="p", commit_markers=True) as connection:  # noqa: S106 - no real account has it
        connection.start()
        session = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
        assert_type(session, Session)
        own = ConsumerOptions(prefetch=1, redelivery_policy=ArtemisRedeliveryPolicy())
        consumer = session.create_consumer("queue://a", selector="rank > 3", options=own)
        assert_type(consumer, MessageConsumer)
        assert_type(consumer.receive("2s"), Message | None)
        message = consumer.receive(1.5)
        assert_type(message, Message | None)
        producer = session.create_producer()
        assert_type(producer, MessageProducer)
        producer.send({"a": 1}, destination="queue://b", time_to_live=60, persistent=False)
        producer.time_to_live = "1h"
        producer.send("x", destination="queue://b", delivery_delay=timedelta(1), timeout="2s")
        assert_type(connection.options.request_timeout, float | None)
        assert_type(connection.options.heartbeat, tuple[float, float])
        connection.stop("5s")
        assert_type(producer.send(Message("x", properties=ranks, reply_to="queue://answers")), str)
        producer.send(Message(b"x", properties=options))
        assert_type(session.create_browser("queue://a"), QueueBrowser)
        session.create_consumer("queue://a", "rank > 3")
        session.create_durable_consumer("topic://a", "prices", "rank > 3")
        session.create_browser("queue://a", "rank > 3")
        if message is None:
            return None
        message.acknowledge()
        assert_type(message.destination, Destination | None)
        return datetime.fromtimestamp(message.timestamp or 0, UTC)


class Deaths:
    """An observer of one's own."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def observe(self, event: Event, source: Source) -> None:
        """Count them."""
        match event:
            case MessageDeadLettered(reason=reason, destination=destination):
                self.reasons[f"{source.broker} {destination} {reason}"] = event.attempts
            case _:
                pass

    def close(self) -> None:
        """Nothing is open."""


class Fibonacci:
    """A policy of one's own."""

    mode = "local"
    non_blocking = True
    pre_dispatch_check = True
    maximum_redeliveries = 10

    def exhausted(self, redelivery_count: int) -> bool:
        """After so many."""
        return redelivery_count > self.maximum_redeliveries

    def delay(self, redelivery: int, draw: Callable[[], float] = lambda: 0.0) -> float:
        """Longer and longer."""
        return redelivery + draw()


app.observe(Deaths())
Connection(URL, redelivery_policy=Fibonacci())


class Count:
    """A handler with a state."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, message: Message) -> None:
        """Take a message."""
        self.seen += len(message.text)


app.consumer("queue://count", redelivery=Fibonacci())(Count())


def in_doubt() -> None:
    """Catch by class."""
    try:
        app.send("queue://a", b"bytes", persistent=False, expires=1)
    except ConnectionFailedError as error:
        assert_type(error.retriable, bool)
    except JmsxError:
        raise
