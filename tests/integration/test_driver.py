"""
The driver against what stomp.py, brokers and networks do to it.

Every call ends in its deadline, with a result or a typed error, and nothing is left when all is closed.
"""

from __future__ import annotations

import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, Queue, RedeliveryPolicy
from jmsx.core.events import Outcome
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    JmsxError,
    SecurityError,
    SendUnconfirmedError,
    TransactionInDoubtError,
)
from tests.integration.broker_support import eventually
from tests.integration.liar import Client, Liar
from tests.integration.support import (
    AUTO,
    CLIENT,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    put,
    settles,
    within,
)
from tests.integration.support import (
    Outcome as Call,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def says(greeting: bytes = b"", *, hang_up: bool = False) -> Callable[[Client], None]:
    """What is no broker: it says the same to everyone who connects, and then listens until he goes."""

    def script(client: Client) -> None:
        client.socket.recv(65536)
        client.say(greeting)
        while not hang_up and client.socket.recv(65536):
            pass

    return script


# Connecting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("greeting", "hang_up", "error", "words"),
    [
        pytest.param(b"", False, BrokerTimeoutError, "written stomp+ssl://", id="silence"),
        pytest.param(
            b"\0\0\0\n\r\n", False, ConnectionFailedError, "does not speak STOMP", id="nuls"
        ),
        pytest.param(
            b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n<p>", False, ConnectionFailedError,
            "does not speak STOMP: it looks like a web server", id="http-that-stays",
        ),
        pytest.param(
            b"\x15\x03\x03\0\x02\x02P", True, ConnectionFailedError, "write stomp+ssl://", id="tls"
        ),
        pytest.param(b"", True, ConnectionFailedError, "is it a port of TLS", id="hang-up"),
        pytest.param(
            b"MESSAGE\ncontent-length:99999999999999\n\n", False, ConnectionFailedError, "bytes or more",
            id="a-frame-without-end",
        ),
        pytest.param(
            b"MESSAGE\nx:" + b"y" * 1_100_000, False, ConnectionFailedError, "header block",
            id="a-header-without-end",
        ),
        pytest.param(
            b"RECEIPT\nno-id:x\n\n\0", False, ConnectionFailedError, "without receipt-id",
            id="a-receipt-for-nothing",
        ),
        pytest.param(
            b"RECEIPT\nreceipt-id:x\n\n\0", False, ConnectionFailedError, "before CONNECTED",
            id="a-receipt-first",
        ),
        pytest.param(
            b"CONNECTED\nserver:ActiveMQ/6.1.8\n\n\0", False, ConnectionFailedError,
            "did not answer CONNECT as STOMP 1.2 says: the broker speaks STOMP '1.0'", id="an-old-one",
        ),
        pytest.param(
            b"CONNECTED\nversion\n\n\0", False, ConnectionFailedError, "without a colon",
            id="a-malformed-connected",
        ),
        pytest.param(
            b"ERROR\nmessage:User name [x] or password is invalid.\n\n\0", True, SecurityError,
            "password is invalid", id="error-at-connect",
        ),
        pytest.param(
            b"ERROR\nmessage:Go away\\c now\n\n\0", False, ConnectionFailedError, "Go away: now",
            id="error-at-connect-that-stays",
        ),
        pytest.param(
            b"CONNECTED\nversion:1.2\nserver:Strange/1\n\n\0", False, JmsxError, "no dialect knows",
            id="a-stranger",
        ),
    ],
)  # fmt: skip
def test_a_server_that_is_no_broker(
    greeting: bytes,
    error: type[JmsxError],
    words: str,
    *,
    hang_up: bool,
) -> None:
    """Connecting ends in its deadline, says what is wrong, and leaves nothing behind."""
    with Liar(says(greeting, hang_up=hang_up)) as impostor, nothing_left():
        connection = Connection(impostor.url, connect_timeout=0.5)
        call = within(3, connection.create_session)
        assert type(call.error) is not JmsxError
        assert isinstance(call.error, error), call.error
        assert words in str(call.error)
        connection.close()
        assert len(impostor.clients) == 1


def test_nobody_listens() -> None:
    """A refused connection is an error with the address in it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with nothing_left(), Connection(f"stomp://127.0.0.1:{port}") as connection:
        call = within(3, connection.create_session)
        assert isinstance(call.error, ConnectionFailedError)
        assert f"127.0.0.1:{port}" in str(call.error)


def test_a_name_that_is_found_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a name server is dead the system asks the next one after seconds; then the broker has all of its time."""
    find = socket.getaddrinfo

    def find_late(*address: Any, **kind: Any) -> Any:
        time.sleep(0.5)
        return find(*address, **kind)

    monkeypatch.setattr(socket, "getaddrinfo", find_late)
    with (
        Liar(Client.obey) as liar,
        nothing_left(),
        Connection(liar.url, connect_timeout=0.4) as connection,
    ):
        connection.create_session()


def test_one_of_several_brokers_answers(classic_broker: Broker, queue: Queue) -> None:
    """failover: goes past brokers that are silent, refuse or talk nonsense."""
    address = classic_broker.url
    with Liar(says()) as silent, Liar(says(b"SSH-2.0\r\n", hang_up=True)) as ssh:
        url = f"failover:({silent.url},{ssh.url},{address})?randomize=false"
        with nothing_left(), Connection(url, connect_timeout=0.5) as connection:
            connection.create_session().create_producer(queue).send(Message("x"))
            assert bodies(classic_broker, queue) == ["x"]


# A broker that falls silent, or goes away, while calls wait ----------------------------------------------------------


def open_calls(connection: Connection, queue: Queue) -> dict[str, Callable[[], Any]]:
    """
    One call of each kind that has to wait for the broker, each on a session of its own.

    None gets what another sends: a broker that is being paused may yet serve some of them.
    """
    waiter = connection.create_session(AUTO).create_consumer(fresh_queue())
    sender = connection.create_session(AUTO).create_producer(queue)
    session = connection.create_session(TRANSACTED)
    producer = session.create_producer(queue)
    subscriber = connection.create_session(CLIENT)

    def commit() -> None:
        producer.send(Message("in the transaction"))
        session.commit()

    return {
        "receive": waiter.receive,
        "send": lambda: sender.send(Message("x")),
        "commit": commit,
        "subscribe": lambda: subscriber.create_consumer(queue),
    }


def test_calls_at_a_silent_broker(mortal: ClassicBroker, queue: Queue) -> None:
    """Paused (SIGSTOP): what waits for an answer ends in time with a typed error, receive() in its own time."""
    with nothing_left():
        connection = Connection(mortal.url, request_timeout=1.0, connect_timeout=1.0)
        connection.start()
        calls = open_calls(connection, queue)
        short = connection.create_session().create_consumer(queue)
        mortal.pause()
        try:
            assert short.receive(0.3) is None
            assert short.receive_no_wait() is None
            for name, error in {
                "send": BrokerTimeoutError,
                "commit": TransactionInDoubtError,
                "subscribe": BrokerTimeoutError,
            }.items():
                call = within(5, calls[name])
                assert isinstance(call.error, error), (name, call.error)
            within(5, connection.abort)
        finally:
            mortal.resume()
        connection.close()


def test_heart_beats_end_a_silent_link(mortal: ClassicBroker, queue: Queue) -> None:
    """Without any deadline of its own, receive() ends when the broker's heart-beats do; so does close()."""
    with nothing_left():
        connection = Connection(mortal.url, heartbeat=(1.0, 1.0), request_timeout=30.0)
        errors: list[JmsxError] = []
        connection.set_exception_listener(errors.append)
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        mortal.pause()
        try:
            call = within(10, consumer.receive)
            assert isinstance(call.error, ConnectionFailedError)
            assert eventually(lambda: len(errors) == 1)
            within(5, connection.close)
        finally:
            mortal.resume()


#: What a call that had written its request ends with, where doing it again could do it twice.
IN_DOUBT: dict[str, tuple[type[JmsxError], ...]] = {
    "send": (SendUnconfirmedError,),
    "commit": (TransactionInDoubtError,),
}


def test_calls_at_a_broker_that_dies(mortal: ClassicBroker, queue: Queue) -> None:
    """SIGKILL: every waiting call ends with a typed error at once, and the listener is told once for each session."""
    with nothing_left():
        connection = Connection(mortal.url)
        errors: list[JmsxError] = []
        connection.set_exception_listener(errors.append)
        connection.start()
        calls = open_calls(connection, queue)
        mortal.pause()
        running = {name: Call(call) for name, call in calls.items()}
        time.sleep(0.2)  # so that they wait; those that do not yet find a dead socket
        mortal.kill()
        for name, call in running.items():
            error = call.join(5).error
            assert isinstance(error, (ConnectionFailedError, *IN_DOUBT.get(name, ()))), name
        assert eventually(lambda: len(errors) == len(calls))
        within(5, connection.close)
        assert len(errors) == len(calls)


def test_the_broker_goes_while_we_write(mortal: ClassicBroker, queue: Queue) -> None:
    """Whoever finds the broken socket first, the exception listener is told, once for each session."""
    with nothing_left():
        connection = Connection(mortal.url)
        errors: list[JmsxError] = []
        connection.set_exception_listener(errors.append)
        producers = [connection.create_session().create_producer(queue) for _ in range(3)]

        def pound(send: Callable[..., str]) -> None:
            while True:
                send(Message("x"), persistent=False)

        calls = [Call(partial(pound, producer.send)) for producer in producers]
        time.sleep(0.05)  # they are in the middle of it
        mortal.kill()
        for call in calls:
            assert isinstance(call.join(5).error, ConnectionFailedError)
        assert eventually(lambda: len(errors) == len(producers))
        connection.close()
        assert len(errors) == len(producers)


# What listeners do ---------------------------------------------------------------------------------------------------


def test_a_listener_that_raises(classic_broker: Broker, queue: Queue) -> None:
    """An exception redelivers its message, and neither the link nor the messages behind it suffer."""
    put(classic_broker, queue, "a", "b", "c")
    seen: list[tuple[str, int]] = []
    errors: list[JmsxError] = []
    policy = RedeliveryPolicy(initial_redelivery_delay=0.0, redelivery_delay=0.0)
    with nothing_left(), Connection(classic_broker.url, redelivery_policy=policy) as connection:
        connection.set_exception_listener(errors.append)
        connection.start()

        def listen(message: Message) -> None:
            seen.append((message.text, message.delivery_count))
            if message.text == "b" and message.delivery_count < 3:
                raise RuntimeError(message.text)

        connection.create_session().create_consumer(queue).set_listener(listen)
        assert settles(classic_broker, queue, size=0)
    assert seen == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("c", 1)]
    assert not errors


def test_a_slow_handler_keeps_the_link(classic_broker: Broker, queue: Queue) -> None:
    """A handler of four heart-beats' length costs neither the link nor a redelivery."""
    put(classic_broker, queue, "slow", "next")
    diary = Diary()
    seen: list[tuple[str, int]] = []
    errors: list[Exception] = []
    done = threading.Event()
    with Connection(classic_broker.url, heartbeat=(1.0, 1.0), observers=[diary]) as connection:
        connection.set_exception_listener(errors.append)
        connection.start()

        def listen(message: Message) -> None:
            seen.append((message.text, message.delivery_count))
            if message.text == "slow":
                time.sleep(4)
            else:
                done.set()

        connection.create_session().create_consumer(queue).set_listener(listen)
        assert done.wait(10)
    assert seen == [("slow", 1), ("next", 1)]
    assert not errors
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 2}
    assert settles(classic_broker, queue, size=0)


def test_a_listener_that_closes_its_own_things(classic_broker: Broker, queue: Queue) -> None:
    """Consumer, session and connection may be closed from within their listener; each delivery ends once."""
    for close in ("consumer", "session", "connection"):
        put(classic_broker, queue, "a", "b")
        diary, done = Diary(), threading.Event()
        with nothing_left():
            connection = Connection(classic_broker.url, observers=[diary])
            session = connection.create_session()
            consumer = session.create_consumer(queue)
            things = {"consumer": consumer, "session": session, "connection": connection}

            def listen(
                _message: Message, thing: Any = things[close], told: threading.Event = done
            ) -> None:
                thing.close()
                told.set()

            consumer.set_listener(listen)
            connection.start()
            assert done.wait(5), close
            within(5, connection.close)
        assert settles(classic_broker, queue, size=1), close
        assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 1}, close
        with Connection(classic_broker.url) as again:
            again.start()
            message = again.create_session().create_consumer(queue).receive(5)
            assert message is not None
            assert message.text == "b"
