"""Find TCP ports of this machine that a broker can listen on."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import Final

from jmsx.errors import ConfigurationError

#: The loopback: a development broker without passwords is not for the network.
HOST: Final = "127.0.0.1"

#: Free ports are taken from below the range (Linux: from 32768) that the system gives to outgoing connections: there, a
#: client that keeps calling a stopped broker would sooner or later get the broker's port for itself, and connect to it.
_FREE_PORTS: Final = range(18000, 32000)


class PortTakenError(ConfigurationError):
    """Another program took the port that the broker was to have, after it was found free."""


def check_free(port: int) -> None:
    """Raise ConfigurationError if nobody can listen on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"cannot listen on {HOST}:{port}: {error}") from error


def free_port() -> int:
    """Return a port that nobody listens on now."""
    for _ in range(100):
        port = secrets.choice(_FREE_PORTS)
        with contextlib.suppress(ConfigurationError):
            check_free(port)
            return port
    raise ConfigurationError(
        f"no free port from {_FREE_PORTS.start} to {_FREE_PORTS.stop}; end what listens there, or name a port"
    )
