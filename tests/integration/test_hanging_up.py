"""Who closes the socket after an ERROR: a broker that does it itself goes first, but not for ever."""

from __future__ import annotations

import threading
import time

import pytest

from jmsx import Connection, Message, Queue
from jmsx.errors import (
    ConnectionFailedError,
    JmsxError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.liar import ARTEMIS, Client, Liar, receipt
from tests.integration.support import TRANSACTED, nothing_left, within
from tests.integration.support import Outcome as Call

pytestmark = pytest.mark.timeout(60)

QUEUE = Queue("q")

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


@pytest.mark.parametrize(
    ("seconds", "closes"),
    [
        pytest.param(0.3, False, id="the broker goes first"),
        pytest.param(20, True, id="but is not waited for if it does not"),
    ],
)
def test_artemis_refuses(seconds: float, *, closes: bool) -> None:
    """The session is over at once, the socket only when the broker has closed it, or a moment later."""
    seen: list[bool] = []

    def refuse(client: Client) -> None:
        client.obey("SEND", greeting=ARTEMIS)
        client.say(REFUSAL)
        seen.append(gone(client, seconds))

    with nothing_left(), Liar(refuse) as liar, Connection(liar.url) as connection:
        producer = connection.create_session().create_producer(QUEUE)
        assert isinstance(within(5, lambda: producer.send(Message("x"))).error, JmsxError)
        assert eventually(lambda: seen == [closes], 10)


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


def test_a_refusal_with_the_end_behind_it() -> None:
    """What we drop for its ERROR is replaced, also if the broker's end is there before we could."""
    held = threading.Event()

    def refuse(client: Client) -> None:
        frame = client.obey("COMMIT")
        if frame is not None and held.wait(5):
            words = "COMMIT FAILED: Transaction marked rollback only"
            client.say(
                f"ERROR\nreceipt-id:{frame.headers['receipt']}\nmessage:{words}\n\n"
                f"javax.transaction.xa.XAException: {words}\n\0".encode()
            )

    with nothing_left(), Liar(refuse, Client.obey) as liar, Connection(liar.url) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(QUEUE)
        producer.send(Message("x"))
        commit = Call(session.commit)
        assert eventually(lambda: b"COMMIT" in liar.clients[0].said)
        with link_of(session).engine.changed:  # nothing that comes is looked at
            held.set()
            time.sleep(0.3)
        assert isinstance(commit.join(5).error, TransactionRolledBackError)
        assert eventually(lambda: link_of(session).engine.reachable)
        producer.send(Message("y"))
        assert within(5, session.commit).error is None


def test_artemis_may_answer_before_we_close() -> None:
    """A link that we drop stays until what it owes us has come; not for ever, and the next one comes behind it."""
    seen: dict[str, bool] = {}
    taken_leave: list[bool] = []

    def answer(client: Client) -> None:
        commit = client.obey("COMMIT", greeting=ARTEMIS)
        assert commit is not None
        seen["waits"] = not gone(client, 0.3)
        seen["alone"] = len(liar.clients) == 1
        taken_leave.append(b"DISCONNECT" in client.said)
        client.say(receipt(commit))
        seen["takes leave"] = next(client.frames()).command == "DISCONNECT"
        seen["waits for our end"] = not gone(client, 0.3)

    def keep_silent(client: Client) -> None:
        client.obey("COMMIT", greeting=ARTEMIS)
        seen["goes all the same"] = gone(client, 20)
        taken_leave.append(b"DISCONNECT" in client.said)

    def obey(client: Client) -> None:
        client.obey(greeting=ARTEMIS)

    with (
        nothing_left(),
        Liar(answer, keep_silent, obey) as liar,
        Connection(liar.url) as connection,
    ):
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(QUEUE)
        for number in (1, 2):
            producer.send(Message("x"))
            commit = Call(session.commit)
            assert eventually(lambda: b"COMMIT" in liar.clients[-1].said)
            link_of(session).renew("a test")
            assert isinstance(commit.join(5).error, TransactionInDoubtError)
            assert eventually(lambda: len(liar.clients) == number + 1)  # noqa: B023 - it is called before the loop goes on
            assert eventually(lambda: link_of(session).engine.reachable)
        producer.send(Message("y"))
        assert within(5, session.commit).error is None
    told = ("waits", "alone", "takes leave", "waits for our end", "goes all the same")
    assert seen == dict.fromkeys(told, True)
    assert taken_leave == [False, False]  # not before it has answered


def test_so_does_a_link_that_is_dropped_while_it_is_restored() -> None:
    """It is closed before the next attempt, and if there is none."""
    seen: list[bool] = []

    def obey(client: Client) -> None:
        client.obey(greeting=ARTEMIS)

    def keep_silent(client: Client) -> None:
        client.obey("SUBSCRIBE", greeting=ARTEMIS)
        seen.append(gone(client, 5))

    with (
        nothing_left(),
        Liar(obey, keep_silent) as liar,
        Connection(liar.url, use_management=False) as connection,
    ):
        session = connection.create_session()
        session.create_consumer(QUEUE)
        engine = link_of(session).engine
        engine.renew("a test")
        assert eventually(lambda: b"SUBSCRIBE" in liar.clients[-1].said and len(liar.clients) > 1)
        engine.renew("a test")
        assert eventually(lambda: seen == [True], 10)
