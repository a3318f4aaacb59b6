"""What the fake broker gives to tests: connections, time, faults."""

from __future__ import annotations

import pytest

from jmsx.core.frames import Frame
from jmsx.testing import FakeBroker
from jmsx.testing.fake_broker import REFUSAL
from tests.unit.testing.talk import TX, Talk, left

# -- connecting ---------------------------------------------------------------------------------


def test_connected(broker: FakeBroker) -> None:
    """The client's numbers come back swapped, its id as the session."""
    client = Talk(broker, **{"client-id": "me", "heart-beat": "3000,5000"})
    assert client.connected == Frame(
        "CONNECTED",
        {"server": "ActiveMQ/6.1.8", "heart-beat": "5000,3000", "session": "me", "version": "1.2"},
    )
    assert client.link.heart_beat == (5000, 3000)


def test_client_id_belongs_to_one(broker: FakeBroker) -> None:
    """The second is told and closed; when the first is gone, it may come."""
    first = Talk(broker, **{"client-id": "me"})
    second = Talk(broker, **{"client-id": "me"})
    assert second.connected.command == "ERROR"
    assert "Client: me already connected from" in second.connected.headers["message"]
    assert second.link.closed
    first.die()
    assert Talk(broker, **{"client-id": "me"}).connected.command == "CONNECTED"


def test_bad_connect_closes(broker: FakeBroker) -> None:
    """After an ERROR."""
    link = broker.open_link(0.0)
    link.feed(Frame("CONNECT", {"accept-version": "1.2", "heart-beat": "a,b"}), 0.0)
    (error,) = link.take_frames()
    assert error.headers["message"] == "Invalid heart-beat header:a,b"
    assert link.closed
    assert broker.links == []


def test_frames_on_a_closed_link_are_lost(broker: FakeBroker) -> None:
    """As on a dead socket."""
    client = Talk(broker)
    client.die()
    client.tell("SEND", {"destination": "/queue/q"}, "x")
    assert len(broker.queue("q")) == 0
    assert client.link.take_frames() == []


def test_bytes_and_frames_do_the_same(broker: FakeBroker) -> None:
    """`receive` takes any chunks, several frames in one too."""
    link = broker.open_link(0.0)
    data = b"".join(
        frame.encode()
        for frame in (
            Frame("CONNECT", {"accept-version": "1.2"}),
            Frame("SEND", {"destination": "/queue/q", "receipt": "1"}, b"x"),
            Frame("SUBSCRIBE", {"destination": "/queue/q", "id": "s", "ack": "client"}),
        )
    )
    for position in range(0, len(data), 5):
        link.receive(data[position : position + 5], float(position))
    assert [f.command for f in link.take_frames()] == ["CONNECTED", "RECEIPT", "MESSAGE"]


def test_garbage_closes_the_link(broker: FakeBroker) -> None:
    """With an ERROR; what follows is not read."""
    client = Talk(broker)
    client.link.receive(b"SEND\nno colon\n\nx\0SEND\ndestination:/queue/q\n\ny\0", broker.now)
    (error,) = client.link.take_frames()
    assert error.command == "ERROR"
    assert client.link.closed
    assert len(broker.queue("q")) == 0


# -- time ---------------------------------------------------------------------------------------


def test_time_does_not_go_back(broker: FakeBroker) -> None:
    """Whoever brings an older `now` has mixed up two clocks."""
    link = broker.open_link(5.0)
    with pytest.raises(ValueError, match="does not go back"):
        link.feed(Frame("CONNECT"), 4.9)


def test_timer_is_none_while_nothing_waits(broker: FakeBroker) -> None:
    """Only what comes later makes one."""
    assert broker.next_timer() is None
    Talk(broker).put("/queue/q", "late", AMQ_SCHEDULED_DELAY="7000")
    assert broker.next_timer() == 7.0
    assert [message.body for message in broker.queue("q").waiting] == [b"late"]
    assert broker.queue("q").browse() == []
    broker.handle_timer(7.0)
    assert broker.next_timer() is None
    assert len(broker.queue("q").browse()) == 1


def test_late_timer_happens_first(broker: FakeBroker) -> None:
    """A frame that comes after a timer was due finds its work done, even if nobody called `handle_timer`."""
    client = Talk(broker)
    client.put("/queue/q", "late", AMQ_SCHEDULED_DELAY="1000")
    client.link.feed(Frame("SEND", {"destination": "/queue/q"}, b"now"), 2.0)
    assert [message.body for message in broker.queue("q").waiting] == [b"late", b"now"]


# -- faults that a test plans -------------------------------------------------------------------


def test_refused_send_outside_transaction(broker: FakeBroker) -> None:
    """One ERROR instead of one RECEIPT; the next SEND is fine."""
    client = Talk(broker)
    broker.refuse_next("SEND", "no space")
    assert client.ask("SEND", {"destination": "/queue/q"}, "a") == "no space"
    assert client.ask("SEND", {"destination": "/queue/q"}, "b") == "RECEIPT"
    assert left(broker, "/queue/q") == ["b"]


@pytest.mark.parametrize(
    ("receipt", "answer"), [({}, "COMMIT FAILED"), ({"receipt": "r"}, "RECEIPT")]
)
def test_refused_send_in_transaction(
    broker: FakeBroker, receipt: dict[str, str], answer: str
) -> None:
    """Rollback-only without a receipt, and only then."""
    client = Talk(broker)
    client.tell("BEGIN", TX)
    broker.refuse_next("SEND")
    client.tell("SEND", {"destination": "/queue/q", **TX, **receipt}, "a")
    assert client.errors() == [REFUSAL]
    assert client.ask("COMMIT", TX).startswith(answer)
    assert left(broker, "/queue/q") == []


def test_refused_commit(broker: FakeBroker) -> None:
    """The name is gone, and all comes back only when the socket dies."""
    client = Talk(broker)
    client.put("/queue/q", "a")
    client.subscribe("/queue/q")
    client.tell("BEGIN", TX)
    client.ack("a", **TX)
    broker.refuse_next("COMMIT", "store is broken")
    assert client.ask("COMMIT", TX) == "store is broken"
    assert client.ask("ABORT", TX) == "Invalid transaction id: t"
    assert left(broker, "/queue/q") == []
    client.die()
    assert left(broker, "/queue/q") == ["a R"]


@pytest.mark.parametrize(("applied", "out", "back"), [(True, ["o"], []), (False, [], ["a R"])])
def test_cut_at_commit(
    broker: FakeBroker, *, applied: bool, out: list[str], back: list[str]
) -> None:
    """The client cannot know whether it was done; the broker does."""
    client = Talk(broker)
    client.put("/queue/q", "a")
    client.subscribe("/queue/q")
    client.tell("BEGIN", TX)
    client.tell("SEND", {"destination": "/queue/out", **TX}, "o")
    client.ack("a", **TX)
    broker.cut_next("COMMIT", applied=applied)
    assert client.ask("COMMIT", TX) == "CLOSED"
    assert client.errors() == []
    assert (left(broker, "/queue/out"), left(broker, "/queue/q")) == (out, back)


def test_fault_of_another_link_waits(broker: FakeBroker) -> None:
    """A fault for one link does not hit another."""
    one, two = Talk(broker), Talk(broker)
    broker.cut_next("SEND", applied=True, link=two.link)
    assert one.ask("SEND", {"destination": "/queue/q"}) == "RECEIPT"
    assert len(broker.faults) == 1
    assert two.ask("SEND", {"destination": "/queue/q"}) == "CLOSED"
    assert len(broker.faults) == 0
    assert len(broker.queue("q")) == 2


def test_refused_connect_closes(broker: FakeBroker) -> None:
    """An ERROR, then the end, as with wrong credentials."""
    broker.refuse_next("CONNECT", "User name [a] or password is invalid.")
    client = Talk(broker)
    assert client.connected.headers["message"] == "User name [a] or password is invalid."
    assert client.link.closed


def test_what_is_sent_to_several_is_in_each(broker: FakeBroker) -> None:
    """In a transaction at its commit."""
    client = Talk(broker)
    client.tell("SEND", {"destination": "/queue/a,/queue/b"}, "x")
    client.tell("BEGIN", TX)
    client.tell("SEND", {"destination": "/queue/a,/queue/b", **TX}, "y")
    assert [len(broker.queue(name)) for name in "ab"] == [1, 1]
    client.tell("COMMIT", TX)
    assert [left(broker, name) for name in "ab"] == [["x", "y"], ["x", "y"]]


# -- what it cannot do --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        ("SUBSCRIBE", {"destination": "/queue/a,/queue/b", "id": "s"}),
        ("SUBSCRIBE", {"destination": "/queue/a.>", "id": "s"}),
        ("SEND", {"destination": "/queue/q", "AMQ_SCHEDULED_DELAY": "1", "AMQ_SCHEDULED_REPEAT": "2"}),
        ("SEND", {"destination": "/queue/q", "AMQ_SCHEDULED_CRON": "* * * * *"}),
        ("SUBSCRIBE", {"destination": "/topic/t", "id": "s", "transformation": "jms-json"}),
        ("SUBSCRIBE", {"destination": "/topic/t", "id": "s", "activemq.retroactive": "true"}),
        ("SUBSCRIBE", {"destination": "/queue/q", "id": "s", "activemq.exclusive": "true"}),
        ("SUBSCRIBE", {"destination": "/queue/q", "id": "s", "activemq.priority": "5"}),
    ],
)  # fmt: skip
def test_not_modelled_is_said(broker: FakeBroker, command: str, headers: dict[str, str]) -> None:
    """No test passes because the fake broker silently did something else."""
    client = Talk(broker)
    with pytest.raises(NotImplementedError, match="the fake broker has no"):
        client.tell(command, headers, "x")


@pytest.mark.parametrize("profile", ["classic", "artemis"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.1, 1.2", None])
def test_other_versions_are_said(profile: str, version: str | None) -> None:
    """A space hides what follows it from both brokers, and no version means 1.0."""
    headers = {} if version is None else {"accept-version": version}
    with pytest.raises(NotImplementedError, match=r"STOMP 1\.2 only"):
        FakeBroker(profile).open_link(0.0).feed(Frame("CONNECT", headers), 0.0)
