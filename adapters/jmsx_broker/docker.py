"""The Docker daemon: whether one answers, and its errors in our words."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from typing import TYPE_CHECKING, Any

from jmsx.errors import ConfigurationError
from jmsx_broker.ports import PortTakenError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def docker_client() -> Iterator[Any]:
    """
    Yield a client of the Docker daemon that testcontainers uses.

    Raises ConfigurationError if none answers, or without the extra `broker`.
    """
    client = _connect()
    try:
        yield client
    finally:
        client.close()


def why_no_docker() -> str | None:
    """Return why there can be no containers here, or None if there can."""
    try:
        with docker_client():
            return None
    except ConfigurationError as error:
        return str(error)


@contextlib.contextmanager
def told_errors() -> Iterator[None]:
    """Raise the daemon's errors as ConfigurationError, or as PortTakenError if the daemon says that a port is taken."""
    from docker.errors import DockerException  # noqa: PLC0415 - the extra for containers may be missing

    try:
        yield
    except DockerException as error:
        taken = "port is already allocated" in str(error)
        kind = PortTakenError if taken else ConfigurationError
        raise kind(f"Docker says: {error}") from error


def _connect() -> Any:
    """Connect to the daemon; the caller closes what this returns."""
    try:
        from docker.errors import DockerException  # noqa: PLC0415 - the extra for containers may be missing
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - the extra for containers may be missing
    except ImportError as error:
        raise ConfigurationError(
            "containers need testcontainers: pip install 'jmsx[broker]'"
        ) from error
    with warnings.catch_warnings():
        # the library leaves the socket of a failed attempt to the garbage collector, which warns
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = DockerClient().client
            client.ping()
        except (DockerException, OSError) as error:
            said = str(error)
        else:
            return client
        gc.collect()
    where = os.environ.get("DOCKER_HOST", "its usual place")
    raise ConfigurationError(
        f"no Docker daemon answers at {where}: {said}; start one, or set DOCKER_HOST"
    )
