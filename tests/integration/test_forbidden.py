"""Brokers that forbid things: what is told as refused is not there, and what may not be sent stops nothing else."""

from __future__ import annotations

import itertools
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import Connection, Message, Queue, RedeliveryPolicy, Reject
from jmsx.app import App
from jmsx.core.events import DeadLetterFailed, LinkOpened, Outcome
from jmsx.errors import (
    InvalidDestinationError,
    InvalidSelectorError,
    SecurityError,
    SendUnconfirmedError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.jms.session import link_of
from tests.integration.broker_support import (
    GUARDS,
    as_clerk,
    eventually,
    guarded_artemis,
    guarded_classic,
)
from tests.integration.support import (
    AUTO,
    INDIVIDUAL,
    NO_RETRY,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    reject_bad,
    settles,
    take,
)
from tests.integration.support import (
    Outcome as Call,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import AcknowledgeMode, Session
    from jmsx.errors import JmsxError
    from jmsx_broker.local import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

_MAKE: Final = "createAddress createDurableQueue createNonDurableQueue"
_REMOVE: Final = "deleteAddress deleteDurableQueue deleteNonDurableQueue"
_ALL: Final = f"send consume browse {_MAKE} {_REMOVE}"

POLICY: Final = RedeliveryPolicy(
    maximum_redeliveries=1, initial_redelivery_delay=0.1, redelivery_delay=0.1
)


@pytest.fixture(scope="module")
def classic() -> Iterator[LocalBroker]:
    """`clerk` may use open.>, read and make read.>, write dlqs.>; of the broker's dead letter queue nothing."""
    rights = {"queue_open": "read write admin", "queue_read": "read admin"}
    with guarded_classic(**rights, queue_dlqs="write admin") as broker:
        yield broker


@pytest.fixture(scope="module")
def artemis() -> Iterator[LocalBroker]:
    """The same; what full.> takes is little, and noauto.> must be made by hand."""
    rights = {
        "open.#": _ALL,
        "full.#": _ALL,
        "read.#": f"consume {_MAKE}",
        "dlqs.#": f"send {_MAKE}",
    }
    settings: dict[str, dict[str, str | int | float | bool]] = {
        "full.#": {"address-full-policy": "FAIL", "max-size-bytes": 2000},
        "noauto.#": {"auto-create-queues": False, "auto-create-addresses": False},
        "open.few.#": {"max-delivery-attempts": 2},
    }
    with guarded_artemis(rights | {"noauto.#": _ALL}, settings) as broker:
        yield broker


@pytest.fixture(params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> LocalBroker:
    """Each of them."""
    found: LocalBroker = request.getfixturevalue(request.param)
    return found


def name(*parts: str) -> str:
    """A queue of its own behind a prefix."""
    return ".".join((*parts, fresh_queue().name))


def made(broker: LocalBroker, queue: str) -> str:
    """The queue, made by who may."""
    with Connection(broker.url, username="admin", password=GUARDS["admin"]) as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(queue).send("first")
        assert session.create_consumer(queue).receive(5) is not None
        session.create_producer(queue).send("second")
    return queue


def send(broker: LocalBroker, queue: str, body: str = "x") -> None:
    """As the clerk, confirmed."""
    with Connection(as_clerk(broker), use_management=False) as connection:
        connection.create_session().create_producer(queue).send(body)


def commit(broker: LocalBroker, queue: str) -> None:
    """As the clerk, in a transaction."""
    with Connection(as_clerk(broker), use_management=False) as connection:
        session = connection.create_session(TRANSACTED)
        session.create_producer(queue).send("x")
        session.commit()


def is_on_another_link(session: Session) -> bool:
    """Whether it has lost its first one and found another."""
    return link_of(session).epoch > 1


def refused_in_a_transaction(broker: LocalBroker, queue: str, told: str) -> Iterator[JmsxError]:
    """
    What the clerk's commit of one SEND raises, which says why.

    It is in doubt if COMMIT was written. If the ERROR was read before that, it never is, and all is rolled back.
    """
    early = (TransactionRolledBackError, f"was rolled back: .*{told}")
    late = (TransactionInDoubtError, told)
    for waits in (True, False):
        with Connection(as_clerk(broker), use_management=False) as connection:
            session = connection.create_session(TRANSACTED)
            session.create_producer(queue).send("x")
            if waits:
                assert eventually(partial(is_on_another_link, session))
            with pytest.raises((TransactionRolledBackError, TransactionInDoubtError)) as caught:
                session.commit()
        assert any(
            isinstance(caught.value, kind) and re.search(words, str(caught.value))
            for kind, words in ((early,) if waits else (early, late))
        ), caught.value
        yield caught.value


def test_what_is_told_as_refused_is_not_there(classic: LocalBroker) -> None:
    """Classic names the cause of each, in a transaction too."""
    queue = made(classic, name("read"))
    with pytest.raises(SecurityError, match="clerk is not authorized to write to"):
        send(classic, queue)
    with pytest.raises(TransactionRolledBackError, match="clerk is not authorized to write to"):
        commit(classic, queue)
    assert classic.statistics(queue).enqueue_count == 2
    with (
        Connection(as_clerk(classic)) as connection,
        pytest.raises(SecurityError, match="clerk is not authorized to read from"),
    ):
        connection.create_session().create_consumer(name("dlqs"))
    with (
        Connection(as_clerk(classic)) as connection,
        pytest.raises(InvalidSelectorError),
    ):
        connection.create_session().create_consumer(name("open"), selector="a = = 1")


@pytest.mark.parametrize(
    ("options", "how"),
    [({}, {"confirm": False}), ({}, {"persistent": False}), ({"use_async_send": True}, {})],
)
def test_a_refusal_that_nobody_waits_for_is_told(
    broker: LocalBroker, options: dict[str, Any], how: dict[str, Any]
) -> None:
    """By the exception listener, as the Java client does; it may send on the session that goes on, and close it all."""
    refused, taken = name("elsewhere"), name("open")
    told: list[JmsxError] = []
    connection = Connection(as_clerk(broker), **options)
    producer = connection.create_session().create_producer(None)

    def listener(error: JmsxError) -> None:
        producer.send("told", destination=taken)
        connection.close()
        told.append(error)

    connection.set_exception_listener(listener)
    producer.send("x", destination=refused, **how)
    assert eventually(lambda: bool(told))
    assert isinstance(told[0], SecurityError)
    assert refused in str(told[0])
    # Nobody waited for that message, and Artemis counts it a moment after it has it.
    assert eventually(lambda: broker.statistics(taken).enqueue_count == 1)


def test_a_send_behind_one_that_is_refused(broker: LocalBroker) -> None:
    """Artemis ends the connection for that, and answers what comes behind it (BROKER.md A74): it is sent once more."""
    refused, taken = name("elsewhere"), name("open")
    with Connection(f"failover:({as_clerk(broker)})?maxReconnectDelay=10") as connection:
        producer = connection.create_session().create_producer(None)
        for _ in range(20):
            producer.send("x", destination=refused, confirm=False)
            producer.send("y", destination=taken)
    assert broker.statistics(taken).enqueue_count == 20


def test_a_refusal_that_nobody_waits_for_ends_no_app(
    classic: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has each message, and the next one is handled. Artemis ends the link, as it does anyhow."""
    source, refused = name("open"), name("elsewhere")
    app = App(as_clerk(classic))
    keys: list[str] = []
    seen: list[str] = []

    @app.consumer(source)
    def handle(message: Message, session: Session) -> None:
        keys.append(session.create_producer(refused).send("x", confirm=False))
        seen.append(message.text)

    with app:
        keys.append(app.send(refused, "x", confirm=False))
        for body in ("first", "second"):
            app.send(source, body)
        assert eventually(lambda: {"first", "second"} <= set(seen))
        assert eventually(lambda: all(f"key={key!r}" in caplog.text for key in keys))
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("place", "error", "told"),
    [
        ("elsewhere", SecurityError, "does not have permission='CREATE_ADDRESS'"),
        ("noauto", InvalidDestinationError, "Destination does not exist"),
    ],
)
def test_what_artemis_tells_as_refused_is_not_there(
    artemis: LocalBroker, place: str, error: type[JmsxError], told: str
) -> None:
    """These it does not even begin; behind one in a transaction it commits the rest."""
    queue = name(place)
    with pytest.raises(error, match=told):
        send(artemis, queue)
    assert list(refused_in_a_transaction(artemis, queue, told))
    assert not artemis.statistics(queue).exists


@pytest.mark.parametrize("place", ["read", "full"])
def test_what_artemis_does_not_explain_is_in_doubt(artemis: LocalBroker, place: str) -> None:
    """Whatever sending raises looks the same on the wire, so nobody can tell; the usual causes are named."""
    queue = name(place)
    with Connection(artemis.url, username="admin", password=GUARDS["admin"]) as connection:
        connection.create_session().create_producer(queue).send("x" * 2000)
    with pytest.raises(SendUnconfirmedError) as caught:
        send(artemis, queue)
    refused = refused_in_a_transaction(artemis, queue, "AMQ339011 Error sending message")
    for error in (caught.value, *refused):
        assert "AMQ339011 Error sending message" in str(error)
        assert "CoreMessage" not in str(error)  # which repeats what was sent
    with pytest.raises(SendUnconfirmedError, match="the user may not send there, or the address"):
        send(artemis, queue)
    assert artemis.statistics(queue).size == 1


def test_an_output_that_nobody_takes_is_a_dead_letter(broker: LocalBroker) -> None:
    """And not tried for ever, with everything behind it waiting."""
    source, output, dlqs = name("open"), made(broker, name("read")), name("dlqs")
    app = App(as_clerk(broker), use_management=False, redelivery_policy=POLICY)
    seen: list[str] = []

    @app.consumer(source, mode=TRANSACTED, dead_letter=f"queue://{dlqs}")
    def forward(message: Message) -> None:
        seen.append(message.text)
        if message.text == "bad":
            app.send(output, "x")

    with app:
        app.send(source, "bad")
        app.send(source, "next")
        assert eventually(lambda: "next" in seen and broker.statistics(dlqs).size == 1, 30)
    assert broker.statistics(output).size == 1
    # a link that ended before the complaint was read counts for nothing
    assert 2 <= seen.count("bad") <= 6


def test_an_output_that_is_full_is_tried_as_the_policy_says(artemis: LocalBroker) -> None:
    """The ERROR ends the link before COMMIT is written; all deliveries of a message were used up in half a second."""
    source, output, delay = name("open"), name("full"), 0.5
    with Connection(artemis.url, username="admin", password=GUARDS["admin"]) as connection:
        connection.create_session().create_producer(output).send("x" * 2000)
    policy = RedeliveryPolicy(
        maximum_redeliveries=3, initial_redelivery_delay=delay, redelivery_delay=delay
    )
    app = App(as_clerk(artemis), use_management=False, redelivery_policy=policy)
    at, dead = list[float](), Queue(name("dlqs"))

    @app.consumer(source, mode=TRANSACTED, dead_letter=dead.uri)
    def forward(_message: Message) -> None:
        at.append(time.monotonic())
        app.send(output, "x")

    with app:
        app.send(source, "a")
        assert settles(artemis, dead, size=1)
    assert len(at) == 4
    assert all(later - earlier > 0.9 * delay for earlier, later in itertools.pairwise(at)), at
    assert artemis.statistics(output).size == 1


def test_who_may_not_ask_for_the_scheduler_waits_himself(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The app starts, and what failed is delivered again by it."""
    source = name("open")
    policy = RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=0.1, mode="scheduled"
    )
    app = App(as_clerk(broker), use_management=False)
    counts: list[int] = []

    @app.consumer(source, redelivery=policy)
    def fail_twice(message: Message) -> None:
        counts.append(message.delivery_count)
        if len(counts) < 3:
            raise ValueError

    with app:
        app.send(source, "x")
        assert eventually(lambda: counts == [1, 2, 3])
    assert "this user may not try the broker's scheduler" in caplog.text
    assert broker.statistics(source).size == 0


@pytest.mark.parametrize("persistent", [True, False])
def test_a_dead_letter_that_nobody_takes_is_told(broker: LocalBroker, *, persistent: bool) -> None:
    """It stays in its queue, and the probe says why; nothing is deleted for want of a place."""
    source = name("open")
    app = App(
        as_clerk(broker),
        use_management=False,
        redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0),
    )

    @app.consumer(source, dead_letter=f"queue://{made(broker, name('read'))}")
    def fail(_message: Message) -> None:
        raise ValueError

    with app:
        app.send(source, "x", persistent=persistent)
        assert eventually(lambda: "a dead letter cannot be put into" in str(app.ready().body))
        for _ in range(5):  # also while there is no link, which Artemis ends with each refusal
            (told,) = app.ready().body["reasons"]
            assert "not authorized to write" in told or "AMQ339011 Error sending" in told
            time.sleep(0.3)  # there is nothing to wait for: it is to stay so
        assert broker.statistics(source).size == 1
    assert broker.statistics(source).size == 1


def test_a_refused_dead_letter_costs_few_links(artemis: LocalBroker, diary: Diary) -> None:
    """Each refusal ends one, and the broker counts a delivery for that: after so many the message is its own again."""
    source = name("open")
    app = App(
        as_clerk(artemis), use_management=False, observers=[diary], redelivery_policy=NO_RETRY
    )

    @app.consumer(source, dead_letter=f"queue://{made(artemis, name('read'))}")
    def fail(_message: Message) -> None:
        raise ValueError

    def refusals() -> int:
        return sum(isinstance(one, DeadLetterFailed) for one in diary.events)

    with app:
        app.send(source, "x")
        assert eventually(lambda: refusals() == 1)
        time.sleep(4)  # there is nothing to wait for: it is to stay so
        assert refusals() == 1
        assert eventually(lambda: refusals() == 2, 10)
        assert artemis.statistics(source).size == 1


def test_what_the_broker_moves_while_nobody_takes_its_dead_letter(artemis: LocalBroker) -> None:
    """Artemis counts a delivery for each refusal, and has a limit; then the message lies in its own queue."""
    source = name("open", "few")
    app = App(as_clerk(artemis), use_management=False, redelivery_policy=NO_RETRY)

    @app.consumer(source, dead_letter=f"queue://{made(artemis, name('read'))}")
    def fail(_message: Message) -> None:
        raise ValueError

    with app:
        before = artemis.statistics("DLQ").size
        app.send(source, "x")
        assert eventually(lambda: artemis.statistics("DLQ").size == before + 1, 20)
    assert artemis.statistics(source).size == 0


def test_a_dead_letter_that_is_refused(classic: LocalBroker) -> None:
    """`/readyz` says which consumer's, where it should go, and why it does not, for as long as that is so."""
    source, dead = name("open"), made(classic, name("read"))
    app = App(as_clerk(classic), redelivery_policy=NO_RETRY)

    @app.consumer(source, dead_letter=f"queue://{dead}", name="desk")
    def desk(_message: Message) -> None:
        raise ValueError

    with app:
        assert app.ready().ok
        app.send(source, "x")
        assert eventually(lambda: not app.ready().ok, 10)
        assert f"desk: a dead letter cannot be put into queue://{dead}" in str(app.ready().body)
        assert app.live().ok
    assert bodies(classic, source) == ["x"]


def test_a_non_persistent_message_that_the_broker_would_delete(classic: LocalBroker) -> None:
    """By default it is copied into the broker's dead letter queue; who may not do that keeps it where it is."""
    source = name("open")
    app = App(as_clerk(classic), redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))

    @app.consumer(source)
    def fail(_message: Message) -> None:
        raise ValueError

    with app:
        app.send(source, "x", persistent=False)
        assert eventually(
            lambda: "cannot be put into queue://ActiveMQ.DLQ" in str(app.ready().body)
        )
    assert classic.statistics(source).size == 1


@pytest.mark.parametrize("mode", [INDIVIDUAL, TRANSACTED])
def test_a_copy_that_is_refused(classic: LocalBroker, diary: Diary, mode: AcknowledgeMode) -> None:
    """It settles nothing and costs no link; what else is read is settled, and what is sent arrives."""
    source, out, dead = name("open"), name("open"), made(classic, name("read"))
    send(classic, source, "bad")
    with Connection(
        as_clerk(classic), dead_letter=f"queue://{dead}", observers=[diary]
    ) as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(source)
        if mode is TRANSACTED:
            consumer.receive(5)
            session.rollback(Reject("no"))
            session.create_producer(out).send(Message("sent meanwhile"))
            waiting = Call(lambda: consumer.receive(0.5))
            assert waiting.join(5).value is None
            session.commit()
        else:
            consumer.set_listener(reject_bad)
            send(classic, source, "good")
        assert eventually(lambda: any(isinstance(one, DeadLetterFailed) for one in diary.events))
        assert settles(classic, Queue(source), size=1, inflight=1)
        assert sum(isinstance(one, LinkOpened) for one in diary.events) == 1
    assert bodies(classic, source) == ["bad"]
    assert bodies(classic, out) == ["sent meanwhile"] * (mode is TRANSACTED)


def reject(_message: Message) -> None:
    """A listener."""
    raise Reject


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_a_refused_copy_keeps_the_original(
    classic: LocalBroker, diary: Diary, mode: AcknowledgeMode
) -> None:
    """A copy that the broker does not take settles nothing: the original comes again, to somebody else too."""
    source, dead = name("open"), made(classic, name("read"))
    send(classic, source, "a")
    send(classic, source, "b")
    with Connection(
        as_clerk(classic),
        dead_letter=f"queue://{dead}",
        redelivery_policy=NO_RETRY,
        observers=[diary],
    ) as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(source)
        if mode is AUTO:
            consumer.set_listener(reject)
        else:
            take(consumer, 1)
            session.rollback()
        assert eventually(lambda: any(isinstance(one, DeadLetterFailed) for one in diary.events))
        assert bodies(classic, source) == ["a", "b"]
    with Connection(as_clerk(classic)) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(source)
        assert [message.text for message in take(consumer, 2)] == ["a", "b"]
        assert consumer.receive(0.5) is None
    assert diary.dead() == []
    assert not diary.outcomes()[Outcome.DEAD_LETTERED]
