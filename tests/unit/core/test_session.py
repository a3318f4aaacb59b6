"""The session: one link after the other, questions and answers, consumers and sends."""

from __future__ import annotations

import pytest

from jmsx.core.events import (
    AckDropped,
    ErrorReceived,
    LinkClosed,
    LinkOpened,
    MessageSent,
    SubscriptionClosed,
    SubscriptionOpened,
)
from jmsx.core.frames import Frame
from jmsx.core.values import AcknowledgeMode, OptimizeAcknowledge
from jmsx.errors import (
    BrokerError,
    BrokerTimeoutError,
    ConnectionFailedError,
    IllegalStateError,
    InvalidSelectorError,
    SendUnconfirmedError,
)
from tests.unit.core.harness import AUTO, BROKEN, CLIENT, INDIVIDUAL, TRANSACTED, Talk, at_most

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
    """With an id and a receipt, which is awaited (DESIGN.md section 4)."""
    talk = Talk(AUTO)
    settings = talk.settings("7", prefetch=3, optimize=OptimizeAcknowledge())
    request = talk.core.subscribe(settings, 1.0)
    (action,) = talk.core.take_actions()
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
        )
    ]


def test_refused_subscription_is_no_consumer() -> None:
    """Its caller gets the typed error; the session goes on."""
    talk = Talk(AUTO)
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
    """Source: classic.md 1.2, the Java client's words."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    talk.core.close_consumer("1", 0.0)
    with pytest.raises(IllegalStateError, match="The Consumer is closed"):
        talk.take()
    with pytest.raises(IllegalStateError, match="The Consumer is closed"):
        talk.core.want(("1",), 0.0)
    assert not talk.core.is_open("1")


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
    """UNSUBSCRIBE with the subscription's name (classic.md 2.5)."""
    talk = Talk(AUTO)
    request = talk.core.unsubscribe_durable("prices")
    (action,) = talk.core.take_actions()
    (frame,) = action.frames
    assert frame.command == "UNSUBSCRIBE"
    assert frame.headers["activemq.subscriptionName"] == "prices"
    assert frame.headers["receipt"] == request.receipt_id
    assert not request.done


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


# -- sending ----------------------------------------------------------------------------------------------------------


def test_persistent_send_is_confirmed() -> None:
    """By receipt: the broker has it on disk (classic.md 2.9)."""
    talk = Talk(AUTO)
    request = talk.send()
    assert request is not None
    assert talk.wrote() == ["SEND queue:x 'out' ?"]
    assert talk.reported(MessageSent) == []
    talk.now = 0.25
    talk.answer()
    assert (request.done, request.error) == (True, None)
    assert talk.reported(MessageSent) == [
        MessageSent(
            at=0.25,
            destination="queue://x",
            message_key="key-1",
            outcome="confirmed",
            started_at=0.0,
            size=3,
        )
    ]


def test_other_send_waits_for_nothing() -> None:
    """As the Java client sends what is not persistent."""
    talk = Talk(AUTO)
    assert talk.send(persistent=False) is None
    assert talk.wrote() == ["SEND queue:x 'out'"]
    assert [event.outcome for event in talk.reported(MessageSent)] == ["unconfirmed"]


def test_refused_send_says_why() -> None:
    """With the broker's words and the destination."""
    talk = Talk(AUTO)
    request = talk.send()
    talk.refuse("something")
    assert request is not None
    assert isinstance(request.error, BrokerError)
    assert "broker:61613 refused SEND queue://x: something" in str(request.error)
    assert [event.outcome for event in talk.reported(MessageSent)] == ["error"]


def test_send_whose_answer_is_lost_is_not_said_to_have_failed() -> None:
    """Nobody knows whether the broker has it."""
    talk = Talk(AUTO)
    request = talk.send()
    talk.cut()
    assert request is not None
    assert isinstance(request.error, ConnectionFailedError)
    assert [event.outcome for event in talk.reported(MessageSent)] == ["unconfirmed"]


def test_abandoned_send_keeps_the_link() -> None:
    """Only a COMMIT without an answer makes it useless."""
    talk = Talk(AUTO)
    request = talk.send()
    assert request is not None
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert talk.wrote() == []
    assert isinstance(request.error, BrokerTimeoutError)


def test_own_messages_of_jmsx_are_not_told() -> None:
    """They are asked for, and are in no transaction and no evidence."""
    talk = Talk(TRANSACTED)
    request = talk.core.send_aside(Frame("SEND", {"destination": "/queue/own"}, b"x"))
    assert talk.wrote() == ["SEND queue:own 'x' ?"]
    talk.answer()
    assert request.done
    assert talk.reported(MessageSent) == []


# -- what the broker says ---------------------------------------------------------------------------------------------


def test_error_is_told() -> None:
    """Also one that answers nothing; the text may stand in the body."""
    talk = Talk(AUTO)
    talk.complain("boom", **{"receipt-id": "unknown"})
    talk.core.receive([Frame("ERROR", {}, b" java.lang.Boom\n")], 1.0, 0.0)
    assert talk.reported(ErrorReceived) == [
        ErrorReceived(at=0.0, message="boom", receipt_id="unknown"),
        ErrorReceived(at=1.0, message="java.lang.Boom"),
    ]


def test_unknown_receipts_and_frames_are_let_go() -> None:
    """DISCONNECT may be answered twice (classic.md 2.9)."""
    talk = Talk(AUTO)
    frames = [Frame("RECEIPT", {"receipt-id": "x"}), Frame("RECEIPT"), Frame("HELLO")]
    talk.core.receive(frames, 0.0, 0.0)
    assert talk.wrote() == []


# -- links ------------------------------------------------------------------------------------------------------------


def test_link_is_told() -> None:
    """Up and down."""
    talk = Talk(AUTO)
    talk.now = 5.0
    talk.cut()
    assert talk.reported(LinkOpened) == [LinkOpened(at=0.0, server="ActiveMQ/6.1.8", seconds=0.01)]
    assert talk.reported(LinkClosed) == [LinkClosed(at=5.0, reason="io", detail="reset by peer")]


def test_lost_link_answers_every_question() -> None:
    """With an error that says what was asked, of whom, and why there is no answer."""
    talk = Talk(AUTO)
    subscribe = talk.core.subscribe(talk.settings("1"), 0.0)
    send = talk.send()
    farewell = talk.core.disconnect()
    talk.cut()
    assert send is not None
    for request in (subscribe, farewell):
        assert type(request.error) is ConnectionFailedError
        assert request.error.retriable
    assert isinstance(send.error, SendUnconfirmedError)
    assert not send.error.retriable
    assert str(send.error) == (
        "the connection to broker:61613 was lost (reset by peer) before it answered SEND queue://x;"
        " so message key-1 is unconfirmed: queue://x may have it or not, and sent again it may be there twice"
    )


@pytest.mark.parametrize("mode", AcknowledgeMode)
def test_lost_link_leaves_nothing_to_do(mode: AcknowledgeMode) -> None:
    """No timer, no frame: what was unsettled is the broker's again; the consumer waits for the next link."""
    talk = Talk(mode)
    talk.subscribe(policy=at_most(5, initial_redelivery_delay=1.0), optimize=OptimizeAcknowledge())
    talk.comes("a", "b", "c")
    talk.receive()
    talk.take()
    talk.cut()
    talk.wrote()
    assert talk.core.next_timer() is None
    talk.core.handle_timer(99.0)
    assert talk.wrote() == []
    assert talk.core.is_open("1")
    assert talk.take() is None
    assert set(talk.ended()) <= {"a#1 acknowledged", "a#1 abandoned", "b#1 abandoned"}
    assert "b#1 abandoned" in talk.ended()


def test_lost_acknowledgements_are_counted() -> None:
    """What a batch owed when the link died was not sent (DESIGN.md section 2: honest)."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=100, optimize=OptimizeAcknowledge())
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    talk.cut()
    (event,) = talk.reported(AckDropped)
    assert (event.messages, event.reason, event.consumer) == (2, "stale_epoch", "consumer-1")
    assert talk.ended() == ["a#1 abandoned", "b#1 abandoned"]


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_acknowledgement_of_an_older_link_is_dropped_and_counted(mode: AcknowledgeMode) -> None:
    """Its ack id died with its link; the broker delivers that message again (classic.md 3.10)."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a")
    old = talk.held()
    talk.cut()
    talk.reopen()
    talk.comes("a", redelivered="true")
    new = talk.held()
    talk.wrote()
    talk.core.acknowledge(old, talk.now)
    assert talk.wrote() == []
    (event,) = talk.reported(AckDropped)
    assert (event.messages, event.reason) == (1, "stale_epoch")
    talk.core.acknowledge(new, talk.now)
    assert talk.wrote() == ["ACK a"]


def test_result_of_an_older_link_does_nothing() -> None:
    """A listener that outlives its link neither acknowledges nor redelivers."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b")
    old = talk.held()
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.core.consumed(old, talk.now)
    talk.core.failed(old, BROKEN, talk.now)
    assert talk.wrote() == []
    assert talk.core.next_timer() is None
    assert talk.receive() is None


def test_older_receipt_answers_nothing() -> None:
    """Receipt ids are not used again on the next link."""
    talk = Talk(AUTO)
    first = talk.core.disconnect()
    talk.cut()
    talk.reopen()
    second = talk.core.disconnect()
    assert first.receipt_id != second.receipt_id
    talk.core.receive([Frame("RECEIPT", {"receipt-id": first.receipt_id})], 0.0, 0.0)
    assert not second.done


def test_consumer_that_was_closing_can_be_opened_on_the_next_link() -> None:
    """What a transaction deferred is over with its link."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.core.close_consumer("1", talk.now)
    talk.cut()
    talk.reopen()
    assert not talk.core.is_open("1")
    talk.rollback()
    talk.subscribe()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"
    talk.commit()
    talk.answer()
    assert talk.core.is_open("1")


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
