"""Keeping messages coming: when more is asked for, with which ACK, and that it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.batching import PAGE
from jmsx.core.policy import RedeliveryPolicy
from jmsx_classic.window import DOUBT, PATIENCE, WindowModel
from tests.unit.core.harness import (
    ASKS_FOR_ROOM,
    AUTO,
    BROKEN,
    CLASSIC,
    CLIENT,
    DISCARDED,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
)

if TYPE_CHECKING:
    from jmsx.core.modes import AcknowledgeMode
    from jmsx.core.values import Failure


def opened(name: str, consumer: str = "1") -> list[str]:
    """What opens the window by all up to `name`: an ACK in a transaction that is aborted at once."""
    hidden = f"window-{consumer}"
    return [f"BEGIN in {hidden}", f"ACK {name} in {hidden}", f"ABORT in {hidden}"]


def names(number: int) -> list[str]:
    """So many names of messages."""
    return [f"m{n}" for n in range(1, number + 1)]


# -- the model --------------------------------------------------------------------------------------------------------


def test_nothing_unsettled_is_nothing_to_ask_with() -> None:
    """Without a message in our hands there is no ACK to send."""
    window = WindowModel(10, individual=False)
    assert window.patience(0) is None


@pytest.mark.parametrize(
    ("prefetch", "unsettled", "patience"),
    [
        pytest.param(1, 1, 0.005, id="prefetch 1: full with the first"),
        pytest.param(10, 4, PATIENCE, id="below half"),
        pytest.param(10, 5, 0.005, id="half, as the Java client"),
        pytest.param(1000, 99, PATIENCE, id="below half a page"),
        pytest.param(1000, 100, 0.005, id="half a page"),
    ],
)
def test_patience_by_how_much_is_held(prefetch: int, unsettled: int, patience: float) -> None:
    """A consumer that holds much is likely the reason why nothing comes, and asks soon."""
    assert WindowModel(prefetch, individual=False).patience(unsettled) == patience


def test_full_window_needs_room_an_open_one_a_wake_up() -> None:
    """While there is room an ACK of one message wakes the queue (BROKER.md C10)."""
    window = WindowModel(10, individual=False)
    assert window.ask(5) == 1
    window = WindowModel(10, individual=False)
    assert (window.is_full(9), window.is_full(10)) == (False, True)
    assert window.ask(10) == 10


def test_one_ask_covers_a_page_at_most() -> None:
    """A wake-up brings no more than a page, so more room would be of no use."""
    assert WindowModel(1000, individual=False).ask(1000) == PAGE


def test_in_doubt_it_asks_once_more_as_if_full() -> None:
    """After that, with the same messages, never again."""
    window = WindowModel(10, individual=False)
    assert window.ask(5) == 1
    window.widened(1)
    assert window.patience(5) == DOUBT
    assert window.ask(5) == 5
    window.widened(5)
    assert window.patience(5) is None
    assert window.patience(6) == PATIENCE


def test_window_widens_and_plain_acks_narrow_it() -> None:
    """Source: BROKER.md C34."""
    window = WindowModel(10, individual=False)
    window.widened(5)
    assert (window.is_full(14), window.is_full(15)) == (False, True)
    window.settled(3)
    assert (window.is_full(11), window.is_full(12)) == (False, True)
    window.settled(99)
    assert (window.is_full(9), window.is_full(10)) == (False, True)
    single = WindowModel(10, individual=True)
    single.widened(5)
    single.settled(3)
    assert (single.is_full(11), single.is_full(12)) == (False, True)
    single.held(0)
    assert single.is_full(10)


def test_settling_makes_it_ask_anew() -> None:
    """What was asked for with messages that are gone says nothing about the rest."""
    window = WindowModel(10, individual=False)
    window.ask(10)
    assert window.patience(10) is None
    window.settled(4)
    assert window.patience(10) is not None
    window.ask(10)
    window.reset()
    assert window.patience(1) == PATIENCE


# -- in a session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED])
def test_prefetch_one_delivers_on(mode: AcknowledgeMode) -> None:
    """Upstream rows 60 and 79: the second message comes although the first is not settled."""
    talk = Talk(mode, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    assert talk.receive() == "a#1"
    assert talk.core.next_timer() is None
    assert talk.receive() is None
    assert talk.timer() == pytest.approx(0.005)
    assert talk.wrote() == opened("a")
    assert talk.bursts[-1] == opened("a")
    talk.comes("b")
    assert talk.receive() == "b#1"
    assert talk.receive() is None
    talk.timer()
    assert talk.wrote() == opened("a")


def test_hold_stays_as_wide_when_all_that_it_covers_is_given_back() -> None:
    """Asked for more after recover(), it covers them all again, and not a single one for a mere wake-up."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    for name in "abc":
        talk.comes(name)
        talk.receive()
        talk.receive()
        talk.timer()
    talk.wrote()
    talk.core.recover(talk.now)
    assert talk.drain() == ["a#2", "b#2", "c#2"]
    talk.timer()
    covered = [frame.split()[1] for frame in talk.wrote() if frame.startswith("ACK")]
    assert covered == ["a", "b", "c"]
    assert not talk.core.is_window_full("1")


def test_shut_is_a_window_that_is_in_the_applications_hands() -> None:
    """Until it was opened; who polls has to wait for that."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    assert not talk.core.is_window_full("1")
    talk.receive()
    assert talk.core.is_window_full("1")
    assert talk.receive() is None
    talk.timer()
    assert not talk.core.is_window_full("1")


def test_nobody_waits_nothing_is_asked() -> None:
    """An application that works on what it has is left alone, and so is one with messages in the buffer."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.receive()
    assert talk.core.next_timer() is None
    talk.comes("b")
    talk.core.want(("1",), talk.now)
    assert talk.core.next_timer() is None


def test_waiting_begins_when_the_buffer_is_dry_and_the_application_asks() -> None:
    """Whichever is later."""
    talk = Talk(CLIENT, now=1.0, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.receive()
    talk.now = 3.0
    assert talk.receive() is None
    assert talk.core.next_timer() == pytest.approx(3.005)
    talk.now = 3.004
    assert talk.receive() is None
    assert talk.core.next_timer() == pytest.approx(3.005)


def test_a_window_is_not_opened_while_bytes_are_unread() -> None:
    """They may be what the application waits for."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.receive()
    assert talk.receive() is None
    talk.core.handle_timer(9.0, unread=True)
    assert talk.wrote() == []
    assert talk.core.next_timer() == pytest.approx(0.005)
    talk.core.handle_timer(9.0)
    assert talk.wrote() == opened("a")


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED])
def test_a_page_of_backlog_does_not_stall_it(mode: AcknowledgeMode) -> None:
    """Where the Java client stops after 200 of prefetch 1000 an ACK of one message wakes the queue, at 5 ms."""
    talk = Talk(mode, dialect=CLASSIC)
    talk.subscribe(prefetch=1000)
    talk.comes(*names(200))
    assert len(talk.drain()) == 200
    assert talk.timer() == pytest.approx(0.005)
    assert talk.wrote() == opened("m1")


def test_asking_in_vain_ends() -> None:
    """Once as a wake-up, once in doubt, and then the session is quiet."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=10)
    talk.comes("a", "b", "c")
    talk.drain()
    assert talk.timer() == pytest.approx(0.1)
    assert talk.wrote() == opened("a")
    assert talk.timer() == pytest.approx(1.1)
    assert talk.wrote() == opened("c")
    assert talk.core.next_timer() is None


def test_acknowledge_ends_the_asking() -> None:
    """A plain ACK is a wake-up and makes room."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    delivery = talk.held()
    assert talk.receive() is None
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK a"]
    assert talk.core.next_timer() is None


def test_asking_does_not_disturb_the_transaction_of_the_session() -> None:
    """The hidden transaction holds the only ACK on the wire (BROKER.md C30)."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.send()
    talk.comes("a")
    talk.receive()
    talk.receive()
    talk.timer()
    talk.commit()
    assert talk.wrote() == [
        "BEGIN in jmsx",
        "SEND queue:x 'out' in jmsx",
        *opened("a"),
        "ACK a in jmsx",
        "COMMIT in jmsx ?",
    ]


def test_each_consumer_asks_for_itself() -> None:
    """And in a transaction of its own name."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe("1", prefetch=1)
    talk.subscribe("2", prefetch=1)
    talk.comes("a", to="1")
    talk.comes("x", to="2")
    assert talk.drain("1", "2") == ["a#1", "x#1"]
    talk.timer()
    assert talk.wrote() == [*opened("a", "1"), *opened("x", "2")]


def test_auto_never_asks() -> None:
    """Its own ACKs are wake-ups enough."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    assert talk.drain() == ["a#1"]
    assert talk.core.next_timer() is None


# -- single ACKs: holds -----------------------------------------------------------------------------------------------


def test_individual_holds_messages_in_an_open_transaction() -> None:
    """An aborted ACK of a single message makes no room, an open one does (BROKER.md C34)."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe(prefetch=2)
    talk.comes("a", "b")
    talk.drain()
    talk.timer()
    assert talk.wrote() == ["BEGIN in hold-1", "ACK a in hold-1", "ACK b in hold-1"]


def test_individual_with_room_lets_go_at_once() -> None:
    """A mere wake-up holds nothing."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe(prefetch=10)
    talk.comes("a", "b")
    talk.drain()
    talk.timer()
    assert talk.wrote() == ["BEGIN in window-1", "ACK b in window-1", "ABORT in window-1"]


def test_held_message_is_released_before_it_is_settled() -> None:
    """Its ack id is not valid while it is in a transaction."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe(prefetch=2)
    talk.comes("a", "b")
    first = talk.held()
    talk.drain()
    talk.timer()
    talk.wrote()
    talk.core.acknowledge(first, talk.now)
    assert talk.wrote() == ["ABORT in hold-1", "ACK a"]


def test_held_message_is_released_before_the_commit_settles_it() -> None:
    """The same with the ACK in the session's transaction."""
    talk = Talk(TRANSACTED, single=True, dialect=CLASSIC)
    talk.subscribe(prefetch=2)
    talk.comes("a", "b")
    talk.drain()
    talk.timer()
    talk.wrote()
    talk.commit()
    assert talk.wrote() == [
        "ABORT in hold-1",
        "BEGIN in jmsx",
        "ACK a in jmsx",
        "ACK b in jmsx",
        "COMMIT in jmsx ?",
    ]


def test_held_message_is_released_before_its_single_ack_commits() -> None:
    """The commit that needs no transaction."""
    talk = Talk(TRANSACTED, single=True, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.drain()
    talk.timer()
    talk.wrote()
    talk.commit()
    assert talk.wrote() == ["ABORT in hold-1", "ACK a ?"]


@pytest.mark.parametrize(
    ("failure", "begins", "settles"),
    [(REJECTED, ASKS_FOR_ROOM, ["NACK a"]), (DISCARDED, [], ["ACK a"])],
    ids=["reject", "discard"],
)
def test_held_message_is_released_before_it_leaves(
    failure: Failure, begins: list[str], settles: list[str]
) -> None:
    """NACK is never in a transaction (BROKER.md C29), and an ACK of a held message is unknown."""
    talk = Talk(TRANSACTED, single=True, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.drain()
    talk.timer()
    talk.wrote()
    talk.rollback(failure)
    wrote = talk.wrote()
    if begins:
        talk.answer()
        wrote += talk.wrote()
    assert wrote == ["ABORT in hold-1", *begins, *settles]


def test_messages_that_wait_for_redelivery_are_held_too() -> None:
    """Else a window full of them would let nothing pass, which non-blocking redelivery promises."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe(prefetch=2, non_blocking_redelivery=True, policy=RedeliveryPolicy())
    talk.comes("a", "b")
    talk.listen(BROKEN)
    talk.listen(BROKEN)
    assert talk.listen() is None
    assert talk.timer() == pytest.approx(0.005)
    assert talk.wrote() == ["BEGIN in hold-1", "ACK a in hold-1", "ACK b in hold-1"]
    talk.comes("c")
    assert talk.receive() == "c#1"
    talk.wait_until(1.0)
    assert talk.wrote() == ["ABORT in hold-1", "ACK c"]
    assert talk.drain() == ["a#2", "b#2"]
    assert talk.wrote() == ["ACK a", "ACK b"]


def test_window_that_was_never_opened_counts_nothing() -> None:
    """There is nothing that ACKs could narrow, so nobody tells it of each one; afterwards all are counted."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=4)
    window = talk.core._consumers.find("1").window
    talk.comes("a", "b")
    talk.core.acknowledge(talk.held(), talk.now)
    assert not window.counting
    talk.comes("c", "d", "e")
    held = [talk.held() for _ in range(4)]
    assert talk.receive() is None
    talk.timer()
    assert window.counting
    talk.core.acknowledge(held[-1], talk.now)
    assert not window.counting
    assert not window.full(3)
    assert window.full(4)
