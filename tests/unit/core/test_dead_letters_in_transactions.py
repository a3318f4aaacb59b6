"""Dead letters by copy while older messages of the same consumer are in an open transaction."""

from __future__ import annotations

import pytest

from jmsx.core.frames import MessageFrame
from jmsx.core.values import NO_FAILURE
from jmsx_artemis.dialect import DIALECT as ARTEMIS
from tests.unit.core.harness import (
    DISCARDED,
    FAILED_ONCE,
    TRANSACTED,
    WALL,
    Talk,
    at_most,
    copies,
    dead_letters,
    settled,
)

ONCE = at_most(0)


def with_a_dead_letter_behind_an_open_one(*, single: bool = False) -> Talk:
    """`old` is delivered and not committed; `poison`, behind it, died unseen, and its copy is confirmed."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead", single=single)
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("poison", **FAILED_ONCE)
    assert talk.receive() == "old#1"
    assert talk.receive() is None
    copied = copies("poison", to="queue:dead") if single else ["SEND queue:dead 'poison' ?"]
    assert talk.wrote() == copied
    talk.answer()
    return talk


def test_dead_lettered_message_waits_for_the_older_ones() -> None:
    """Its ACK would settle them, although nobody has committed them."""
    talk = with_a_dead_letter_behind_an_open_one()
    assert talk.wrote() == []
    assert dead_letters(talk) == [("poison", 1, "max_redeliveries", "queue://dead", True)]
    assert talk.ended() == ["poison#2 dead_lettered"]


def test_single_ack_of_a_dead_lettered_message_does_not_wait() -> None:
    """It settles nothing else."""
    talk = with_a_dead_letter_behind_an_open_one(single=True)
    assert talk.wrote() == settled("poison")
    talk.answer()
    talk.commit()
    assert talk.wrote() == ["ACK old ?"]


@pytest.mark.parametrize("sends", [False, True])
def test_commit_settles_the_dead_lettered_message_too(*, sends: bool) -> None:
    """One ACK for both; each delivery ends once."""
    talk = with_a_dead_letter_behind_an_open_one()
    if sends:
        talk.send()
    talk.commit()
    assert talk.wrote() == (
        ["BEGIN in jmsx", "SEND queue:x 'out' in jmsx", "ACK poison in jmsx", "COMMIT in jmsx ?"]
        if sends
        else ["BEGIN in jmsx", "ACK poison in jmsx", "COMMIT in jmsx ?"]
    )
    talk.answer()
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 committed"]
    assert talk.receive() is None


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("refused", [False, True])
def test_copy_that_is_confirmed_before_the_commit(*, sends: bool, refused: bool) -> None:
    """If that is refused, the ACK of the dead message would settle what was received in the transaction."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("old", "newer")
    talk.comes("poison", **FAILED_ONCE)
    talk.drain()
    if sends:
        talk.send()
    talk.commit()
    talk.answer()
    assert not [frame for frame in talk.wrote() if frame == "ACK poison"]
    if refused:
        talk.refuse()
        assert talk.wrote() == ["DROP"]
    else:
        talk.answer()
        assert talk.wrote() == ["ACK poison"]


def test_commit_before_the_copy_is_confirmed() -> None:
    """Then the ACK of the dead message has nobody to wait for."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("poison", **FAILED_ONCE)
    talk.drain()
    talk.commit()
    assert talk.wrote() == ["SEND queue:dead 'poison' ?", "ACK old ?"]
    talk.answer()
    assert talk.wrote() == ["ACK poison"]
    talk.answer()
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 committed"]


def test_messages_behind_a_dead_lettered_one_go_on() -> None:
    """They are in the same transaction, and one ACK settles all three."""
    talk = with_a_dead_letter_behind_an_open_one()
    talk.comes("new")
    assert talk.drain() == ["new#1"]
    talk.commit()
    assert talk.wrote() == ["BEGIN in jmsx", "ACK new in jmsx", "COMMIT in jmsx ?"]
    talk.answer()
    assert talk.ended()[1:] == ["old#1 committed", "new#1 committed"]


@pytest.mark.parametrize("next_one", ["taken before the commit", "taken after it"])
def test_rollback_brings_the_older_one_again_and_not_the_dead_lettered_one(next_one: str) -> None:
    """The ACK of the dead one is sent as soon as the older one is settled, and its copy only once."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=at_most(1))
    for _ in range(2):  # two refused commits: the third delivery of it is one too many
        talk.comes("poison")
        talk.drain()
        talk.commit()
        talk.refuse()
        talk.cut()
        talk.reopen()
    talk.comes("old", "poison")
    talk.wrote()
    assert talk.drain() == ["old#1"]
    assert talk.wrote() == ["SEND queue:dead 'poison' ?"]
    talk.answer()
    talk.rollback()
    assert talk.receive() == "old#2"
    if next_one == "taken before the commit":
        assert talk.receive() is None
        talk.commit()
        assert talk.wrote() == ["BEGIN in jmsx", "ACK poison in jmsx", "COMMIT in jmsx ?"]
        talk.answer()
    else:
        talk.commit()
        assert talk.wrote() == ["ACK old ?"]
        talk.answer()
        assert talk.receive() is None
        assert talk.wrote() == ["ACK poison"]
    assert [entry[0] for entry in dead_letters(talk)] == ["poison"]
    assert [end for end in talk.ended() if "abandoned" not in end] == [
        "poison#3 dead_lettered",
        "old#1 rolled_back",
        "old#2 committed",
    ]


@pytest.mark.parametrize("settle", ["discarded", "over the limit"])
def test_other_ends_of_a_transaction_settle_the_dead_lettered_message(settle: str) -> None:
    """Once the older one is out of the way, one ACK, and no second copy."""
    talk = with_a_dead_letter_behind_an_open_one()
    talk.rollback(DISCARDED if settle == "discarded" else NO_FAILURE)
    if settle == "discarded":
        assert talk.wrote() == ["ACK poison"]
        assert talk.ended()[1:] == ["old#1 discarded"]
    else:
        assert talk.wrote() == copies("old", to="queue:dead")
        talk.answer()
        assert talk.wrote() == settled("poison")
        talk.answer()
        assert talk.ended()[1:] == ["old#1 dead_lettered"]


def test_older_one_that_the_broker_dead_letters() -> None:
    """NACK for it, and then the ACK that the dead one was waiting with."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("poison", persistent="", **FAILED_ONCE)
    talk.drain()
    talk.answer()
    talk.wrote()
    talk.rollback()
    assert talk.wrote() == ["NACK old", "ACK poison"]
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 dead_lettered"]


def test_lost_link_gives_the_older_one_back() -> None:
    """Nothing was acknowledged, so both are the broker's; the one that is a dead letter has ended already."""
    talk = with_a_dead_letter_behind_an_open_one()
    talk.cut()
    assert talk.wrote() == []
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 abandoned"]


def test_what_is_sent_back_does_not_free_a_consumer_that_a_copy_parks() -> None:
    """An ACK of *d* would cover *b*, whose copy nobody has."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(
        policy=at_most(1, redelivery_delay=5, initial_redelivery_delay=5), scheduled=True
    )
    talk.comes("a", "b", "c", "d")
    first, second = talk.held(), talk.held()
    assert first.message_id == "a"
    talk.core.undecodable(second, ValueError("odd"), talk.now)
    assert talk.wrote() == ["SEND queue:dead 'b' ?"]
    talk.refuse()
    talk.rollback()
    talk.answer()
    assert "ACK a in jmsx-postpone" in talk.wrote()
    assert talk.take() is None
    talk.wait_until(talk.now + 6)
    assert "SEND queue:dead 'b' ?" in talk.wrote()
    talk.answer()
    assert talk.wrote() == ["ACK b"]
    assert talk.receive() == "c#1"


def test_what_is_sent_back_meanwhile_is_acknowledged_with_the_copy() -> None:
    """A copy that is confirmed first waits for it: its ACK would cover the other, too."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS, dead_letter="queue://dead")
    talk.subscribe(
        policy=at_most(1, redelivery_delay=5, initial_redelivery_delay=5), scheduled=True
    )
    talk.core.receive(
        [
            MessageFrame.of({"subscription": "1", "message-id": one, "destination": "q"}, b"x")
            for one in "ab"
        ],
        talk.now,
        WALL,
    )
    talk.held()
    talk.core.undecodable(talk.held(), ValueError("odd"), talk.now)
    talk.rollback()
    talk.wrote()
    talk.answer()
    assert talk.wrote() == []
    talk.answer()
    assert talk.wrote() == ["ACK a", "ACK b"]
