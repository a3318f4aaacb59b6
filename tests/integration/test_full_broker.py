"""
A broker that is full: store (persistent messages), temp (non-persistent ones), memory (a queue without a store cursor).

By default it holds the sender back for as long as it is full (producer flow control): it reads nothing more from that
socket. With `sendFailIfNoSpace` it refuses. Neither may hang a call for longer than its timeout, nor hold up the
acknowledgements of anybody else. Measured on Classic 6.1.8.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from jmsx import Connection, Message, Queue
from jmsx.app import App
from jmsx.cli.commands import app as main
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    JmsxError,
    ResourceAllocationError,
    SendUnconfirmedError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx_broker.artefacts import classic_libraries
from jmsx_broker.java import find_java
from tests.conformance.brokers import Broker as ReachedBroker
from tests.conformance.brokers import OpenWire
from tests.conformance.java import JavaClient
from tests.conformance.scenario import load
from tests.integration.broker_support import changed_artemis, changed_classic, eventually, send
from tests.integration.support import (
    NO_RETRY,
    TRANSACTED,
    bodies,
    dead_copies,
    fresh_queue,
    put,
    settles,
    take,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Session
    from jmsx_broker import Broker
    from jmsx_broker.local import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

#: Ten of them fill any limit of FullBroker.
BIG = "x" * 1_000_000

#: Seconds that a message lives which expires: more than the Java client takes to start, twice.
EXPIRY = 10.0

SCENARIOS = Path(__file__).parents[1] / "conformance" / "scenarios"

#: Seconds that a call may wait for an answer.
PATIENCE = 1.0


LIMITED = """
      <policyEntry queue="{}" producerFlowControl="true" memoryLimit="6mb">
        <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
      </policyEntry>
    """

MEMORY_POLICY = f"""
    <destinationPolicy><policyMap><policyEntries>
      {LIMITED.format("memory.>")}{LIMITED.format("Consumer.memory.>")}
    </policyEntries></policyMap></destinationPolicy>
    """


def full_broker(*, refuses: bool) -> LocalBroker:
    """A broker of 9 MB: in its store, on its disk for temporary data; and of 6 in the memory of a queue `memory.*`."""
    return changed_classic(
        ('storeUsage limit="8 gb"', 'storeUsage limit="9 mb"'),
        ('tempUsage limit="2 gb"', 'tempUsage limit="9 mb"'),
        ('memoryUsage limit="256 mb"', 'memoryUsage limit="8 mb"'),
        (
            "<kahaDB ",
            '<kahaDB journalMaxFileLength="1mb" checkpointInterval="200" cleanupInterval="400" ',
        ),
        ("<plugins>", f"{MEMORY_POLICY}<plugins>"),
        ("      <systemUsage>", f'      <systemUsage sendFailIfNoSpace="{str(refuses).lower()}">'),
    )


@pytest.fixture(scope="module")
def holding() -> Iterator[Broker]:
    """A broker that holds senders back while it is full."""
    with full_broker(refuses=False) as broker:
        yield broker


@pytest.fixture(scope="module")
def refusing() -> Iterator[Broker]:
    """A broker that refuses what it has no room for."""
    with full_broker(refuses=True) as broker:
        yield broker


@pytest.fixture(params=["store", "temp", "memory"])
def limit(request: pytest.FixtureRequest) -> str:
    """What is full."""
    name: str = request.param
    return name


def a_queue(limit: str) -> Queue:
    """A queue that this limit bounds."""
    name = fresh_queue().name
    return Queue(f"memory.{name}") if limit == "memory" else Queue(name)


def reached_by_java(broker: LocalBroker) -> ReachedBroker:
    """The broker, with what the Java client needs."""
    java = find_java()
    jars = classic_libraries(java)
    openwire = OpenWire(url=broker.openwire_url, jars=jars, java=java.parent)
    return ReachedBroker(url=broker.url, openwire=openwire)


def fill(session: Session, queue: Queue, *, persistent: bool) -> JmsxError:
    """Send until that fails; returns how."""
    producer = session.create_producer(queue)
    try:
        for _ in range(50):  # 17 fill memory and disk; what is in sockets comes on top
            producer.send(Message(BIG), persistent=persistent)
    except JmsxError as error:
        return error
    pytest.fail("the broker is not full after 50 MB")


def make_room(broker: Broker, queue: Queue) -> None:
    """Take all out of `queue`; senders that are held back may fill it meanwhile."""
    with Connection(broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        while consumer.receive(1.0) is not None:
            pass


def test_a_sender_is_held_back(holding: Broker, limit: str) -> None:
    """The send ends in time, with an error that says where, what and why; room made, all goes on."""
    queue = a_queue(limit)
    connection = Connection(holding.url, request_timeout=PATIENCE)
    session = connection.create_session()
    call = within(30, lambda: fill(session, queue, persistent=limit != "temp"))
    error = call.value
    assert isinstance(error, ConnectionFailedError if limit == "temp" else BrokerTimeoutError)
    words = str(error)
    assert "127.0.0.1" in words
    assert "producer flow control" in words
    if limit != "temp":  # with no receipt to wait for, it is the socket that takes no more
        assert f"SEND {queue.uri}" in words
        assert "1 s" in words
    assert within(PATIENCE * 3, connection.close)
    make_room(holding, queue)
    with Connection(holding.url, request_timeout=10) as after:
        after.create_session().create_producer(queue).send(Message("room again"))
    make_room(holding, queue)


def test_others_are_not_held_back(holding: Broker) -> None:
    """While a thread's send waits, the app's handlers go on and their acknowledgements get through."""
    full, work = fresh_queue(), fresh_queue()
    put(holding, work, *map(str, range(20)))
    app = App(holding.url, request_timeout=PATIENCE)
    handled: list[str] = []
    begin = threading.Event()

    @app.consumer(work)
    def handle(message: Message) -> None:
        begin.wait(20)
        handled.append(message.text)

    def send_much() -> None:
        for _ in range(20):
            app.send(full, BIG)

    with app:
        assert isinstance(within(30, send_much).error, BrokerTimeoutError)
        held = [Call(lambda: app.send(full, BIG)) for _ in range(3)]
        begin.set()
        assert settles(holding, work, size=0)
        assert all(call.waiting for call in held) or all(call.error for call in held)
        for call in held:  # they wait side by side, not one after the other
            assert isinstance(call.join(2.5).error, BrokerTimeoutError)
            assert call.seconds < 2 * PATIENCE
    assert len(handled) == 20
    make_room(holding, full)


def test_a_transaction_that_is_held_back(holding: Broker) -> None:
    """Its commit is in doubt in time; room made, the message is in one of the two queues and not in both."""
    full, work = fresh_queue(), fresh_queue()
    put(holding, work, "a")
    with Connection(holding.url, request_timeout=PATIENCE) as connection:
        fill(connection.create_session(), full, persistent=True)
    with Connection(holding.url, request_timeout=PATIENCE) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        out = Queue(f"{work.name}.out")
        message = session.create_consumer(work).receive(5)
        assert message is not None
        session.create_producer(out).send(Message("result"))
        commit = within(PATIENCE * 5, session.commit)
        assert isinstance(commit.error, TransactionInDoubtError)
        assert "producer flow control" in str(commit.error)
    make_room(holding, full)

    def places() -> list[list[str]]:
        return [bodies(holding, queue) for queue in (work, out)]

    assert eventually(lambda: places() in ([["a"], []], [[], ["result"]]))


@pytest.mark.parametrize("limit", ["store", "memory"])
def test_a_sender_is_refused(refusing: Broker, limit: str) -> None:
    """At once, with the broker's own words; the session is as good as before."""
    queue = a_queue(limit)
    with Connection(refusing.url) as connection:
        session = connection.create_session()
        call = within(20, lambda: fill(session, queue, persistent=True))
        assert isinstance(call.value, ResourceAllocationError)
        words = str(call.value)
        assert f"refused SEND {queue.uri}" in words
        assert "127.0.0.1" in words
        assert "producer-flow-control" in words
        make_room(refusing, queue)
        session.create_producer(queue).send(Message("room again"))
    make_room(refusing, queue)


def test_a_dead_letter_for_which_there_is_no_room(caplog: pytest.LogCaptureFixture) -> None:
    """
    The broker would delete what is refused then, and not say so: it stays in its queue until there is room.

    On a broker of its own, in whose store the dead letter stays.
    """
    full, queue = fresh_queue(), fresh_queue()

    def refuse(message: Message) -> None:
        raise ValueError(message.text)

    with (
        full_broker(refuses=True) as broker,
        Connection(broker.url, redelivery_policy=NO_RETRY) as connection,
    ):
        put(broker, queue, "a", key="a", case=queue.name)
        connection.start()
        fill(connection.create_session(), full, persistent=True)
        connection.create_session().create_consumer(queue).set_listener(refuse)
        assert eventually(lambda: "dead letter not confirmed" in caplog.text, 40)
        kept = bodies(broker, queue)
        make_room(broker, full)
        assert kept == ["a"]
        assert eventually(lambda: len(dead_copies(broker, queue.name)) == 1)
        assert settles(broker, queue, size=0)


def test_what_expires_and_there_is_no_room(tmp_path: Path) -> None:
    """The broker deletes it: in the hands of jmsx and of the Java client, and where it finds that out by itself."""
    full, held, waiting = fresh_queue(), fresh_queue(), fresh_queue()
    steps = json.loads((SCENARIOS / "expiry-in-prefetch.json").read_text())["steps"][:5]
    steps += [
        {"op": "send", "in": "p", "to": "q", "bodies": ["x"], "ttl": EXPIRY},
        {"op": "wait", "seconds": EXPIRY + 1.0},
        {"op": "receive_none", "from": "k1"},
        {"op": "close", "target": "c1"},
        {"op": "drain", "destination": "q"},
    ]
    java = {
        "id": "full",
        "topic": "own",
        "title": "x",
        "source": "x",
        "destinations": {"q": "queue"},
    }
    path = tmp_path / "full.json"
    expected = [*[{"ok": True}] * 7, {"none": True}, {"ok": True}, {"messages": []}]
    path.write_text(json.dumps({**java, "steps": steps, "expected": expected}))
    with full_broker(refuses=True) as broker, Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        client = JavaClient(broker=reached_by_java(broker), jobs=1)
        run = Call(lambda: [one.outcomes for one in client.run([load(path)])])
        prefetching = connection.create_session().create_consumer(held)
        for queue in (held, waiting):
            session.create_producer(queue).send(Message("x"), time_to_live=EXPIRY)
        assert eventually(lambda: broker.statistics(held.name).inflight_count == 1)
        time.sleep(EXPIRY / 2)  # the Java client has its message by now
        assert isinstance(fill(session, full, persistent=True), ResourceAllocationError)
        assert run.join(60).value == [expected]
        assert prefetching.receive(1.0) is None
        assert connection.create_session().create_consumer(waiting).receive(1.0) is None
        assert all(settles(broker, queue, size=0) for queue in (held, waiting))
        make_room(broker, full)
        assert bodies(broker, Queue("ActiveMQ.DLQ")) == []


def test_a_queue_that_is_called_like_another_cause(refusing: Broker) -> None:
    """The broker's exception tells the cause, and not the words behind it, which hold the queue's name."""
    queue = Queue(f"memory.{fresh_queue().name}.SecurityException")
    with Connection(refusing.url) as connection:
        session = connection.create_session()
        assert isinstance(fill(session, queue, persistent=True), ResourceAllocationError)
    make_room(refusing, queue)


def test_one_of_two_queues_is_full(refusing: Broker) -> None:
    """
    The broker may have put the message into the other one before it refuses: nobody may take it for not sent.

    Which it takes first goes by their names (BROKER.md C74), so of ten pairs some other one has it.
    """
    full, others = a_queue("memory"), [fresh_queue() for _ in range(10)]
    with Connection(refusing.url) as connection:
        session = connection.create_session()
        fill(session, full, persistent=True)
        for one in (other.name for other in others):
            for both in (f"queue://{one},{full.name}", f"queue://{full.name},{one}"):
                with pytest.raises(
                    SendUnconfirmedError, match=r"Memory Limit reached.*may be there twice"
                ):
                    session.create_producer(both).send(Message("x"))
    make_room(refusing, full)  # before what may fail, for others share this broker
    assert "x" in [body for other in others for body in bodies(refusing, other)]


def test_one_of_the_queues_of_a_virtual_topic_is_full(refusing: Broker) -> None:
    """
    It is the same: who sends to a topic may have several queues behind it, and knows none of them.

    The broker takes them in the order of the hashes of their names (BROKER.md C74), so the full one may be the first:
    of one topic in as many as it has queues. As a store that was full stays so, another try needs another broker.
    """

    def others_have_it(broker: Broker) -> bool:
        topic = f"VirtualTopic.{fresh_queue().name}"
        full = Queue(f"Consumer.memory.{topic}")
        others = [Queue(f"Consumer.{n}.{topic}") for n in range(30)]
        with Connection(broker.url) as connection:
            session = connection.create_session()
            for other in others:
                session.create_producer(other).send(Message("first"))
            fill(session, full, persistent=True)
            try:
                with pytest.raises(
                    SendUnconfirmedError, match=r"Memory Limit reached.*may be there twice"
                ):
                    session.create_producer(f"topic://{topic}").send(Message("x"))
            finally:
                make_room(broker, full)  # others share this broker
        return any("x" in bodies(broker, other) for other in others)

    if not others_have_it(refusing):
        with full_broker(refuses=True) as another:
            assert others_have_it(another)


def test_a_send_that_nobody_waits_for(refusing: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A non-persistent message is not answered: that it was refused is told in the log, with the broker's words."""
    queue = a_queue("temp")
    with Connection(refusing.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for _ in range(20):
            producer.send(Message(BIG), persistent=False)
        assert eventually(lambda: "Temp Store is Full" in caplog.text, 10)
    assert "broker complained" in caplog.text
    make_room(refusing, queue)


def test_a_transaction_that_is_refused(refusing: Broker) -> None:
    """The commit says so, the message comes again, and what was sent is not there."""
    full, work = fresh_queue(), fresh_queue()
    put(refusing, work, "a")
    with Connection(refusing.url) as connection:
        connection.start()
        fill(connection.create_session(), full, persistent=True)
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(work)
        assert consumer.receive(5) is not None
        session.create_producer(full).send(Message(BIG))
        commit = within(10, session.commit)
        assert isinstance(commit.error, TransactionRolledBackError)
        assert "producer-flow-control" in str(commit.error)
        again = consumer.receive(10)
        assert again is not None
        assert again.text == "a"
        make_room(refusing, full)
        session.commit()
    assert settles(refusing, work, size=0)
    make_room(refusing, full)


@pytest.fixture
def unused() -> Iterator[Broker]:
    """Such a broker that no test has used: what others have left there may fill its memory before."""
    with full_broker(refuses=False) as broker:
        yield broker


def test_dead_letters_of_a_broker_whose_memory_is_full(unused: Broker) -> None:
    """They are shown, as is what fills it, and a replay says that it was not done; all stay (BROKER.md C79)."""
    count = 5
    full, dead = a_queue("memory"), fresh_queue()
    with Connection(unused.url, request_timeout=PATIENCE) as connection:
        session = connection.create_session()
        producer = session.create_producer(dead)
        for _ in range(count):
            message = Message("x" * 700_000, properties={"jmsx_original_destination": full.uri})
            producer.send(message)
        fill(session, full, persistent=False)
    shown = CliRunner().invoke(main, ["browse", full.name, "--limit", "1", "--broker", unused.url])
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 1), shown.output
    began = time.monotonic()
    replay = CliRunner().invoke(main, ["dlq", "replay", dead.name, "--yes", "--broker", unused.url])
    assert time.monotonic() - began < 25
    assert f"{count} dead letters of {dead.name} go back: {count} to {full.uri}" in replay.stdout
    assert f"did not answer SEND of what lay in {dead.name}" in str(replay.exception)
    assert "a full broker holds its senders back" in str(replay.exception)
    assert f"0 of {count} were done for certain" in replay.stderr
    make_room(unused, full)
    eventually(lambda: unused.statistics(dead.name).inflight_count == 0)
    assert (unused.statistics(dead.name).size, unused.statistics(full.name).size) == (count, 0)
    done = CliRunner().invoke(main, ["dlq", "replay", dead.name, "--yes", "--broker", unused.url])
    assert done.exit_code == 0, (done.output, done.exception)
    assert (unused.statistics(dead.name).size, unused.statistics(full.name).size) == (0, count)


def artemis_with(usage: int, data: Path) -> LocalBroker:
    """An Artemis that takes nothing more when so many per cent of the disk are in use."""
    old = "<max-disk-usage>{}</max-disk-usage>"
    new = f"{old.format(usage)}<disk-scan-period>200</disk-scan-period>"
    return changed_artemis((old.format(100), new), data=data)


def test_an_artemis_whose_disk_is_full(tmp_path: Path) -> None:
    """It ends each connection that sends, and says why; what it has is handled, and nobody takes it for not sent."""
    queue, out = fresh_queue(), fresh_queue()
    with artemis_with(100, tmp_path) as roomy:
        send(roomy, queue.name, [b"a", b"b"])
    with artemis_with(0, tmp_path) as broker:

        def refused() -> SendUnconfirmedError | None:
            with Connection(broker.url, use_management=False) as connection:
                try:
                    connection.create_session().create_producer(out).send("x")
                except SendUnconfirmedError as error:
                    return error
            return None

        assert eventually(lambda: refused() is not None)
        words = str(refused())
        assert "127.0.0.1" in words
        assert out.uri in words
        assert "max-disk-usage" in words
        with Connection(broker.url, use_management=False) as connection:
            connection.start()
            session = connection.create_session(TRANSACTED)
            session.create_producer(out).send("x")
            with pytest.raises(
                (TransactionInDoubtError, TransactionRolledBackError),
                match=r"max-disk-usage|AMQ339011",
            ):
                session.commit()
        with Connection(broker.url, use_management=False) as connection:
            connection.start()
            consumer = connection.create_session().create_consumer(queue)
            assert [message.text for message in take(consumer, 2)] == ["a", "b"]
    with artemis_with(100, tmp_path) as roomy:
        assert settles(roomy, queue, size=0)
