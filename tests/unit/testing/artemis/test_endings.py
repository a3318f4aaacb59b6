"""What the end of a subscription or a connection does to messages in flight (jmsx_artemis/BROKER.md A37 to A45)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsx.testing import FakeBroker
from jmsx.testing.profiles import ArtemisProfile
from tests.unit.testing.artemis.talk import INDIVIDUAL, UNLIMITED, ArtemisTalk, left


def unsubscribe(client: ArtemisTalk) -> None:
    """End the subscription."""
    client.ask("UNSUBSCRIBE", {"id": "s"})


def disconnect(client: ArtemisTalk) -> None:
    """End the connection."""
    client.ask("DISCONNECT")


def error(client: ArtemisTalk) -> None:
    """Make a mistake."""
    client.ask("ACK", {"id": "1,1"})


def die(client: ArtemisTalk) -> None:
    """Let the socket die."""
    client.die()


End = Callable[[ArtemisTalk], None]

#: How it ends, and what a, b and c are then.
ENDINGS = [
    (unsubscribe, ["a", "b", "c"]),
    (disconnect, ["a R", "b", "c"]),
    (error, ["a R", "b", "c"]),
    (die, ["a R", "b R", "c R"]),
]


def holding(broker: FakeBroker, **headers: str) -> ArtemisTalk:
    """A client that was given a, b and c, none of them settled."""
    client = ArtemisTalk(broker)
    client.put("q", "a", "b", "c")
    assert client.subscribe("q", **{**UNLIMITED, **headers}) == ["a", "b", "c"]
    return client


@pytest.mark.parametrize(("end", "then"), ENDINGS)
def test_flags(broker: FakeBroker, end: End, then: list[str]) -> None:
    """Which of them counts as an attempt."""
    end(holding(broker))
    assert ArtemisTalk(broker).subscribe("q") == then


def test_oldest_of_what_is_left(broker: FakeBroker) -> None:
    """Acknowledged messages are not in the way, and each subscription has an oldest."""
    client = holding(broker, **INDIVIDUAL)
    client.put("p", "d", "e")
    client.subscribe("p", "other")
    client.ack("a")
    disconnect(client)
    assert (left(broker, "q"), left(broker, "p")) == (["b R", "c"], ["d R", "e"])


def test_back_to_the_old_place(broker: FakeBroker) -> None:
    """Before what came later, behind what is more urgent."""
    client = holding(broker, **INDIVIDUAL)
    client.ack("b")
    client.put("q", "d")
    client.put("q", "urgent", priority="9")
    unsubscribe(client)
    assert left(broker, "q") == ["urgent", "a", "c", "d"]


def test_back_behind_what_came_before(broker: FakeBroker) -> None:
    """Which nobody wanted."""
    client = ArtemisTalk(broker)
    for number in "12345":
        client.put("q", number, even=str(int(number) % 2 == 0).lower())
    assert client.subscribe("q", selector="even = 'true'") == ["2", "4"]
    unsubscribe(client)
    assert left(broker, "q") == ["1", "2", "3", "4", "5"]


# -- attempts -----------------------------------------------------------------------------------


def limited(attempts: int, dead_letter_address: str | None = "DLQ") -> FakeBroker:
    """A broker where a message dies after so many attempts."""
    return FakeBroker(
        ArtemisProfile(max_delivery_attempts=attempts, dead_letter_address=dead_letter_address)
    )


@pytest.mark.parametrize("attempts", [1, 2, 10])
def test_dead_after_so_many(attempts: int) -> None:
    """The oldest; then the next begins to count."""
    broker = limited(attempts)
    ArtemisTalk(broker).put("q", "a", "b")
    for _ in range(attempts):
        client = ArtemisTalk(broker)
        assert len(client.subscribe("q")) == 2
        disconnect(client)
    assert [message.body for message in broker.queue("q").browse()] == [b"b"]
    assert [message.body for message in broker.queue("DLQ").browse()] == [b"a"]


def test_default_is_ten(broker: FakeBroker) -> None:
    """As `artemis create` leaves it."""
    ArtemisTalk(broker).put("q", "a")
    for _ in range(10):
        assert left(broker, "DLQ") == []
        client = ArtemisTalk(broker)
        client.subscribe("q")
        disconnect(client)
    assert left(broker, "DLQ") == ["a"]


@pytest.mark.parametrize("attempts", [0, -1])
def test_for_ever(attempts: int) -> None:
    """Where the number is not positive."""
    broker = limited(attempts)
    ArtemisTalk(broker).put("q", "a")
    for _ in range(30):
        client = ArtemisTalk(broker)
        client.subscribe("q")
        disconnect(client)
    assert left(broker, "q") == ["a R"]


@pytest.mark.parametrize(
    ("end", "survives"), [(unsubscribe, True), (die, False), (disconnect, False)]
)
def test_unsubscribe_is_no_attempt(end: End, *, survives: bool) -> None:
    """Even where one attempt is all there is."""
    broker = limited(1)
    client = ArtemisTalk(broker)
    client.put("q", "a")
    client.subscribe("q")
    end(client)
    assert left(broker, "q") == (["a"] if survives else [])


def test_dead_letter() -> None:
    """A new id, the story of its death, all its headers, no flag, no end of its time."""
    broker = limited(1)
    client = ArtemisTalk(broker)
    client.put("q", "a", foo="1", expires="9999999999999", _AMQ_DUPL_ID="d", type="T")
    client.subscribe("q")
    number = client.message_id("a").partition(",")[2]
    disconnect(client)
    reader = ArtemisTalk(broker)
    assert reader.subscribe("DLQ") == ["a"]
    headers = reader.messages[0].headers
    told = {name: value for name, value in headers.items() if name.startswith("_AMQ")}
    assert told == {
        "_AMQ_ORIG_QUEUE": "q", "_AMQ_ORIG_ADDRESS": "q", "_AMQ_ORIG_MESSAGE_ID": number,
        "_AMQ_ORIG_ROUTING_TYPE": "1", "_AMQ_DUPL_ID": "d",
    }  # fmt: skip
    assert headers["message-id"].partition(",")[2] != number
    assert (headers["foo"], headers["type"], headers["expires"]) == ("1", "T", "0")


def test_without_a_dead_letter_address() -> None:
    """The message is gone."""
    broker = limited(1, None)
    client = ArtemisTalk(broker)
    client.put("q", "a")
    client.subscribe("q")
    disconnect(client)
    assert left(broker, "q") == left(broker, "DLQ") == []
