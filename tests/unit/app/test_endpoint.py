"""The endpoint's WSGI application and its addresses; the server itself is tried in tests/integration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app.endpoint import Endpoint, application, parse_address
from jmsx.app.health import HealthReport
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable


def metrics(_environ: Any, start: Any) -> Iterable[bytes]:
    """An observer's own application."""
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"jmsx_up 1\n"]


def ask(path: str, method: str = "GET", *, with_metrics: bool = True) -> tuple[str, bytes]:
    """Status and body of an answer."""
    probes = {
        "/healthz": lambda: HealthReport(ok=True, body={"status": "ok"}),
        "/readyz": lambda: HealthReport(
            ok=False, body={"status": "failing", "reasons": ["draining"]}
        ),
    }
    told: list[str] = []

    def start(status: str, _headers: Any, _error: Any = None) -> Any:
        told.append(status)

    app = application(probes, metrics if with_metrics else None)
    body = b"".join(app({"PATH_INFO": path, "REQUEST_METHOD": method}, start))
    return told[0], body


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/healthz", "GET", "200 OK"),
        ("/healthz/", "HEAD", "200 OK"),
        ("/readyz", "GET", "503 Service Unavailable"),
        ("/metrics", "GET", "200 OK"),
        ("/", "GET", "404 Not Found"),
        ("/healthz", "POST", "405 Method Not Allowed"),
    ],
)
def test_answers(path: str, method: str, status: str) -> None:
    """Each path has its answer."""
    assert ask(path, method)[0] == status


def test_bodies() -> None:
    """A probe's body is JSON, an observer's is its own, an unknown path names the known ones."""
    assert json.loads(ask("/readyz")[1]) == {"status": "failing", "reasons": ["draining"]}
    assert ask("/metrics")[1] == b"jmsx_up 1\n"
    assert json.loads(ask("/x")[1])["paths"] == ["/healthz", "/readyz", "/metrics"]
    status, body = ask("/metrics", with_metrics=False)
    assert status == "404 Not Found"
    assert json.loads(body)["paths"] == ["/healthz", "/readyz"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),  # noqa: S104 - what Kubernetes' users write
        ("localhost:0", ("localhost", 0)),
        (":8080", ("", 8080)),
        ("8080", ("", 8080)),
        ("[::1]:8080", ("::1", 8080)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """HOST:PORT in all its forms."""
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", "::1:80", "host:65536", "http://host:80"])
def test_addresses_that_are_none(text: str) -> None:
    """Anything else is refused, with an example."""
    with pytest.raises(ConfigurationError, match="write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("address", ["192.0.2.1:0", "no-host.invalid:0"])
def test_where_nothing_can_be_served(address: str) -> None:
    """It is told where, why, and what to write instead."""
    told = (
        rf"cannot serve health at {address}: \[Errno .*; name a free port of this machine, such as "
    )
    with pytest.raises(ConfigurationError, match=told):
        Endpoint(address, application({}, None)).begin()
