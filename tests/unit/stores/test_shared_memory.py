"""The memory that all sessions of a process share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from jmsx.core.history import Remembered
from jmsx.stores.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_signal_handler_in_the_middle_of_it_waits_for_nobody() -> None:
    """It runs on the thread that has the lock, and may acknowledge a message of another session."""
    memory = SharedMemory(limit=2)

    def interrupted() -> Iterator[tuple[str, Remembered]]:
        yield "a", Remembered(1, 0)
        memory.note([("b", Remembered(2, 1)), ("c", Remembered(1, 0))])
        yield "d", Remembered(0, 0)

    thread = threading.Thread(target=lambda: memory.note(interrupted()), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert [memory.recall(name) for name in "abcd"] == [
        None,  # the oldest of three
        Remembered(2, 1),
        Remembered(1, 0),
        Remembered(0, 0),
    ]
