"""When an ACK that the session owes is written: full, dry, old; and never later than that."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.batching import IDLE, PAGE, BatchRule, batch_rule
from jmsx.core.events import AckTrigger, MessagesAcknowledged
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DestinationKind, OptimizeAcknowledge
from tests.unit.core.harness import AUTO, BROKEN, DUPS_OK, Talk

TOPIC = DestinationKind.TOPIC
BATCHED = OptimizeAcknowledge(timeout=0.0)


def acks(talk: Talk) -> list[tuple[int, AckTrigger]]:
    """Size and cause of each ACK so far."""
    return [(event.messages, event.trigger) for event in talk.reported(MessagesAcknowledged)]


def names(number: int) -> list[str]:
    """So many names of messages."""
    return [f"m{n}" for n in range(1, number + 1)]


@pytest.mark.parametrize(
    ("mode", "fields", "size"),
    [
        pytest.param(AUTO, {"prefetch": 10, "optimize": BATCHED}, 7, id="optimized, 0.65 of 10"),
        pytest.param(AUTO, {"prefetch": 1, "optimize": BATCHED}, 1, id="optimized, prefetch 1"),
        pytest.param(AUTO, {"prefetch": 100, "optimize": BATCHED}, 65, id="optimized, 100"),
        pytest.param(AUTO, {"prefetch": 153, "optimize": BATCHED}, 100, id="optimized, 153"),
        pytest.param(AUTO, {"prefetch": 307, "optimize": BATCHED}, 100, id="optimized, 307"),
        pytest.param(AUTO, {"prefetch": 1000, "optimize": BATCHED}, 100, id="never above half"),
        pytest.param(DUPS_OK, {"prefetch": 10, "kind": TOPIC}, 5, id="DUPS_OK topic, half"),
        pytest.param(DUPS_OK, {"prefetch": 1, "kind": TOPIC}, 1, id="DUPS_OK topic, prefetch 1"),
        pytest.param(DUPS_OK, {"prefetch": 5, "kind": TOPIC}, 3, id="DUPS_OK topic, half of 5"),
        pytest.param(DUPS_OK, {"prefetch": 32767, "kind": TOPIC}, 200, id="DUPS_OK topic, a page"),
        pytest.param(
            DUPS_OK, {"prefetch": 100, "kind": DestinationKind.DURABLE}, 50, id="DUPS_OK durable"
        ),
    ],
)
def test_size_of_a_batch(mode: AcknowledgeMode, fields: dict[str, Any], size: int) -> None:
    """
    0.65 of the prefetch, and half a page at most (BROKER.md C10), so that the next one comes before the buffer is dry;
    for DUPS_OK on a topic, which is not paged, half of the prefetch, and a page at most. Rounded up.
    """
    assert batch_rule(Talk(mode).settings(**fields)).size == size


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_auto_batches_for_five_milliseconds(mode: AcknowledgeMode) -> None:
    """Messages that finish within 5 ms may share an ACK; DUPS_OK on a queue is AUTO."""
    rule = BatchRule(PAGE, idle=0.0, interval=0.005, trigger=AckTrigger.EACH)
    assert batch_rule(Talk(mode).settings()) == rule
    assert 0.002 <= IDLE <= 0.01


# -- AUTO with a listener ---------------------------------------------------------------------------------------------


def test_auto_listener_on_a_dry_buffer_owes_at_once() -> None:
    """The last message is acknowledged by a timer that is due already."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    assert talk.listen() == "a#1"
    assert talk.core.next_timer() == 0.0
    talk.timer()
    assert talk.wrote() == ["ACK a"]
    assert acks(talk) == [(1, AckTrigger.EACH)]
    assert talk.core.next_timer() is None


def test_auto_listener_shares_an_ack_for_five_milliseconds() -> None:
    """With more to do, at 5 ms after the first, not a moment later, one ACK covers what is done."""
    talk = Talk(AUTO, now=10.0)
    talk.subscribe()
    talk.comes("a", "b", "c", "d")
    talk.listen()
    talk.now = 10.003
    talk.listen()
    assert talk.wrote() == []
    assert talk.timer() == pytest.approx(10.005)
    assert talk.wrote() == ["ACK b"]
    talk.now = 10.02
    talk.listen()
    assert talk.timer() == pytest.approx(10.025)
    assert talk.wrote() == ["ACK c"]
    assert acks(talk) == [(2, AckTrigger.EACH), (1, AckTrigger.EACH)]


def test_auto_listener_shares_an_ack_for_a_page_at_most() -> None:
    """However quick the listener is, 200 messages are the most that one ACK covers."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=1000)
    talk.comes(*names(450))
    for _ in range(401):
        talk.listen()
    assert talk.wrote() == ["ACK m200", "ACK m400"]
    assert acks(talk) == [(200, AckTrigger.EACH)] * 2


def test_auto_receive_writes_its_ack_before_it_returns() -> None:
    """Together with what listeners of this consumer left."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    assert talk.wrote() == ["ACK a"]
    talk.listen()
    talk.receive()
    assert talk.wrote() == ["ACK c"]
    assert acks(talk) == [(1, AckTrigger.EACH), (2, AckTrigger.EACH)]


def test_failing_listener_leaves_no_ack_behind() -> None:
    """What was done before is acknowledged before the failed one is held back."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.listen()
    talk.listen(BROKEN)
    assert talk.wrote() == ["ACK a"]


def test_auto_listener_is_not_dry_while_bytes_are_unread() -> None:
    """Then its ACK may be shared by what comes, and still goes out at 5 ms."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    talk.listen()
    talk.core.handle_timer(0.004, unread=True)
    assert talk.wrote() == []
    talk.core.handle_timer(0.005, unread=True)
    assert talk.wrote() == ["ACK a"]


# -- optimize_acknowledge ---------------------------------------------------------------------------------------------


def test_optimized_is_not_idle_while_bytes_are_unread() -> None:
    """However long they lie there: what comes may fill the batch."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=10, optimize=BATCHED)
    talk.comes("a")
    talk.receive()
    talk.core.handle_timer(9.0, unread=True)
    assert talk.wrote() == []
    assert talk.core.next_timer() == pytest.approx(IDLE)
    talk.core.handle_timer(9.0)
    assert talk.wrote() == ["ACK a"]
    assert acks(talk) == [(1, AckTrigger.IDLE)]


def test_optimized_acknowledges_at_the_seventh_of_ten() -> None:
    """One cumulative ACK, and nothing for the first six (`OptimizedAckTest.testReceivedMessageStillInflight`)."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=10, optimize=BATCHED)
    talk.comes(*names(10))
    for _ in range(6):
        talk.receive()
    assert talk.wrote() == []
    talk.receive()
    assert talk.wrote() == ["ACK m7"]
    assert acks(talk) == [(7, AckTrigger.THRESHOLD)]
    talk.receive()
    talk.receive()
    assert talk.wrote() == []


def test_optimized_does_not_look_at_the_clock_without_timeout() -> None:
    """400 ms between receives change nothing with timeout 0 (`testVerySlowReceivedMessageStillInflight`)."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=10, optimize=BATCHED)
    talk.comes(*names(10))
    for n in range(1, 7):
        talk.now = n * 0.4
        talk.receive()
    assert talk.wrote() == []
    assert talk.core.next_timer() is None


def test_optimized_timeout_is_looked_at_when_a_message_is_consumed() -> None:
    """Only then: there is no timer for it (`ActiveMQMessageConsumer.java:992-1016`); it counts from the last ACK."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=100, optimize=OptimizeAcknowledge(timeout=0.3))
    talk.comes(*names(20))
    talk.now = 0.299
    talk.receive()
    assert talk.core.next_timer() is None
    assert talk.wrote() == []
    talk.now = 0.3
    talk.receive()
    assert talk.wrote() == ["ACK m2"]
    talk.now = 0.599
    talk.receive()
    assert talk.wrote() == []
    talk.now = 0.6
    talk.receive()
    assert talk.wrote() == ["ACK m4"]
    assert acks(talk) == [(2, AckTrigger.IDLE)] * 2


def test_optimized_interval_has_a_timer() -> None:
    """`optimizedAckScheduledAckInterval`: the tail goes out by itself."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=10, optimize=OptimizeAcknowledge(timeout=0.0, scheduled_interval=10.0))
    talk.comes(*names(9))
    talk.now = 2.0
    talk.receive()
    talk.receive()
    assert talk.timer() <= 12.0
    assert talk.wrote() == ["ACK m2"]
    assert acks(talk) == [(2, AckTrigger.IDLE)]


def test_optimized_flushes_five_milliseconds_after_it_ran_dry() -> None:
    """Else the broker's page stall would be for ever (BROKER.md C10); new messages stop the wait."""
    talk = Talk(AUTO, now=1.0)
    talk.subscribe(prefetch=1000, optimize=BATCHED)
    talk.comes("a", "b")
    talk.drain()
    assert talk.core.next_timer() == pytest.approx(1.005)
    talk.now = 1.004
    talk.comes("c", "d")
    assert talk.core.next_timer() is None
    talk.drain()
    assert talk.timer() == pytest.approx(1.009)
    assert talk.wrote() == ["ACK d"]
    assert acks(talk) == [(4, AckTrigger.IDLE)]


@pytest.mark.parametrize("prefetch", [1, 10, 307, 1000])
def test_optimized_never_owes_more_than_a_page(prefetch: int) -> None:
    """With a backlog of a page and no timer a longer batch stalls (BROKER.md C11)."""
    talk = Talk(AUTO)
    talk.subscribe(prefetch=prefetch, optimize=BATCHED)
    talk.comes(*names(200))
    owed = 0
    for _ in range(200):
        talk.receive()
        owed = 0 if talk.wrote() else owed + 1
        assert owed < 200


def test_optimized_flushes_on_close() -> None:
    """Before UNSUBSCRIBE, after which an ACK is ignored (BROKER.md C23)."""
    talk = Talk(AUTO)
    talk.subscribe(optimize=BATCHED)
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK b", "UNSUBSCRIBE 1 ?"]
    assert acks(talk) == [(2, AckTrigger.CLOSE)]


# -- DUPS_OK ----------------------------------------------------------------------------------------------------------


def test_dups_ok_on_a_queue_is_auto() -> None:
    """Source: `ActiveMQMessageConsumer.java:941-1063`."""
    talk = Talk(DUPS_OK)
    talk.subscribe()
    talk.comes("a", "b")
    talk.receive()
    assert talk.wrote() == ["ACK a"]


def test_dups_ok_on_a_topic_batches_at_half_the_prefetch() -> None:
    """Source: `ActiveMQMessageConsumer.java:941-1063`; the rest goes out when the buffer is dry."""
    talk = Talk(DUPS_OK)
    talk.subscribe(kind=TOPIC, prefetch=4)
    talk.comes("a", "b", "c")
    talk.receive()
    assert talk.wrote() == []
    talk.receive()
    assert talk.wrote() == ["ACK b"]
    talk.receive()
    assert talk.wrote() == []
    assert talk.timer() == pytest.approx(0.005)
    assert talk.wrote() == ["ACK c"]
    assert acks(talk) == [(2, AckTrigger.THRESHOLD), (1, AckTrigger.IDLE)]


def test_dups_ok_flushes_on_close() -> None:
    """Source: `ActiveMQMessageConsumer.java:733-759,843-900`."""
    talk = Talk(DUPS_OK)
    talk.subscribe(kind=TOPIC)
    talk.comes("a", "b")
    talk.receive()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK a", "UNSUBSCRIBE 1 ?"]


# -- single ACKs ------------------------------------------------------------------------------------------------------


def test_single_acks_are_written_together() -> None:
    """Where each message has an ACK of its own, what is due goes out as one burst."""
    talk = Talk(AUTO)
    talk.subscribe(non_blocking_redelivery=True)
    talk.comes("a", "b", "c")
    talk.listen()
    talk.listen()
    talk.timer()
    assert talk.wrote() == ["ACK a", "ACK b"]
    assert talk.bursts[-1] == ["ACK a", "ACK b"]
    assert acks(talk) == [(1, AckTrigger.EACH)] * 2
