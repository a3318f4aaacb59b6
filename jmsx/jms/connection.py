"""The connection: what its sessions share, such as options and client id. Each session has a socket of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Never, Self, Unpack

from jmsx.config.options import ConnectionKeywords, ConnectionOptions
from jmsx.config.uri import BrokerUri, parse_broker_uri
from jmsx.core.durations import Duration, timeout_of
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.option_checks import check_position, nearest
from jmsx.drivers.machine import Machine
from jmsx.drivers.threads import check_threads
from jmsx.errors import ConfigurationError, JmsxError
from jmsx.jms.handlers import check_runs, check_takes_message
from jmsx.jms.link import ConnectionLinks
from jmsx.jms.session import Session
from jmsx.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Connection:
    """
    A connection to a broker, in JMS's sense: no message is delivered before `start()`.

    `url` may carry options as Java users write them; keyword `options` are the fields of `ConnectionOptions`; the
    URL wins if both set an option. Raises ConfigurationError for options that make no sense. With a client id,
    `start()` or the first session connects at once and raises InvalidClientIdError if another connection uses that id.
    """

    def __init__(
        self,
        url: str | BrokerUri,
        *others: Never,
        observers: Iterable[Observer] = (),
        machine: Machine | None = None,
        **options: Unpack[ConnectionKeywords],
    ) -> None:
        check_position("Connection", others)
        if isinstance(url, BrokerUri):  # parsed already, by an App, which adds a consumer's options
            uri = replace(url, options=replace(url.options, **options))
        else:
            uri = parse_broker_uri(url, ConnectionOptions.of(**options))
        check_threads()
        machine = machine or Machine()
        machine.check_files(uri)
        self._links = ConnectionLinks(uri, observers, machine)

    @property
    def options(self) -> ConnectionOptions:
        """The options of this connection: those given by keyword or in the URL, and the defaults of all others."""
        return self._links.options

    def set_exception_listener(self, listener: Callable[[JmsxError], object] | None) -> None:
        """
        Call `listener(error)` with a LinkError when a session's link is lost for good, and with the broker's error when
        it refuses a message for which no `send()` waits, as in Java: one sent with `confirm=False` or `use_async_send`,
        a non-persistent one, or one whose `send()` has timed out. It is called on a thread of jmsx, with one error at a
        time.

        After the connection is closed, the listener is not called any more; so a listener that replaces the connection
        does that only once.
        Raises ConfigurationError for a coroutine or generator function and for one that does not take an error,
        IllegalStateError if the connection is closed, and ConnectionFailedError if it was aborted.
        """
        self._links.check()
        if listener is not None:
            check_runs(listener)
            check_takes_message(listener, "error")
        self._links.exception_listener = listener

    def create_session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE) -> Session:
        """
        Return a session, on a socket of its own.

        With a reconnect policy this waits for an unreachable broker, as long as the policy allows. Raises
        ConfigurationError if `mode` is no AcknowledgeMode, and ConnectionFailedError, TlsError, BrokerTimeoutError,
        SecurityError, InvalidClientIdError or StoreError if no session can be opened.
        """
        if isinstance(mode, bool) or mode not in tuple(AcknowledgeMode):
            raise ConfigurationError(
                f"a session takes one AcknowledgeMode, such as {_mode_like(mode)}, not {mode!r}"
            )
        return Session(self._links.add(AcknowledgeMode(mode)))

    def start(self) -> None:
        """Begin to hand out messages; before that, `receive()` and listeners get nothing."""
        self._links.start()

    def stop(self, timeout: Duration | None = None) -> bool:
        """
        Deliver nothing until `start()`; waits for running listeners, unless it is called from one of them.

        Returns False if a listener still runs after `timeout`: seconds, a timedelta, or a text such as "2s" (None: wait
        for ever).
        Raises ConfigurationError for a timeout that is no duration.
        """
        return self._links.stop(timeout_of("timeout", timeout))

    def close(self) -> None:
        """
        Wait for running listeners, and close all sessions; if one fails to close, the others are closed all the same.

        Until they return, or `request_timeout` is over, the listeners may still use the connection and its sessions.
        Idempotent. In the child of a fork this does nothing.
        """
        self._links.close()

    def abort(self) -> None:
        """Drop every socket at once, without DISCONNECT: the broker takes back every unacknowledged message."""
        self._links.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self._links}>"


def _mode_like(given: object) -> str:
    """Return the mode that `given` may have been meant to be; of nothing like one, the transacted."""
    names = {name: mode.name for mode in AcknowledgeMode for name in (mode.label, mode.name)}
    near = nearest(given.replace("-", "_"), list(names)) if isinstance(given, str) else None
    return f"AcknowledgeMode.{names.get(near or '', 'SESSION_TRANSACTED')}"
