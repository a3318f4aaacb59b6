"""What a session subscribes to while it waits for what a commit in doubt has received, and behind that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.commit_repeat import PATIENCE
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, TransactionRolledBackError
from jmsx_artemis import DIALECT
from tests.unit.core.harness import TRANSACTED, Talk, outcome
from tests.unit.jmsx_artemis.repeating import (
    NARROW_ENDS,
    REHEARSED,
    refuse_commit,
    reopen,
    talk_with,
    wholly,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jmsx.core.delivery import Delivery


def test_a_session_that_waits_takes_nothing_that_another_one_may_wait_for() -> None:
    """Two that hold each other's inputs would wait until their patience ends; so each gets its own alone."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", jmsx_key="k-1")
    talk.comes("b", timestamp="1700000000001")
    talk.drain()
    talk.send()
    refuse_commit(talk)
    reopen(talk)
    assert [one.headers.get("selector") for one in talk.frames if one.command == "SUBSCRIBE"] == [
        None,
        "convert_string_expressions:AMQTimestamp = 1700000000001 OR jmsx_key = 'k-1'",
    ]
    talk.comes("a", to="1+again", jmsx_key="k-1")
    talk.comes("b", to="1+again", timestamp="1700000000001")
    talk.answer()
    talk.answer()
    assert talk.wrote()[-2:] == ["ACK b", NARROW_ENDS]
    talk.comes("late", to="1+again")  # the broker takes it back with the subscription
    wholly(talk)
    talk.comes("c")
    assert talk.drain() == ["c#1"]


def test_what_has_come_in_vain_comes_again_by_the_whole_subscription() -> None:
    """A queue that gives a group to one subscription would offer what follows to the narrow one, and to nobody else."""
    talk = talk_with("a", "b")
    refuse_commit(talk)
    reopen(talk)
    talk.comes("a", to="1+again")
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    assert talk.drain() == []
    wholly(talk)
    talk.comes("a", "c")
    assert talk.drain() == ["a#2", "c#1"]
    talk.commit()
    assert talk.wrote() == ["ACK c ?"]
    talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_what_came_beside_the_inputs_keeps_its_count() -> None:
    """It is like an input in the filter, and was never handed out: what the session knows of it is not forgotten."""
    talk = talk_with("a")
    talk.comes("x")
    request = refuse_commit(talk)
    reopen(talk)
    talk.comes("a", "x", to="1+again", redelivered="true")
    talk.answer()
    talk.answer()
    assert outcome(request) == "done"
    assert talk.wrote()[-2:] == ["ACK a", NARROW_ENDS]
    wholly(talk)
    talk.comes("x", redelivered="true")
    assert talk.drain() == ["x#1"]


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_done_with_behind_what_is_not_is_not_given_back(*, closed: bool) -> None:
    """
    Whoever got it would do it once more; its ACK would settle what is before it.

    So its subscription stays until all that has come by it is settled: a group that it has is offered to nobody else.
    """
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.comes("x", "a", to="1+again")
    talk.answer()
    talk.answer()
    assert talk.wrote()[-1] == "SUBSCRIBE 1"
    if closed:
        talk.core.close_consumer("1", talk.now)
        assert talk.wrote() == ["UNSUBSCRIBE 1+again", "UNSUBSCRIBE 1 ?"]
        return
    talk.comes("y", to="1+again")
    assert talk.held().message_id == "x"
    talk.commit()
    assert talk.wrote() == ["ACK x ?"]
    talk.answer()
    assert talk.wrote() == []
    assert talk.drain() == ["y#1"]
    talk.commit()
    assert talk.wrote() == ["ACK a", "ACK y ?"]
    talk.answer()
    assert talk.wrote() == ["UNSUBSCRIBE 1+again"]
    talk.comes("late", to="1+again")
    assert talk.drain() == []
    talk.comes("z")
    assert talk.drain() == ["z#1"]
    talk.commit()
    talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK z ?", "UNSUBSCRIBE 1 ?"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_narrow_subscription_whose_end_is_not_confirmed(*, lost: bool) -> None:
    """A consumer that is closed then is not subscribed any more; on another link it gets everything at once."""
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    if lost:
        talk.cut()
        reopen(talk)
        talk.comes("a")
        assert talk.drain() == ["a#2"]
    else:
        assert talk.core.close_consumer("1", talk.now).done
        talk.answer()
        assert talk.wrote() == []


def test_a_session_that_is_closed_while_it_waits() -> None:
    """Its consumer has the narrow subscription alone."""
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.core.close(talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1+again ?"]


def test_a_doubt_that_is_told_before_the_session_is_subscribed() -> None:
    """Then it waits for nothing, and gets everything."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert talk.wrote() == REHEARSED
    talk.answer()
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]


def test_a_filter_keeps_what_its_consumer_asked_for() -> None:
    """And names a message by its time where its key cannot stand in it."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", jmsx_key="it's", timestamp="7")
    delivery = talk.held()
    asked = {"destination": "q", "selector": "convert_string_expressions:x = 1 OR y = 2"}
    assert narrowed(asked, [delivery]) == {
        "destination": "q",
        "selector": "convert_string_expressions:(x = 1 OR y = 2) AND (AMQTimestamp = 7)",
    }


def held(count: int, key: str = "k-{}") -> list[Delivery]:
    """So many messages that the application has, each with its number in its key, and as its time."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe(prefetch=count)
    for number in range(count):
        talk.comes(f"{number}", jmsx_key=key.format(number), timestamp=f"{number}")
    return [talk.held() for _ in range(count)]


def narrowed(headers: Mapping[str, str], wanted: Sequence[Delivery]) -> Mapping[str, str]:
    """The headers of a SUBSCRIBE for these messages."""
    found = DIALECT.writing.narrowed(headers, wanted)
    assert found is not None
    return found


def test_a_filter_names_the_messages_of_a_large_batch() -> None:
    """The broker looks up a key among those of a list; one by one a thousand would take it seconds."""
    selector = narrowed({"destination": "q"}, held(1000))["selector"]
    keys = ", ".join(sorted(f"'k-{number}'" for number in range(1000)))
    assert selector == f"convert_string_expressions:jmsx_key IN ({keys})"


def test_what_cannot_be_named_has_room_among_the_others() -> None:
    """More of another sender's than a filter has times of: all of them fit into the window, or none would be enough."""
    wanted = held(101, key="it's")
    asked = {"destination": "q", "selector": "x", "consumer-window-size": "1"}
    given = narrowed(asked, wanted)
    size = sum(one.frame.size for one in wanted)
    assert {**given, "consumer-window-size": ""} == {**asked, "consumer-window-size": ""}
    assert int(given["consumer-window-size"]) > size
    named = narrowed(asked, wanted[1:])
    assert "AMQTimestamp = 100" in named["selector"]


@pytest.mark.parametrize(("prefetch", "given"), [(1, "1"), (1000, "511489")])
def test_there_is_room_for_all_that_is_waited_for(prefetch: int, given: str) -> None:
    """None of it is acknowledged before all of it is here, however few messages the consumer has at a time."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe(prefetch=prefetch)
    talk.comes("a", "b", "c")
    talk.drain()
    talk.send()
    refuse_commit(talk)
    reopen(talk)
    narrow, whole = talk.frames[-1], talk.frames[0]
    size = 3 * (Talk.message("a").size + 64)  # the names in it are longer the next time
    assert whole.headers["consumer-window-size"] == given
    assert narrow.headers["consumer-window-size"] == str(max(size, int(given)))


def test_nobody_subscribes_on_a_link_that_may_end() -> None:
    """Artemis closes a link on which it refuses; a consumer that it makes meanwhile holds messages for nobody."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    talk.wrote()
    (waiting,) = talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED
    talk.refuse("AMQ229032 User x does not have permission")
    assert isinstance(request.error, TransactionRolledBackError)
    assert set(talk.wrote()) == {"DROP"}
    assert not waiting.done
    talk.cut()
    assert isinstance(waiting.error, ConnectionFailedError)
    reopen(talk)
