"""How the dead letters of a queue are asked for, so that the broker can bear it."""

from __future__ import annotations

import json

import pytest

from jmsx.core.management import Question
from jmsx_artemis.dead_letter_access import PAGE, _listed
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
