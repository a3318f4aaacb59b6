"""
The watch: finds subscriptions that the broker has dropped although the link is up, and messages that it has stranded.

A worker that has received no message for a while is either idle, or its broker has dropped its subscription; the worker
cannot tell which. So the watch asks the broker over a short-lived connection. For brokers that drop a consumer without
telling the client, an adapter registers a function in the entry point group `jmsx.subscriptions`, and jmsx subscribes
anew for each dropped subscription. For brokers that may keep messages "in delivery" to a consumer that no longer
exists, an adapter registers one in `jmsx.stranded`; such messages are only reported, since only the broker's operator
can free them.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jmsx import plugins
from jmsx.app.progress import Progress
from jmsx.app.worker import Worker
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.drivers.changed import Event
from jmsx.drivers.threads import start
from jmsx.errors import JmsxError, UnsupportedError
from jmsx.jms.connection import Connection
from jmsx.jms.one_broker import connect_to
from jmsx.jms.session import Session, link_of
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


T = TypeVar("T")

#: Seconds to wait at most for the end of a request to the broker that was cut off.
LEAVING: Final = 2.0

#: The entry point groups of the adapters' functions.
_DEAD: Final = "jmsx.subscriptions"
_STRANDED: Final = "jmsx.stranded"

_log = logger("jmsx.app")


class Watch:
    """
    Watches the subscriptions of `workers` from `begin()` until closed, on a thread of its own.

    Args:
        workers: the workers to watch; there may be more of them later.
        progress: knows when each worker received its last message.
        options: the options of the connections to the brokers.
        patience: seconds without a message after which the broker is asked, and asked again.

    """

    def __init__(
        self,
        workers: Sequence[Worker],
        progress: Progress,
        options: ConnectionOptions,
        patience: float,
    ) -> None:
        self._workers = workers
        self._progress = progress
        self._options = options
        self._patience = patience
        self._asked: dict[Worker, float] = {}  #: when each was asked about (seconds, monotonic)
        self._asking: Connection | None = None
        #: Stranded messages at the last request, by destination: "in delivery" to no consumer that exists.
        self._found: dict[str, int] = {}
        self._silent: set[BrokerAddress] = set()  #: brokers that do not say
        self.stranded: dict[str, int] = {}  #: those found twice in a row
        self._closed = Event()
        self._thread = threading.Thread(target=self._run, name="jmsx-watch", daemon=True)

    def begin(self) -> None:
        """Begin to watch; raises ResourceAllocationError if the process cannot start the thread."""
        start(self._thread, "the app watches no subscriptions", "start it again")

    def leave(self) -> None:
        """Ask no more, and cut off a request that waits for its answer; does not block."""
        self._closed.set()
        asking = self._asking
        if asking is not None:
            asking.abort()

    def close(self) -> None:
        """Ask the broker no more, and wait until the thread has ended."""
        self.leave()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(LEAVING)

    def _run(self) -> None:
        dialects = {worker.dialect.name for worker in tuple(self._workers)}
        if not dialects & {name for group in (_DEAD, _STRANDED) for name in plugins.names(group)}:
            return
        while not self._closed.wait(self._patience / 4):
            suspects = self._suspects(time.monotonic())
            for address, workers in _grouped(suspects, attrgetter("address")).items():
                self._try(address, partial(self._ask, workers))

    def _try(self, address: BrokerAddress, question: Callable[[Session], None]) -> None:
        """Ask a broker something; without an answer it is asked again another time."""
        try:
            with connect_to(address, self._options) as connection:
                self._asking = connection
                connection.start()
                question(connection.create_session())
        except JmsxError as error:
            _log.info(
                "broker does not tell whether it still serves silent consumers", error=str(error)
            )
        except Exception as error:  # noqa: BLE001 - the watch must not die of a fault of its own
            _log.error("watch over silent consumers failed, and goes on", exc_info=error)
        finally:
            self._asking = None

    def _suspects(self, now: float) -> list[Worker]:
        """Return who has been without a message, and without a question, for long enough."""
        suspects = []
        for worker in tuple(self._workers):
            movement = self._progress.movement(worker.session_id)
            since = max(movement.received_at, self._asked.get(worker, 0.0))
            if movement.subscribed and now - since >= self._patience:
                suspects.append(worker)
                self._asked[worker] = now
        return suspects

    def _ask(self, suspects: list[Worker], session: Session) -> None:
        """Ask the broker what this kind of broker is asked."""
        dialect = link_of(session).dialect.name
        if dialect in plugins.names(_DEAD):
            self._ask_for_dead(suspects, session)
        if dialect in plugins.names(_STRANDED):
            self._ask_for_stranded(suspects, session)

    def _ask_for_stranded(self, suspects: list[Worker], session: Session) -> None:
        """Find messages that nobody gets; what was there twice, with nothing coming meanwhile, is not on its way."""
        link = link_of(session)
        count: Any = plugins.load(_STRANDED, link.dialect.name)
        if link.address in self._silent:
            return
        for destination in {worker.consumer.destination for worker in suspects}:
            found = count(session, destination)
            if found is None:
                _log.info("broker does not tell of stranded messages", broker=link.broker)
                self._silent.add(link.address)
                return
            self._note(destination.uri, min(found, self._found.get(destination.uri, 0)))
            self._found[destination.uri] = found

    def _note(self, destination: str, stranded: int) -> None:
        """Tell of a number once."""
        if stranded == self.stranded.get(destination, 0):
            return
        self.stranded = {**self.stranded, destination: stranded}
        if stranded:
            _log.error(
                "messages stranded",
                destination=destination,
                count=stranded,
                why="the broker has them in delivery for nobody; they come again when it is restarted",
            )

    def _ask_for_dead(self, suspects: list[Worker], session: Session) -> None:
        """Ask the broker about each subscription."""
        missing: Any = plugins.load(_DEAD, link_of(session).dialect.name)
        by_destination = _grouped(suspects, attrgetter("consumer.destination"))
        for destination, workers in by_destination.items():
            links = {worker.link: worker for worker in workers}
            lost = missing(session, destination, set(links))
            if lost is None:
                raise UnsupportedError(
                    "it sends no advisories, so dead subscriptions cannot be found out"
                )
            for link in lost:
                self._renew(links[link], link)

    def _renew(self, worker: Worker, link: str) -> None:
        """Have the subscription made anew, unless that has happened meanwhile."""
        if worker.link != link or self._closed.is_set():
            return
        _log.error(
            "subscription dead: it is made anew",
            consumer=worker.consumer.name,
            destination=worker.consumer.destination.uri,
            why="the broker has closed it without a word, perhaps as a slow consumer",
        )
        worker.renew("the broker has closed its subscription without a word")


def _grouped(workers: Iterable[Worker], key: Callable[[Worker], T]) -> dict[T, list[Worker]]:
    groups: dict[T, list[Worker]] = {}
    for worker in workers:
        groups.setdefault(key(worker), []).append(worker)
    return groups
