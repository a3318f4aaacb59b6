"""
The fault x alert matrix: a real Prometheus watches real applications on a real broker, and one thing after the other
goes wrong. Rules run `TIMESCALE` times faster than in life.

`python -m tests.dashboards.matrix --broker classic` prints what fired, and exits with 1 where that is not what must.
With `--write tests/dashboards/matrix.json`, `python -m tests.dashboards.generate` puts it into dashboards/README.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx_broker.artemis import ArtemisBroker
from jmsx_broker.classic import ClassicBroker
from jmsx_dashboards.model import Budget, Links, Settings
from jmsx_dashboards.texts import rules
from tests.dashboards.generate import ROOT
from tests.dashboards.live import Prometheus, free_port, prometheus, target, wait_until
from tests.integration.broker_support import changed_classic
from tests.integration.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx_broker.local import LocalBroker

TIMESCALE: Final = 30.0
#: Late is here what takes longer than half a second.
SETTINGS: Final = Settings(timescale=TIMESCALE, budget=Budget(seconds=0.5))
_BROKERS: Final = ("artemis", "classic")
#: Seconds from an application's start until Prometheus has seen that it is there.
_SETTLING: Final = 12.0
_RECONNECT: Final = "initialReconnectDelay=100&maxReconnectDelay=500"


@dataclass(frozen=True)
class App:
    """A running application."""

    process: subprocess.Popen[str]
    port: int  #: of its metrics


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Scene:
    """What there is: a broker, applications, and a Prometheus that scrapes them."""

    broker: LocalBroker
    server: Prometheus
    folder: Path
    stack: ExitStack  #: what ends with it
    ports: list[int] = field(default_factory=list)  #: that are scraped
    apps: list[subprocess.Popen[str]] = field(default_factory=list)

    def proxy(self) -> Proxy:
        """Put a proxy in front of the broker."""
        return self.stack.enter_context(Proxy(self.broker.url))

    def start(self, role: str, *words: str, url: str | None = None) -> App:
        """Start an application, and have it scraped once it answers."""
        uri = f"failover:({url or self.broker.url})?{_RECONNECT}"
        port = free_port()
        app = subprocess.Popen(
            [sys.executable, "-m", "tests.dashboards.patient", uri, str(port), role, *words],
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT.parent,
            stderr=self.stack.enter_context((self.folder / f"{port}.log").open("w")),
        )
        self.apps.append(app)
        wait_until(lambda: answers(port))
        self.ports.append(port)
        target(self.folder, *self.ports)
        return App(app, port)

    def end(self, app: App) -> None:
        """Scrape an application no more, and stop it in order."""
        self.forget(app)
        gone = f'up{{instance="127.0.0.1:{app.port}"}}'
        wait_until(lambda: not self.server.query(gone, time.time()))
        self.stop(app)

    def forget(self, app: App) -> None:
        """Scrape an application no more."""
        self.ports.remove(app.port)
        target(self.folder, *self.ports)

    def stop(self, app: App) -> None:
        """Stop an application in order."""
        if app.process.stdin is not None:
            app.process.stdin.close()
        app.process.wait(30)

    def fired(self, since: float) -> set[str]:
        """Name the alerts that have fired since then, seconds since the epoch."""
        asked = {"start": str(since), "end": str(time.time()), "step": "1"}
        found = self.server.get("query_range", query='ALERTS{alertstate="firing"}', **asked)
        return {one["metric"]["alertname"] for one in found["result"]}


def _plain(kind: str) -> LocalBroker:
    """A broker of a kind."""
    return ClassicBroker() if kind == "classic" else ArtemisBroker()


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, and what must fire while it does."""

    name: str
    happen: Callable[[Scene], None]
    expected: frozenset[str]
    seconds: float = 35.0
    #: What may fire besides, as it follows in life only after hours or where the machine is slow.
    allowed: frozenset[str] = frozenset()
    broker: Callable[[str], LocalBroker] = _plain  #: of a kind, where it is no plain one
    artemis: frozenset[str] | None = None  #: what must fire there, if it is something else


def _healthy(scene: Scene) -> None:
    """Work, long back-offs, a second instance, a deploy of it, a scale-down."""
    scene.start("both", *["ok", "ok", "ok", "calm"] * 49, "once")
    second = scene.start("work")
    time.sleep(8)
    scene.end(second)
    third = scene.start("work")
    time.sleep(8)
    scene.end(third)
    fourth = scene.start("work")
    time.sleep(8)
    scene.stop(fourth)
    # and Prometheus reads its list of targets after up to 5 s, here two and a half minutes
    scene.forget(fourth)


def _with(*words: str) -> Callable[[Scene], None]:
    def happen(scene: Scene) -> None:
        scene.start("both", *words)

    return happen


def _broker_dies(scene: Scene) -> None:
    scene.start("both", "ok")
    time.sleep(6)
    scene.broker.kill()


def _killed(scene: Scene) -> None:
    first = scene.start("both", "ok")
    scene.start("work")
    time.sleep(8)
    first.process.kill()
    first.process.wait()


def _frozen(scene: Scene) -> None:
    scene.start("both", "ok")
    second = scene.start("work")
    time.sleep(8)
    second.process.send_signal(signal.SIGSTOP)


def _nobody_there(scene: Scene) -> None:
    scene.start("work", url=f"stomp://127.0.0.1:{free_port()}")


def _no_consumer(scene: Scene) -> None:
    reader = scene.start("both", "ok")
    time.sleep(6)
    scene.start("send", "ok")
    scene.end(reader)


def _full_disk(scene: Scene) -> None:
    scene.start("full", "ok")


def _half_open(scene: Scene) -> None:
    """Nothing comes on the connections any more, and nobody says so; new ones live."""
    proxy = scene.proxy()
    scene.start("brisk", "ok", url=proxy.url)
    time.sleep(8)
    proxy.freeze()


def _cut_off(scene: Scene) -> None:
    """As before, and who comes anew is turned away."""
    proxy = scene.proxy()
    scene.start("brisk", "ok", url=proxy.url)
    time.sleep(8)
    scene.stack.enter_context(proxy.shut())
    proxy.freeze()


def _cut_often(scene: Scene) -> None:
    """A network that resets all connections every 75 seconds."""
    proxy = scene.proxy()
    scene.start("both", "ok", url=proxy.url)
    time.sleep(8)
    for _ in range(14):
        time.sleep(2.5)
        proxy.cut()


def _broker_restarts(scene: Scene) -> None:
    scene.start("both", "ok")
    for _ in range(2):
        time.sleep(8)
        scene.broker.kill()
        time.sleep(7)
        scene.broker.start()


def _tight(kind: str) -> LocalBroker:
    """A broker whose queue `tight` has room for one message, and that says so."""
    if kind == "artemis":
        return ArtemisBroker(
            address_settings={"tight": {"max-size-bytes": 1, "address-full-policy": "FAIL"}}
        )
    policy = (
        '<destinationPolicy><policyMap><policyEntries><policyEntry queue="tight"'
        ' producerFlowControl="true" memoryLimit="1kb"><pendingQueuePolicy><vmQueueCursor/>'
        "</pendingQueuePolicy></policyEntry></policyEntries></policyMap></destinationPolicy>"
    )
    return changed_classic(
        ("<plugins>", f"{policy}<plugins>"),
        ("      <systemUsage>", '      <systemUsage sendFailIfNoSpace="true">'),
    )


def _no_room(scene: Scene) -> None:
    scene.start("tight", *["ok"] * 200, "reject")


#: What a process that is gone or frozen held comes again, late.
_LATE: Final = frozenset({"JmsxLatencyBudgetFastBurn", "JmsxLatencyBudgetSlowBurn"})
#: What has been done and could not be acknowledged before the connection went is done again.
_AGAIN: Final = frozenset({"JmsxAcknowledgementsDropped"})

FAULTS: Final = (
    Fault("30 healthy minutes: back-offs of 45 min, a deploy", _healthy, frozenset(), seconds=50.0),
    Fault(
        "one message in ten is rejected",
        _with(*["ok"] * 9, "reject"),
        frozenset({"JmsxDeadLetterBudgetFastBurn", "JmsxDeadLetterBudgetSlowBurn"}),
        seconds=60.0,
    ),
    Fault(
        "half of the messages fail until their limit",
        _with("ok", "raise"),
        frozenset(
            {
                "JmsxDeadLetterBudgetFastBurn",
                "JmsxDeadLetterBudgetSlowBurn",
                "JmsxRedeliveryStorm",
            }
        ),
        seconds=60.0,
    ),
    Fault(
        "a handler hangs",
        _with(*["ok"] * 80, "hang"),
        frozenset({"JmsxConsumerStalled", "JmsxOldestUnsettledTooOld"}),
        seconds=60.0,
    ),
    Fault(
        "handlers are slower than messages come",
        _with("sleep:0.1"),
        frozenset({"JmsxLatencyBudgetFastBurn", "JmsxLatencyBudgetSlowBurn"}),
        seconds=60.0,
        allowed=frozenset({"JmsxOldestUnsettledTooOld"}),
    ),
    Fault(
        "one of two processes is killed -9", _killed, frozenset({"JmsxInstanceGone"}), allowed=_LATE
    ),
    Fault(
        "one of two processes is frozen", _frozen, frozenset({"JmsxInstanceGone"}), allowed=_LATE
    ),
    Fault("no broker at the address", _nobody_there, frozenset({"JmsxCannotConnect"})),
    Fault(
        "messages come and nobody reads them",
        _no_consumer,
        frozenset({"JmsxBacklogWithoutConsumer"}),
        seconds=60.0,
    ),
    Fault("the broker is killed", _broker_dies, frozenset({"JmsxConnectionDown"})),
    Fault(
        "the broker is restarted twice, and away for 4 minutes each time",
        _broker_restarts,
        frozenset({"JmsxConnectionDown"}),
        seconds=30.0,
        allowed=_LATE | _AGAIN,
    ),
    Fault(
        "a connection is half open, and new ones live",
        _half_open,
        frozenset(),
        allowed=_LATE | _AGAIN,
    ),
    Fault(
        "connections are half open, and new ones refused",
        _cut_off,
        frozenset({"JmsxConnectionDown"}),
        allowed=_AGAIN,
    ),
    Fault(
        "a handler is slow with one message in a hundred",
        _with(*["ok"] * 99, "sleep:0.8"),
        frozenset({"JmsxLatencyBudgetSlowBurn"}),
        seconds=75.0,
    ),
    Fault(
        "forty poison messages in a row",
        _with(*["ok"] * 300, *["reject"] * 40, *["ok"] * 4000),
        frozenset({"JmsxDeadLetterBudgetFastBurn", "JmsxDeadLetterBudgetSlowBurn"}),
        seconds=60.0,
    ),
    Fault(
        "three poison messages in an hour",
        _with(*["ok"] * 900, *["reject"] * 3, *["ok"] * 4000),
        frozenset(),
        seconds=60.0,
    ),
    Fault(
        "the dead letter queue is full",
        _no_room,
        frozenset({"JmsxDeadLetterPublishFailing", "JmsxBrokerErrors"}),
        seconds=45.0,
        # Nothing gets on behind a dead letter that has no place.
        allowed=_LATE | {"JmsxConsumerStalled", "JmsxOldestUnsettledTooOld"},
        broker=_tight,
    ),
    Fault(
        "all connections are reset every 75 seconds",
        _cut_often,
        frozenset({"JmsxConnectionFlapping"}),
        seconds=10.0,
        allowed=_LATE | _AGAIN,
    ),
    Fault(
        "a queue that is sent to is full",
        _with(*["ok"] * 299, "fill"),
        frozenset({"JmsxSendFailing", "JmsxBrokerErrors"}),
        seconds=45.0,
        allowed=_LATE | {"JmsxConnectionDown"},  # Artemis ends the connection, and the next one
        broker=_tight,
        # A send that the broker complains of is repeated on one more link, and then in doubt: few links are lost.
        artemis=frozenset({"JmsxBrokerErrors"}),
    ),
    Fault("the disk of the event log is full", _full_disk, frozenset({"JmsxEventLogIncomplete"})),
)


def played(fault: Fault, kind: str, folder: Path, pictures: Path | None) -> set[str]:
    """What fired while `fault` happened on a broker and a Prometheus of its own."""
    folder.mkdir(parents=True)
    written = folder / "rules.yml"
    written.write_text(rules(Links(), SETTINGS))
    with ExitStack() as stack:
        broker = stack.enter_context(fault.broker(kind))
        server = stack.enter_context(prometheus(folder, written, scrape="1s"))
        scene = Scene(broker, server, folder, stack)
        try:
            fault.happen(scene)
            wait_until(lambda: bool(server.query("jmsx_build_info", time.time())))
            (_, began), *_ = server.query("min(jmsx_start_timestamp_seconds)", time.time())
            time.sleep(fault.seconds)
            if pictures is not None:
                _draw(server, pictures / fault.name.replace(" ", "-").replace(":", ""))
            return scene.fired(began + _SETTLING)
        finally:
            for app in scene.apps:
                app.kill()
                app.wait()


def _draw(server: Prometheus, folder: Path) -> None:
    from jmsx_dashboards.cli import app  # noqa: PLC0415 - only where pictures are wanted

    arguments = ["render", str(folder), "--prometheus", server.url, "--since", "90s"]
    app([*arguments, "--scrape", "1"], standalone_mode=False)


def main() -> int:
    """Play all faults; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=_BROKERS, default="classic")
    parser.add_argument("--fault", type=int, nargs="*", help="only these, counted from 0")
    parser.add_argument("--write", type=Path, help="add what fired to this JSON file")
    parser.add_argument("--pictures", type=Path, help="draw the boards at each fault's end")
    parser.add_argument("--keep", type=Path, help="a folder for all numbers and logs, to look why")
    options = parser.parse_args()
    rows = {}
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for number, fault in enumerate(FAULTS):
            if options.fault is not None and number not in options.fault:
                continue
            fired = played(fault, options.broker, folder / str(number), options.pictures)
            expected = fault.expected
            if options.broker == "artemis" and fault.artemis is not None:
                expected = fault.artemis
            missed, false = expected - fired, fired - expected - fault.allowed
            wrong += len(missed) + len(false)
            rows[fault.name] = {
                "fired": sorted(fired),
                "expected": sorted(expected),
                "allowed": sorted(fault.allowed),
            }
            if options.write is not None:
                known = json.loads(options.write.read_text()) if options.write.exists() else {}
                known.setdefault(options.broker, {}).update(rows)
                options.write.write_text(json.dumps(known, indent=1) + "\n")
            print(  # noqa: T201 - a command
                f"{fault.name}: fired {sorted(fired)}; missed {sorted(missed)}; false {sorted(false)}",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
