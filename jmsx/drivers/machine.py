"""
What sessions take from the machine that they run on: its clocks, links to brokers, and threads that wait.

`jmsx.testing` has another one, with virtual time, threads that take turns, and links to a broker in memory.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

from jmsx.clock import SystemClock
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.core.process_memory import ProcessMemory
from jmsx.drivers.changed import Changed, Event
from jmsx.drivers.connect import check_tls
from jmsx.drivers.link import Inbox, StompLink

if TYPE_CHECKING:
    from collections.abc import Callable


class Machine(SystemClock):
    """The real clock, threads, events and links: what sessions run on outside of tests."""

    #: What its sessions remember of messages together; None: they share the memory of the whole process.
    memory: ProcessMemory | None = None

    #: Whether its brokers delay messages, where nobody needs to ask them; None: they are asked.
    delays: bool | None = None

    def link(self, address: BrokerAddress, options: ConnectionOptions, inbox: Inbox) -> StompLink:
        """Return a link to the broker at `address`, not open yet, that puts what comes into `inbox`."""
        return StompLink(address, options, inbox)

    def check_files(self, uri: BrokerUri) -> None:
        """Raise ConfigurationError if links to `uri` need files that cannot be used."""
        check_tls(uri)

    def inbox(self, *, awaited: bool = False) -> Inbox:
        """Return the queue into which links put what comes; `awaited`: its reader does nothing else meanwhile."""
        del awaited
        return queue.SimpleQueue()

    def changed(self, lock: Any, refuse: Callable[[], object]) -> Changed:
        """Return a condition on `lock`, an RLock, with which threads tell of changes; `refuse`: as in Changed."""
        return Changed(lock, refuse)

    def event(self) -> Event:
        """Return a flag that can be waited for, also on an event loop."""
        return Event()

    def thread(self, target: Callable[[], object], name: str) -> threading.Thread:
        """Return a daemon thread, not started yet."""
        return threading.Thread(target=target, name=name, daemon=True)
