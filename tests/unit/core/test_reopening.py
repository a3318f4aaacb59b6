"""A session whose link is lost and replaced: what goes on, what is dropped, and how it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import (
    AckDropped,
    LinkOpened,
    SubscriptionClosed,
    SubscriptionOpened,
)
from jmsx.core.values import DestinationKind
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
    called,
    outcome,
)

if TYPE_CHECKING:
    from jmsx.core.modes import AcknowledgeMode


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_every_consumer_is_subscribed_again() -> None:
    """With the same headers, each confirmed by itself, and told once for each link."""
    talk = Talk(AUTO)
    talk.subscribe("1")
    talk.subscribe("2")
    talk.cut()
    talk.wrote()
    requests = talk.core.link_opened("ActiveMQ/6.1.8", 0.5, talk.now)
    assert talk.wrote() == ["SUBSCRIBE 1 ?", "SUBSCRIBE 2 ?"]
    assert [request.done for request in requests] == [False, False]
    talk.answer()
    talk.answer()
    assert [outcome(request) for request in requests] == ["done", "done"]
    assert [event.consumer for event in talk.reported(SubscriptionOpened)] == [
        "consumer-1", "consumer-2", "consumer-1", "consumer-2",
    ]  # fmt: skip
    assert len(talk.reported(LinkOpened)) == 2


def test_refused_subscription_waits_for_the_next_link() -> None:
    """Unlike a first one: the application has its consumer already."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.cut()
    talk.wrote()
    (request,) = talk.core.link_opened("ActiveMQ/6.1.8", 0.5, talk.now)
    talk.refuse("Durable consumer is in use")
    assert outcome(request) != "done"
    assert talk.core.is_open("1")
    talk.lose()
    talk.comes("a")
    assert talk.receive() == "a#1"


def test_first_subscription_that_the_link_did_not_survive_is_none() -> None:
    """Whoever asked for it is told, and asks again."""
    talk = Talk(AUTO)
    request = talk.core.subscribe(talk.settings("1"), talk.now)
    talk.cut()
    assert outcome(request) == "ConnectionFailedError"
    assert not talk.core.is_open("1")
    assert talk.core.link_opened("ActiveMQ/6.1.8", 0.5, talk.now) == []


def test_consumer_that_is_closed_without_a_link_is_not_opened_again() -> None:
    """There is nobody to tell; the broker has forgotten it."""
    talk = Talk(CLIENT)
    talk.subscribe("1")
    talk.subscribe("2")
    talk.comes("a")
    talk.held()
    talk.cut()
    talk.wrote()
    assert talk.core.close_consumer("1", talk.now).done
    assert len(talk.reported(SubscriptionClosed)) == 1
    assert talk.wrote() == []
    assert talk.core.link_opened("ActiveMQ/6.1.8", 0.5, talk.now)[0].subject == "queue://q"
    assert talk.wrote() == ["SUBSCRIBE 2 ?"]


@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED])
def test_session_closes_without_a_link(mode: AcknowledgeMode) -> None:
    """Nothing is asked, and nothing opened again."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a")
    talk.held()
    talk.cut()
    talk.wrote()
    assert talk.core.close(talk.now) == []
    assert talk.wrote() == []
    assert talk.core.link_opened("ActiveMQ/6.1.8", 0.5, talk.now) == []


def test_errors_name_the_broker_that_the_session_has_gone_to() -> None:
    """One of several, and not the first for ever."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.cut()
    talk.core.link_opened("ActiveMQ/6.1.8", 0.5, talk.now, broker="other:61613")
    talk.wrote()
    talk.answer()
    talk.send()
    request = talk.commit()
    talk.cut()
    assert "other:61613" in str(request.error)


# -- what the application had -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_what_is_consumed_after_the_loss_is_counted_as_dropped(mode: AcknowledgeMode) -> None:
    """Its listener was busy; now there is nothing to acknowledge it with."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a", "b")
    during, after = talk.held(), talk.held()
    talk.cut()
    talk.core.consumed(during, talk.now)
    talk.reopen()
    talk.wrote()
    talk.core.consumed(after, talk.now)
    assert talk.wrote() == []
    assert [event.messages for event in talk.reported(AckDropped)] == [1, 1]
    assert talk.ended() == ["a#1 abandoned", "b#1 abandoned"]


@pytest.mark.parametrize("end", ["close", "give_up"])
@pytest.mark.parametrize("finished", [True, False])
def test_session_that_ends_without_a_link_tells_what_it_owes(end: str, *, finished: bool) -> None:
    """With a link, closing would acknowledge what its listener has; told once, whether that returns before or after."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.cut()
    assert talk.reported(AckDropped) == []
    if finished:
        talk.core.consumed(delivery, talk.now)
    getattr(talk.core, end)(talk.now)
    talk.core.close(talk.now)
    assert [event.messages for event in talk.reported(AckDropped)] == [1]


def test_failure_without_a_link_owes_nothing() -> None:
    """Its message would not have been acknowledged."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.cut()
    talk.core.failed(delivery, BROKEN, talk.now)
    talk.core.close(talk.now)
    assert talk.reported(AckDropped) == []


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledging_without_a_link_is_dropped_and_counted(mode: AcknowledgeMode) -> None:
    """As Java, which takes it for stale and says nothing."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.cut()
    talk.wrote()
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == []
    assert [event.messages for event in talk.reported(AckDropped)] == [1]


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL])
def test_failure_of_a_lost_link_is_nobody_elses(mode: AcknowledgeMode) -> None:
    """Its listener was busy; what came on the next link is not given back for it, and nothing is told of it again."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("old")
    old = talk.held()
    talk.lose()
    talk.comes("new")
    new = talk.held()
    talk.core.failed(old, BROKEN, talk.now)
    assert talk.take() is None
    talk.core.consumed(new, talk.now, returning=True)
    talk.core.acknowledge(new, talk.now)
    assert talk.wrote() == ["ACK new"]
    assert talk.ended() == ["old#1 abandoned", "new#1 acknowledged"]


def test_calls_without_a_link_do_nothing() -> None:
    """recover() has nothing to give back, an empty transaction nothing to end."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.cut()
    talk.wrote()
    talk.core.recover(talk.now)
    talk.core.failed(delivery, BROKEN, talk.now)
    assert talk.wrote() == []
    assert talk.take() is None
    assert talk.core.next_timer() is None


# -- counts -----------------------------------------------------------------------------------------------------------


def fail(talk: Talk, times: int) -> None:
    """The listener raises so many times."""
    for _ in range(times):
        assert talk.listen(BROKEN) is not None


def test_what_was_in_hand_is_one_delivery_more() -> None:
    """Also where the broker does not say so: after its crash, or for a durable subscription."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b")
    talk.held()
    talk.lose()
    talk.comes("a", "b")
    first = talk.held()
    assert called(first) == "a#2"
    assert first.redelivered
    assert called(talk.held()) == "b#1"


def test_what_nobody_saw_is_not_counted() -> None:
    """The broker flags all that was on its way; it is as new as before."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(0))
    for _ in range(3):
        talk.comes("a", redelivered="true" if talk.core.epoch > 1 else "")
        talk.lose()
    talk.comes("a", redelivered="true")
    delivery = talk.held()
    assert called(delivery) == "a#1"
    assert not delivery.redelivered


def attempt_of(talk: Talk, name: str) -> int:
    """The number of the delivery of `name`, which the broker flags, on the link that is up."""
    talk.comes(name, redelivered="true")
    return talk.held().delivery_count


def test_what_others_got_is_forgotten() -> None:
    """Memory must not grow with every loss; what a session has forgotten, its process may know."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=1000)
    for turn in range(5):
        talk.comes(*[f"{turn}-{number}" for number in range(1000)])
        talk.lose()
    assert [attempt_of(talk, name) for name in ("4-0", "3-999", "0-0")] == [1, 1, 1]
    assert attempt_of(talk, "from elsewhere") == 2


def test_all_of_a_large_loss_is_kept() -> None:
    """Also when the next links are lost before it has come again."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=9000)
    talk.comes(*[f"{number}" for number in range(9000)])
    talk.lose()
    talk.comes("x")
    talk.lose()
    talk.lose()
    assert attempt_of(talk, "0") == 1


def test_failures_go_on_where_they_were() -> None:
    """It failed twice, so it continues at 3, and is dead after exactly 1 + maximum_redeliveries."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(3))
    talk.comes("a")
    fail(talk, 2)
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.listen(BROKEN) == "a#3"
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.listen(BROKEN) == "a#4"
    assert talk.wrote() == ["NACK a"]
    assert talk.ended() == [
        "a#1 rolled_back", "a#2 rolled_back", "a#3 rolled_back", "a#4 dead_lettered",
    ]  # fmt: skip


def test_transacted_poison_is_dead_lettered_when_it_comes_once_too_often() -> None:
    """The pre-dispatch check knows what this process knows."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    for attempt in (1, 2):
        talk.comes("a", redelivered="true" if attempt > 1 else "")
        assert called(talk.held()) == f"a#{attempt}"
        talk.lose()
        talk.rollback()
    talk.comes("a", redelivered="true")
    assert talk.take() is None
    assert talk.wrote() == ["NACK a"]


def test_pause_before_a_redelivery_goes_on() -> None:
    """The broker sends the same messages first, and they have to wait as before."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(3, initial_redelivery_delay=2.0))
    talk.comes("a")
    fail(talk, 1)
    talk.now = 0.5
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.take() is None
    talk.wait_until(1.999)
    assert talk.take() is None
    talk.wait_until(2.0)
    assert talk.receive() == "a#2"


def test_dead_lettered_message_is_only_acknowledged() -> None:
    """Its copy is a dead letter already; the ACK was waiting for an older message when the link was lost."""
    talk = Talk(AUTO, dead_letter="queue://dead")
    talk.subscribe()
    talk.comes("old", "poison")
    assert called(talk.held()) == "old#1"
    talk.listen(REJECTED)
    assert talk.wrote() == ["SEND queue:dead 'poison' ?"]
    talk.answer()
    talk.lose()
    talk.comes("old", "poison", redelivered="true")
    assert talk.drain() == ["old#2"]
    assert talk.wrote() == ["ACK old", "ACK poison"]


def test_queue_message_may_come_back_to_another_consumer_of_the_session() -> None:
    """Its count is the message's, not the consumer's."""
    talk = Talk(AUTO)
    talk.subscribe("1")
    talk.subscribe("2")
    talk.comes("a", to="1")
    talk.held("1")
    talk.lose()
    talk.comes("a", to="2")
    assert talk.receive("2") == "a#2"


def test_topic_message_does_not_come_back() -> None:
    """So nothing is remembered; another one with the same identity is another one."""
    talk = Talk(AUTO)
    talk.subscribe(kind=DestinationKind.TOPIC, origin="topic://q:s")
    talk.comes("a")
    talk.held()
    talk.lose()
    talk.comes("a")
    assert talk.receive() == "a#1"
