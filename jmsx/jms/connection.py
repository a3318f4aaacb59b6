"""The connection: settings that sessions share. The sockets are the sessions' own."""

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
    A connection to a broker, in JMS's sense: deliveries start with `start()`.

    `url` may carry options as Java users write them; keyword `options` are the fields of `ConnectionOptions`, and the
    URL wins. Raises ConfigurationError for options that make no sense. With a client id, `start()` or the first session
    connects at once and raises InvalidClientIdError if another connection has it.
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
        if isinstance(url, BrokerUri):  # read already: an app's, with what a consumer changes
            uri = replace(url, options=replace(url.options, **options))
        else:
            uri = parse_broker_uri(url, ConnectionOptions.of(**options))
        check_threads()
        machine = machine or Machine()
        machine.check_files(uri)
        self._links = ConnectionLinks(uri, observers, machine)

    @property
    def options(self) -> ConnectionOptions:
        """All that was chosen for it, by keyword or in the URL, and the defaults for the rest."""
        return self._links.options

    def set_exception_listener(self, listener: Callable[[JmsxError], object] | None) -> None:
        """
        Call `listener(error)` with a LinkError when a session's link is lost, and with what the broker has refused if
        nobody waits for it, as in Java: sends with `confirm=False` or `use_async_send`, or of messages that are not
        persistent; also what it refuses when `send()` has waited in vain. It is called on a thread of the
        driver, one error at a time.

        Once the connection is closed it is called no more, so a listener that replaces the connection does so once.
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

        With a reconnect policy it waits for the broker, as long as that allows. Raises ConfigurationError for what is
        no mode, ConnectionFailedError, TlsError, BrokerTimeoutError, SecurityError, InvalidClientIdError or StoreError.
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
        Hand out nothing until `start()`; waits for running listeners, unless called from one.

        False if one still runs after `timeout`: seconds, a timedelta, or a text such as "2s" (None: wait for ever).
        Raises ConfigurationError for a timeout that is no duration.
        """
        return self._links.stop(timeout_of("timeout", timeout))

    def close(self) -> None:
        """
        Wait for running listeners, and close all sessions, also the others if one fails to close.

        Until they return, or `request_timeout` is over, the listeners may use all of the connection. Idempotent, and
        nothing in the child of a fork.
        """
        self._links.close()

    def abort(self) -> None:
        """Drop every socket at once, without DISCONNECT: the broker takes back all that is not settled."""
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
