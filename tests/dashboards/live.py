"""A real Prometheus for some seconds: started, asked over HTTP, stopped."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.dashboards.tools import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PATIENCE = 30.0  #: seconds
_TARGETS = "targets.json"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expr: str, at: float) -> list[tuple[dict[str, str], float]]:
        """Evaluate `expr` for a moment in seconds since the epoch: each series' labels and value."""
        found = self.get("query", query=expr, time=str(at))
        if found["resultType"] == "scalar":
            return [({}, float(found["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def get(self, path: str, **parameters: str) -> Any:
        """Ask the API; an error of Prometheus' is an error here, with its words."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - a Prometheus of the test
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"{parameters}: {error.read().decode()}") from None


@contextmanager
def prometheus(folder: Path, rules: Path, *ports: int, scrape: str = "1s") -> Iterator[Prometheus]:
    """
    Start a server that scrapes `ports` and evaluates `rules`, each so often.

    `target` changes what is scraped.
    """
    configuration = folder / "prometheus.yml"
    scraped = {"job_name": "shop", "file_sd_configs": [{"files": [str(folder / _TARGETS)]}]}
    target(folder, *ports)
    settings = {"scrape_interval": scrape, "evaluation_interval": scrape, "scrape_timeout": scrape}
    configuration.write_text(
        yaml.safe_dump(
            {"global": settings, "rule_files": [str(rules)], "scrape_configs": [scraped]}
        )
    )
    address = f"127.0.0.1:{free_port()}"
    command = [
        require("prometheus"),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            wait_until(lambda: _is_ready(f"http://{address}"))
            yield Prometheus(f"http://{address}")
        finally:
            server.terminate()


def target(folder: Path, *ports: int) -> None:
    """Have the server that was started with `folder` scrape `ports`, and nothing else."""
    targets = json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}])
    fresh = folder / "fresh"
    fresh.write_text(targets)
    fresh.rename(folder / _TARGETS)


def wait_until(condition: Callable[[], bool]) -> None:
    """Look every tenth of a second until `condition` holds, for at most 30 s."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.1)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1):  # noqa: S310 - a Prometheus of the test
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
