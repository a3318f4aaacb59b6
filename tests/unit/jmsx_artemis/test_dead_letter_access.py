"""How the dead letters of a queue are asked for, so that the broker can bear it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from jmsx.core.management import Question
from jmsx.drivers.management_link import CannotAskError
from jmsx.errors import (
    BrokerError,
    BrokerTimeoutError,
    ConnectionFailedError,
    InvalidDestinationError,
    JmsxError,
)
from jmsx_artemis import dead_letter_access
from jmsx_artemis.dead_letter_access import (
    BUSY,
    PAGE,
    ArtemisDeadLetters,
    _advice,
    _letter,
    _listed,
    _made,
)
from tests.unit.jmsx_artemis.inquiring import Broker, queue

if TYPE_CHECKING:
    from jmsx import Session


@pytest.mark.parametrize(
    ("count", "operation"), [(PAGE, "listMessagesAsJSON"), (PAGE + 1, "browse")]
)
def test_what_waits_is_asked_for_by_pages(count: int, operation: str) -> None:
    """The one list is as long as a setting lets it be, and all of it has to be in the broker's memory."""
    inquiry = _listed("DLQ")
    next(inquiry)
    told = {"data": [queue("DLQ", messageCount=str(count))], "count": 1}
    asked = inquiry.send(json.dumps(told))
    assert isinstance(asked, Question)
    assert asked.operation == operation


def test_a_list_that_json_cannot_have_is_asked_for_as_a_page() -> None:
    """The broker refuses it for a property that is no finite number; what no list can show is still told."""
    inquiry = _listed("DLQ")
    next(inquiry)
    inquiry.send(json.dumps({"data": [queue("DLQ", messageCount="1")], "count": 1}))
    asked = inquiry.throw(BrokerError("double value must not be NaN or Infinite"))
    assert isinstance(asked, Question)
    assert asked.operation == "browse"
    with pytest.raises(BrokerError, match="not allowed"):
        inquiry.throw(BrokerError("not allowed"))


@pytest.mark.parametrize(
    ("cause", "reached", "told"),
    [
        (BrokerError("no"), True, "permissions to `manage`"),
        (BrokerTimeoutError("slow"), True, "it is busy, or its management has another address"),
        (ConnectionFailedError("gone"), True, ""),
        (BrokerTimeoutError("not there"), False, ""),
    ],
)
def test_permissions_are_blamed_for_a_refusal_only(
    cause: JmsxError, *, reached: bool, told: str
) -> None:
    """Who has them would look in vain for what a slow broker, or a lost link, did not do."""
    advice = _advice(CannotAskError(cause, reached=reached))
    assert told in advice
    assert bool(told) == bool(advice)


def test_a_busy_broker_is_waited_for_once_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 dead letters a page may take a busy one more than the 5 s in which silence is told of."""
    given: list[float | None] = []
    monkeypatch.setattr(dead_letter_access, "may_ask", lambda _: True)
    monkeypatch.setattr(dead_letter_access, "link_of", lambda _: None)
    monkeypatch.setattr(
        dead_letter_access, "ask", lambda _session, _inquiry, patience: given.append(patience)
    )
    access = ArtemisDeadLetters(cast("Session", None))
    access.count("DLQ")
    access.count("DLQ")
    assert given == [None, BUSY]


def test_its_key_is_that_of_the_message_that_died() -> None:
    """As a log has it: the number under which it was consumed, and the time; the broker gives what it moves another."""
    moved = {"messageID": 90, "timestamp": 1_700_000_000_000}
    assert _letter(moved).broker_key == "90@1700000000000"
    died = _letter({**moved, "_AMQ_ORIG_MESSAGE_ID": "47"})
    assert (died.id, died.message_id, died.broker_key) == ("90", "47", "47@1700000000000")


@pytest.mark.parametrize(
    ("address", "queue", "astray"),
    [
        ("orders", "orders", False),
        ("prices", "bookkeeping", False),
        ("orders.new", "orders.#", False),  # of who consumes by a pattern: a queue like any other
        ("orders.#", "orders.#", True),
        ("orders.*", "orders.*", True),
        ("a,b", "a,b", True),
        ("a\nb", "a\nb", True),
        ("", "orders", True),
    ],
)
def test_what_says_that_it_came_from_a_pattern_stays(
    address: str, queue: str, *, astray: bool
) -> None:
    """A queue of that name would be made, and get what others send to all that fit it."""
    letter = _letter({"messageID": 1, "_AMQ_ORIG_ADDRESS": address, "_AMQ_ORIG_QUEUE": queue})
    assert bool(letter.obstacle()) == astray


def test_no_queue_is_made_where_another_one_is_gone() -> None:
    """Of a subscription, which nobody but its subscriber makes; what to do about the others is told."""
    broker = Broker()
    with pytest.raises(InvalidDestinationError, match="--from queue://prices::bookkeeping --to"):
        broker.conduct(_made({("orders", "orders"), ("prices", "bookkeeping")}, is_named=False))
    assert not [one for one in broker.asked if getattr(one, "operation", "") == "createQueue"]


def test_a_queue_that_the_operator_named_is_not_blamed_on_the_messages() -> None:
    """They came from elsewhere, and to choose others would not help."""
    with pytest.raises(InvalidDestinationError, match="prices has no queue bookkeping") as raised:
        Broker().conduct(_made({("prices", "bookkeping")}, is_named=True))
    assert "--from" not in str(raised.value)
