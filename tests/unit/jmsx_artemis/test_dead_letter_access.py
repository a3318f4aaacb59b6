"""How the dead letters of a queue are asked for, so that the broker can bear it."""

from __future__ import annotations

import json

import pytest

from jmsx.core.management import Question
from jmsx.drivers.management_link import CannotAskError
from jmsx.errors import BrokerError, BrokerTimeoutError, ConnectionFailedError, JmsxError
from jmsx_artemis.dead_letter_access import PAGE, _advice, _letter, _listed
from tests.unit.jmsx_artemis.inquiring import queue


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


def test_its_key_is_that_of_the_message_that_died() -> None:
    """As a log has it: the number under which it was consumed, and the time; the broker gives what it moves another."""
    moved = {"messageID": 90, "timestamp": 1_700_000_000_000}
    assert _letter(moved).broker_key == "90@1700000000000"
    died = _letter({**moved, "_AMQ_ORIG_MESSAGE_ID": "47"})
    assert (died.id, died.message_id, died.broker_key) == ("90", "47", "47@1700000000000")
