"""Calls that open a link, and an exception out of nowhere at each of their steps: no link is left that nobody has."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Session
from jmsx.errors import InvalidClientIdError
from jmsx.testing import FakeBrokerServer
from tests.depth import some
from tests.integration.broker_support import eventually
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

#: What takes a link from the one to the next.
WITHIN = ["/jmsx/jms/link.py", "/jmsx/drivers/opened_link.py", "/jmsx/drivers/reconnect.py"]


def engines() -> set[threading.Thread]:
    """The threads that serve links, and those that call listeners."""
    names = ("jmsx-engine-", "jmsx-listener-")
    return {one for one in threading.enumerate() if one.name.startswith(names)}


def session_with_another(connection: Connection) -> Session:
    """The second session, which has not the connection's client id."""
    connection.create_session()
    return connection.create_session()


def subscribe(session: Session) -> None:
    """Have a durable consumer, for which the session takes the connection's client id."""
    session.create_durable_consumer("topic://t", "s")


def goes_on(connection: Connection) -> bool:
    """Whether it has its client id; the broker may yet have to see that a link has ended."""
    try:
        connection.create_session().create_durable_consumer("topic://t", "other")
    except InvalidClientIdError:
        return False
    return True


@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        (lambda connection: connection, Connection.create_session),
        (lambda connection: connection, Connection.start),
        (session_with_another, subscribe),
        (Connection.create_session, Session.close),
    ],
    ids=["create_session", "start", "create_durable_consumer", "close"],
)
def test_what_is_interrupted_while_it_opens_a_link_leaves_none(
    prepare: Callable[[Connection], Any], act: Callable[[Any], object]
) -> None:
    """Nobody could close it, and it kept the client id: the same program was refused when it tried again."""

    def attempt(server: FakeBrokerServer, *steps: int) -> int:
        before = engines()
        interrupt = Interrupt(*steps, within=WITHIN)
        with Connection(server.url, client_id="c") as connection:
            given = prepare(connection)
            try:
                interrupt.run(partial(act, given))
            except Alarm:
                assert eventually(lambda: goes_on(connection), 5), f"step {steps}"
        assert eventually(lambda: engines() <= before, 5), f"step {steps} left {engines() - before}"
        return interrupt.steps

    with FakeBrokerServer("classic") as server:
        for step in some(range(1, attempt(server))):
            attempt(server, step)


@pytest.mark.parametrize("close", [Connection.close, Session.close])
def test_a_close_that_is_interrupted_leaves_no_link(close: Callable[[Any], None]) -> None:
    """Nor a thread that calls listeners: the next close() ended nothing, because the connection was closed already."""

    def attempt(server: FakeBrokerServer, *steps: int) -> int:
        before = engines()
        interrupt = Interrupt(*steps, within=["/jmsx/jms/link.py", "/jmsx/jms/dispatcher.py"])
        with Connection(server.url) as connection, contextlib.suppress(Alarm):
            connection.start()
            connection.create_session()
            session = connection.create_session()
            session.create_consumer("queue://q").set_listener(print)
            interrupt.run(lambda: close(connection if close is Connection.close else session))
        assert eventually(lambda: engines() <= before, 5), f"step {steps} left {engines() - before}"
        return interrupt.steps

    with FakeBrokerServer("classic") as server:
        for step in some(range(1, attempt(server))):
            attempt(server, step)


def test_a_consumer_whose_creation_is_interrupted_takes_no_messages() -> None:
    """They came to it, and to nobody else, until the session was closed."""
    all_is_done = {("_subscribe", "return"), ("create_consumer", "return")}

    def attempt(server: FakeBrokerServer, name: str, *steps: int) -> int:
        interrupt = Interrupt(*steps, within=["/jmsx/jms/session.py", "/jmsx/drivers/calls.py"])
        with Connection(server.url) as connection:
            connection.start()
            session = connection.create_session()
            session.create_producer(name).send("x")
            try:
                interrupt.run(lambda: session.create_consumer(name))
            except Alarm as alarm:
                if alarm.args in all_is_done:
                    return interrupt.steps
            else:
                return interrupt.steps
            message = session.create_consumer(name).receive(5)
            assert message is not None, f"step {steps}"
        return interrupt.steps

    with FakeBrokerServer("classic") as server:
        # some more if it waits more often
        for step in some(range(1, attempt(server, "queue://q"))):
            attempt(server, f"queue://q{step}", step)
