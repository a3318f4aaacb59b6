"""The `/metrics` endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.drivers.web import WebServer
from jmsx_prometheus.observer import PrometheusObserver

if TYPE_CHECKING:
    from typing import Self


class Endpoint(WebServer):
    """A running HTTP server that shows one observer's metrics; close it, or use it in a `with`."""

    def __init__(self, observer: PrometheusObserver, port: int, address: str) -> None:
        super().__init__(address, port, observer.wsgi, name="jmsx-metrics")
        self.begin()
        self.url += "/metrics"  #: what to scrape

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(observer: PrometheusObserver, port: int, address: str = "127.0.0.1") -> Endpoint:
    """
    Show the metrics of `observer` on `address`; port 0 takes a free one.

    Raises:
        OSError: the port is taken, or the address is not ours.
    """
    return Endpoint(observer, port, address)
