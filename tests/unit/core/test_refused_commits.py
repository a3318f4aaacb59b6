"""Commits that the broker refuses, again and again: counts go on over links, to the dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.events import (
    MessageDeadLettered,
)
from jmsx.core.frames import Disconnect, Frame, Transmit
from jmsx.core.policy import RedeliveryPolicy, no_jitter
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.session import SessionCore
from jmsx.core.values import Disposition, Failure, SessionSettings
from jmsx.errors import TransactionInDoubtError, TransactionRolledBackError
from jmsx.testing import FakeBroker
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT
from tests.unit.core.harness import BROKEN, TRANSACTED, WALL, Talk, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.link import FakeLink


def refused(talk: Talk, *names: str, **fields: Any) -> list[str]:
    """One round: `names` come on a new link, are received, and their commit is refused; what was handed out."""
    if not talk.core.is_open("1"):
        talk.subscribe(**fields)
    talk.comes(*names, redelivered="true" if talk.core.epoch > 1 else "")
    while (due := talk.core.next_timer()) is not None:
        talk.wait_until(due)
    seen = talk.drain()
    if seen:
        talk.send()
        talk.commit()
        talk.refuse("ProtocolException: no")
        talk.cut()
        talk.reopen()
    return seen


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_refused_commits_end_in_a_dead_letter(most: int, *, check: bool) -> None:
    """1 + maximum_redeliveries of them, also without the pre-dispatch check; no poison goes round for ever."""
    talk = Talk(TRANSACTED)
    fields = {"policy": at_most(most, pre_dispatch_check=check)}
    for n in range(1, most + 2):
        assert refused(talk, "a", **fields) == [f"a#{n}"]
    talk.wrote()
    assert refused(talk, "a", **fields) == []
    assert talk.wrote()[-1] == "NACK a"
    (dead,) = talk.reported(MessageDeadLettered)
    assert (dead.message_id, dead.reason) == ("a", "max_redeliveries")
    assert talk.ended() == [f"a#{n} abandoned" for n in range(1, most + 2)] + [
        f"a#{most + 2} dead_lettered"
    ]


def test_refused_commits_for_ever() -> None:
    """If the policy says so."""
    talk = Talk(TRANSACTED)
    for n in range(1, 20):
        assert refused(talk, "a", policy=at_most(-1)) == [f"a#{n}"]


def test_refused_commit_waits_as_the_policy_says() -> None:
    """A broker that refuses is not asked again at once: 1 s, then 2, 4, 8, as for any failed delivery."""
    talk = Talk(TRANSACTED)
    policy = RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=2)
    moments = []
    for n in range(1, 6):
        began = talk.now
        assert refused(talk, "a", policy=policy) == [f"a#{n}"]
        moments.append(talk.now - began)
    assert moments == [0, 1, 2, 4, 8]


def waits_behind(talk: Talk) -> float:
    """Seconds until something may be handed out."""
    began = talk.now
    while (due := talk.core.next_timer()) is not None:
        talk.wait_until(due)
    return talk.now - began


#: Seconds of the first pause, and how many times longer each further one is.
GROWING = RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=5)


def test_only_failures_make_the_wait_longer() -> None:
    """A delivery that the broker's flag tells of, or that was undone, has not failed."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=GROWING)
    talk.comes("a", redelivered="true")
    assert refused_after(talk) == ["a#2"]
    talk.comes("a", redelivered="true")
    assert waits_behind(talk) == 1
    assert talk.receive() == "a#3"


class FromOne(RedeliveryPolicy):
    """It knows redeliveries from the first one on."""

    def delay(self, redelivery: int, draw: Callable[[], float] = no_jitter) -> float:
        """Return 5 s, without chance."""
        assert redelivery >= 1
        return 5.0 + draw()


def test_what_has_not_failed_waits_as_for_the_first_redelivery() -> None:
    """It was handed out, not tried, and given back when its link was gone: the broker had complained before."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    talk.subscribe(policy=FromOne())
    talk.comes("a")
    held = talk.held()
    talk.send()
    talk.complain("AMQ339011 Error sending message")
    talk.cut()
    talk.core.settle([(held, Failure(disposition=Disposition.RELEASE))], talk.now)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert waits_behind(talk) == 5


def test_the_longest_wait_counts_however_they_come() -> None:
    """What has failed once comes behind what has failed twice, and has waited long enough before it."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=GROWING)
    talk.comes("a")
    assert refused_after(talk) == ["a#1"]
    talk.comes("a", redelivered="true")
    assert waits_behind(talk) == 1
    talk.comes("b")
    assert refused_after(talk) == ["a#2", "b#1"]
    talk.comes("a", redelivered="true")
    talk.comes("b", redelivered="true")
    assert waits_behind(talk) == 5
    assert talk.drain() == ["a#3", "b#2"]


def test_a_link_that_ends_with_a_complaint_waits_as_the_policy_says() -> None:
    """A SEND that Artemis has no room for ends the link before COMMIT is written; all attempts took half a second."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    policy = RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=2)
    talk.subscribe(policy=policy)
    moments = []
    for n in range(1, 6):
        began = talk.now
        talk.comes("a", redelivered=str(n > 1).lower())
        while (due := talk.core.next_timer()) is not None:
            talk.wait_until(due)
        assert talk.receive() == f"a#{n}"
        moments.append(talk.now - began)
        talk.send()
        talk.complain("AMQ339011 Error sending message")
        talk.core.link_closed("error_frame", "AMQ339011 Error sending message", talk.now)
        assert isinstance(talk.commit().error, TransactionRolledBackError)
        talk.reopen()
    assert moments == [0, 1, 2, 4, 8]


def ends(talk: Talk, *told: str) -> None:
    """Artemis says ERROR, and ends the link."""
    for words in told:
        talk.complain(words)
    talk.core.link_closed("error_frame", told[0], talk.now)


#: What a full Artemis says of one SEND, in this order or the other.
FULL = ("AMQ229119 Disk Capacity is Low", "AMQ339011 Error sending message")


def held_beside_a_copy(committing: bool, marker_day: int | None = None, **fields: Any) -> Talk:
    """A session on Artemis that holds `b`, or commits it, while a copy of `a` is on its way."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS, marker_day=marker_day)
    talk.subscribe("1", **fields)
    talk.subscribe("2", policy=at_most(0))
    talk.comes("a")
    assert talk.receive("1") == "a#1"
    talk.rollback(BROKEN)
    (copy,) = talk.wrote()
    assert copy.startswith("SEND")
    assert copy.endswith("'a' ?")
    talk.comes("b", to="2")
    assert talk.receive("2") == "b#1"
    if committing:
        assert talk.commit().error is None
        assert talk.wrote() == ["ACK b ?"]
    return talk


def failures_of_b(talk: Talk) -> int:
    """How often `b` has failed, when it comes again on another link."""
    committed = talk.core.last_commit
    if committed is None:
        assert isinstance(talk.commit().error, TransactionRolledBackError)
    else:
        assert isinstance(committed.error, TransactionInDoubtError)
    talk.reopen()
    talk.comes("b", to="2", redelivered="true")
    return talk.held("2").failures


@pytest.mark.parametrize("committing", [False, True])
@pytest.mark.parametrize("told", [FULL[1:], FULL, FULL[::-1]])
def test_a_complaint_of_our_own_copy_is_of_no_message_that_is_held(
    told: tuple[str, ...], *, committing: bool
) -> None:
    """Artemis ends the link when it has no room for a dead letter's copy; that is nothing of what the others hold."""
    talk = held_beside_a_copy(committing, policy=at_most(0))
    ends(talk, *told)
    assert failures_of_b(talk) == 0


def test_nor_is_one_that_answers_the_copy() -> None:
    """By the receipt that it asked for; what is said behind it names none."""
    talk = held_beside_a_copy(committing=False, policy=at_most(0))
    talk.refuse(FULL[0])
    ends(talk, FULL[1])
    assert failures_of_b(talk) == 0


@pytest.mark.parametrize(
    ("told", "failures"),
    [
        ("AMQ339016 Error creating subscription 1+1", 0),
        ("AMQ229014: Did not receive data from /127.0.0.1", 0),
        ("AMQ339011 Error sending message", 1),
    ],
)
def test_a_commit_behind_a_complaint_is_refused_for_what_that_was_about(
    told: str, failures: int
) -> None:
    """Artemis does not look at it any more, and says so: it is rolled back (BROKER.md A74)."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    talk.subscribe()
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.complain(told)
    talk.refuse("AMQ339010 Connection is not valid.")
    talk.core.link_closed("error_frame", told, talk.now)
    assert isinstance(request.error, TransactionRolledBackError)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert waits_behind(talk) == 0
    assert talk.held().failures == failures


@pytest.mark.parametrize(
    ("told", "repeated"),
    [
        ("AMQ339016 Error creating subscription 1+1", False),
        ("AMQ339011 Error sending message", False),
        ("", True),
    ],
)
def test_what_may_be_refused_is_not_sent_singly(told: str, *, repeated: bool) -> None:
    """Behind an ERROR that seems to be of our own, while one of the sends may be refused: others would be taken."""
    talk = held_beside_a_copy(committing=False, policy=at_most(0), marker_day=20_000)
    talk.send()
    request = talk.commit()
    if told:
        talk.complain(told)
    talk.core.link_closed("io", told, talk.now)
    assert request.done != repeated


@pytest.mark.parametrize(
    "told",
    [
        ("AMQ339016 Error creating subscription 1+1", "AMQ339010 Connection is not valid."),
        ("AMQ229014: Did not receive data", "AMQ339010 Connection is not valid."),
        ("AMQ339010 Connection is not valid.",),
    ],
)
@pytest.mark.parametrize("marker_day", [None, 20_000])
def test_a_commit_that_is_confirmed_behind_an_error_is_not_believed(
    told: tuple[str, ...], marker_day: int | None
) -> None:
    """Artemis confirms it, without the SEND that it has answered with the last of these (seen live on 2.44.0)."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS, marker_day=marker_day)
    talk.subscribe()
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.send()
    request = talk.commit()
    for words in told:
        talk.complain(words)
    talk.answer()
    assert isinstance(request.error, TransactionInDoubtError)
    talk.cut()
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


@pytest.mark.parametrize("committing", [False, True])
def test_nor_is_one_of_what_is_sent_back_for_later(*, committing: bool) -> None:
    """The broker's scheduler was to have it."""
    policy = RedeliveryPolicy(mode="scheduled")
    talk = held_beside_a_copy(committing, policy=policy, scheduled=True)
    ends(talk, FULL[1])
    assert failures_of_b(talk) == 0


@pytest.mark.parametrize("committing", [False, True])
def test_a_complaint_of_a_further_subscription_is_of_no_message_that_is_held(
    *, committing: bool
) -> None:
    """A queue that takes no more consumers refuses a SUBSCRIBE of ours: nothing was sent for what the session holds."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    talk.subscribe(prefetch=2, policy=at_most(0))
    talk.comes("a" * 500)
    talk.drain()
    talk.timer()
    assert talk.wrote() == ["SUBSCRIBE 1+1"]
    request = talk.commit() if committing else None
    talk.wrote()
    ends(talk, "AMQ339016 Error creating subscription 1+1")
    assert isinstance(
        (request or talk.commit()).error,
        TransactionInDoubtError if committing else TransactionRolledBackError,
    )
    talk.reopen()
    talk.comes("a" * 500, redelivered="true")
    assert talk.held().failures == 0


@pytest.mark.parametrize(
    ("told", "failures"),
    [
        ("AMQ229014: Did not receive data from /127.0.0.1 within the 60000ms connection TTL.", 0),
        ("AMQ229120: connection with ID 1 closed by management", 0),
        ("consumer with ID 5 disconnected by server", 0),
        ("AMQ339011 Error sending message", 1),
        ("AMQ229032 User clerk does not have permission='SEND' on address x", 1),
    ],
)
@pytest.mark.parametrize("committing", [False, True])
def test_what_is_said_of_the_link_alone_is_of_no_message(
    told: str, failures: int, *, committing: bool
) -> None:
    """Artemis ends one whose client was silent, as a process that was paused is, and one that somebody has it close."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    talk.subscribe()
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.send()
    talk.wrote()
    request = talk.commit() if committing else None
    ends(talk, told)
    assert request is None or isinstance(request.error, TransactionInDoubtError)
    if not committing:
        assert told in str(talk.commit().error)
    talk.reopen()
    talk.comes("a", redelivered="true")
    while (due := talk.core.next_timer()) is not None:
        talk.wait_until(due)
    assert talk.held().failures == failures


def test_rollbacks_and_refused_commits_count_together() -> None:
    """Both are failed deliveries."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(2))
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.rollback()
    assert refused_after(talk) == ["a#2"]
    assert refused(talk, "a", policy=at_most(2)) == ["a#3"]
    assert refused(talk, "a", policy=at_most(2)) == []


def refused_after(talk: Talk) -> list[str]:
    """The commit of what is there is refused."""
    seen = talk.drain()
    talk.commit()
    talk.refuse()
    talk.cut()
    talk.reopen()
    return seen


def test_refused_commit_counts_for_its_own_messages_only() -> None:
    """What was not in the transaction is no older for it; all that was, on every consumer, is."""
    talk = Talk(TRANSACTED)
    for name in "12":
        talk.subscribe(name)
    talk.comes("a", "b", "c")
    talk.comes("x", to="2")
    talk.receive("1")
    talk.receive("1")
    talk.receive("2")
    talk.commit()
    talk.refuse()
    talk.cut()
    talk.reopen()
    talk.comes("a", "b", "c")
    talk.comes("x", to="2")
    assert talk.drain("1", "2") == ["a#2", "b#2", "c#1", "x#2"]


def test_doubtful_commit_does_not_count() -> None:
    """It may well have been done: one more delivery, and no failure."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    talk.receive()
    talk.commit()
    talk.cut()
    talk.reopen()
    talk.comes("a")
    assert talk.receive() == "a#2"


@pytest.mark.parametrize("most", [0, 2])
def test_broker_that_refuses_every_commit(most: int) -> None:
    """The same at the fake broker: the message is in its dead letter queue, once, and the queue is empty."""
    broker = FakeBroker()
    sender = broker.open_link(0.0)
    sender.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), 0.0)
    sender.feed(Frame("SEND", {"destination": "/queue/q", "persistent": "true"}, b"a"), 0.0)
    core = SessionCore(
        SessionSettings(mode=TRANSACTED, broker="fake", session_id="s"),
        DIALECT,
        no_jitter,
        ProcessMemory(),
    )
    settings = Talk(TRANSACTED).settings(
        headers={"destination": "/queue/q", "ack": "client"}, policy=at_most(most)
    )
    links: list[FakeLink] = []

    def exchange() -> bool:
        """Frames both ways until nobody has anything to say; whether the link lives."""
        while actions := core.take_actions():
            for action in actions:
                if isinstance(action, Disconnect):
                    broker.drop(links[-1], 0.0)
                    core.link_closed("error", "dropped", 0.0)
                    return False
                for frame in action.frames if isinstance(action, Transmit) else ():
                    links[-1].feed(frame, 0.0)
            core.receive(links[-1].take_frames(), 0.0, WALL)
        return True

    deliveries = 0
    while deliveries < 10:
        links.append(broker.open_link(0.0))
        links[-1].feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), 0.0)
        links[-1].take_frames()
        core.link_opened("ActiveMQ/6.1.8", 0.0, 0.0)
        core.subscribe(settings, 0.0)
        assert exchange()
        if core.handing_out.deliver(["1"], 0.0) is None:
            break
        deliveries += 1
        broker.refuse_next("COMMIT")
        core.send(Frame("SEND", {"destination": "/queue/x"}, b"out"), "k", "queue://x", 0.0)
        request = core.commit(0.0)
        assert not exchange()
        assert isinstance(request.error, TransactionRolledBackError)
    exchange()
    assert deliveries == 1 + most
    left = {name: broker.queue(name).browse() for name in ("q", "x", "ActiveMQ.DLQ")}
    assert [message.body for message in left.pop("ActiveMQ.DLQ")] == [b"a"]
    assert left == {"q": [], "x": []}
