"""Stacks as a person reads them: what jmsx did to get to the handler is left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


_ROOT: Final = Path(__file__).parents[1]
#: The frames of one traceback of Python, each a line with its place and lines of source, which may be missing.
_FRAMES: Final = re.compile(
    r'(?<=^Traceback \(most recent call last\):\n)(?:  File "[^"\n]*", line \d+.*\n(?:    .*\n)*)+',
    re.MULTILINE,
)
_EACH: Final = re.compile(r'(?<=\n)(?=  File ")')
#: A file of jmsx in a frame of either form, below its package.
_OURS: Final = re.compile(r'^(?:  File ".*[/\\])?jmsx[/\\]([\w/\\]+\.py)(?:", line |:)\d')


def from_the_handler(stack: str) -> str:
    """
    Leave out of `stack`, a traceback or the way to an error in one line, the frames of jmsx that others come behind.

    That of each cause begins with the code of others; what these called, jmsx as well, stays.
    """
    if "\n" in stack:
        return _FRAMES.sub(lambda found: "".join(_begun(_EACH.split(found[0]))), stack)
    ways = (way.split(" > ") for way in stack.split(" | "))
    return " | ".join(" > ".join(_begun(way)) for way in ways)


def _begun(frames: Sequence[str]) -> Sequence[str]:
    """Frames from the first on that is none of jmsx; all, if there is no other."""
    return frames[next((at for at, one in enumerate(frames) if not _is_ours(one)), 0) :]


def _is_ours(frame: str) -> bool:
    """Whether jmsx has such a file: somebody may call a folder jmsx."""
    found = _OURS.match(frame)
    return found is not None and (_ROOT / found[1].replace("\\", "/")).is_file()
