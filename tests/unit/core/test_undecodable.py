"""A message that cannot be understood is a dead letter; the rest flows, and the session lives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jmsx.core.frames import UNDECODABLE_HEADER, Disconnect, MessageFrame
from jmsx.core.modes import AcknowledgeMode
from jmsx.errors import ProtocolError
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT as CLASSIC
from tests.unit.core.harness import (
    ASKS_FOR_ROOM,
    AUTO,
    CLIENT,
    DIALECT,
    INDIVIDUAL,
    TRANSACTED,
    WALL,
    ByNack,
    OfJmsx,
    Talk,
    at_most,
    called,
    copies,
    dead_letters,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.core.death_headers import DeathRecord
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.frames import Frame

DLQ = "queue:ActiveMQ.DLQ"
HEAD = b"subscription:1\nack:a\nmessage-id:a\ndestination:/queue/q\npersistent:true"
DIED = [("a", 1, "undecodable", "queue://ActiveMQ.DLQ", True)]


class BurstingReading(OfJmsx):
    """Reads a header that bursts, in one of its answers."""

    def __init__(self, where: str) -> None:
        self.where = where

    def message_id(self, headers: Mapping[str, str]) -> str:
        """The header may burst here."""
        burst(here=self.where == "id", headers=headers)
        return super().message_id(headers)

    def message_key(self, headers: Mapping[str, str]) -> str:
        """Or here, where its id is enough."""
        burst(here=self.where == "key", headers=headers)
        return super().message_key(headers)


class BurstingCopying(ByNack):
    """Reads it when it makes a copy."""

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Here."""
        burst(here=True, headers=delivery.headers)
        return super().dead_letter_copy(delivery, destination, death)


def burst(*, here: bool, headers: Mapping[str, str]) -> None:
    """What a header of a stranger may do, if it is read here."""
    if here and "bad" in headers:
        raise RecursionError("maximum recursion depth exceeded")


def bursting(where: str) -> Dialect:
    """A dialect that bursts at a header, in one of its answers."""
    if where == "copy":
        return replace(DIALECT, copying=BurstingCopying())
    return replace(DIALECT, reading=BurstingReading(where))


@pytest.mark.parametrize(
    "line", [b"x:\\t", b"x:\xff", b"no colon"], ids=["escape", "UTF-8", "colon"]
)
@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL, TRANSACTED], ids=str)
def test_a_header_that_stomp_does_not_know(mode: AcknowledgeMode, line: bytes) -> None:
    """Its copy carries the body, and the headers as they came; what comes behind it flows."""
    talk = Talk(mode)
    talk.subscribe()
    frames = [MessageFrame(HEAD + b"\n" + line, b"body"), talk.message("b")]
    talk.core.receive(frames, talk.now, WALL)
    first = talk.take()
    assert talk.wrote() == copies("body")
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert dead_letters(talk) == DIED
    assert talk.receive() == "b#1" if first is None else first.message_id == "b"


def test_without_a_key_it_is_known_by_its_id() -> None:
    """Whatever bursts while somebody asks which message it is."""
    talk = Talk(TRANSACTED, dialect=bursting("key"))
    talk.subscribe()
    talk.comes("a", bad="yes")
    assert talk.receive() == "a#1"
    talk.commit()
    talk.answer()
    assert talk.ended() == ["a#1 committed"]


@pytest.mark.parametrize(("mode", "where"), [(AUTO, "id"), (TRANSACTED, "id")])
def test_whatever_bursts_while_it_is_taken_in(mode: AcknowledgeMode, where: str) -> None:
    """An error of ours, which no message may make an error of all."""
    talk = Talk(mode, dialect=bursting(where))
    talk.subscribe()
    talk.comes("a", bad="yes")
    talk.comes("b")
    talk.take()
    assert talk.wrote() == copies("a")
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert dead_letters(talk) == DIED
    assert talk.receive() == "b#1"


def test_a_copy_does_not_burst_on_the_same_header() -> None:
    """A message that failed for another reason is copied without the headers that cannot be copied."""
    talk = Talk(AUTO, dialect=bursting("copy"), dead_letter="queue://dead")
    talk.subscribe(policy=at_most(0))
    talk.comes("a", bad="yes")
    delivery = talk.held()
    talk.core.undecodable(delivery, ValueError("no number"), talk.now)
    assert talk.wrote() == copies("a", to="queue:dead")
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()


def test_what_cannot_be_translated() -> None:
    """The application asked for it, and older messages are not acknowledged."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.held()
    talk.core.undecodable(talk.held(), LookupError("unknown encoding: foo"), talk.now)
    assert talk.wrote() == [f"SEND {DLQ} 'b' ?"]
    assert talk.take() is None
    talk.answer()
    assert talk.wrote() == []
    assert talk.receive() == "c#1"
    talk.commit()
    assert talk.wrote() == ["BEGIN in jmsx", "ACK c in jmsx", "COMMIT in jmsx ?"]


def test_it_is_a_dead_letter_on_the_next_link_too() -> None:
    """Its copy was not confirmed."""
    talk = Talk(AUTO)
    talk.subscribe()
    bad = MessageFrame(HEAD + b"\nx:\\t", b"body")
    talk.core.receive([bad], talk.now, WALL)
    assert talk.take() is None
    talk.wrote()
    talk.cut()
    talk.reopen()
    talk.core.receive([bad], talk.now, WALL)
    assert talk.take() is None
    assert talk.wrote() == copies("body", number=2)


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=lambda one: one.name)
def test_the_bare_frame(dialect: Dialect) -> None:
    """What names and settles it is kept, in its order; all else is one text that fits a header line."""
    block = HEAD + b"\ntimestamp:" + b"9" * 5000 + b"\nredelivered:true\nx\\cy:z"
    bare = MessageFrame(block, b"body").bare()
    *kept, rest = bare.headers
    assert kept == ["subscription", "ack", "message-id", "destination", "persistent", "redelivered"]
    assert rest == UNDECODABLE_HEADER
    assert bare.headers[rest].startswith(HEAD.decode())
    assert len(bare.headers[rest].encode()) < dialect.header_limit / 2
    assert bare.body == b"body"


@pytest.mark.parametrize("missing", [b"subscription:1\n", b"ack:a\n"])
def test_a_frame_that_nobody_can_settle_is_the_links_end(missing: bytes) -> None:
    """To let it go would hide that the broker breaks the protocol."""
    talk = Talk(AUTO)
    talk.subscribe()
    odd = MessageFrame(HEAD.replace(missing, b"") + b"\nx:\\t", b"body")
    with pytest.raises(ProtocolError, match="undefined escape"):
        talk.core.receive([odd], talk.now, WALL)


#: As the splitter makes it of a Java message's (its id says so) that says that it is persistent.
TORN = MessageFrame(
    HEAD.replace(b"message-id:a", b"message-id:java-ID\\ch-1-1\\c1\\c1\\c1\\c1"), b""
).truncated("no end", b"MESSAGE\nack:a\nx\n\nb\0c")


def test_a_torn_message_is_copied_as_it_came_unless_the_broker_keeps_it() -> None:
    """Its headers may lie of `persistent`, and then a NACK would delete it."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe()
    talk.core.receive([TORN, talk.message("b")], talk.now, WALL)
    assert talk.take() is None
    (question,) = talk.wrote()
    assert question.startswith("SUBSCRIBE jmsx-question-1")
    talk.answer()
    talk.comes("0", to="jmsx-question-1", browser="end")
    unsubscribed, copy = talk.wrote()
    assert unsubscribed == "UNSUBSCRIBE jmsx-question-1"
    assert copy == "SEND queue:ActiveMQ.DLQ 'MESSAGE\\n ack:a\\nx\\n\\nb\\x00c' ?"
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert talk.receive() == "b#1"


def test_a_torn_message_that_the_broker_keeps_is_left_to_it() -> None:
    """It shows the same lines, but for those that are of one showing."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe()
    talk.core.receive([TORN], talk.now, WALL)
    assert talk.take() is None
    talk.wrote()
    talk.answer()
    block = b"subscription:jmsx-question-1\nmessage-id:java\ndestination:/queue/q"
    shown = MessageFrame(block, b"").truncated("no end", b"MESSAGE\nx\n\nb\0c\n")
    talk.core.receive([shown], talk.now, WALL)
    assert talk.wrote() == ["UNSUBSCRIBE jmsx-question-1", *ASKS_FOR_ROOM]
    talk.answer()
    assert talk.wrote() == ["NACK a"]


def late(name: str) -> MessageFrame:
    """It was handed on, and is torn."""
    frame = MessageFrame(b"subscription:1\nack:%s\nmessage-id:x" % name.encode(), b"").truncated(
        "no end"
    )
    frame.late = True
    return frame


def test_what_turns_out_to_be_torn_before_its_turn_is_a_dead_letter() -> None:
    """Nobody has seen it."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b")
    talk.core.receive([late("b")], talk.now, WALL)
    assert talk.receive() == "a#1"
    talk.wrote()
    assert talk.take() is None
    assert talk.wrote() == copies("")


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED, INDIVIDUAL], ids=str)
def test_what_turns_out_to_be_torn_in_somebodys_hands_comes_again(mode: AcknowledgeMode) -> None:
    """The link is dropped, and with it the right to acknowledge what was cut."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a")
    talk.held()
    talk.core.receive([late("a")], talk.now, WALL)
    assert [one for one in talk.core.take_actions() if isinstance(one, Disconnect)]


def test_what_turns_out_to_be_torn_when_it_is_settled_changes_nothing() -> None:
    """It is too late."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.core.receive([late("a")], talk.now, WALL)
    assert not [one for one in talk.core.take_actions() if isinstance(one, Disconnect)]


def test_a_message_of_which_nobody_knows_what_settles_it_costs_its_link() -> None:
    """On the next one that can be told; no ACK is written for it on this one."""
    talk = Talk(AUTO)
    talk.subscribe()
    frame = talk.message("a").truncated("two ack headers")
    frame.unsure = True
    talk.core.receive([frame], talk.now, WALL)
    assert talk.receive() is None
    assert talk.wrote() == ["DROP"]


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED])
def test_nothing_is_handed_out_while_a_nack_in_front_of_a_copied_one_is_open(
    mode: AcknowledgeMode,
) -> None:
    """The ACK of the copied one waits for the NACK, and would settle what was handed out meanwhile."""
    talk = Talk(mode)
    talk.answers_nacks = False
    talk.subscribe(policy=at_most(0))
    talk.comes("a", "x", "c")
    assert talk.receive() == "a#1"
    talk.core.undecodable(talk.held(), LookupError("unknown encoding: foo"), talk.now)
    talk.answer()
    talk.wrote()
    talk.rollback() if mode is TRANSACTED else talk.core.recover(talk.now)
    assert "NACK a" in talk.wrote()
    assert talk.receive() is None
    talk.answers_nacks = True
    talk.wrote()
    assert talk.receive() == "c#1"


@pytest.mark.parametrize("how", ["close", "cut"])
def test_what_was_not_understood_and_copied_is_known_again(how: str) -> None:
    """Its ACK waits for what is older; when both come again only that is owed, and there is no second copy."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a", "x")
    assert talk.receive() == "a#1"
    talk.core.undecodable(talk.held(), LookupError("unknown encoding: foo"), talk.now)
    talk.answer()
    if how == "close":
        talk.core.close_consumer("1", talk.now)
        talk.answer()
        talk.subscribe()
    else:
        talk.cut()
        talk.reopen()
    talk.comes("a", "x", redelivered="true")
    talk.wrote()
    delivery = talk.held()
    assert called(delivery) == "a#2"
    assert talk.receive() is None
    talk.core.acknowledge(delivery, talk.now)
    assert talk.wrote() == ["ACK x"]
