"""The session: one link after the other, questions and answers, consumers and sends."""

from __future__ import annotations

import pytest

from jmsx.core.events import (
    ErrorReceived,
    SubscriptionClosed,
    SubscriptionOpened,
    SubscriptionRemoved,
)
from jmsx.core.frames import Frame, Transmit
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import OptimizeAcknowledge
from jmsx.errors import (
    BrokerTimeoutError,
    IllegalStateError,
    InvalidSelectorError,
)
from tests.unit.core.harness import AUTO, BROKEN, CLASSIC, CLIENT, INDIVIDUAL, TRANSACTED, Talk

# -- subscribing ------------------------------------------------------------------------------------------------------


def test_subscribe_that_nobody_waits_for_leaves_no_consumer() -> None:
    """The broker may still do it, and would give messages to a consumer that nobody knows."""
    talk = Talk(AUTO)
    request = talk.core.subscribe(talk.settings(), talk.now)
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]
    talk.core.abandon(request, BrokerTimeoutError("no answer in 30 s"), talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1"]
    assert not talk.core.is_open("1")
    talk.answer()
    talk.comes("a")
    assert talk.wrote() == []
    assert talk.reported(SubscriptionOpened) == []
    assert talk.core.idle


def test_subscribe_that_is_refused_is_not_undone() -> None:
    """There is nothing at the broker to undo."""
    talk = Talk(AUTO)
    talk.core.subscribe(talk.settings(), talk.now)
    talk.refuse("InvalidSelectorException: x")
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]
    assert not talk.core.is_open("1")


def test_subscribe_writes_what_the_dialect_made() -> None:
    """With an id and a receipt, which is awaited."""
    talk = Talk(AUTO, dialect=CLASSIC)
    settings = talk.settings("7", prefetch=3, optimize=OptimizeAcknowledge())
    request = talk.core.subscribe(settings, 1.0)
    (action,) = talk.core.take_actions()
    assert isinstance(action, Transmit)
    (frame,) = action.frames
    assert frame == Frame(
        "SUBSCRIBE",
        {
            "id": "7",
            "destination": "/queue/q",
            "ack": "client",
            "activemq.prefetchSize": "3",
            "receipt": request.receipt_id,
        },
    )
    assert not request.done
    talk.core.receive([Frame("RECEIPT", {"receipt-id": request.receipt_id})], 2.0, 0.0)
    assert (request.done, request.error) == (True, None)
    assert talk.reported(SubscriptionOpened) == [
        SubscriptionOpened(
            at=2.0,
            consumer="consumer-7",
            destination="queue://q",
            ack_mode="auto",
            prefetch=3,
            maximum_redeliveries=-1,
            optimize_acknowledge=True,
            selective=False,
        )
    ]


def test_refused_subscription_is_no_consumer() -> None:
    """Its caller gets the typed error; the session goes on."""
    talk = Talk(AUTO, dialect=CLASSIC)
    request = talk.core.subscribe(talk.settings("1"), 0.0)
    talk.refuse("jakarta.jms.InvalidSelectorException: 1 = =")
    assert isinstance(request.error, InvalidSelectorError)
    assert "broker:61613" in str(request.error)
    assert "queue://q" in str(request.error)
    assert not talk.core.is_open("1")
    assert talk.reported(SubscriptionOpened) == []
    talk.subscribe("1")
    talk.comes("a")
    assert talk.receive() == "a#1"


def test_messages_of_a_closed_consumer_are_let_go() -> None:
    """They were on their way when it closed; the broker takes them back."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.core.close_consumer("1", 0.0)
    talk.wrote()
    talk.comes("a")
    assert talk.wrote() == []
    assert talk.core.next_timer() is None


def test_closed_consumer_hands_out_nothing() -> None:
    """In the Java client's words."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    talk.core.close_consumer("1", 0.0)
    with pytest.raises(IllegalStateError, match="The Consumer is closed"):
        talk.take()
    with pytest.raises(IllegalStateError, match="The Consumer is closed"):
        talk.core.want(("1",), 0.0)
    assert not talk.core.is_open("1")


def test_what_is_acknowledged_behind_its_consumer_is_told_where_it_is() -> None:
    """The broker has taken it back, and may have given it to somebody else."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a")
    delivery = talk.held()
    talk.core.close_consumer("1", 0.0)
    told = "The Consumer is closed: it has read queue://q on .*, which has taken back"
    with pytest.raises(IllegalStateError, match=told):
        talk.core.acknowledge(delivery, 0.0)


def test_closing_again_asks_nothing() -> None:
    """Closing is idempotent."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.core.close_consumer("1", 0.0)
    talk.wrote()
    assert talk.core.close_consumer("1", 0.0).done
    assert talk.wrote() == []
    assert len(talk.reported(SubscriptionClosed)) == 1


def test_auto_acknowledges_what_its_listener_works_on_when_it_closes() -> None:
    """Upstream row 62: closing inside the listener acknowledges the running message; its return owes nothing."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.listen()
    delivery = talk.held()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK a", "ACK b", "UNSUBSCRIBE 1 ?"]
    talk.core.consumed(delivery, talk.now)
    assert talk.wrote() == []
    assert talk.ended() == ["a#1 acknowledged", "b#1 acknowledged"]


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_others_give_back_what_is_not_acknowledged(mode: AcknowledgeMode) -> None:
    """Upstream rows 32 and 61."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.core.acknowledge(talk.held(), talk.now)
    delivery = talk.held()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK a", "UNSUBSCRIBE 1 ?"]
    talk.core.failed(delivery, BROKEN, talk.now)
    assert talk.wrote() == []
    assert talk.ended() == ["a#1 acknowledged", "b#1 released"]


def test_durable_subscription_is_removed_by_name() -> None:
    """UNSUBSCRIBE with the subscription's name (BROKER.md C60)."""
    talk = Talk(AUTO, dialect=CLASSIC)
    request = talk.core.unsubscribe_durable("prices", "durable:c.prices")
    (action,) = talk.core.take_actions()
    assert isinstance(action, Transmit)
    (frame,) = action.frames
    assert frame.command == "UNSUBSCRIBE"
    assert frame.headers["activemq.subscriptionName"] == "prices"
    assert frame.headers["receipt"] == request.receipt_id
    assert not request.done


def test_the_removal_of_a_durable_subscription_is_told_when_it_is_confirmed() -> None:
    """Not before, and not where the broker refused it."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.core.unsubscribe_durable("prices", "durable:c.prices")
    talk.wrote()
    assert talk.reported(SubscriptionRemoved) == []
    talk.answer()
    assert [one.subscription for one in talk.reported(SubscriptionRemoved)] == ["durable:c.prices"]

    refused = Talk(AUTO, dialect=CLASSIC)
    refused.core.unsubscribe_durable("prices", "durable:c.prices")
    refused.wrote()
    refused.refuse()
    assert refused.reported(SubscriptionRemoved) == []


def test_session_close_unsubscribes_all() -> None:
    """After it has acknowledged what it owes."""
    talk = Talk(AUTO)
    talk.subscribe("1")
    talk.subscribe("2")
    talk.comes("a", to="1")
    talk.listen(None, "1")
    requests = talk.core.close(talk.now)
    assert talk.wrote() == ["ACK a", "UNSUBSCRIBE 1 ?", "UNSUBSCRIBE 2 ?"]
    talk.answer()
    assert [request.done for request in requests] == [True, False]
    talk.answer()
    assert [request.done for request in requests] == [True, True]


def test_farewell_is_answered() -> None:
    """DISCONNECT with a receipt."""
    talk = Talk(AUTO)
    request = talk.core.disconnect()
    assert talk.wrote() == ["DISCONNECT ?"]
    talk.answer()
    assert request.done


# -- what the broker says ---------------------------------------------------------------------------------------------


def test_error_is_told() -> None:
    """Also one that answers nothing; the text may stand in the body."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.complain("boom", **{"receipt-id": "unknown"})
    talk.core.receive([Frame("ERROR", {}, b" java.lang.Boom\n")], 1.0, 0.0)
    assert talk.reported(ErrorReceived) == [
        ErrorReceived(at=0.0, message="boom", receipt_id="unknown"),
        ErrorReceived(at=1.0, message="java.lang.Boom"),
    ]


def test_unknown_receipts_and_frames_are_let_go() -> None:
    """DISCONNECT may be answered twice."""
    talk = Talk(AUTO)
    frames = [Frame("RECEIPT", {"receipt-id": "x"}), Frame("RECEIPT"), Frame("HELLO")]
    talk.core.receive(frames, 0.0, 0.0)
    assert talk.wrote() == []


# -- idle -------------------------------------------------------------------------------------------------------------


def test_idle_is_when_nothing_binds_it_to_its_link() -> None:
    """No consumer, browser, question or open transaction."""
    talk = Talk(TRANSACTED)
    assert talk.core.idle
    talk.send()
    assert not talk.core.idle
    talk.commit()
    assert not talk.core.idle
    talk.wrote()
    talk.answer()
    assert talk.core.idle
    talk.subscribe()
    assert not talk.core.idle
    talk.core.close_consumer("1", 0.0)
    assert not talk.core.idle
    talk.wrote()
    talk.answer()
    assert talk.core.idle
