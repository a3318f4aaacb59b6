"""Stacks as a person reads them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import App, RedeliveryPolicy
from jmsx.dead_letters import stacks
from jmsx.dead_letters.stacks import from_the_handler
from jmsx.errors import traceback_of
from jmsx.jms import outcomes
from jmsx.testing import harness
from jmsx_otel import tracing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
GROUP = (
    CAUSE.replace("/shop/orders.py", "/opt/jmsx/app/worker.py", 1).replace(
        "    raise", '  File "/shop/orders.py", line 4, in get\n    raise', 1
    )
    + """\
  + Exception Group Traceback (most recent call last):
  |   File "/opt/jmsx/app/worker.py", line 311, in _listen
  |   File "/shop/orders.py", line 9, in ship
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
"""
)


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
        'Traceback (most recent call last):\n  File "/srv/jmsx/shop.py", line 1, in call\n    a()\nValueError\n',
        "Traceback ...",
        "jmsx/" + 300 * "a" + ".py:1 a > b.py:1 c: E",
        "/opt/my-jmsx/app/worker.py:1 call > a.py:1 b: ValueError",
        "a.py:1 b: KeyError | /srv/jmsx/shop.py:1 call > a.py:1 b: ValueError",
        "jmsx/app/worker.py:1 a > b.py:1 c: E" + 2**16 * " ",
        GROUP,
    ],
)
def test_what_has_no_frame_of_ours_above_another_stays(stack: str) -> None:
    """Also a folder of the user's that is called jmsx, and what is no stack."""
    assert from_the_handler(stack) == stack


@pytest.mark.parametrize("form", ['  File "{}", line 1, in call\n', "{}:1 call"])
def test_a_handler_in_a_folder_that_is_called_jmsx_stays(form: str) -> None:
    """Ours are where the outermost frame is; the user's cause does not tell where that is."""
    files = ["/opt/lib/jmsx/jms/dispatcher.py", "/srv/jmsx/app/worker.py", "/srv/shop.py"]
    ours, theirs, called = (form.format(file) for file in files)
    if form.endswith("\n"):
        head = "Traceback (most recent call last):\n"
        cause = f"{head}{theirs}{called}KeyError\n\n"
        assert from_the_handler(f"{cause}{head}{ours}{theirs}{called}E\n") == (
            f"{cause}{head}{theirs}{called}E\n"
        )
    else:
        cause = f"{theirs} > {called}: KeyError"
        assert from_the_handler(f"{cause} | {ours} > {theirs} > {called}: E") == (
            f"{cause} | {theirs} > {called}: E"
        )


@pytest.mark.parametrize("place", ["/opt", "/opt/adapters"])
def test_an_adapter_beside_jmsx_is_left_out(place: str) -> None:
    """Installed, and in a checkout; not what somebody else calls jmsx, and not one elsewhere."""
    ours = f"/opt/jmsx/jms/dispatcher.py:1 _call > {place}/jmsx_otel/spans.py:71 plain"
    for theirs in ("/opt/jmsx_shop/spans.py:9 ship: E", "/srv/jmsx_otel/spans.py:9 ship: E"):
        assert from_the_handler(f"{ours} > {theirs}") == theirs


def test_the_handlers_of_the_demo_are_not_of_jmsx(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wheel carries its application beside the commands."""
    ours, example = tmp_path / "jmsx/app/worker.py", tmp_path / "jmsx/cli/orders.py"
    for file in (ours, example):
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setattr(stacks, "_ROOT", tmp_path / "jmsx")
    monkeypatch.setattr(stacks, "_names", stacks._names.__wrapped__)  # it keeps what it found
    theirs = f"{example}:42 ship > /opt/lib/json/decoder.py:355 decode: E"
    assert from_the_handler(f"{ours}:1 _listen > {theirs}") == theirs


@pytest.mark.parametrize(
    "stack",
    [
        12_000 * "jmsx/" + ".py:1 a",
        'Traceback (most recent call last):\n  File "a.py", line ' + 60_000 * "1",
        'Traceback (most recent call last):\n  File "' + 12_000 * "jmsx/" + '.py", line 1\n',
        20_000 * "jmsx/" + "app/worker.py:1 a > b.py:1 c: E",
    ],
)
def test_no_stack_takes_long(stack: str) -> None:
    """Whoever sends a message can write one."""
    began = time.monotonic()
    assert from_the_handler(stack) == stack
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("made", "traced"),
    [(traceback_of, False), (outcomes.trace_of, False), (outcomes.trace_of, True)],
)
def test_the_stack_of_a_dead_letter_begins_in_its_handler(
    made: Callable[[BaseException], str],
    traced: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it is made here and now, whatever calls what."""
    made_here: list[str] = []

    def kept(error: BaseException) -> str:
        made_here.append(made(error))
        return made_here[-1]

    monkeypatch.setattr(outcomes, made.__name__, kept)
    app = App("stomp://localhost:61613", middleware=[tracing()] if traced else [])

    @app.consumer("queue://orders", redelivery=RedeliveryPolicy(maximum_redeliveries=0))
    def ship(_order: object) -> None:
        raise ValueError("no such article")

    with harness(app) as mq:
        mq.send("queue://orders", "a book")
    [stack] = made_here
    assert "_listen" in stack
    first = from_the_handler(stack).removeprefix("Traceback (most recent call last):\n")
    assert first.split("\n")[0].endswith(("in ship", " ship: ValueError"))
