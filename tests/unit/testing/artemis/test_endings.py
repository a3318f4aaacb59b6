"""What the end of a subscription or a connection does to messages in flight (jmsx_artemis/BROKER.md A37 to A45)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from jmsx.testing import FakeBroker
from jmsx.testing.manners import ARTEMIS, AddressSettings, ArtemisManners, Loss
from tests.unit.testing.artemis.talk import INDIVIDUAL, UNLIMITED, ArtemisTalk, left

OLDEST = replace(ARTEMIS, loss=Loss.OLDEST)


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

#: How it ends, on which broker, in which version; what a, b and c are then; whether the redelivery delay counts.
ENDINGS = [
    pytest.param(unsubscribe, ARTEMIS, "1.2", ["a", "b", "c"], False, id="unsubscribe"),
    pytest.param(disconnect, ARTEMIS, "1.2", ["a R", "b", "c"], True, id="disconnect"),
    pytest.param(disconnect, ARTEMIS, "1.1", ["a R", "b", "c"], True, id="disconnect-1.1"),
    pytest.param(error, ARTEMIS, "1.2", ["a R", "b", "c"], True, id="error"),
    pytest.param(die, ARTEMIS, "1.2", ["a R", "b R", "c R"], False, id="death"),
    pytest.param(die, OLDEST, "1.2", ["a R", "b", "c"], True, id="death-oldest"),
    pytest.param(die, OLDEST, "1.1", ["a R", "b R", "c R"], False, id="death-1.1"),
]


def holding(broker: FakeBroker, version: str = "1.2", **headers: str) -> ArtemisTalk:
    """A client that was given a, b and c, none of them settled."""
    client = ArtemisTalk(broker, version)
    client.put("q", "a", "b", "c")
    assert client.subscribe("q", **{**UNLIMITED, **headers}) == ["a", "b", "c"]
    return client


@pytest.mark.parametrize(("end", "manners", "version", "then", "waits"), ENDINGS)
def test_flags_and_delay(
    end: End, manners: ArtemisManners, version: str, then: list[str], *, waits: bool
) -> None:
    """Which of them counts as an attempt, and whether all wait for the redelivery delay."""
    broker = FakeBroker(replace(manners, settings=AddressSettings(redelivery_delay=3.0)))
    end(holding(broker, version))
    reader = ArtemisTalk(broker)
    assert reader.subscribe("q") == ([] if waits else then)
    broker.handle_timer(broker.now + 3.0)
    assert reader.bodies() == (then if waits else [])


def test_error_of_1_1_ends_nothing(broker: FakeBroker) -> None:
    """What is in flight stays there."""
    client = holding(broker, "1.1")
    error(client)
    assert len(broker.queue("q").in_flight) == 3
    assert (
        client.ask("ACK", {"message-id": client.message_id("c"), "subscription": "s"}) == "RECEIPT"
    )


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


def doomed(attempts: int, grave: str | None = "DLQ") -> FakeBroker:
    """A broker where a message of queue q dies after so many attempts."""
    given = AddressSettings(max_delivery_attempts=attempts, dead_letter_address=grave)
    return FakeBroker(replace(ARTEMIS, settings_of={"q": given}))


@pytest.mark.parametrize("attempts", [1, 2, 10])
def test_dead_after_so_many(attempts: int) -> None:
    """The oldest; then the next begins to count."""
    broker = doomed(attempts)
    ArtemisTalk(broker).put("q", "a", "b")
    for _ in range(attempts):
        client = ArtemisTalk(broker)
        assert len(client.subscribe("q")) == 2
        disconnect(client)
    assert left(broker, "q") == ["b"]
    assert left(broker, "DLQ") == ["a"]


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
    broker = doomed(attempts)
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
    broker = doomed(1)
    client = ArtemisTalk(broker)
    client.put("q", "a")
    client.subscribe("q")
    end(client)
    assert left(broker, "q") == (["a"] if survives else [])


def test_dead_letter() -> None:
    """A new id, the story of its death, all its headers, no flag, no end of its time."""
    broker = doomed(1)
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


@pytest.mark.parametrize("grave", [None, "nobody's"])
def test_no_grave(grave: str | None) -> None:
    """Without a dead letter address, or without a queue on it, the message is gone."""
    broker = doomed(1, grave)
    client = ArtemisTalk(broker)
    client.put("q", "a")
    client.subscribe("q")
    disconnect(client)
    assert left(broker, "q") == left(broker, "DLQ") == []
    assert broker.queue("q").dequeued == 1


def test_delay_grows() -> None:
    """100, 200, 400, 800, 1000, 1000 ms (B12)."""
    settings = AddressSettings(
        redelivery_delay=0.1, redelivery_delay_multiplier=2.0, max_redelivery_delay=1.0
    )
    broker = FakeBroker(replace(ARTEMIS, settings=settings))
    ArtemisTalk(broker).put("q", "a")
    for wait in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        client = ArtemisTalk(broker)
        assert len(client.subscribe("q")) == 1
        disconnect(client)
        broker.handle_timer(broker.now + wait - 0.01)
        assert left(broker, "q") == []
        broker.handle_timer(broker.now + 0.01)


def test_longest_delay_by_default() -> None:
    """Ten times the first."""
    settings = AddressSettings(redelivery_delay=1.0, redelivery_delay_multiplier=100.0)
    assert [settings.delay_ms(count) for count in (0, 1, 2)] == [1000, 1000, 10_000]
