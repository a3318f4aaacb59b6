"""Stacks as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import App, RedeliveryPolicy
from jmsx.dead_letters.stacks import from_the_handler
from jmsx.errors import traceback_of
from jmsx.jms import outcomes
from jmsx.testing import harness

if TYPE_CHECKING:
    from collections.abc import Callable

CAUSE = """\
Traceback (most recent call last):
  File "/shop/orders.py", line 3, in find
    raise KeyError(article)
KeyError: 'a'

The above exception was the direct cause of the following exception:

"""
BEHIND = """\
Traceback (most recent call last):
  File "/opt/lib/jmsx/jms/dispatcher.py", line 206, in _call
    check_ran(listener, listener(message))
                        ^^^^^^^^^^^^^^^^^
  File "/opt/lib/jmsx/app/worker.py", line 311, in _listen
  File "/shop/orders.py", line 9, in ship
    app.send(order)
  File "/opt/lib/jmsx/app/app.py", line 12, in send
    raise refused
ValueError: no such article
  File "/opt/lib/jmsx/app/worker.py", line 1, in a message of somebody
"""


def test_a_traceback_begins_with_the_code_of_others() -> None:
    """In each of its parts; what that called stays, as does what exceptions say."""
    lines = (CAUSE + BEHIND).splitlines(keepends=True)
    del lines[8:12]
    assert from_the_handler(CAUSE + BEHIND) == "".join(lines)


def test_a_way_in_one_line_begins_with_the_code_of_others() -> None:
    """That of each cause."""
    ours = "jmsx/jms/dispatcher.py:206 _call > jmsx/app/worker.py:311 _listen"
    theirs = "orders.py:9 ship > jmsx/app/app.py:12 send: ValueError"
    assert from_the_handler(f"orders.py:3 find: KeyError | {ours} > {theirs}") == (
        f"orders.py:3 find: KeyError | {theirs}"
    )


@pytest.mark.parametrize(
    "stack",
    [
        "",
        "ValueError",
        "no traceback\nof Python",
        "jmsx/app/worker.py:1 call: ValueError",
        'Traceback (most recent call last):\n  File "/opt/jmsx/app/worker.py", line 1, in call\nValueError\n',
        "jmsx/shop/worker.py:1 call > a.py:1 b: ValueError",
        'Traceback (most recent call last):\n  File "/home/jmsx/shop.py", line 1, in call\n    a()\nValueError\n',
        "Traceback ...",
    ],
)
def test_what_has_no_frame_of_ours_above_another_stays(stack: str) -> None:
    """Also a folder of the user's that is called jmsx, and what is no stack."""
    assert from_the_handler(stack) == stack


@pytest.mark.parametrize("made", [traceback_of, outcomes.trace_of])
def test_the_stack_of_a_dead_letter_begins_in_its_handler(
    made: Callable[[BaseException], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is made here and now, whatever calls what."""
    stacks: list[str] = []

    def kept(error: BaseException) -> str:
        stacks.append(made(error))
        return stacks[-1]

    monkeypatch.setattr(outcomes, made.__name__, kept)
    app = App("stomp://localhost:61613")

    @app.consumer("queue://orders", redelivery=RedeliveryPolicy(maximum_redeliveries=0))
    def ship(_order: object) -> None:
        raise ValueError("no such article")

    with harness(app) as mq:
        mq.send("queue://orders", "a book")
    [stack] = stacks
    assert "_listen" in stack
    first = from_the_handler(stack).removeprefix("Traceback (most recent call last):\n")
    assert first.split("\n")[0].endswith(("in ship", " ship: ValueError"))
