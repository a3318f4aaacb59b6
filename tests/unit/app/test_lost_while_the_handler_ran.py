"""A handler that still runs when its link is lost: it is told whether it comes to its end, and once."""

from __future__ import annotations

from contextlib import suppress

import pytest

from jmsx import AcknowledgeMode, App, Connection, Message, Queue, ReconnectPolicy
from jmsx.core.events import DeliveryEnded, DeliveryEndedLate, Event, Outcome, Source
from jmsx.errors import TransactionRolledBackError
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

pytestmark = pytest.mark.timeout(60)

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
INDIVIDUAL = AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED
HANDLERS = [
    *((kind, mode) for kind in ("def", "async def") for mode in AcknowledgeMode),
    *(("batch", mode) for mode in (AUTO, INDIVIDUAL, TRANSACTED)),
]


class Ends:
    """Keeps how deliveries ended."""

    def __init__(self) -> None:
        self.lost = list[DeliveryEnded]()
        self.late = list[DeliveryEndedLate]()
        self.all = list[str]()

    def observe(self, event: Event, _source: Source) -> None:
        """Keep it, if it is one."""
        if isinstance(event, DeliveryEndedLate):
            self.late.append(event)
            self.all.append(event.outcome)
        elif isinstance(event, DeliveryEnded):
            self.all.append(event.outcome)
            if event.outcome is Outcome.ABANDONED:
                self.lost.append(event)

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize(("kind", "mode"), HANDLERS)
def test_its_end_is_told_when_it_comes(
    server: FakeBrokerServer, kind: str, mode: AcknowledgeMode, *, raises: bool
) -> None:
    """With the socket that it came on; the line of the lost delivery says that the handler had not come to its end."""
    ends, calls = Ends(), list[str]()

    def handle(message: Message) -> None:
        calls.append(message.text)
        if len(calls) > 1:
            return
        epoch = app._service.workers[0]._link.epoch
        server.drop_connections()
        assert eventually(lambda: app._service.workers[0]._link.epoch > epoch, 10)
        assert not ends.late
        if raises:
            raise ValueError("no")

    app = App(server.url, observers=[ends], reconnect=ReconnectPolicy(initial_delay=0.01))
    consume = app.consumer("queue://in", mode=mode, concurrency=1)
    if kind == "def":
        consume(handle)
    elif kind == "async def":

        @consume
        async def ahandle(message: Message) -> None:
            handle(message)

    else:

        @app.consumer("queue://in", mode=mode, batch=2, batch_timeout=0.02)
        def handle_all(messages: list[Message]) -> None:
            for message in messages:
                handle(message)

    with app:
        app.send("queue://in", "a")
        assert eventually(lambda: len(calls) > 1, 10)
        assert eventually(lambda: len(ends.all) > 2, 10)
    assert [one.ended_at == one.at for one in ends.lost] == [True]
    told = ("failed", "ValueError") if raises else ("done", None)
    assert [(one.epoch, one.outcome, one.error_type) for one in ends.late] == [(1, *told)]
    assert ends.late[0].message_key == ends.lost[0].message_key
    assert ends.late[0].at > ends.lost[0].at


@pytest.mark.parametrize("how", ["returns", "raises", "is told of the link"])
@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_a_listener_s_end_is_told_where_no_link_comes_again(
    server: FakeBrokerServer, mode: AcknowledgeMode, how: str
) -> None:
    """Whoever gets the message next does it once more. What is told of the link says nothing of the message."""
    ends = Ends()

    def listen(_message: Message) -> None:
        server.drop_connections()
        assert eventually(lambda: bool(ends.lost), 10)
        if how == "raises":
            raise ValueError("no")
        if how == "is told of the link":
            session.create_producer(Queue("out")).send(Message("b"))

    with Connection(server.url, observers=[ends]) as connection:
        connection.start()
        session = connection.create_session(mode)
        session.create_consumer(Queue("in")).set_listener(listen)
        with Connection(server.url) as other:
            other.create_session().create_producer(Queue("in")).send(Message("a"))
        assert eventually(lambda: bool(ends.lost), 10)
    told = {"returns": [(1, "done", None)], "raises": [(1, "failed", "ValueError")]}.get(how, [])
    assert [(one.epoch, one.outcome, one.error_type) for one in ends.late] == told


@pytest.mark.parametrize(
    ("does", "outcome"),
    [("commit", "done"), ("roll back", "undone"), ("roll back for an error", "failed"), ("", None)],
)
def test_a_receive_is_done_when_its_transaction_is(
    server: FakeBrokerServer, does: str, outcome: str | None
) -> None:
    """Whoever never says so has not been done with it, as far as anybody knows."""
    ends = Ends()
    with Connection(
        server.url, observers=[ends], reconnect=ReconnectPolicy(initial_delay=0.01)
    ) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        session.create_producer(Queue("in")).send(Message("a"))
        session.commit()
        consumer = session.create_consumer(Queue("in"))
        assert consumer.receive(10) is not None
        server.drop_connections()
        assert eventually(lambda: bool(ends.lost), 10)
        if does == "commit":
            with suppress(TransactionRolledBackError):
                session.commit()
        elif does:
            session.rollback(ValueError("no") if "error" in does else None)
        if does:
            assert consumer.receive(10) is not None
            session.commit()
    assert [one.outcome for one in ends.late] == ([] if outcome is None else [outcome])


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT_ACKNOWLEDGE, INDIVIDUAL])
def test_a_receive_is_done_when_it_is_acknowledged(
    server: FakeBrokerServer, mode: AcknowledgeMode
) -> None:
    """Which the broker does not hear of any more."""
    ends = Ends()
    with Connection(
        server.url, observers=[ends], reconnect=ReconnectPolicy(initial_delay=0.01)
    ) as connection:
        connection.start()
        session = connection.create_session(mode)
        session.create_producer(Queue("in")).send(Message("a"))
        message = session.create_consumer(Queue("in")).receive(10)
        assert message is not None
        server.drop_connections()
        assert eventually(lambda: bool(ends.lost), 10)
        assert not ends.late
        message.acknowledge()
        message.acknowledge()
        assert [one.outcome for one in ends.late] == ["done"]
