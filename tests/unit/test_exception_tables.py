"""
What a signal handler raises runs into each `except`, `finally` and `with` around it.

CPython 3.13 leaves some jumps back to the head of a loop out of a function's exception table: that of
`while CONDITION`, of a loop whose last statement is an `if`, and of a comprehension with one (python/cpython#130279). A
KeyboardInterrupt that comes there goes past the `finally` around the loop, and a lock stays held. So such a loop gets
a function of its own.
"""

from __future__ import annotations

import dis
import itertools
import sys
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]

#: What the threads of an application run, or an observer in them.
FOLDERS: Final = ("core", "drivers", "jms", "stores", "app", "../adapters/jmsx_eventlog")

#: Functions with such a loop that need not care, and why.
EXCUSED: Final = {
    "Engine._part": "the engine's thread",
    "Engine._resubscribe": "the engine's thread",
    "DriverTransport.receive": "stomp.py's thread",
    "TlsStream._decrypted": "stomp.py's thread; ssl.SSLError alone is caught",
    "_Server.hang_up": "the web server's thread",
    "Looking._ends": "LinkError alone is caught",
    "place_of": "Exception alone is caught",
    "App._begin_waiting": "a thread of its own",
    "BatchWorker._call_batch": "the listener's thread",
    "in_thread": "an event loop notes a signal, and cancels",
    "_Log._listed": "OSError alone is caught",
    "Segment.append": "the writer's thread",
    "Writer._written": "the writer's thread",
}


def codes(code: CodeType) -> Iterator[CodeType]:
    """`code`, and all that is in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def uncovered(code: CodeType) -> bool:
    """Whether a jump back has no handler where the head of its loop has one."""
    byte_code = dis.Bytecode(code)
    table = byte_code.exception_entries  # type: ignore[attr-defined]  # typeshed does not know it
    instructions = list(byte_code)
    after = {one.offset: (one, two) for one, two in itertools.pairwise(instructions)}

    def handler(offset: int) -> int | None:
        """Where what is raised at `offset` goes in the end; None: out of the function."""
        at = next((each.target for each in table if each.start <= offset < each.end), None)
        if at is None:
            return None
        first, second = after[at]
        clears = (first.opname, second.opname) == ("SWAP", "POP_TOP")  # behind a comprehension
        translates = (
            first.opname == "CALL_INTRINSIC_1" and first.arg == 3
        )  # a generator's StopIteration
        return handler(at) if clears or translates else at

    return any(
        handler(each.offset) is None and handler(each.argval) is not None
        for each in instructions
        if each.opname == "JUMP_BACKWARD"
    )


@pytest.mark.skipif(
    sys.version_info < (3, 13), reason="before, a signal is taken at the loop's head"
)
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_loop_lets_an_interrupt_past_what_is_around_it(folder: str) -> None:
    """Save those where no signal handler runs, or where nothing is to be put in order."""
    found = {
        code.co_qualname
        for path in (ROOT / "jmsx" / folder).rglob("*.py")
        for code in codes(compile(path.read_text(), str(path), "exec"))
        if uncovered(code)
    }
    assert found <= EXCUSED.keys()
