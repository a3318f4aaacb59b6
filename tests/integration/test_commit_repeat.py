"""On a real Artemis: an input comes again although its outputs are committed, and they are not sent twice."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

import jmsx
from jmsx.core.frames import Frame
from jmsx.errors import JmsxError, TransactionInDoubtError, TransactionRolledBackError
from jmsx.jms.session import link_of
from jmsx.jms.translation import identity_of
from jmsx_broker import ArtemisBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually, send
from tests.integration.proxy import Proxy
from tests.integration.support import (
    KeptForNobodyError,
    bodies,
    fresh_queue,
    of_an_attempt_that_tells,
    settles,
    stays_in_delivery,
    stranded,
    take,
    telling_what_is_kept,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jmsx.core.session import SessionCore
    from jmsx_broker import Broker


#: By what a session without consumers learns what became of its commit.
MARKERS: Final = jmsx.Queue("jmsx.commits")


def output(source: jmsx.Queue, message: jmsx.Message, number: int) -> str:
    """The identity of what is sent as the `number`th of `message`."""
    known = identity_of(message)
    assert known is not None
    return f"jmsx:{source.uri}:{known.copy}:{known.key}:{number}"


@pytest.mark.broker
def test_commit_that_artemis_refuses_as_a_duplicate(artemis_broker: Broker) -> None:
    """The first output is there from an earlier try, the second is not; both are there once, the input is gone."""
    source, target = fresh_queue(), fresh_queue()
    with jmsx.Connection(artemis_broker.url) as connection:
        connection.start()
        plain = connection.create_session()
        producer = plain.create_producer(source)
        producer.send(jmsx.Message("a"))
        session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        consumer, sender = session.create_consumer(source), session.create_producer(target)
        message = consumer.receive(5)
        assert message is not None
        early = {
            "destination": target.name,
            "destination-type": "ANYCAST",
            "persistent": "true",
            "_AMQ_DUPL_ID": output(source, message, 1),
        }
        with Wire(artemis_broker.url) as wire:
            wire.request(Frame("SEND", early, b"a1"))
        for part in "12":
            sender.send(jmsx.Message(f"a{part}"))
        session.commit()

        assert consumer.receive(0.5) is None
        reader = plain.create_consumer(target)
        got = [one.text for one in iter(lambda: reader.receive(1), None)]
        assert sorted(got) == ["a1", "a2"]
        assert eventually(lambda: artemis_broker.statistics(source.name).size == 0, 5)
        producer.send(jmsx.Message("b"))  # the session goes on
        assert consumer.receive(5) is not None
        session.commit()


#: Where a link can end under a commit: which way, at what, whether that still passes; and what the commit holds.
CUTS = [
    pytest.param(True, b"COMMIT", False, True, id="before COMMIT"),
    pytest.param(True, b"COMMIT", True, True, id="after COMMIT"),
    pytest.param(False, b"RECEIPT", False, True, id="before RECEIPT"),
    pytest.param(True, b"ACK", False, True, id="before ACK"),
    pytest.param(True, b"ACK", True, True, id="after ACK"),
    pytest.param(True, b"COMMIT", False, False, id="before COMMIT, sends alone"),
    pytest.param(True, b"COMMIT", True, False, id="after COMMIT, sends alone"),
]


@pytest.mark.broker
@pytest.mark.parametrize(("to_broker", "word", "passed", "receives"), CUTS)
def test_commit_markers_leave_no_doubt(
    artemis_broker: Broker, word: bytes, *, to_broker: bool, passed: bool, receives: bool
) -> None:
    """
    The commit waits for the next link, and is repeated there if it received something: that comes to the same session.

    Of sends alone it is told whether they are there; who repeats them then doubles nothing.
    """
    there = of_an_attempt_that_tells(
        lambda: outputs_of_a_commit_that_is_cut(
            artemis_broker, word, to_broker=to_broker, passed=passed, receives=receives
        )
    )
    assert there == ["1", "2", "3"]


def outputs_of_a_commit_that_is_cut(
    artemis_broker: Broker, word: bytes, *, to_broker: bool, passed: bool, receives: bool
) -> list[str]:
    """
    What is in the queue at last, of which 1 and 2 were sent in the commit whose link was cut.

    Raises:
        KeptForNobodyError: the input, or the marker that tells the outcome, did not come again, and is in delivery when
            nobody is there any more.

    """
    source, target = fresh_queue(), fresh_queue()
    with (
        Proxy(artemis_broker.url) as way,
        jmsx.Connection(
            f"failover:({way.url})?maxReconnectDelay=100", commit_markers=True
        ) as connection,
    ):
        connection.start()
        session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        sender = session.create_producer(target)
        consumer = session.create_consumer(source) if receives else None
        if consumer is not None:
            with jmsx.Connection(artemis_broker.url) as other:
                other.create_session().create_producer(source).send(jmsx.Message("a"))
            assert consumer.receive(5) is not None
        for part in "12":
            sender.send(jmsx.Message(part))
        await_marker(session)
        way.cut_at(word, to_broker=to_broker, passed=passed)
        call = committed(session, connection, artemis_broker)
        assert way.sprung.is_set()

        # Who leaves before the input has come again leaves it there, for somebody else.
        def settled() -> bool:
            assert consumer is None or consumer.receive(0.5) is None
            return artemis_broker.statistics(source.name).size == 0

        in_doubt = receives and "has not come again" in str(call.error)
        if in_doubt:
            assert isinstance(call.error, TransactionInDoubtError)
        elif receives or passed:
            assert call.error is None
        else:
            assert isinstance(call.error, TransactionRolledBackError), call.error
            for part in "12":
                sender.send(jmsx.Message(part))
            session.commit()
        kept = not eventually(settled, 10)
        if not kept:
            assert not in_doubt
            sender.send(jmsx.Message("3"))
            session.commit()
    there = bodies(artemis_broker, target)
    if kept:
        assert stays_in_delivery(artemis_broker, source), artemis_broker.statistics(source.name)
        assert there == ["1", "2"] or (in_doubt and not there), there
        raise KeptForNobodyError
    return there


def committed(session: jmsx.Session, connection: jmsx.Connection, broker: Broker) -> Call[None]:
    """
    How a commit ended.

    Raises:
        KeptForNobodyError: it waits for a marker that is in delivery when nobody is there any more.

    """
    kept = stranded(broker, MARKERS)
    call = Call(session.commit)
    try:
        return call.join(20)
    except AssertionError as hanging:
        connection.abort()
        if not eventually(lambda: stranded(broker, MARKERS) > kept, 3):
            raise
        raise KeptForNobodyError("the broker keeps the marker") from hanging


def await_marker(session: jmsx.Session) -> None:
    """What a commit needs is there, so that what is cut is the commit itself."""
    assert eventually(lambda: link_of(session).engine.call(lambda core, _now: core.may_commit()))


@contextlib.contextmanager
def one_that_is_cut(
    broker: Broker, source: jmsx.Queue, *, marked: bool = False
) -> Iterator[tuple[Proxy, jmsx.Connection, jmsx.Connection]]:
    """
    A way that can be cut, a connection on it that clears up its commits, and another one; both are started.

    Raises:
        KeptForNobodyError: what failed did so where the broker keeps a message of `source` for nobody.

    """
    with (
        telling_what_is_kept(broker, source),
        Proxy(broker.url) as way,
        jmsx.Connection(
            f"failover:({way.url})?maxReconnectDelay=100", commit_markers=True
        ) as doubtful,
        jmsx.Connection(broker.url, commit_markers=marked) as other,
    ):
        doubtful.start()
        other.start()
        yield way, doubtful, other


@pytest.mark.broker
@pytest.mark.parametrize("key", ["of jmsx", "of nobody"])
@pytest.mark.parametrize("behind", [False, True])
def test_a_commit_of_many_large_inputs(artemis_broker: Broker, key: str, *, behind: bool) -> None:
    """They are more bytes than a first window has, and come again all of them to the session that waits for them."""
    count, body = 150, "x" * 10_000

    def attempt() -> list[str]:
        source, target = fresh_queue(), fresh_queue()
        if key == "of jmsx":
            with jmsx.Connection(artemis_broker.url) as sender:
                filling = sender.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
                producer = filling.create_producer(source)
                for _ in range(count):
                    producer.send(jmsx.Message(body))
                filling.commit()
        else:
            send(artemis_broker, source.name, [body.encode()] * count)
        with one_that_is_cut(artemis_broker, source) as (way, doubtful, _):
            session = doubtful.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            consumer = session.create_consumer(source)
            take(consumer, count)
            session.create_producer(target).send(jmsx.Message("all"))
            way.cut_beside("COMMIT\n", behind=behind)
            assert Call(session.commit).join(30).error is None
            assert way.sprung.is_set()
            assert consumer.receive(0.5) is None
        assert settles(artemis_broker, source, size=0)
        return bodies(artemis_broker, target)

    assert of_an_attempt_that_tells(attempt) == ["all"]


@pytest.mark.broker
def test_another_process_that_has_the_input_meanwhile(artemis_broker: Broker) -> None:
    """
    A COMMIT gets lost, and before its session has another link the input is with somebody else, in an open transaction.

    The broker would take the output of both: it looks for duplicates when a SEND comes in, and not at a COMMIT (A69).
    """

    def attempt() -> list[str]:
        source, target = fresh_queue(), fresh_queue()
        with one_that_is_cut(artemis_broker, source, marked=True) as (way, doubtful, other):
            other.create_session().create_producer(source).send(jmsx.Message("a"))

            def work(connection: jmsx.Connection) -> jmsx.Session:
                session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
                assert session.create_consumer(source).receive(10) is not None
                session.create_producer(target).send(jmsx.Message("out"))
                await_marker(session)
                return session

            first = work(doubtful)
            way.cut_at(b"COMMIT", to_broker=True, passed=False)
            with way.shut():
                call = Call(first.commit)
                second = work(other)
            assert isinstance(call.join(20).error, TransactionInDoubtError)
            second.commit()
            assert eventually(lambda: artemis_broker.statistics(source.name).size == 0, 5)
        return bodies(artemis_broker, target)

    assert of_an_attempt_that_tells(attempt) == ["out"]


@pytest.mark.broker
def test_who_waits_for_an_input_takes_nothing_else(artemis_broker: Broker) -> None:
    """
    Another session may wait for it: two that hold each other's inputs would wait until their patience ends.

    The commit ends when the input comes, and then the session gets everything.
    """

    def attempt() -> list[str]:
        source, target = fresh_queue(), fresh_queue()
        with one_that_is_cut(artemis_broker, source) as (way, doubtful, other):
            sender = other.create_session().create_producer(source)
            sender.send(jmsx.Message("a"))
            session = doubtful.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            consumer = session.create_consumer(source)
            assert consumer.receive(10) is not None
            session.create_producer(target).send(jmsx.Message("out"))
            way.cut_at(b"COMMIT", to_broker=True, passed=False)
            with way.shut():
                call = Call(session.commit)
                holder = other.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
                assert holder.create_consumer(source).receive(10) is not None
            holding = link_of(holder).engine
            assert eventually(lambda: artemis_broker.statistics(source.name).consumer_count == 2, 5)
            numbers = [str(number) for number in range(10)]
            for number in numbers:
                sender.send(jmsx.Message(number))
            assert eventually(
                lambda: holding.call(lambda core, _now: waiting(core)) == len(numbers), 5
            )
            holder.close()
            assert call.join(5).error is None
            got = [consumer.receive(5) for _ in numbers]
            assert [one and one.text for one in got] == numbers
            session.commit()
        return bodies(artemis_broker, target)

    assert of_an_attempt_that_tells(attempt) == ["out"]


@pytest.mark.broker
def test_a_group_is_not_kept_from_who_has_waited(
    artemis_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The broker gives a group to one subscription until that ends: what follows must not be offered to the narrow one.

    Of two inputs one comes again, and belongs to a group; somebody else has the other one.
    """
    monkeypatch.setattr("jmsx.core.commit_repeat.PATIENCE", 2.0)

    def attempt() -> list[str | None]:
        source, target = fresh_queue(), fresh_queue()
        with one_that_is_cut(artemis_broker, source) as (way, doubtful, other):
            sender = other.create_session().create_producer(source)
            sender.send(jmsx.Message("a", group_id="g"))
            sender.send(jmsx.Message("b", properties={"kind": "b"}))
            session = doubtful.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            consumer = session.create_consumer(source)
            assert consumer.receive(10) is not None
            assert consumer.receive(10) is not None
            session.create_producer(target).send(jmsx.Message("out"))
            way.cut_at(b"COMMIT", to_broker=True, passed=False)
            with way.shut():
                call = Call(session.commit)
                holder = other.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
                narrow = holder.create_consumer(source, selector="kind = 'b'")
                assert narrow.receive(10) is not None
            assert isinstance(call.join(10).error, TransactionInDoubtError)
            sender.send(jmsx.Message("c", group_id="g"))
            sender.send(jmsx.Message("d"))
            tries = [consumer.receive(5) for _ in range(3)]
            got = [None if one is None else one.text for one in tries]
            session.commit()
            holder.rollback()
        if got == ["c", "d", None] and stays_in_delivery(artemis_broker, source):
            raise KeptForNobodyError("the broker keeps a")
        return got

    assert of_an_attempt_that_tells(attempt) == ["a", "c", "d"]


def waiting(core: SessionCore) -> int:
    """How many messages a session holds that the application has not got."""
    return sum(len(one.waiting) for one in core._consumers)


@pytest.fixture(scope="module")
def slow_broker() -> Iterator[ArtemisBroker]:
    """An Artemis whose disk takes 0.3 s, in which the link has long been replaced."""
    with ArtemisBroker(journal_delay=0.3) as broker:
        yield broker


def seldom_doubled(there: Sequence[str], attempt: Callable[[], list[str]]) -> None:
    """
    All that `attempt` leaves is `there`, once and in order; in 2 of 5 attempts some of it may be there twice.

    That is what README.md promises of a broker that has far too much to do. On a disk as slow as this one, it was
    there twice in 8 of 10 attempts when what is repeated did not wait.
    """
    found = [of_an_attempt_that_tells(attempt) for _ in range(5)]
    expected = list(there)
    doubled = [one for one in found if one != expected]
    assert all(Counter(expected) <= Counter(one) <= Counter(2 * expected) for one in doubled), found
    assert len(doubled) <= 2, found


@pytest.mark.broker
@pytest.mark.parametrize("receives", [True, False])
def test_slow_disk_doubles_nothing(slow_broker: ArtemisBroker, *, receives: bool) -> None:
    """The broker knows a commit by its duplicate ids only when it is on the disk: what is repeated waits for that."""
    seldom_doubled(
        "123",
        lambda: outputs_of_a_commit_that_is_cut(
            slow_broker, b"COMMIT", to_broker=True, passed=True, receives=receives
        ),
    )


@pytest.mark.broker
def test_another_consumer_doubles_nothing_on_a_slow_disk(slow_broker: ArtemisBroker) -> None:
    """A process dies with its commit on the way to the disk; the next one handles the same input meanwhile."""

    def attempt() -> list[str]:
        source, target = fresh_queue(), fresh_queue()
        with jmsx.Connection(slow_broker.url) as other:
            plain = other.create_session()
            plain.create_producer(source).send(jmsx.Message("a"))
            with Proxy(slow_broker.url) as way:
                first = jmsx.Connection(way.url)
                with contextlib.suppress(JmsxError), first:
                    first.start()
                    session = first.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
                    assert session.create_consumer(source).receive(5) is not None
                    session.create_producer(target).send(jmsx.Message("out"))
                    way.cut_at(b"COMMIT", to_broker=True, passed=True)
                    session.commit()
            other.start()
            session = other.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            consumer, sender = session.create_consumer(source), session.create_producer(target)
            kept = consumer.receive(10) is None
            if not kept:
                sender.send(jmsx.Message("out"))
                session.commit()
                assert consumer.receive(0.5) is None
        if kept:
            assert stays_in_delivery(slow_broker, source), slow_broker.statistics(source.name)
            raise KeptForNobodyError
        return bodies(slow_broker, target)

    seldom_doubled(["out"], attempt)
