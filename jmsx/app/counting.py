"""
The broker's own counts of an app's queues, for observers that record them: figures independent of the app's events.

An event log shows what this process saw. Only the broker knows whether others consume from the same queue, how many
messages nobody has consumed, and how many have expired. It is asked over a short-lived connection, by a function that
an adapter registers in the entry point group `jmsx.counts`: it takes a started session and URIs of queues, and returns
the `QueueCounts` of each that exists, or None if the broker does not say. Such a broker is not asked again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from jmsx import plugins
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.core.destination_names import is_pattern
from jmsx.core.events import ClockCompared, QueueCounted, Source
from jmsx.core.values import QueueCounts
from jmsx.drivers.changed import Event
from jmsx.drivers.threads import start
from jmsx.errors import BrokerTimeoutError, JmsxError, LinkError
from jmsx.jms.connection import Connection
from jmsx.jms.message import Message
from jmsx.jms.one_broker import connect_to
from jmsx.jms.session import Session, link_of
from jmsx.log import logger
from jmsx.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many queues are asked for at a time: a program that invents queue names may have any number of them.
MOST: Final = 100

#: Seconds that the last request may take, while the app waits to end.
LAST: Final = 2.0

#: Seconds that connecting may take.
CONNECT: Final = 5.0

#: After how many unanswered requests a broker is no longer asked; one alone does not count, for it may only be slow.
TRIES: Final = 3

_GROUP: Final = "jmsx.counts"

_log = logger("jmsx.app")


class Counting:
    """
    Asks the brokers for their counts at `begin()`, at regular intervals, and once more at `close()`; on a thread.

    Args:
        places: the app's destinations, each with the session that used it last; more may be added later.
        uri: the app's brokers, and the options to connect with.
        observer: receives each answer as a `QueueCounted` event of that session.
        every: seconds between two requests.

    """

    def __init__(
        self, places: Mapping[str, Source], uri: BrokerUri, observer: Observer, every: float
    ) -> None:
        self._places = places
        self._brokers = {str(address): address for address in uri.addresses}
        timeout = min(uri.options.connect_timeout or CONNECT, CONNECT)
        self._options: ConnectionOptions = replace(uri.options, connect_timeout=timeout)
        self._observer = observer
        self._every = every
        self._silent: set[str] = set()  #: brokers that give no counts
        self._unanswered: dict[str, int] = {}  #: unanswered requests in a row, by broker
        self._compared: set[str] = set()  #: brokers whose clock was compared with ours
        self._asking: Connection | None = None
        self._closing = Event()
        self._left = False
        self._thread = threading.Thread(target=self._run, name="jmsx-counting", daemon=True)

    def begin(self) -> None:
        """Ask the brokers from now on; raises ResourceAllocationError if the process cannot start the thread."""
        start(self._thread, "the app asks for no counts of the broker", "start it again")

    def leave(self) -> None:
        """Stop asking at once, without a last request; does not block."""
        self._left = True
        self._closing.set()
        asking = self._asking
        if asking is not None:
            asking.abort()

    def close(self, patience: float = LAST) -> None:
        """Ask a last time, and give up on that after `patience` seconds."""
        self._closing.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(patience)
        self.leave()

    def _run(self) -> None:
        while not self._left:
            last = self._closing.is_set()
            self._look()
            if last or (self._closing.wait(self._every) and self._left):
                return

    def _look(self) -> None:
        """Ask each broker for the queues that were last used on it."""
        wanted: dict[str, dict[str, Source]] = {}
        for destination, source in dict(self._places).items():
            if source.broker in self._brokers and source.broker not in self._silent:
                wanted.setdefault(source.broker, {})[destination] = source
        for broker, places in wanted.items():
            if not self._left:
                self._try(self._brokers[broker], places)

    def _try(self, address: BrokerAddress, places: Mapping[str, Source]) -> None:
        """Ask a broker; one that is away is asked another time, one that does not tell is not."""
        try:
            told = self._ask(address, places)
        except (LinkError, BrokerTimeoutError) as error:
            _log.debug("broker does not tell its counts now", broker=str(address), why=str(error))
        except JmsxError as error:
            self._give_up(str(address), str(error))
        except Exception as error:  # noqa: BLE001 - a failure to count must not end the app
            self._give_up(str(address), f"{type(error).__name__}: {error}")
        else:
            broker = str(address)
            self._unanswered[broker] = 0 if told else self._unanswered.get(broker, 0) + 1
            if self._unanswered[broker] == TRIES:
                self._give_up(broker, "it has no means for it, or does not let this user")

    def _give_up(self, broker: str, why: str) -> None:
        """Say once that a broker does not tell, and leave it alone."""
        if not self._left:
            self._silent.add(broker)
            _log.info("broker does not tell its counts", broker=broker, why=why)

    def _ask(self, address: BrokerAddress, places: Mapping[str, Source]) -> bool:
        """Tell the observer what the broker counts; False if it does not tell."""
        with connect_to(address, self._options) as connection:
            self._asking = connection
            try:
                connection.start()
                session = connection.create_session()
                dialect = link_of(session).dialect.name
                if dialect not in plugins.names(_GROUP):
                    return False
                count: Any = plugins.load(_GROUP, dialect)
                found = count(session, list(places))
                self._tell(found or {}, places)
                # When the app ends, a clock that was compared before is not compared again.
                unneeded = self._closing.is_set() and str(address) in self._compared
                if found is not None and not unneeded:
                    self._compare_clocks(session, next(iter(places.values())))
            finally:
                self._asking = None
        return found is not None

    def _tell(self, found: Mapping[str, QueueCounts], places: Mapping[str, Source]) -> None:
        for destination, counts in found.items():
            event = QueueCounted(
                at=time.monotonic(), destination=destination, every=self._every, **counts._asdict()
            )
            self._observer.observe(event, places[destination])

    def _compare_clocks(self, session: Session, source: Source) -> None:
        """Tell the observer the broker's clock, as a message to ourselves shows it; if it shows none, nothing."""
        try:
            queue = session.create_temporary_queue()
            answers, producer = session.create_consumer(queue), session.create_producer(queue)
            producer.disable_message_timestamp = True  # Classic would take ours for its own
            began, wall = time.monotonic(), time.time()
            # No time to live, for if our clock is slow the message would expire on arrival. It ends with the queue.
            producer.send(Message(None), persistent=False)
            answer = answers.receive(LAST)
        except JmsxError as error:  # such as that this user may have no such queue
            _log.debug("broker does not show its clock", broker=source.broker, why=str(error))
            return
        if answer is not None and answer.timestamp is not None:
            now = time.monotonic()
            half = (now - began) / 2
            ahead = answer.timestamp - (wall + half)
            event = ClockCompared(at=now, ahead=ahead, within=half, every=self._every)
            self._observer.observe(event, source)
            self._compared.add(source.broker)


class Places(dict[str, "Source"]):
    """The session that used each destination last; only single queues are noted, at most `MOST` of them."""

    def note(self, destination: str, source: Source) -> None:
        """Note that the session of `source` has used `destination`."""
        if self.get(destination) is not source and (
            destination in self
            or (
                len(self) < MOST
                and destination.startswith("queue://")
                and not is_pattern(destination)
            )
        ):
            self[destination] = source
