"""One link after the other: what was asked or held on an older one is answered, counted, and never sent."""

from __future__ import annotations

import pytest

from jmsx.core.events import (
    AckDropped,
    LinkClosed,
    LinkOpened,
)
from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import OptimizeAcknowledge
from jmsx.errors import (
    ConnectionFailedError,
    SendUnconfirmedError,
)
from tests.unit.core.harness import AUTO, BROKEN, CLIENT, INDIVIDUAL, TRANSACTED, Talk, at_most


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
    """What a batch owed when the link died was not sent."""
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
    """Its ack id died with its link; the broker delivers that message again."""
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
