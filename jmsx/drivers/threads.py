"""Starts threads; the errors say what to do where the process gets none, which Python tells by a RuntimeError."""

from __future__ import annotations

import socket
import sys
import threading
from typing import Final

from jmsx.errors import ConfigurationError, ConnectionFailedError, ResourceAllocationError

#: What to do where the process gets no further thread.
_ROOM: Final = "end what has many threads, or raise the limits of the user or container (ulimit -u, pids, memory)"


#: Packages that replace Python's threads and sockets (monkey patching).
_GREEN: Final = ("gevent", "eventlet")


def check_threads() -> None:
    """Raise ConfigurationError where Python's threads or sockets were replaced, which links and locks rely on."""
    for each in (threading.get_ident, socket.socket):
        package = each.__module__.partition(".")[0]
        if package in _GREEN:
            raise ConfigurationError(
                f"{package} has replaced Python's own threads or sockets in this process (monkey patching), and jmsx"
                " needs these: run the program without it, a web server with threads, as gunicorn does with"
                " --worker-class gthread"
            )


def start(thread: threading.Thread, undone: str, again: str) -> None:
    """
    Start a thread; raises ResourceAllocationError where none can be started.

    The error says what is `undone`, and how to ask for it `again`.
    """
    try:
        _start(thread)
    except RuntimeError as error:
        raise no_room(undone, again, error) from error


def no_room(undone: str, again: str, error: RuntimeError) -> ResourceAllocationError:
    """Return the error for what is `undone` without a thread, with how to ask for it `again`."""
    return ResourceAllocationError(
        f"{undone}: this process gets no further thread ({error}); {_ROOM}, and {again}"
    )


def start_serving(thread: threading.Thread, broker: str) -> None:
    """Start a thread that serves a connection to `broker`; raises ConnectionFailedError where none can be started."""
    try:
        _start(thread)
    except RuntimeError as error:
        raise no_thread(broker, error) from error


def _start(thread: threading.Thread) -> None:
    """Start it; raises RuntimeError at the interpreter's end, as Python 3.12 does itself: 3.11 would wait for ever."""
    if sys.is_finalizing():
        raise RuntimeError("the interpreter ends")
    thread.start()


def no_thread(broker: str, error: RuntimeError) -> ConnectionFailedError:
    """Return the error of a connection to `broker` that no thread can serve."""
    return ConnectionFailedError(
        f"cannot connect to {broker}: this process gets no further thread ({error}); {_ROOM}"
    )
