"""The `/metrics` endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import start_http_server

if TYPE_CHECKING:
    from threading import Thread
    from types import TracebackType
    from typing import Self
    from wsgiref.simple_server import WSGIServer

    from jmsx_prometheus.observer import PrometheusObserver


class Endpoint:
    """A running HTTP server that shows one observer's metrics; close it, or use it in a `with`."""

    def __init__(self, server: WSGIServer, thread: Thread, address: str) -> None:
        self._server = server
        self._thread = thread
        self.port = server.server_port  #: TCP port, also when a free one was asked for
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self.port}/metrics"  #: what to scrape

    def close(self) -> None:
        """Stop serving, and give the port back; a second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def serve(observer: PrometheusObserver, port: int, address: str = "127.0.0.1") -> Endpoint:
    """
    Show the metrics of `observer` on `address`; port 0 takes a free one.

    Raises:
        OSError: the port is taken, or the address is not ours.
    """
    server, thread = start_http_server(port, addr=address, registry=observer.registry)
    return Endpoint(server, thread, address)
