"""
Prints which functions of Python files have a loop whose jump back is outside what is around its head, as JSON.

It needs Python 3.13 or newer and nothing else, so that a Python without our libraries can run it, too:

    python3.13 tests/packaging/exception_tables.py FOLDER ...
"""

from __future__ import annotations

import dis
import itertools
import json
import sys
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        # a generator's StopIteration
        translates = first.opname == "CALL_INTRINSIC_1" and first.arg == 3
        return handler(at) if clears or translates else at

    return any(
        handler(each.offset) is None and handler(each.argval) is not None
        for each in instructions
        if each.opname == "JUMP_BACKWARD"
    )


def found(folder: Path) -> list[str]:
    """The qualified names of such functions."""
    return sorted(
        code.co_qualname
        for path in folder.rglob("*.py")
        for code in codes(compile(path.read_text("utf-8"), str(path), "exec"))
        if uncovered(code)
    )


if __name__ == "__main__":
    told = {folder: found(Path(folder)) for folder in sys.argv[1:]}
    sys.stdout.write(json.dumps(told))
