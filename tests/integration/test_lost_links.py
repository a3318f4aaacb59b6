"""Connections that are cut or frozen under a failover: connection: what the application sees, and what it does not."""

from __future__ import annotations

import time
import traceback
from functools import partial
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, Queue, QueueBrowser, RedeliveryPolicy, Topic
from jmsx.core.events import AckDropped, DeliveryEndedLate, LinkClosed, LinkRestored
from jmsx.errors import (
    ConnectionFailedError,
    IllegalStateError,
    InvalidDestinationError,
    JmsxError,
    SendUnconfirmedError,
)
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AUTO,
    CLIENT,
    TRANSACTED,
    Diary,
    bodies,
    connect,
    fresh_queue,
    nothing_left,
    outage,
    put,
    settles,
    text,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from jmsx_broker import Broker
    from tests.integration.proxy import Proxy

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def told(message: Message | None) -> tuple[str, int]:
    """Text and delivery count."""
    assert message is not None
    return message.text, message.delivery_count


# What waits, and what does not ---------------------------------------------------------------------------------------


def test_receive_waits_through_an_outage(
    proxy: Proxy, classic_broker: Broker, queue: Queue
) -> None:
    """Without a timeout as long as it takes, with one until that is over; what comes next is received."""
    diary = Diary()
    errors: list[JmsxError] = []
    with nothing_left(), connect(proxy, observers=[diary]) as connection:
        connection.set_exception_listener(errors.append)
        consumer = connection.create_session(AUTO).create_consumer(queue)
        call = Call(consumer.receive)
        for _ in range(3):
            _cut(proxy, diary)
        assert call.waiting
        put(classic_broker, queue, "a", "b")
        assert told(call.join(5).value) == ("a", 1)
        assert settles(classic_broker, queue, size=1, inflight=1)  # a cut may take an ACK with it
        _cut(proxy, diary)
        assert text(within(5, lambda: consumer.receive(5)).value) == "b"
        assert consumer.receive(0.1) is None
    assert errors == []
    assert settles(classic_broker, queue, size=0)


def _cut(proxy: Proxy, diary: Diary) -> None:
    """Cut, and wait until the session has noticed it and is there again: before, it would go on with what it has."""
    links = _restored(diary)
    proxy.cut()
    assert eventually(lambda: _restored(diary) == links + 1)


def _restored(diary: Diary) -> int:
    return sum(isinstance(event, LinkRestored) for event in diary.events)


def test_calls_of_an_outage_wait_for_its_end(
    proxy: Proxy, classic_broker: Broker, queue: Queue
) -> None:
    """A send, a commit's worth of sends, a new consumer and a browser: all are done on the next link."""
    with nothing_left(), connect(proxy) as connection:
        sessions = [connection.create_session(mode) for mode in (AUTO, TRANSACTED, CLIENT, AUTO)]
        auto, transacted, client, looker = sessions

        def in_a_transaction() -> None:
            transacted.create_producer(queue).send(Message("tx"))
            transacted.commit()

        with proxy.closed():
            assert eventually(lambda: all(outage(session) for session in sessions))
            send = Call(lambda: auto.create_producer(queue).send(Message("plain")))
            commit = Call(in_a_transaction)
            subscribe = Call(lambda: client.create_consumer(fresh_queue()))
            browse = Call(lambda: list(looker.create_browser(fresh_queue())))
            time.sleep(0.3)  # they wait; there is nothing to see of that
            assert all(call.waiting for call in (send, commit, subscribe, browse))
        for call in (send, commit, subscribe, browse):
            assert call.join(10).error is None
    assert sorted(bodies(classic_broker, queue)) == ["plain", "tx"]


def test_no_call_waits_for_ever(proxy: Proxy, queue: Queue) -> None:
    """After failover's timeout a typed error says what was not sent, to whom, and why; the session goes on trying."""
    with nothing_left(), connect(proxy, "&timeout=300") as connection:
        session = connection.create_session(AUTO)
        producer = session.create_producer(queue)
        with proxy.closed():
            assert eventually(lambda: outage(session))
            for call in (
                lambda: producer.send(Message("x")),
                lambda: session.create_consumer(queue),
                lambda: list(session.create_browser(queue)),
                connection.create_session,
            ):
                failed = within(5, call)
                assert isinstance(failed.error, ConnectionFailedError), failed.error
                assert proxy.url.removeprefix("stomp://") in str(failed.error)
            failed = within(5, lambda: producer.send(Message("x")))
            assert f"SEND {queue} was not sent" in str(failed.error)
            assert "; the last attempt: " in str(failed.error)
            assert failed.seconds < 2
        assert within(5, lambda: producer.send(Message("x"))).error is None


def test_attempts_that_are_used_up(proxy: Proxy, queue: Queue) -> None:
    """maxReconnectAttempts: then the exception listener is told, once, and every call says why."""
    errors: list[JmsxError] = []
    with nothing_left():
        connection = connect(proxy, "&maxReconnectAttempts=3")
        connection.set_exception_listener(errors.append)
        session = connection.create_session(AUTO)
        consumer = session.create_consumer(queue)
        with proxy.closed():
            call = within(10, consumer.receive)
            assert isinstance(call.error, ConnectionFailedError)
            assert "could not be restored" in str(call.error)
            assert eventually(lambda: len(errors) == 1)
        with pytest.raises(ConnectionFailedError):
            consumer.receive(0.1)  # it came too late
        within(5, connection.close)
    assert len(errors) == 1


@pytest.mark.parametrize(("url", "looks"), [("{}", 1), ("failover:({})?maxReconnectAttempts=0", 0)])
def test_without_attempts_a_lost_link_stays_lost(
    url: str, looks: int, proxy: Proxy, queue: Queue
) -> None:
    """As ever without failover:, once it is known that no ObjectMessage ended it; and where it says so."""
    with nothing_left():
        connection = Connection(url.format(proxy.url))
        connection.start()
        consumer = connection.create_session(AUTO).create_consumer(queue)
        proxy.cut()
        assert isinstance(within(5, consumer.receive).error, ConnectionFailedError)
        within(5, connection.close)
    assert proxy.visitors == 1 + looks


def test_links_that_do_not_last(proxy: Proxy) -> None:
    """Each is a failed attempt: the pauses grow, and nobody's processor gets hot."""
    diary = Diary()
    url = f"failover:({proxy.url})?initialReconnectDelay=50"
    with nothing_left(), Connection(url, observers=[diary]) as connection:
        connection.create_session()
        began, deadline = time.process_time(), time.monotonic() + 1.5
        while time.monotonic() < deadline:
            proxy.cut()
            time.sleep(0.005)
        assert 2 <= proxy.visitors <= 1 + 6  # after 50, 100, 200, 400, 800 ms
        assert time.process_time() - began < 0.75


# A broker that is there and does not answer --------------------------------------------------------------------------


def test_a_half_open_link_is_noticed(proxy: Proxy, classic_broker: Broker, queue: Queue) -> None:
    """In twice the heart-beat, whoever waits; then all goes on over the next link."""
    diary = Diary()
    with nothing_left(), connect(proxy, observers=[diary], heartbeat=(1.0, 1.0)) as connection:
        consumer = connection.create_session(AUTO).create_consumer(queue)
        call = Call(consumer.receive)
        time.sleep(2.5)  # a quiet link that lives is not taken for dead
        assert _restored(diary) == 0
        with proxy.frozen():
            began = time.monotonic()
            assert eventually(lambda: _lost(diary) == ["heartbeat"], 5)
            assert 0.9 < time.monotonic() - began < 2.6
            assert eventually(lambda: _restored(diary) == 1)
            put(classic_broker, queue, "a")
            assert text(call.join(5).value) == "a"


def _lost(diary: Diary) -> list[str]:
    return [event.reason for event in diary.events if isinstance(event, LinkClosed)]


# What was on its way -------------------------------------------------------------------------------------------------


def test_messages_of_a_lost_link_come_again_in_order(
    proxy: Proxy, classic_broker: Broker, queue: Queue
) -> None:
    """What was in hand is one delivery more, what nobody saw begins at 1; acknowledging what is old is counted."""
    diary = Diary()
    put(classic_broker, queue, *"abcdef")
    with nothing_left(), connect(proxy, observers=[diary]) as connection:
        consumer = connection.create_session(CLIENT).create_consumer(queue)
        assert told(consumer.receive(5)) == ("a", 1)
        old = consumer.receive(5)
        assert told(old) == ("b", 1)
        assert old is not None
        assert eventually(lambda: classic_broker.statistics(queue.name).inflight_count == 6)
        proxy.cut()
        assert eventually(lambda: _restored(diary) == 1)
        old.acknowledge()
        received = [consumer.receive(5) for _ in range(6)]
        assert [told(message) for message in received] == [
            ("a", 2), ("b", 2), ("c", 1), ("d", 1), ("e", 1), ("f", 1),
        ]  # fmt: skip
        flagged = [message is not None and message.redelivered for message in received]
        assert flagged == [True, True, False, False, False, False]  # what nobody saw is new
        last = received[-1]
        assert last is not None
        last.acknowledge()
        assert settles(classic_broker, queue, size=0)
    assert [event.messages for event in diary.events if isinstance(event, AckDropped)] == [1]


def test_poison_keeps_its_count_over_lost_links(
    proxy: Proxy, classic_broker: Broker, queue: Queue
) -> None:
    """It dies after exactly 1 + maximum_redeliveries deliveries, wherever the links end."""
    seen: list[int] = []
    diary = Diary()
    policy = RedeliveryPolicy(
        maximum_redeliveries=4, initial_redelivery_delay=0.2, redelivery_delay=0.2
    )
    with (
        nothing_left(),
        connect(proxy, observers=[diary], redelivery_policy=policy) as connection,
    ):

        def refuse(message: Message) -> None:
            seen.append(message.delivery_count)
            raise ValueError(message.text)

        def tried(times: int) -> bool:
            return len(seen) >= times

        connection.create_session(AUTO).create_consumer(queue).set_listener(refuse)
        put(classic_broker, queue, "poison")
        for number in (2, 3, 4):
            assert eventually(partial(tried, number))
            proxy.cut()
        assert settles(classic_broker, queue, size=0)
    assert seen == [1, 2, 3, 4, 5]
    assert [dead.attempts for dead in diary.dead()] == [5]


def test_a_listener_that_was_at_work(proxy: Proxy, classic_broker: Broker, queue: Queue) -> None:
    """Its acknowledgement is dropped and counted, and the message comes again, flagged; its end is told."""
    diary = Diary()
    seen: list[tuple[str, int]] = []
    with nothing_left(), connect(proxy, observers=[diary]) as connection:

        def listen(message: Message) -> None:
            seen.append(told(message))
            if len(seen) == 1:
                # what is lost with the link is counted, and what comes next may overtake what is just going back
                assert eventually(lambda: len(core.waiting) == 1)
                with proxy.closed():
                    assert eventually(
                        lambda: not classic_broker.statistics(queue.name).consumer_count
                    )
                assert eventually(lambda: _restored(diary) == 1)

        session = connection.create_session(AUTO)
        consumer = session.create_consumer(queue)
        (core,) = link_of(session).engine.core._consumers
        consumer.set_listener(listen)
        put(classic_broker, queue, "a", "b")
        assert eventually(lambda: len(seen) == 3), seen
        assert settles(classic_broker, queue, size=0)
    assert seen == [("a", 1), ("a", 2), ("b", 1)]
    assert diary.outcomes() == {"abandoned": 1, "acknowledged": 2}
    assert [event.messages for event in diary.events if isinstance(event, AckDropped)] == [1]
    late = [one for one in diary.events if isinstance(one, DeliveryEndedLate)]
    assert [(one.outcome, one.epoch) for one in late] == [("done", 1)]


def test_an_unconfirmed_send(proxy: Proxy, classic_broker: Broker, queue: Queue) -> None:
    """The broker has it, or not: the error says that nobody knows, unless the application wants it sent again."""
    with nothing_left(), connect(proxy) as connection:
        producer = connection.create_session(AUTO).create_producer(queue)
        for body, passed in (("lost", False), ("there", True)):
            proxy.cut_at(b"SEND", to_broker=True, passed=passed)
            call = within(5, partial(producer.send, Message(body)))
            assert isinstance(call.error, SendUnconfirmedError), call.error
            assert call.error.destination == queue.uri
    with connect(proxy, resend_unconfirmed=True) as connection:
        producer = connection.create_session(AUTO).create_producer(queue)
        for body, passed in (("once", False), ("twice", True)):
            proxy.cut_at(b"SEND", to_broker=True, passed=passed)
            within(5, partial(producer.send, Message(body)))
    # the broker may come late to what a dead socket held
    expected = [
        "once",
        "there",
        "twice",
        "twice",
    ]
    assert eventually(lambda: sorted(bodies(classic_broker, queue)) == expected)


# What belongs to a socket --------------------------------------------------------------------------------------------


def test_a_durable_subscription_is_taken_up_again(proxy: Proxy, queue: Queue) -> None:
    """Also while the broker still holds the client id for the link that it has not missed yet."""
    topic = Topic(queue.name)
    diary = Diary()
    with (
        nothing_left(),
        connect(proxy, client_id=queue.name, observers=[diary], heartbeat=(1, 1)) as connection,
    ):
        session = connection.create_session(AUTO)
        consumer = session.create_durable_consumer(topic, "news")
        spare = connection.create_session(AUTO).create_producer(topic)
        with proxy.frozen():
            assert eventually(lambda: _restored(diary) == 2, 20)
        spare.send(Message("a"))
        assert told(consumer.receive(5)) == ("a", 1)
        consumer.close()
        session.unsubscribe("news")


def test_a_link_that_a_plain_connection_drops_is_restored_with_its_client_id(
    proxy: Proxy, queue: Queue
) -> None:
    """What interrupts a call may cost a link without a DISCONNECT; the broker has the client id until it notices."""
    topic = Topic(queue.name)
    with Connection(proxy.url, client_id=queue.name) as connection:
        connection.start()
        session = connection.create_session(AUTO)
        consumer = session.create_durable_consumer(topic, "news")
        with proxy.frozen():
            link_of(session).engine.renew("a call was interrupted by Alarm")
            time.sleep(1)
        connection.create_session(AUTO).create_producer(topic).send(Message("a"))
        assert told(consumer.receive(20)) == ("a", 1)
        consumer.close()
        session.unsubscribe("news")


def test_a_session_that_cannot_be_moved_stays(proxy: Proxy, queue: Queue) -> None:
    """A durable consumer of another session needs its client id, and no broker is there: it loses nothing by that."""
    with (
        nothing_left(),
        connect(proxy, client_id=fresh_queue().name, request_timeout=1) as connection,
    ):
        first, second = connection.create_session(AUTO), connection.create_session(AUTO)
        with proxy.closed():
            assert eventually(lambda: outage(first) and outage(second))
            call = within(5, lambda: second.create_durable_consumer(Topic(queue.name), "s"))
            assert isinstance(call.error, ConnectionFailedError)
        assert eventually(lambda: link_of(first).connected and link_of(second).connected)
        for each in (first, second):
            each.create_producer(queue).send(Message("a"))


def test_a_temporary_queue_lives_on(proxy: Proxy, classic_broker: Broker, queue: Queue) -> None:
    """Under a new name on the broker: new replies arrive, and one to the old name is refused."""
    with nothing_left(), connect(proxy) as connection, Connection(classic_broker.url) as other:
        other.start()
        session = connection.create_session(AUTO)
        replies = session.create_temporary_queue()
        consumer = session.create_consumer(replies)
        asking = connection.create_session(AUTO).create_producer(queue)
        answering = other.create_session(AUTO)
        requests = answering.create_consumer(queue)
        answer = answering.create_producer()
        asking.send(Message("old", reply_to=replies))
        old = requests.receive(5)
        proxy.cut()
        assert eventually(
            lambda: link_of(session).engine.core.epoch == 2 and link_of(session).engine.reachable
        )
        asking.send(Message("new", reply_to=replies))
        new = requests.receive(5)
        assert old is not None
        assert new is not None
        with pytest.raises(InvalidDestinationError):
            answer.send(Message("too late"), destination=old.reply_to)
        answer.send(Message("in time"), destination=new.reply_to)
        assert told(consumer.receive(5)) == ("in time", 1)


def test_browsing_ends_with_its_link(proxy: Proxy, classic_broker: Broker, queue: Queue) -> None:
    """With an error, for what was seen is not all there is; a new look shows it all."""
    put(classic_broker, queue, *"abc")
    with nothing_left(), connect(proxy) as connection:
        session = connection.create_session(AUTO)
        looking = iter(session.create_browser(queue))
        next(looking)
        proxy.cut()
        assert eventually(lambda: link_of(session).engine.core.epoch == 2)
        with pytest.raises(ConnectionFailedError, match="browsed"):
            list(looking)
        assert len(list(session.create_browser(queue))) == 3


def test_browsing_ends_with_its_link_between_two_looks(
    proxy: Proxy, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks again from the first map on, on the same link or not at all."""
    with nothing_left(), connect(proxy) as connection:
        session = connection.create_session(AUTO)
        for body in ("a", {"k": 1}):
            session.create_producer(queue).send(body)
        end = QueueBrowser._end

        def ends(browser: QueueBrowser, name: str) -> None:
            end(browser, name)
            monkeypatch.undo()
            proxy.cut()
            assert eventually(lambda: link_of(session).engine.core.epoch == 2)

        monkeypatch.setattr(QueueBrowser, "_end", ends)
        with pytest.raises(ConnectionFailedError, match="browsed"):
            list(session.create_browser(queue))
        assert session.create_consumer(queue).receive(5) is not None


# Stopping in the middle of it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "abort", "session", "consumer"])
def test_ending_in_an_outage(proxy: Proxy, queue: Queue, how: str) -> None:
    """At once, and nothing comes up again behind it."""
    with nothing_left():
        connection = connect(proxy)
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        consumer.set_listener(lambda _message: None)
        with proxy.closed():
            assert eventually(lambda: outage(session))
            sender = Call(lambda: session.create_producer(queue).send(Message("x")))
            end = {
                "close": connection.close,
                "abort": connection.abort,
                "session": session.close,
                "consumer": consumer.close,
            }[how]
            call = within(3, end)
            assert call.error is None
            assert call.seconds < 1.5
            if how != "consumer":
                assert isinstance(sender.join(3).error, JmsxError)
            visitors = proxy.visitors
        if how != "consumer":
            time.sleep(0.5)  # longer than any pause between attempts
            assert proxy.visitors == visitors
        connection.close()
        sender.join(5)


def test_stop_and_start_in_an_outage(proxy: Proxy, classic_broker: Broker, queue: Queue) -> None:
    """A stopped connection restores its links, and hands out nothing before it is started."""
    seen: list[str] = []
    with nothing_left(), connect(proxy) as connection:
        session = connection.create_session(AUTO)
        session.create_consumer(queue).set_listener(lambda message: seen.append(message.text))
        with proxy.closed():
            assert eventually(lambda: outage(session))
            assert within(3, connection.stop).value
        put(classic_broker, queue, "a")
        assert eventually(lambda: classic_broker.statistics(queue.name).inflight_count == 1)
        assert seen == []
        connection.start()
        assert eventually(lambda: seen == ["a"])


@pytest.mark.parametrize("closing", ["consumer", "session", "connection"])
def test_a_close_that_the_broker_has_not_answered(proxy: Proxy, queue: Queue, closing: str) -> None:
    """Nobody knows whether it has what was sent and acknowledged before, so close() tells; then all is closed."""
    with nothing_left(), connect(proxy) as connection:
        session = connection.create_session(AUTO)
        consumer = session.create_consumer(queue)
        proxy.cut_at(b"UNSUBSCRIBE", to_broker=True, passed=1.0)
        closes = {
            "consumer": consumer.close,
            "session": session.close,
            "connection": connection.close,
        }
        with pytest.raises(ConnectionFailedError, match="before it answered UNSUBSCRIBE"):
            closes[closing]()
        with pytest.raises(IllegalStateError):
            consumer.receive(0)
        closes[closing]()


def test_calls_of_a_dead_session_keep_nothing(
    proxy: Proxy, classic_broker: Broker, queue: Queue
) -> None:
    """One error is raised each time; its traceback would grow with each call, and keep the bodies of them all."""
    del classic_broker
    lengths: list[int] = []
    with Connection(proxy.url) as connection:
        producer = connection.create_session().create_producer(queue)
        proxy.cut()
        for _ in range(20):
            with pytest.raises((ConnectionFailedError, SendUnconfirmedError)) as raised:
                producer.send("x")
            lengths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(set(lengths[10:])) == 1
