"""What is told where the system lets this process start no further thread, as Python says with a RuntimeError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.errors import ConnectionFailedError, ResourceAllocationError

if TYPE_CHECKING:
    import threading

#: What to do about it.
_ROOM: Final = "end what has many threads, or raise the limits of the user or container (ulimit -u, pids, memory)"


def start(thread: threading.Thread, undone: str, again: str) -> None:
    """
    Start a thread; raises ResourceAllocationError where none can be started.

    It tells what is `undone` for that, and how to ask for it `again`.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise ResourceAllocationError(
            f"{undone}: this process gets no further thread ({error}); {_ROOM}, and {again}"
        ) from error


def start_serving(thread: threading.Thread, broker: str) -> None:
    """Start a thread that serves a connection to `broker`; raises ConnectionFailedError where none can be started."""
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(broker, error) from error


def no_thread(broker: str, error: RuntimeError) -> ConnectionFailedError:
    """Return what a connection to `broker` fails with that no thread can serve."""
    return ConnectionFailedError(
        f"cannot connect to {broker}: this process gets no further thread ({error}); {_ROOM}"
    )
