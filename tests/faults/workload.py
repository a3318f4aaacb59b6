"""The load: a producer that sends message by message, and says which of them the broker confirmed."""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from jmsx import Connection, Message, Queue
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, SendUnconfirmedError
from tests.faults.settings import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.faults.settings import Way

#: Seconds between two sends.
PACE: Final = 0.005

#: The same for what is sent beyond the size of a round, so that the load outlasts the fault.
_SLOW_PACE: Final = 0.02


class BenchError(Exception):
    """A round could not be brought to its end; says why."""


class Producer:
    """
    Sends `bodies` to a queue in a thread of its own, and more until `join()`; none that may have arrived twice.

    `groups`: so many message groups in turn; `pace`: seconds between two of the bodies.
    """

    def __init__(
        self, way: Way, queue: str, bodies: Iterable[str], *, groups: int = 0, pace: float = PACE
    ) -> None:
        self.sent: set[str] = set()
        self.began: dict[str, float] = {}  #: when each was sent for the first time; monotonic
        self.unconfirmed: set[str] = set()
        self.keys: dict[str, str] = {}  #: of what was sent, by body
        self._way = way
        self._queue = queue
        self._bodies = bodies
        self._pace = pace
        self._groups = itertools.cycle([f"group{number}" for number in range(groups)] or [None])
        self._enough = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Let it come to its end; raises BenchError if it failed, or still sends after `timeout` seconds."""
        self._enough.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise BenchError(f"the producer still sends after {timeout:g} s")
        if self._error is not None:
            raise BenchError(f"the producer ended with {self._error!r}") from self._error

    def _run(self) -> None:
        way = self._way
        try:
            with Connection(way.url, tls=way.tls, heartbeat=HEARTBEAT) as connection:
                producer = connection.create_session().create_producer(Queue(self._queue))
                for body in self._paced():
                    message = Message(body, group_id=next(self._groups))
                    self._send(body, partial(producer.send, message))
        except Exception as error:  # noqa: BLE001 - raised again by join()
            self._error = error

    def _paced(self) -> Iterator[str]:
        """The bodies, and then others until that is enough."""
        for body in self._bodies:
            yield body
            time.sleep(self._pace)
        for number in itertools.count():
            if self._enough.is_set():
                return
            yield f"{self._queue}/more{number}"
            time.sleep(max(_SLOW_PACE, self._pace))

    def _send(self, body: str, send: Callable[[], str]) -> None:
        self.began[body] = time.monotonic()
        while True:
            try:
                self.keys[body] = send()
            except (SendUnconfirmedError, BrokerTimeoutError):
                self.unconfirmed.add(body)
            except ConnectionFailedError as error:
                if not error.retriable:
                    raise
                continue  # nothing was sent
            else:
                self.sent.add(body)
            return
