"""Opening the dead letters of a broker, with the adapter of its dialect."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from jmsx import plugins
from jmsx.config.uri import parse_broker_uri
from jmsx.dead_letters.access import Access
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    JmsxError,
)
from jmsx.jms.one_broker import connect_to
from jmsx.jms.session import Session, link_of

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The entry point group of what adapters register: a callable that makes an Access of a Session.
GROUP: Final = "jmsx.dead_letters"


@contextmanager
def open_access(url: str) -> Iterator[Access]:
    """
    Yield access to the dead letters of the first broker of `url` that answers.

    Raises ConfigurationError for a broker whose kind has no adapter for it, else what a `Connection` raises.
    """
    uri = parse_broker_uri(url)
    failure: JmsxError = ConnectionFailedError(f"no broker in {url}")
    for address in uri.addresses:
        try:
            connection = connect_to(address, uri.options)
            session = connection.create_session()
        except JmsxError as error:
            failure = error
            continue
        with connection:
            try:
                yield _access(session)
            except (BrokerTimeoutError, ConnectionFailedError, KeyboardInterrupt):
                connection.abort()  # to close it would wait for a silent broker, and fail with that instead
                raise
        return
    raise failure


def _access(session: Session) -> Access:
    name = link_of(session).dialect.name
    if name not in plugins.names(GROUP):
        known = ", ".join(plugins.names(GROUP))
        raise ConfigurationError(
            f"jmsx cannot move the dead letters of a {name} broker; it can on {known}"
        )
    made: Access = plugins.load(GROUP, name)(session)
    return made
