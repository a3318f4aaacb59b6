"""Stacks as a person reads them: what jmsx did to get to the handler is left out."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


_ROOT: Final = Path(__file__).parents[1]
#: Where the adapter with a middleware lies, from the folder of jmsx: installed, and in a checkout.
_ADAPTER: Final = ("jmsx_otel/", "adapters/jmsx_otel/")
#: The application of `jmsx demo`, which a wheel carries among the files of jmsx.
_EXAMPLE: Final = "jmsx/cli/orders.py"
_LONGEST: Final = 2**16  #: characters; jmsx writes an eighth of that
#: The frames of one traceback of Python, each a line with its place and lines of source, which may be missing.
_FRAMES: Final = re.compile(
    r'(?<=^Traceback \(most recent call last\):\n)(?:  File "[^"\n]*", line \d.*\n(?:    .*\n)*)+',
    re.MULTILINE,
)
_EACH: Final = re.compile(r'(?<=\n)(?=  File ")')
_GROUP: Final = "Exception Group Traceback (most recent call last):"
#: The file of a frame of either form.
_FILE: Final = re.compile(r'(?:  File ")?(.*?\.py)(?:", line |:)\d')


def from_the_handler(stack: str) -> str:
    """
    Leave out of `stack`, a traceback or the way to an error in one line, the frames of jmsx that others come behind.

    That of each cause begins with the code of others; what these called, jmsx as well, stays. jmsx is where the
    outermost frame of the last one lies; where that frame is not of jmsx, all is left as it is. So is a traceback
    without its first line, which the limit of the header cuts off, and that of an exception group.
    """
    if len(stack) > _LONGEST or _GROUP in stack:
        return stack
    if "\n" in stack:
        folder = _folder((_FRAMES.findall(stack) or [""])[-1])
        return _FRAMES.sub(lambda found: "".join(_begun(_EACH.split(found[0]), folder)), stack)
    ways = [way.split(" > ") for way in stack.split(" | ")]
    folder = _folder(ways[-1][0])
    return " | ".join(" > ".join(_begun(way, folder)) for way in ways)


def _begun(frames: Sequence[str], folder: str | None) -> Sequence[str]:
    """Return frames from the first on that is none of jmsx in `folder`; all, if there is no other."""
    if folder is None:
        return frames
    theirs = (at for at, one in enumerate(frames) if not _is_ours(_file(one), folder))
    return frames[next(theirs, 0) :]


def _folder(outermost: str) -> str | None:
    """Return where jmsx is, if that is a frame of it; "" if files are told from there."""
    file = _file(outermost)
    folder = file.rpartition("jmsx/")[0]
    whole = not folder or folder.endswith("/")
    return folder if whole and _is_ours(file, folder) else None


def _is_ours(file: str, folder: str) -> bool:
    """Return whether jmsx has such a file there: somebody may call a folder jmsx."""
    name = file.removeprefix(folder)
    return file.startswith(folder) and (name in _names() or name.startswith(_ADAPTER))


def _file(frame: str) -> str:
    found = _FILE.match(frame)
    return found[1].replace("\\", "/") if found is not None else ""


@cache
def _names() -> frozenset[str]:
    """Return the files of jmsx, from the folder that it lies in."""
    files = (file.relative_to(_ROOT.parent).as_posix() for file in _ROOT.rglob("*.py"))
    return frozenset(files) - {_EXAMPLE}
