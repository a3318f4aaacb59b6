"""The connection: settings that sessions share. The sockets are the sessions' own."""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from typing import TYPE_CHECKING, Any, Self

from jmsx.clock import SystemClock
from jmsx.core.values import AcknowledgeMode, SessionSettings
from jmsx.drivers.open import OpenLink
from jmsx.errors import ConfigurationError, ConnectionFailedError, IllegalStateError, JmsxError
from jmsx.jms.session import Session
from jmsx.log import logger
from jmsx.observe import Observer, Observers
from jmsx.options import ConnectionOptions
from jmsx.uri import parse_broker_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

_log = logger("jmsx.connection")


class Connection:
    """
    A connection to a broker, in JMS's sense: deliveries start with `start()`.

    `url` may carry options as Java users write them; keyword `options` are the fields of `ConnectionOptions`, and the
    URL wins. Raises ConfigurationError for options that make no sense. With a client id, `start()` or the first session
    connects at once and raises InvalidClientIdError if another connection has it.
    """

    def __init__(self, url: str, *, observers: Iterable[Observer] = (), **options: Any) -> None:
        try:
            given = ConnectionOptions(**options)
        except TypeError as error:
            raise ConfigurationError(f"connection option: {error}") from error
        self._uri = parse_broker_uri(url, given)
        self.options = self._uri.options
        self.connection_id = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._observers = Observers(observers)
        self._clock = SystemClock()
        self._lock = threading.RLock()
        self._sessions: list[Session] = []
        self._count = itertools.count(1)
        self._spare: OpenLink | None = None
        self._client_id_used = False
        self._started = False
        self._closed = False
        self._aborted = False
        self._exception_listener: Callable[[JmsxError], object] | None = None

    def set_exception_listener(self, listener: Callable[[JmsxError], object] | None) -> None:
        """Call `listener(error)` when a session's link is lost; on a thread of the driver."""
        self._exception_listener = listener

    def create_session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE) -> Session:
        """
        A session, on a socket of its own.

        Raises ConnectionFailedError, BrokerTimeoutError, SecurityError or InvalidClientIdError.
        """
        with self._lock:
            self._check()
            mode = AcknowledgeMode(mode)
            link = self._spare or self._open()
            self._spare = None
            settings = SessionSettings(
                mode=mode,
                broker=link.broker,
                session_id=f"{self.connection_id}-{next(self._count)}",
                dead_letter=self.options.dead_letter,
                non_blocking_redelivery=self.options.non_blocking_redelivery,
                individual_transactions=self.options.transacted_individual_ack,
            )
            pump = link.attach(settings, self.connection_id)
            pump.running = self._started
            pump.on_lost = self._lost
            owns_client_id = link.client_id is not None and link.client_id == self.options.client_id

            def closed(session: Session) -> None:
                self._forget(session, owns_client_id=owns_client_id)

            session = Session(mode, pump, link.dialect, self.options, closed)
            self._sessions.append(session)
            return session

    def start(self) -> None:
        """Begin to hand out messages."""
        with self._lock:
            self._check()
            if self.options.client_id is not None and not self._sessions and self._spare is None:
                self._spare = self._open()
            self._started = True
            for session in self._sessions:
                session.resume()

    def stop(self, timeout: float | None = None) -> bool:
        """
        Hand out nothing until `start()`; waits for running listeners, unless one of them calls.

        False if one still runs after `timeout` seconds (None: wait for ever).
        """
        with self._lock:
            self._check()
            self._started = False
            sessions = list(self._sessions)
        for session in sessions:
            session.pause()
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        left = [
            session.wait_idle(None if deadline is None else deadline - self._clock.monotonic())
            for session in sessions
        ]
        return all(left)

    def close(self) -> None:
        """Close all sessions, each of them also if another fails; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            sessions, spare = list(self._sessions), self._spare
        errors: list[JmsxError] = []
        for session in sessions:
            try:
                session.close()
            except JmsxError as error:
                errors.append(error)
        if spare is not None:
            spare.pump.end("connection closed")
        if errors and not self._aborted:
            raise errors[0]

    def abort(self) -> None:
        """Drop every socket at once, without farewell: the broker takes back all that is not settled."""
        with self._lock:
            self._aborted = True
            sessions, spare = list(self._sessions), self._spare
        for session in sessions:
            session.abort()
        if spare is not None:
            spare.pump.end("aborted")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self._uri} [{len(self._sessions)} sessions]>"

    def _check(self) -> None:
        if self._closed:
            raise IllegalStateError("The Connection is closed")
        if self._aborted:
            raise ConnectionFailedError(f"the connection to {self._uri} was aborted")

    def _open(self) -> OpenLink:
        client_id = self.options.client_id
        if client_id is not None:
            if self._client_id_used:
                client_id = f"{client_id}-{next(self._count)}"
            self._client_id_used = True
        try:
            return OpenLink(self._uri, client_id, self._clock, self._observers)
        except JmsxError:
            self._client_id_used = any(self._sessions)
            raise

    def _forget(self, session: Session, *, owns_client_id: bool) -> None:
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)
            if owns_client_id:
                self._client_id_used = False

    def _lost(self, error: JmsxError) -> None:
        _log.error("connection lost", broker=str(self._uri), error=str(error))
        listener = self._exception_listener
        if listener is not None:
            try:
                listener(error)
            except Exception:  # noqa: BLE001 - an application's listener may raise anything
                _log.exception("exception listener failed")
