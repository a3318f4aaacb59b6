"""
Tells whether processes of this host live: each has a name that no other one ever has.

A process id alone is no such name, because it is used again. On systems without `/proc` a process has no name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jmsx.core.headers import whole

_PROC: Final = Path("/proc")

#: What stands behind the name of the program in `stat`, which may have blanks and brackets in it: first the state.
#: Source: proc_pid_stat(5), fields 3 and 22.
_STATE: Final = 0
_STARTED: Final = 19

#: States of a process that has ended, and that nobody has collected.
_ENDED: Final = frozenset({"Z", "X"})


def name() -> str | None:
    """Return the name of this process, or None if processes have none here."""
    where, started = _where(), _started(os.getpid())
    return None if where is None or started is None else f"{os.getpid()} {started} {where}"


def lives(named: str) -> bool:
    """Return whether the process with the name `named` lives; False if that cannot be known from here."""
    told, _, rest = named.partition(" ")
    started, _, where = rest.partition(" ")
    number = whole(told)
    return number is not None and where == _where() and started == _started(number)


def _where() -> str | None:
    """Return what process ids belong to: one boot of the host, and one PID namespace, as of a container."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(number: int) -> str | None:
    """Return when a process was started, in ticks since the host was; None if it is not there."""
    try:
        told = (_PROC / str(number) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = told.rpartition(")")[2].split()
    if len(fields) <= _STARTED or fields[_STATE] in _ENDED:
        return None
    return fields[_STARTED]
