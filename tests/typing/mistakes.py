"""What type checkers must find: a mistake on each line that says so, and on no other. Checked, and never run."""

from __future__ import annotations

from threading import Lock

import jmsx
import jmsx_broker
import jmsx_eventlog
from jmsx import (
    AcknowledgeMode,
    App,
    BatchError,
    CircuitBreaker,
    Connection,
    ConnectionOptions,
    ConsumerOptions,
    DatabaseStore,
    HealthLimits,
    Message,
    PrefetchPolicy,
    ReconnectPolicy,
    RedeliveryPolicy,
    Retry,
    Session,
)

URL = "stomp://localhost:61613"
app = App(URL)

str(jmsx.Conection)  # mistake
str(jmsx_broker.ClasicBroker)  # mistake
str(jmsx_eventlog.EventLogs)  # mistake
Connection(URL, reqest_timeout=3)  # mistake
Connection(URL, heartbeat="no")  # mistake
Connection(URL, prefetch_policy=10)  # mistake
App(URL, "me", "secret")  # mistake
Connection(URL, "me", "secret")  # mistake
App(URL, ledgerr="deliveries.db")  # mistake
App(URL, ledger=5)  # mistake
App(URL, redelivery_policy=5)  # mistake
App(URL, redelivery_policies={})  # mistake
App(URL, reconnect=3)  # mistake
App(URL, observers=[print])  # mistake
app.connect(clientid="x")  # mistake


@app.consumer("queue://a", concurency=2)  # mistake
def misspelt(message: Message) -> None:
    """A setting that there is not."""
    del message


@app.consumer("queue://a", concurrency="2")  # mistake
def text_for_a_number(message: Message) -> None:
    """A setting of another type."""
    del message


@app.consumer("queue://a", mode=1.5)  # mistake
def no_mode(message: Message) -> None:
    """A mode that is none."""
    del message


@app.consumer("queue://a", give_up_on="ValueError")  # mistake
def no_class(message: Message) -> None:
    """A name for a class."""
    del message


def no_next(message: Message) -> None:
    """A middleware that takes too little."""
    del message


@app.consumer("queue://a", middleware=[no_next])  # mistake
def around(message: Message) -> None:
    """A middleware that is none."""
    del message


@app.consumer("queue://a", breaker=5)  # mistake
def broken(message: Message) -> None:
    """A breaker that is none."""
    del message


@app.consumer("queue://a", redelivery_for={"OSError": RedeliveryPolicy()})  # mistake
def no_error(message: Message) -> None:
    """A name for a class."""
    del message


@app.consumer("queue://a", dedupe="done.db")  # mistake
def no_store(message: Message) -> None:
    """A path for a store."""
    del message


@app.consumer("queue://a")  # mistake
def swapped(session: Session, message: Message) -> None:
    """Parameters in the wrong order."""
    del session, message


@app.consumer("queue://a")  # mistake
def nothing() -> None:
    """No parameter."""


@app.consumer("queue://a")  # mistake
def too_much(message: Message, session: Session, more: Lock) -> None:
    """Three parameters, of which one is nothing that a message has."""
    del message, session, more


@app.consumer("queue://a")  # mistake
def no_data(lock: Lock) -> None:
    """No body is a Lock."""
    del lock


@app.consumer("queue://a", batch=10)  # mistake
def one_body_of_many(body: str) -> None:
    """One body, and it gets a list."""
    del body


@app.consumer("queue://a", batch=10)  # mistake
def one_of_many(message: Message) -> None:
    """One message, and it gets a list."""
    del message


@app.consumer("queue://a")  # mistake
def many_of_one(messages: list[Message]) -> None:
    """A list, and it gets one message."""
    del messages


@app.consumer("queue://a", batch="many")  # mistake
def no_number(messages: list[Message]) -> None:
    """A size that is no number."""
    del messages
    raise BatchError(["a"])  # mistake


@app.consumer("queue://a")  # mistake
async def swapped_async(session: Session, message: Message) -> None:
    """Parameters in the wrong order."""
    await app.asend("queue://a", object())  # mistake
    await app.asend("queue://a", "x", persistant=False)  # mistake
    del session, message


@app.consumer  # mistake
def bare(message: Message) -> None:
    """No destination."""
    del message


def sends(message: Message, session: Session) -> None:
    """Send and receive."""
    app.send("queue://a", "x", persistant=False)  # mistake
    app.send("queue://a", object())  # mistake
    app.send("queue://a", session)  # mistake
    app.request("queue://a", Lock())  # mistake
    app.request("queue://a", "x", timeuot=3)  # mistake
    app.request("queue://a", "x").upper()  # mistake
    jmsx.MapMessage(["a"])  # mistake
    app.send("queue://a", "x", delay=b"2s")  # mistake
    app.send("queue://a", "x", confirm="no")  # mistake
    app.send("queue://a", "x", time_to_live=5)  # mistake
    app.send("queue://a", "x", properties={"a": object()})  # mistake
    session.create_producer("queue://a").send("x", priority="high")  # mistake
    session.create_consumer(5)  # mistake
    session.create_consumer("queue://a", options={"prefetch": 1})  # mistake
    session.create_durable_consumer("topic://a", "s", options=ConsumerOptions(prefech=1))  # mistake
    session.create_consumer("queue://a").receive(b"1s")  # mistake
    Connection("stomp://localhost", connect_timeout=b"2s")  # mistake
    ReconnectPolicy(maximum_delay=[5])  # mistake
    ConnectionOptions(heartbeat=5)  # mistake
    message.properties["a"].upper()  # mistake
    Message("x", propertys={})  # mistake
    raise Retry(delay=b"1s")  # mistake


def more(session: Session) -> None:
    """What programmers of JMS's Java face try, and what is given by position."""
    session.acknowledge()  # mistake
    session.commit(5)  # mistake
    session.create_consumer("queue://a", prefetch=5)  # mistake
    session.create_consumer("queue://a").receive().acknowledge()  # mistake
    session.create_producer("queue://a").send("x", "queue://b")  # mistake
    Connection(URL, AcknowledgeMode.AUTO_ACKNOWLEDGE)  # mistake
    Connection(URL, tls={"ca_file": "ca.pem"})  # mistake
    Message(5)  # mistake
    Message("x", properties={"at": [1]})  # mistake
    CircuitBreaker(3)  # mistake
    DatabaseStore("shop.db")  # mistake
    HealthLimits(handlers="10min")  # mistake
    app.consumer("topic://a", durable=True)  # mistake
    app.consumer("queue://a", redelivery=3)  # mistake
    app.stop([3])  # mistake


RedeliveryPolicy(maximum_redeliverys=3)  # mistake
PrefetchPolicy(queue="many")  # mistake
with Connection(URL) as connection:
    connection.create_session("client")  # mistake
