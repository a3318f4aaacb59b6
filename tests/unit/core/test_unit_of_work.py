"""Transactions: begun late, committed in one burst, never half, and never said to be what nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.actions import Disconnect, Transmit
from jmsx.core.events import (
    AckTrigger,
    MessageDeadLettered,
    MessagesAcknowledged,
    MessageSent,
    TransactionEnded,
)
from jmsx.core.frames import Frame
from jmsx.core.policy import RedeliveryPolicy, no_jitter
from jmsx.core.session import SessionCore
from jmsx.core.values import SessionSettings
from jmsx.errors import (
    BrokerTimeoutError,
    IllegalStateError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx.testing import FakeBroker
from jmsx_classic import DIALECT
from tests.unit.core.harness import AUTO, BROKEN, TRANSACTED, WALL, Talk, at_most

if TYPE_CHECKING:
    from jmsx.core.requests import Request
    from jmsx.testing.fake_link import FakeLink

BEGIN, COMMIT, ABORT = "BEGIN in jmsx", "COMMIT in jmsx ?", "ABORT in jmsx"
OUT = "SEND queue:x 'out' in jmsx"


def transactions(talk: Talk) -> list[tuple[str, int, int]]:
    """Outcome, sends and acknowledgements of each transaction so far."""
    return [
        (event.outcome.value, event.sends, event.acknowledgements)
        for event in talk.reported(TransactionEnded)
    ]


def sent(talk: Talk) -> list[str]:
    """The outcome of each SEND so far."""
    return [event.outcome for event in talk.reported(MessageSent)]


def outcome(request: Request) -> str:
    """How a request ended, or that it did not."""
    if not request.done:
        return "open"
    return "done" if request.error is None else type(request.error).__name__


# -- beginning --------------------------------------------------------------------------------------------------------


def test_receiving_begins_nothing_on_the_wire() -> None:
    """BEGIN is written with the first SEND (classic.md 3.1)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    assert talk.wrote() == []


def test_first_send_begins() -> None:
    """Once; no frame in the transaction asks for a receipt, since a failing one would not spoil it (rule 7)."""
    talk = Talk(TRANSACTED)
    assert talk.send("one") is None
    assert talk.send("two") is None
    assert talk.wrote() == [
        BEGIN,
        "SEND queue:x 'one' in jmsx",
        "SEND queue:x 'two' in jmsx",
    ]
    assert sent(talk) == []


def test_next_transaction_begins_anew() -> None:
    """The name on the wire is used again; the one in the evidence is not."""
    talk = Talk(TRANSACTED)
    for _ in range(2):
        talk.send()
        talk.commit()
        talk.answer()
    assert talk.wrote() == [BEGIN, OUT, COMMIT] * 2
    names = [event.transaction_id for event in talk.reported(TransactionEnded)]
    assert len(set(names)) == 2


# -- commit -----------------------------------------------------------------------------------------------------------


def test_commit_of_nothing_asks_nothing() -> None:
    """Upstream row 11: an empty commit is a no-op, as often as one likes."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    assert [outcome(talk.commit()), outcome(talk.commit())] == ["done", "done"]
    assert talk.wrote() == []
    assert transactions(talk) == []


def test_commit_of_receives_is_one_plain_ack() -> None:
    """One cumulative ACK is atomic without BEGIN and COMMIT; its receipt is the commit's."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    request = talk.commit()
    assert talk.wrote() == ["ACK b ?"]
    assert outcome(request) == "open"
    assert talk.ended() == []
    talk.answer()
    assert outcome(request) == "done"
    assert talk.ended() == ["a#1 committed", "b#1 committed"]
    assert transactions(talk) == [("committed", 0, 2)]
    (event,) = talk.reported(MessagesAcknowledged)
    assert (event.messages, event.trigger) == (2, AckTrigger.COMMIT)


def test_commit_of_sends_and_receives_is_one_burst() -> None:
    """ACK and COMMIT are written together; only COMMIT asks for a receipt (rules 6 and 7)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]
    request = talk.commit()
    assert talk.wrote() == ["ACK b in jmsx", COMMIT]
    assert talk.bursts[-1] == ["ACK b in jmsx", COMMIT]
    talk.answer()
    assert outcome(request) == "done"
    assert transactions(talk) == [("committed", 1, 2)]
    assert sent(talk) == ["confirmed"]


def test_commit_covers_every_consumer() -> None:
    """Several consumers need a transaction, so that all or none are settled."""
    talk = Talk(TRANSACTED)
    for name in ("1", "2", "3"):
        talk.subscribe(name)
    talk.comes("a", "b", to="1")
    talk.comes("x", to="2")
    talk.comes("z", to="3")
    assert talk.drain("1", "2") == ["a#1", "b#1", "x#1"]
    talk.commit()
    assert talk.wrote() == [BEGIN, "ACK b in jmsx", "ACK x in jmsx", COMMIT]
    assert talk.bursts[-1] == [BEGIN, "ACK b in jmsx", "ACK x in jmsx", COMMIT]
    talk.answer()
    assert transactions(talk) == [("committed", 0, 3)]


def test_commit_with_single_acks_has_one_for_each() -> None:
    """A lone message still needs no transaction."""
    talk = Talk(TRANSACTED, single=True)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    talk.commit()
    assert talk.wrote() == [BEGIN, "ACK a in jmsx", "ACK b in jmsx", COMMIT]
    talk.answer()
    talk.receive()
    talk.commit()
    assert talk.wrote() == ["ACK c ?"]


def test_commit_does_not_cover_what_waits() -> None:
    """Messages that were not handed out are not acknowledged."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.receive()
    talk.commit()
    talk.answer()
    assert talk.wrote() == ["ACK a ?"]
    talk.rollback()
    assert talk.receive() == "b#1"


def test_listener_that_raised_is_committed_all_the_same() -> None:
    """Unless the application rolls back (classic.md 1.7); the evidence keeps that it failed."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.listen(BROKEN)
    talk.commit()
    talk.answer()
    assert talk.wrote() == ["ACK a ?"]
    assert talk.ended() == ["a#1 committed"]


def test_transaction_tells_when_it_began() -> None:
    """With its first delivery or send."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.now = 3.0
    talk.comes("a")
    talk.now = 5.0
    talk.receive()
    talk.now = 7.0
    talk.send()
    talk.commit()
    talk.now = 8.0
    talk.answer()
    (event,) = talk.reported(TransactionEnded)
    assert (event.started_at, event.at) == (5.0, 8.0)
    (message,) = talk.reported(MessageSent)
    assert (message.started_at, message.at, message.transaction_id) == (7.0, 8.0, "s:1")


# -- rollback ---------------------------------------------------------------------------------------------------------


def test_rollback_of_receives_writes_nothing() -> None:
    """The broker still holds them for us; they come again from our memory."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == []
    assert talk.drain() == ["a#2", "b#2"]
    assert transactions(talk) == [("rolled_back", 0, 0)]
    assert talk.ended() == ["a#1 rolled_back", "b#1 rolled_back"]


def test_rollback_of_sends_aborts() -> None:
    """And the next transaction is a new one."""
    talk = Talk(TRANSACTED)
    talk.send()
    talk.rollback()
    assert talk.wrote() == [BEGIN, OUT, ABORT]
    assert sent(talk) == ["rolled_back"]
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]


def test_rollback_of_nothing_is_nothing() -> None:
    """No frame, no event."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.rollback()
    assert talk.wrote() == []
    assert transactions(talk) == []


def test_rolled_back_message_is_committed_later() -> None:
    """With the ACK of its one and only ack id (upstream row 119)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    talk.rollback()
    talk.drain()
    talk.commit()
    assert talk.wrote() == ["ACK b ?"]


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_error_condemns_the_open_transaction() -> None:
    """An ERROR that answers no question may have been any part of it, so it is rolled back (rule 7)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    talk.complain("The destination temp-queue://x does not exist.")
    with pytest.raises(IllegalStateError, match="temp-queue://x does not exist"):
        talk.send()
    request = talk.commit()
    assert talk.wrote() == [BEGIN, OUT, ABORT]
    assert isinstance(request.error, TransactionRolledBackError)
    assert "temp-queue://x does not exist" in str(request.error)
    assert "s:1" in str(request.error)
    assert transactions(talk) == [("rolled_back", 1, 0)]
    assert talk.receive() == "a#2"


def test_error_condemns_one_transaction_only() -> None:
    """The next one is as good as new."""
    talk = Talk(TRANSACTED)
    talk.send()
    talk.complain("no")
    talk.rollback()
    talk.send()
    request = talk.commit()
    talk.answer()
    assert outcome(request) == "done"


def test_error_outside_a_transaction_condemns_nothing() -> None:
    """Nothing of it was on the wire."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.complain("Unexpected ACK received for message-id [null]")
    request = talk.commit()
    assert talk.wrote() == ["ACK a ?"]
    talk.answer()
    assert outcome(request) == "done"


def test_answered_error_condemns_nothing() -> None:
    """It belongs to its question, such as a SUBSCRIBE in the middle of a transaction."""
    talk = Talk(TRANSACTED)
    talk.send()
    talk.core.subscribe(talk.settings("2"), talk.now)
    talk.refuse("InvalidSelectorException: 1 = =")
    request = talk.commit()
    talk.answer()
    assert outcome(request) == "done"


def test_refused_commit_drops_the_link_and_says_so() -> None:
    """The broker can neither abort that transaction nor give its messages back (rule 8)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.refuse("COMMIT FAILED: Transaction marked rollback only")
    assert talk.wrote() == ["DROP"]
    assert isinstance(request.error, TransactionRolledBackError)
    assert "Transaction marked rollback only" in str(request.error)
    assert transactions(talk) == [("rolled_back", 1, 0)]
    assert sent(talk) == ["rolled_back"]
    assert talk.ended() == ["a#1 abandoned"]


def test_refused_plain_ack_is_a_refused_commit() -> None:
    """The message is not settled, and its ack id is spent."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    request = talk.commit()
    talk.wrote()
    talk.refuse("Unexpected ACK received for message-id [null]")
    assert talk.wrote() == ["DROP"]
    assert outcome(request) == "TransactionRolledBackError"
    assert talk.ended() == ["a#1 abandoned"]


@pytest.mark.parametrize("sends", [True, False])
def test_lost_link_leaves_a_commit_in_doubt(*, sends: bool) -> None:
    """COMMIT, or the ACK that stands for it, was written and not answered: nobody knows (DESIGN.md section 9)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    if sends:
        talk.send()
    request = talk.commit()
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)
    assert (request.error.transaction_id, request.error.broker) == ("s:1", "broker:61613")
    assert not request.error.retriable
    assert transactions(talk) == [("in_doubt", int(sends), 0)]
    assert sent(talk) == ["unconfirmed"] * sends
    assert talk.ended() == ["a#1 abandoned"]


def test_commit_that_is_not_answered_is_in_doubt_too() -> None:
    """And the link is dropped, since the broker may still do it."""
    talk = Talk(TRANSACTED)
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("no answer in 30 s"), talk.now)
    assert talk.wrote() == ["DROP"]
    assert outcome(request) == "TransactionInDoubtError"
    assert transactions(talk) == [("in_doubt", 1, 0)]


def test_late_receipt_changes_nothing() -> None:
    """What was said to be in doubt stays so."""
    talk = Talk(TRANSACTED)
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("no answer in 30 s"), talk.now)
    talk.answer()
    assert outcome(request) == "TransactionInDoubtError"
    assert transactions(talk) == [("in_doubt", 1, 0)]


def test_lost_link_rolls_an_open_transaction_back() -> None:
    """COMMIT was not written: the broker undoes it, and there is no doubt."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    talk.cut()
    assert transactions(talk) == [("rolled_back", 1, 0)]
    assert sent(talk) == ["rolled_back"]
    assert talk.ended() == ["a#1 abandoned"]
    talk.reopen()
    talk.wrote()
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]


# -- commits that the broker refuses, again and again -----------------------------------------------------------------


def refused(talk: Talk, *names: str, **fields: Any) -> list[str]:
    """One round: `names` come on a new link, are received, and their commit is refused; what was handed out."""
    talk.subscribe(**fields)
    talk.comes(*names, redelivered="true" if talk.core.epoch > 1 else "")
    while (due := talk.core.next_timer()) is not None:
        talk.wait_until(due)
    seen = talk.drain()
    if seen:
        talk.send()
        talk.commit()
        talk.refuse("COMMIT FAILED: Transaction marked rollback only")
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
    for name in "12":
        talk.subscribe(name)
    talk.comes("a", "b", "c")
    talk.comes("x", to="2")
    assert talk.drain("1", "2") == ["a#2", "b#2", "c#1", "x#2"]


def test_doubtful_commit_does_not_count() -> None:
    """It may well have been done."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    talk.receive()
    talk.commit()
    talk.cut()
    talk.reopen()
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    assert talk.receive() == "a#1"


@pytest.mark.parametrize("most", [0, 2])
def test_broker_that_refuses_every_commit(most: int) -> None:
    """The same at the fake broker: the message is in its dead letter queue, once, and the queue is empty."""
    broker = FakeBroker()
    sender = broker.open_link(0.0)
    sender.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), 0.0)
    sender.feed(Frame("SEND", {"destination": "/queue/q", "persistent": "true"}, b"a"), 0.0)
    core = SessionCore(
        SessionSettings(mode=TRANSACTED, broker="fake", session_id="s"), DIALECT, no_jitter
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
        if core.deliver(["1"], 0.0) is None:
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


# -- the wrong session ------------------------------------------------------------------------------------------------


def test_calls_that_do_not_fit_the_mode() -> None:
    """Each with an error that says so (classic.md 1.4; JMS 3.1, 6.2)."""
    auto, transacted = Talk(AUTO), Talk(TRANSACTED)
    with pytest.raises(IllegalStateError, match=r"commit\(\)"):
        auto.commit()
    with pytest.raises(IllegalStateError, match=r"rollback\(\)"):
        auto.rollback()
    with pytest.raises(IllegalStateError, match=r"recover\(\)"):
        transacted.core.recover(0.0)


# -- closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_consumer_closes_when_its_transaction_ends(end: str) -> None:
    """An UNSUBSCRIBE inside it would lose the ACK (probes-classic.md part 2; upstream row 80)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    request = talk.core.close_consumer("1", talk.now)
    assert outcome(request) == "done"
    assert talk.wrote() == []
    if end == "commit":
        talk.commit()
        assert talk.wrote() == ["ACK a ?"]
        talk.answer()
        assert talk.ended() == ["a#1 committed"]
    else:
        talk.rollback()
        assert talk.ended() == ["a#1 rolled_back"]
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    assert not talk.core.is_open("1")


def test_consumer_without_messages_closes_at_once() -> None:
    """Also while the transaction has sends."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.send()
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_consumer_closed_twice_closes_once() -> None:
    """Also when it waits for the end of the transaction."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.core.close_consumer("1", talk.now)
    talk.core.close_consumer("1", talk.now)
    talk.rollback()
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_close_of_the_session_rolls_back() -> None:
    """Then it unsubscribes; what it held is the broker's again (classic.md 1.9)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.receive()
    talk.send()
    requests = talk.core.close(talk.now)
    assert talk.wrote() == [BEGIN, OUT, ABORT, "UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#1 rolled_back"]
    assert [outcome(request) for request in requests] == ["open"]
    talk.answer()
    assert [outcome(request) for request in requests] == ["done"]


def test_close_of_the_session_buries_at_the_limit() -> None:
    """Closing counts as a rollback (probes-classic.md part 3; upstream row 15)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", redelivered="true")
    talk.receive()
    talk.core.close(talk.now)
    assert talk.wrote() == ["NACK a", "UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#2 dead_lettered"]
