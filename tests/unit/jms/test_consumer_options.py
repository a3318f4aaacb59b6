"""What `create_consumer(..., options=ConsumerOptions(...))` makes of a consumer, with a fake broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    ConsumerOptions,
    Destination,
    PrefetchPolicy,
    RedeliveryPolicy,
    RedeliveryPolicyMap,
)
from jmsx.core.values import ConsumerSettings, OptimizeAcknowledge
from jmsx.errors import ConfigurationError, UsageError
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Session

OURS = RedeliveryPolicy(maximum_redeliveries=1)
THEIRS = RedeliveryPolicy(maximum_redeliveries=9)

OWN = ConsumerOptions(
    prefetch=3,
    redelivery_policy=OURS,
    dead_letter="/queue/mine",
    non_blocking_redelivery=False,
    optimize_acknowledge=False,
)


@pytest.fixture
def session() -> Iterator[Session]:
    """Of a connection that has chosen otherwise in everything."""
    with (
        FakeBrokerServer() as broker,
        Connection(
            broker.url,
            client_id="me",
            prefetch_policy=PrefetchPolicy.all(7),
            redelivery_policies=RedeliveryPolicyMap(THEIRS),
            dead_letter="queue://theirs",
            non_blocking_redelivery=True,
            optimize_acknowledge=True,
        ) as connection,
    ):
        connection.start()
        yield connection.create_session()


def made(session: Session, number: int = 1) -> ConsumerSettings:
    """The settings of the session's consumer of that number."""
    found = link_of(session).engine.core.consumer_settings(str(number))
    assert found is not None
    return found


def told(settings: ConsumerSettings) -> tuple[Any, ...]:
    """Those that can be chosen."""
    return (
        settings.prefetch,
        settings.policy,
        settings.dead_letter,
        settings.non_blocking_redelivery,
        settings.optimize,
    )


def test_without_options_it_is_as_the_connection_says(session: Session) -> None:
    """Given as None, or with all of them None."""
    theirs = (7, THEIRS, "queue://theirs", True, OptimizeAcknowledge())
    session.create_consumer("queue://a")
    session.create_consumer("queue://a", options=ConsumerOptions())
    assert told(made(session, 1)) == told(made(session, 2)) == theirs


def test_its_own_options_win(session: Session) -> None:
    """And are nobody else's in the same session."""
    session.create_consumer("queue://a", options=OWN)
    session.create_consumer("queue://a")
    assert told(made(session, 1)) == (3, OURS, "queue://mine", False, None)
    assert made(session, 2).prefetch == 7


def test_a_durable_consumer_takes_them_too(session: Session) -> None:
    """As any other."""
    session.create_durable_consumer("topic://a", "s", options=OWN)
    assert told(made(session)) == (3, OURS, "queue://mine", False, None)


def test_the_name_of_the_destination_wins(session: Session) -> None:
    """As in Java, where it is the nearest to the consumer."""
    session.create_consumer("queue://a?consumer.prefetchSize=2", options=OWN)
    assert made(session).prefetch == 2


def test_a_prefetch_of_nothing_fetches_when_it_is_asked(session: Session) -> None:
    """So there is nothing to listen to."""
    consumer = session.create_consumer("queue://a", options=ConsumerOptions(prefetch=0))
    session.create_producer("queue://a").send("x")
    assert consumer.receive_no_wait() is not None
    with pytest.raises(UsageError, match="Illegal prefetch size of zero"):
        consumer.set_listener(print)


def test_who_may_get_less_than_all_of_a_queue_is_told(session: Session) -> None:
    """By a selector, as without what its connection sends, with options of the broker, or message by message."""
    session.create_consumer("queue://a")
    session.create_consumer("queue://a?consumer.prefetchSize=2")
    session.create_consumer("queue://a", selector="colour = 'red'")
    session.create_consumer("queue://a?consumer.selector=colour IS NULL")
    session.create_consumer("queue://a", no_local=True)
    session.create_consumer("queue://a?consumer.dispatchAsync=true")
    session.create_consumer("queue://a", options=ConsumerOptions(prefetch=0))
    told = [made(session, number).selective for number in range(1, 8)]
    assert told == [False, False, True, True, True, True, True]


@pytest.mark.parametrize("profile", ["classic", "artemis"])
def test_what_waits_behind_a_dead_letter_is_here(profile: str) -> None:
    """It is held back until the broker has that one, and who asks what there is hears of it."""
    none = RedeliveryPolicy(maximum_redeliveries=0)
    with (
        FakeBrokerServer(profile) as broker,
        Connection(broker.url, dead_letter="broker", redelivery_policy=none) as connection,
    ):
        connection.start()
        session = connection.create_session(AcknowledgeMode.SESSION_TRANSACTED)
        consumer = session.create_consumer("queue://a")
        producer = connection.create_session().create_producer("queue://a")
        producer.send("dead")
        producer.send("next")
        assert consumer.receive(5) is not None
        engine = link_of(session).engine
        with engine.lock:
            assert engine.changed.wait_for(
                lambda: any(one.waiting for one in engine.core._consumers), 5
            )
        session.rollback()
        message = consumer.receive_no_wait()
        assert message is not None
        assert message.text == "next"


def test_batches_are_for_auto_alone() -> None:
    """Who asks for them in another mode hears that there are none."""
    with FakeBrokerServer() as broker, Connection(broker.url) as connection:
        session = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
        with pytest.raises(ConfigurationError, match="is for AUTO_ACKNOWLEDGE only"):
            session.create_consumer("a", options=ConsumerOptions(optimize_acknowledge=True))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"prefetch": -1}, "prefetch must be 0 or more, not -1"),
        ({"prefetch": "10"}, "prefetch must be a whole number, not a str"),
        ({"redelivery_policy": 3}, "redelivery_policy must be a RedeliveryPolicy, not an int"),
        ({"dead_letter": "nowhere"}, "neither one of safe, broker nor like queue://NAME"),
        ({"non_blocking_redelivery": 1}, "non_blocking_redelivery must be True or False"),
        ({"optimize_acknowledge": "no"}, "optimize_acknowledge must be True or False"),
        ({"prefech": 1}, "did you mean 'prefetch'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], complaint: str) -> None:
    """Are refused when they are given."""
    with pytest.raises(ConfigurationError, match=complaint):
        ConsumerOptions(**options)


def test_what_are_no_options(session: Session) -> None:
    """Such as a connection's, or a dict."""
    given: Any = {"prefetch": 1}
    with pytest.raises(ConfigurationError, match="must be ConsumerOptions"):
        session.create_consumer("queue://a", options=given)


@pytest.mark.parametrize(
    ("profile", "source", "dead_letter"),
    [
        ("classic", "queue://a", "queue://a"),
        ("classic", "queue://orders.>", "queue://orders.dead"),
        ("artemis", "queue://a::a", "queue://a"),
        ("artemis", "queue://a", "queue://a::a"),
        ("artemis", "queue://x::a", "queue://y::a"),
    ],
)
def test_dead_letters_go_elsewhere(profile: str, source: str, dead_letter: str) -> None:
    """A consumer that gets its own dead letters fails for ever; what names the same queue, the broker's kind says."""
    options = ConsumerOptions(dead_letter=dead_letter)
    with FakeBrokerServer(profile) as broker, Connection(broker.url) as connection:
        session = connection.create_session()
        with pytest.raises(ConfigurationError, match="is read by this consumer of"):
            session.create_consumer(Destination(source), options=options)


def test_a_full_name_of_artemis_is_another_queue_elsewhere() -> None:
    """Classic takes `::` for a part of a name."""
    options = ConsumerOptions(dead_letter="queue://a")
    with FakeBrokerServer() as broker, Connection(broker.url) as connection:
        connection.create_session().create_consumer(Destination("queue://a::a"), options=options)
