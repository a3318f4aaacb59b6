"""Windows in bytes (BROKER.md A16 to A18): how large, how they fill, and how a session that holds more gets more."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import MessageFrame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DestinationKind, OptimizeAcknowledge, StompAck
from jmsx_artemis import DIALECT
from jmsx_artemis.window import LARGEST, SMALL, UNLIMITED, ByteWindow
from tests.unit.core.harness import AUTO, CLIENT, INDIVIDUAL, TRANSACTED, Talk


def window(mode: AcknowledgeMode, **fields: Any) -> ByteWindow:
    """The window of a new consumer."""
    return ByteWindow(Talk(mode, dialect=DIALECT).settings(**fields))


def asked(talk: Talk) -> list[str]:
    """The ids of the subscriptions that were asked for since the last look."""
    return [frame.split()[1] for frame in talk.wrote() if frame.startswith("SUBSCRIBE")]


@pytest.mark.parametrize(
    ("prefetch", "size"), [(1, 1), (2, SMALL + 1), (10, 9 * SMALL + 1), (1000, 999 * SMALL + 1)]
)
def test_size_follows_the_prefetch(prefetch: int, size: int) -> None:
    """One byte is one message: the broker sends as long as one is left, so that prefetch 1 is exact."""
    headers = window(CLIENT, prefetch=prefetch).subscribe_headers()
    assert headers == {"consumer-window-size": str(size)}


@pytest.mark.parametrize(
    ("mode", "kind", "limited"),
    [
        (CLIENT, DestinationKind.QUEUE, True),
        (TRANSACTED, DestinationKind.TOPIC, False),
        (CLIENT, DestinationKind.DURABLE, False),
        (INDIVIDUAL, DestinationKind.TOPIC, False),
        (AUTO, DestinationKind.TOPIC, True),
    ],
)
def test_a_topic_has_no_limit_where_a_session_may_hold_more(
    mode: AcknowledgeMode, kind: DestinationKind, *, limited: bool
) -> None:
    """A further subscription would get copies, so that such a session could never get more."""
    made = window(mode, kind=kind)
    assert made.limited == limited
    assert (made.subscribe_headers()["consumer-window-size"] == str(UNLIMITED)) != limited


def test_a_batch_ends_before_its_bytes_fill_the_window() -> None:
    """Large messages: the ACK is due by bytes long before it is by number, or nothing would come any more."""
    talk = Talk(AUTO, dialect=DIALECT)
    talk.subscribe(prefetch=100, optimize=OptimizeAcknowledge(timeout=0.0))
    # a message is three times its name here; two fill 65 % of a window for 100 small ones
    body = "x" * 6_000
    talk.comes(f"a{body}", f"b{body}", f"c{body}")
    talk.receive()
    assert talk.wrote() == []
    talk.receive()
    assert [frame[:5] for frame in talk.wrote()] == ["ACK b"]


def test_a_full_window_is_followed_by_another_subscription() -> None:
    """Nothing but an ACK, which is not due, or more credits would bring the next message: asked for at once."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    assert talk.drain() == ["a#1"]
    assert talk.core.is_window_full("1")
    talk.timer()
    assert not talk.core.is_window_full("1")
    assert talk.now == 0.0
    assert asked(talk) == ["1+1"]
    talk.comes("b", to="1+1")
    assert talk.drain() == ["b#1"]
    talk.timer()
    assert asked(talk) == ["1+2"]


def test_all_subscriptions_are_settled_and_closed_together() -> None:
    """Each with a cumulative ACK of its own, and the consumer's own last, whose receipt says that all is done."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.drain()
    talk.timer()
    talk.comes("b", "c", to="1+1")
    talk.drain()
    talk.wrote()
    talk.commit()
    assert talk.wrote() == ["ACK a", "ACK c ?"]
    talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1+1", "UNSUBSCRIBE 1 ?"]


def test_with_credits_left_nothing_is_asked_for() -> None:
    """The queue is empty then."""
    talk = Talk(CLIENT, dialect=DIALECT)
    talk.subscribe(prefetch=10)
    talk.comes("a", "b")
    talk.drain()
    assert talk.core.next_timer() is None


@pytest.mark.parametrize("single", [False, True])
def test_an_ack_gives_back_what_it_covers(*, single: bool) -> None:
    """A cumulative one all that is older, a single one itself; then there is room, and nothing is asked for."""
    ack = StompAck.CLIENT_INDIVIDUAL if single else StompAck.CLIENT
    talk = Talk(CLIENT, dialect=DIALECT)
    settings = talk.settings(prefetch=2, stomp_ack=ack)
    made = ByteWindow(settings)
    talk.subscribe(prefetch=2)
    talk.comes("a" * 90, "b" * 90)
    first, second = talk.held(), talk.held()
    made.arrived([first, second])
    assert made.patience(2) == 0.0
    made.settled([second])
    if single:
        assert made.patience(1) is None  # about half of it is free
        made.arrived([second])
        assert made.patience(2) == 0.0
    else:
        assert made.patience(0) is None
        made.arrived([first])
        assert made.patience(1) is None


@pytest.mark.parametrize(
    ("mode", "ack", "counts"),
    [
        (AUTO, StompAck.CLIENT, False),
        (AUTO, StompAck.CLIENT_INDIVIDUAL, True),  # messages that failed rest
        (CLIENT, StompAck.CLIENT, True),
        (TRANSACTED, StompAck.CLIENT, True),
    ],
)
def test_credits_are_counted_where_a_session_may_hold_them(
    mode: AcknowledgeMode, ack: StompAck, *, counts: bool
) -> None:
    """What acknowledges each message before it waits for more never looks how many are left."""
    assert window(mode, stomp_ack=ack).counting == counts


def large(size: int, count: int = 1, to: str = "1") -> list[Delivery]:
    """Messages with bodies of so many bytes, by one subscription."""
    head = {"message-id": "1,1", "ack": "1", "subscription": to}
    frame = MessageFrame.of(head, b"x" * size)
    return [Delivery.of(frame, number, "1", epoch=1, now=0.0, wall=0.0) for number in range(count)]


def opened(made: ByteWindow, held: list[Delivery]) -> int:
    """The bytes of the further subscription that a window asks for which is full of what is held."""
    made.arrived(held)
    assert made.full(len(held))
    (subscribe,) = made.open(held)
    return int(subscribe.headers["consumer-window-size"])


def width(made: ByteWindow) -> int:
    """The bytes of a first subscription."""
    return int(made.subscribe_headers()["consumer-window-size"])


def test_a_further_window_of_large_messages_is_no_larger_than_the_broker_reads() -> None:
    """A thousand messages of 5 MB are 5 GB, and the broker refuses what is no Java int with the link's end."""
    assert opened(window(CLIENT, prefetch=1000), large(5_000_000, 1000)) == LARGEST


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_further_window_has_room_for_as_much_as_is_held(count: int) -> None:
    """And not for a thousand messages of that size: who holds two of 60 MB has no room for all that wait behind."""
    size = 6_000_000
    wide = opened(window(TRANSACTED, prefetch=1000), large(size, count))
    assert (count - 1) * size <= wide < count * size


def test_it_is_no_smaller_than_the_first_one() -> None:
    """What is held may have been large, and what comes need not be."""
    assert opened(window(TRANSACTED, prefetch=1000), large(600_000)) == 999 * SMALL + 1


def test_a_further_subscription_that_is_refused_is_not_needed_on_the_next_link() -> None:
    """A queue that has as many consumers as it may refuses it, with the link, as often as it comes (BROKER.md A81)."""
    made = window(TRANSACTED, prefetch=1000)
    held = large(10_000, 51)
    further = opened(made, held)
    made.refused()
    again = made.again()
    assert width(again) > width(made) + further
    again.arrived(large(10_000, 400))
    assert not again.full(400)
    assert width(again.again()) == width(again)  # or it would be refused there


def test_one_that_brings_something_is_asked_for_again() -> None:
    """Then the first window stays as it was, for others may read the queue, too."""
    made = window(TRANSACTED, prefetch=1000)
    opened(made, large(10_000, 51))
    made.arrived(large(10_000, to="1+1"))
    made.refused()  # another consumer's
    assert width(made.again()) == width(made)


def test_one_that_waits_for_messages_is_asked_for_again() -> None:
    """A link that was merely lost has refused nothing: the queue had no more messages."""
    made = window(TRANSACTED, prefetch=1000)
    opened(made, large(10_000, 51))
    assert width(made.again()) == width(made)


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ("AMQ339016 Error creating subscription 1+1", True),
        ("AMQ339011 Error sending message", False),  # the queue had no more messages
        ("", False),
    ],
)
def test_the_next_link_is_wider_behind_a_refusal(told: str, *, refused: bool) -> None:
    """The ERROR names no receipt, for none was asked for; the link after that goes on as it is."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe(prefetch=2)
    talk.comes("a" * 500)
    talk.drain()
    talk.timer()
    assert asked(talk) == ["1+1"]
    if told:
        talk.complain(told)
    widths = []
    for _ in range(2):
        talk.lose()
        subscribed = [one for one in talk.frames if one.command == "SUBSCRIBE"][-1]
        widths.append(int(subscribed.headers["consumer-window-size"]))
    first, second = widths
    assert (first > 8 * 500) == refused
    assert first == second


@pytest.mark.parametrize("kind", [DestinationKind.TOPIC, DestinationKind.QUEUE])
def test_the_next_link_begins_as_the_first_did(kind: DestinationKind) -> None:
    """Where nothing further was asked for."""
    made = window(TRANSACTED, kind=kind)
    made.refused()
    assert width(made.again()) == width(made)


def test_nor_is_the_first_one_of_a_huge_prefetch() -> None:
    """Ten million messages, as small as they may be, are more than a Java int of bytes."""
    headers = window(CLIENT, prefetch=10_000_000).subscribe_headers()
    assert headers == {"consumer-window-size": str(LARGEST)}
