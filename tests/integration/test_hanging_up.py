"""Who closes the socket after an ERROR: a broker that does it itself goes first, but not for ever."""

from __future__ import annotations

import pytest

from jmsx import Connection, Message, Queue
from jmsx.errors import ConnectionFailedError, JmsxError
from tests.integration.liar import CONNECTED, Client, Liar
from tests.integration.support import eventually, nothing_left, within

pytestmark = pytest.mark.timeout(60)

QUEUE = Queue("q")

ARTEMIS = CONNECTED.replace(b"ActiveMQ/6.1.8", b"ActiveMQ-Artemis/2.44.0 a broker")

REFUSAL = b"ERROR\nmessage:refused\n\n\0"


def gone(client: Client, seconds: float) -> bool:
    """Whether the client closes the socket within these."""
    client.socket.settimeout(seconds)
    try:
        while client.socket.recv(65536):
            pass
    except TimeoutError:
        return False
    return True


def test_artemis_closes_first() -> None:
    """The session is over at once, the socket only when the broker has closed it."""
    early: list[bool] = []

    def refuse(client: Client) -> None:
        client.obey("SEND", greeting=ARTEMIS)
        client.say(REFUSAL)
        early.append(gone(client, 0.3))

    with nothing_left(), Liar(refuse) as liar, Connection(liar.url) as connection:
        producer = connection.create_session().create_producer(QUEUE)
        assert isinstance(within(5, lambda: producer.send(Message("x"))).error, JmsxError)
        assert eventually(lambda: early == [False])


def test_so_it_does_at_connect() -> None:
    """Refused credentials are told with an ERROR too."""
    early: list[bool] = []

    def refuse(client: Client) -> None:
        next(client.frames())
        client.say(REFUSAL)
        early.append(gone(client, 0.3))

    def connect(url: str) -> None:
        with Connection(url) as connection:
            connection.create_session()

    with nothing_left(), Liar(refuse) as liar:
        assert isinstance(within(5, lambda: connect(liar.url)).error, ConnectionFailedError)
        assert eventually(lambda: early == [False])


def test_one_that_does_not_close() -> None:
    """We do, a moment later."""
    late: list[bool] = []

    def refuse(client: Client) -> None:
        client.obey("SEND", greeting=ARTEMIS)
        client.say(REFUSAL)
        late.append(gone(client, 20))

    with nothing_left(), Liar(refuse) as liar, Connection(liar.url) as connection:
        producer = connection.create_session().create_producer(QUEUE)
        assert isinstance(within(5, lambda: producer.send(Message("x"))).error, JmsxError)
        assert eventually(lambda: late == [True], 10)
