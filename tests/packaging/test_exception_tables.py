"""
What a signal handler raises runs into each `except`, `finally` and `with` around it.

CPython 3.13 leaves some jumps back to the head of a loop out of a function's exception table: that of
`while CONDITION`, of a loop whose last statement is an `if`, and of a comprehension with one (python/cpython#130279);
3.14 those of more loops with an `if` at their end, and of `any` and `all` of a generator, which it makes loops of. A
KeyboardInterrupt that comes there goes past the `finally` around the loop, and a lock stays held. So such a loop gets
a function of its own.

Only such a Python shows it, which need not be the one that runs the tests: theirs is as old as we support.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

#: All that we ship.
FOLDERS: Final = ("jmsx", "adapters")

#: Functions with such a loop that need not care, and why.
EXCUSED: Final = {
    "Engine._part": "the engine's thread",
    "Engine._resubscribe": "the engine's thread",
    "DriverTransport.receive": "stomp.py's thread",
    "TlsStream._decrypted": "stomp.py's thread; ssl.SSLError alone is caught",
    "_Server.hang_up": "the web server's thread",
    "FakeBrokerServer._patience": "the fake broker's thread",
    "FakeBrokerServer._run": "the fake broker's thread",
    "Supervised._watch": "a thread of its own",
    "BodyLookup._ends": "LinkError alone is caught",
    "place_of": "Exception alone is caught",
    "trace_of": "Exception alone is caught",
    "Workers._begin_waiting": "a thread of its own",
    "Loop._run": "a thread of its own",
    "BatchWorker._call_batch": "the listener's thread",
    "in_thread": "an event loop notes a signal, and cancels",
    "_has_started": "an event loop notes a signal, and cancels",
    "_Log._listed": "OSError alone is caught",
    "Segment.append": "the writer's thread",
    "Writer._written": "the writer's thread",
    "ClassicWitness.count": "BrokerTimeoutError alone is caught",
    "Wire._read": "OSError alone is caught",
    "Wire.close": "OSError alone is caught",
    "Store.commit": "OSError alone is caught",
    "_places_in": "JmsxError alone is caught",
    "chunks": "reads a file, which is closed when nobody has it any more",
    "whole_lines": "reads a file, which is closed when nobody has it any more",
}


def new_python() -> str | None:
    """A Python on this machine that is new enough, if there is one: on PATH, or of pyenv's."""
    names = [sys.executable, *(shutil.which(f"python3.{minor}") for minor in (13, 14))]
    names += map(str, Path.home().glob(".pyenv/versions/3.1[34].*/bin/python3"))
    is_new = "import sys; sys.exit(sys.version_info < (3, 13))"  # pyenv's own commands on PATH may not run at all
    return next((name for name in names if name and _ends_well(name, "-c", is_new)), None)


def _ends_well(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_no_loop_lets_an_interrupt_past_what_is_around_it() -> None:
    """Save those where no signal handler runs, or where nothing is to be put in order."""
    python = new_python()
    if python is None:
        pytest.skip("no Python 3.13 or newer here; before, a signal is taken at the loop's head")
    script = Path(__file__).with_name("exception_tables.py")
    folders = [str(ROOT / folder) for folder in FOLDERS]
    told = subprocess.check_output([python, str(script), *folders], text=True)
    found = json.loads(told)
    assert list(found) == folders
    assert {name for names in found.values() for name in names} <= EXCUSED.keys()
