"""The connection: settings that sessions share. The sockets are the sessions' own."""

from __future__ import annotations

import itertools
import os
import queue
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Self, Unpack

from jmsx.clock import SystemClock
from jmsx.core.values import AcknowledgeMode
from jmsx.drivers.connect import check_tls
from jmsx.drivers.open import OpenLink
from jmsx.drivers.reconnect import Connector
from jmsx.errors import ConfigurationError, ConnectionFailedError, IllegalStateError, JmsxError
from jmsx.jms.aside import Aside
from jmsx.jms.session import Session
from jmsx.ledger import release, share
from jmsx.log import logger
from jmsx.observe import Observer, Observers
from jmsx.options import ConnectionKeywords, ConnectionOptions
from jmsx.process import left_behind, tell_of_forks
from jmsx.uri import BrokerUri, parse_broker_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from jmsx.core.ledger import Ledger

_log = logger("jmsx.connection")


class Connection:
    """
    A connection to a broker, in JMS's sense: deliveries start with `start()`.

    `url` may carry options as Java users write them; keyword `options` are the fields of `ConnectionOptions`, and the
    URL wins. Raises ConfigurationError for options that make no sense. With a client id, `start()` or the first session
    connects at once and raises InvalidClientIdError if another connection has it.
    """

    def __init__(
        self,
        url: str | BrokerUri,
        *,
        observers: Iterable[Observer] = (),
        **options: Unpack[ConnectionKeywords],
    ) -> None:
        if isinstance(url, BrokerUri):  # read already: an app's, with what a consumer changes
            self._uri = replace(url, options=replace(url.options, **options))
        else:
            self._uri = parse_broker_uri(url, ConnectionOptions.of(**options))
        check_tls(self._uri)
        self.options = self._uri.options
        self.connection_id = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.signs = False  #: its messages tell that they are its own
        self._observers = Observers(observers)
        self.clock = SystemClock()  #: seconds, for all its sessions
        self.aside = Aside(self._uri, self.clock)
        self._lock = threading.RLock()  #: guards what follows; never held while a link is opened
        self._opening = threading.RLock()  #: one link is opened after the other
        self._connectors: set[Connector] = set()  #: that are at it
        self._sessions: list[Session] = []
        self._count = itertools.count(1)
        self._spare: OpenLink | None = None
        self.scheduler: bool | None = (
            None  #: whether the broker delays messages, once that is known
        )
        self.ledger: Ledger | None = None  #: open while there may be sessions
        self._durables: dict[str, Session] = {}  #: names of durable subscriptions in use
        self.started = False
        self._unstarted = True  #: never started, and nobody was told of it
        self._closed = False
        self._aborted = False
        self._exception_listener: Callable[[JmsxError], object] | None = None
        self._left: IllegalStateError | None = None  #: why it is of no use in this process
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: it is the parent's, and neither closed nor used here."""
        self._lock, self._opening = threading.RLock(), threading.RLock()
        self._left = left_behind(
            f"the Connection to {self._uri} was made", "make one of its own in the child"
        )

    def set_exception_listener(self, listener: Callable[[JmsxError], object] | None) -> None:
        """Call `listener(error)` when a session's link is lost; on a thread of the driver."""
        self._exception_listener = listener

    def create_session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE) -> Session:
        """
        A session, on a socket of its own.

        With a reconnect policy it waits for the broker, as long as that says. Raises ConfigurationError for what is
        no mode, ConnectionFailedError, BrokerTimeoutError, SecurityError, InvalidClientIdError or StoreError.
        """
        if isinstance(mode, bool) or mode not in tuple(AcknowledgeMode):
            raise ConfigurationError(
                f"a session takes one AcknowledgeMode, such as SESSION_TRANSACTED, not {mode!r}"
            )
        with self._opening:
            with self._lock:
                self._check()
                if self.ledger is None and self.options.ledger is not None:
                    self.ledger = share(self.options.ledger)
                link, self._spare = self._spare, None
            if link is not None and link.pump.error is not None:
                link = None
            link = link or self.open_link(self._free_client_id())
            try:
                with self._lock:
                    self._check()
                    session_id = f"{self.connection_id}-{next(self._count)}"
                    session = Session(AcknowledgeMode(mode), self, link, session_id)
                    self._sessions.append(session)
                    return session
            except BaseException:
                link.pump.end("not needed")
                raise

    def start(self) -> None:
        """Begin to hand out messages."""
        with self._lock:
            self._check()
        if self.options.client_id is not None:
            self._show_client_id()
        with self._lock:
            self._check()
            self.started, self._unstarted = True, False
            for session in self._sessions:
                session.resume()

    def note_unstarted(self) -> None:
        """Tell once that a `receive()` waits for what cannot come."""
        with self._lock:
            unstarted, self._unstarted = self._unstarted, False
        if unstarted:
            _log.warning(
                "connection not started: receive() gets nothing until connection.start() is called",
                broker=str(self._uri),
            )

    def stop(self, timeout: float | None = None) -> bool:
        """
        Hand out nothing until `start()`; waits for running listeners, unless one of them calls.

        False if one still runs after `timeout` seconds (None: wait for ever).
        """
        with self._lock:
            self._check()
            self.started = False
            sessions = list(self._sessions)
        for session in sessions:
            session.pause()
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        left = [
            session.wait_idle(None if deadline is None else deadline - self.clock.monotonic())
            for session in sessions
        ]
        return all(left)

    def close(self) -> None:
        """Close all sessions, each of them also if another fails; idempotent, and nothing in the child of a fork."""
        if self._left is not None:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            sessions, spare = self._let_go()
        errors: list[JmsxError] = []
        for session in sessions:
            try:
                session.close()
            except JmsxError as error:
                errors.append(error)
        if spare is not None:
            spare.pump.leave("connection closed")
        self._release_ledger()
        if errors and not self._aborted:
            raise errors[0]

    def abort(self) -> None:
        """Drop every socket at once, without farewell: the broker takes back all that is not settled."""
        if self._left is not None:
            return
        with self._lock:
            self._aborted = True
            sessions, spare = self._let_go()
        for session in sessions:
            session.abort()
        if spare is not None:
            spare.pump.end("aborted")
        self._release_ledger()

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

    def _release_ledger(self) -> None:
        with self._lock:
            ledger, self.ledger = self.ledger, None
        if ledger is not None:
            release(ledger)

    def _let_go(self) -> tuple[list[Session], OpenLink | None]:
        """No new link is opened any more; what there is has to be ended."""
        for connector in self._connectors:
            connector.cancel()
        return list(self._sessions), self._spare

    def _check(self) -> None:
        if self._closed:
            raise IllegalStateError("The Connection is closed")
        if self._left is not None:
            raise self._left
        if self._aborted:
            raise ConnectionFailedError(f"the connection to {self._uri} was aborted")

    # For sessions ----------------------------------------------------------------------------------------------------

    def open_link(self, client_id: str | None, *, patient: bool = True) -> OpenLink:
        """A new link that carries `client_id`; raises what `Connector.first` does."""
        connector = Connector(self._uri, client_id, queue.SimpleQueue(), self.clock)
        with self._lock:
            self._check()
            self._connectors.add(connector)
        try:
            return OpenLink(connector, self.clock, self._observers, patient=patient)
        finally:
            with self._lock:
                self._connectors.discard(connector)

    def claim_client_id(self, session: Session, subscription: str | None) -> None:
        """
        Give `session` the socket with the connection's client id, for the durable `subscription` (None: to remove one).

        Raises JmsxError if the subscription is in use, UnsupportedError if another session needs that socket.
        """
        with self._opening:
            with self._lock:
                others = [each for each in self._sessions if each is not session]
            if subscription in self._durables:
                raise JmsxError(
                    f"Durable consumer is in use for client: {self.options.client_id}"
                    f" and subscriptionName: {subscription}"
                )
            for other in others:
                if other.client_id == self.options.client_id is not None:
                    other.relink(self._further_client_id())
            with self._lock:
                spare, self._spare = self._spare, None
            if spare is not None:
                spare.pump.leave("not needed")
            if session.client_id != self.options.client_id:
                session.relink(self.options.client_id)
            if subscription is not None:
                self._durables[subscription] = session

    def release_durable(self, subscription: str) -> None:
        """The consumer of a durable subscription is closed."""
        self._durables.pop(subscription, None)

    def forget(self, session: Session, *, reachable: bool) -> None:
        """A session is closed; the broker was `reachable` then."""
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)
            self._durables = {
                name: user for name, user in self._durables.items() if user is not session
            }
            held = session.client_id is not None and session.client_id == self.options.client_id
            if not held or self._closed or self._aborted or not reachable:
                return
        self._keep_client_id()

    def _show_client_id(self) -> None:
        """Connect at once, to see whether the client id is free."""
        with self._opening:
            with self._lock:
                if self._sessions or self._spare is not None:
                    return
            self._keep(self.open_link(self.options.client_id))

    def _keep_client_id(self) -> None:
        """The client id is the connection's as long as it lives, also while no session carries it."""
        try:
            self._keep(self.open_link(self.options.client_id, patient=False))
        except JmsxError as error:
            _log.warning("client id not kept", client_id=self.options.client_id, error=str(error))

    def _keep(self, link: OpenLink) -> None:
        with self._lock:
            wanted = self._spare is None and not (self._closed or self._aborted)
            if wanted:
                self._spare = link
        if not wanted:
            link.pump.end("not needed")

    def _free_client_id(self) -> str | None:
        """The connection's client id, or one of its own if a session has that already."""
        client_id = self.options.client_id
        used = any(session.client_id == client_id for session in self._sessions)
        return self._further_client_id() if used else client_id

    def _further_client_id(self) -> str | None:
        if self.options.client_id is None:
            return None
        return f"{self.options.client_id}-{next(self._count)}"

    def lost(self, error: JmsxError) -> None:
        """The link of a session is gone."""
        _log.error("connection lost", broker=str(self._uri), error=str(error))
        listener = self._exception_listener
        if listener is not None:
            try:
                listener(error)
            except BaseException as raised:  # noqa: BLE001 - an application's listener may raise anything
                _log.error("exception listener failed", exc_info=raised)
