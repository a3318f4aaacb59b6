"""One run of the demo: a fresh broker, the example application, its traffic, and the evidence."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jmsx
from jmsx import plugins
from jmsx.cli import reconciliation
from jmsx.cli.books import Books
from jmsx.dead_letters.opening import open_access
from jmsx.errors import ConfigurationError, ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType


#: Seconds without any progress after which draining gives up.
PATIENCE: Final = 30.0

#: Seconds to wait until the broker's counts are final.
SETTLING: Final = 3.0

#: How many messages are sent in one transaction.
_TOGETHER: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result of a run: counts of messages, and the paths of the evidence."""

    sent: int
    processed: int
    redelivered: int
    dead_lettered: int
    lost: int
    duplicates: int
    audit: str  #: the report's verdict: balanced, suspect, unverifiable; or not run
    agree: bool
    report: str
    events: str
    metrics: str
    left: int = 0  #: messages left in the application's queues
    differences: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether no message was lost, and all records agree."""
        return self.lost == 0 and self.agree

    def as_dict(self) -> dict[str, Any]:
        """Return the result ready for JSON."""
        return asdict(self)


class Trial:
    """Sends `messages` messages to the application in `example` and follows every one of them."""

    def __init__(self, example: Path, out: Path, messages: int) -> None:
        self._out = out
        self._messages = messages
        self._module = load_example(example)
        self.books = Books()
        self._interrupted = threading.Event()
        self._events = out / "events"
        self._app: jmsx.App = self._module.app
        self._metrics = plugins.load("jmsx.observers", "prometheus")()
        self._log = plugins.load("jmsx.observers", "eventlog")(self._events, service="jmsx-demo")
        self._app.observe(self.books, self._metrics, self._log)

    @property
    def queues(self) -> list[str]:
        """URIs of the queues that the application consumes."""
        return sorted({consumer.destination.uri for consumer in self._app.consumers})

    def interrupt(self) -> None:
        """Stop sending, and drain."""
        self._interrupted.set()

    @property
    def interrupted(self) -> bool:
        """Whether the run was cut short."""
        return self._interrupted.is_set()

    def exchange(self, broker: Any, progress: Callable[[str, int], None]) -> None:
        """
        Send and consume all messages on `broker`; `progress(phase, messages)` is called as it goes on.

        Raises what the application raises, such as ConnectionFailedError when the broker dies.
        """
        self._app.url = broker.url
        self._app.reconnect = False  # if the demo's own broker dies, it does not come back
        self._app.start()
        try:
            self._send(progress)
            self._drain(progress)
            self._app.wait(0)
        except BaseException:
            with contextlib.suppress(Exception):
                self._app.abort()
            raise
        self._app.stop()

    def judge(self, broker: Any, *, with_report: bool) -> DemoResult:
        """Compare the messages that were sent with those that were settled and those that are on the broker."""
        metrics_path = self._out / "metrics.prom"
        metrics_path.write_bytes(_exposition(self._metrics))
        with open_access(broker.url) as access:
            places = {f"queue://{name}" for name in access.queues()}
        dead = _keys_in(broker, places | self.books.dead_letter_queues)
        left = _keys_in(broker, self.queues)
        differences = self._broker_differences(broker, len(dead))
        differences += reconciliation.metric_differences(self.books, self._metrics)
        audit, page = "not run", ""
        if with_report:
            result = plugins.load("jmsx.reports", "spark")(
                self._events, self._out / "report", title="jmsx demo"
            )
            audit, page = result.audit["verdict"], str(result.report)
            differences += reconciliation.log_differences(self.books, result.audit["counts"])
        return DemoResult(
            sent=len(self.books.sent),
            processed=self.books.processed,
            redelivered=self.books.redelivered,
            dead_lettered=len(self.books.dead),
            lost=len(self.books.lost([*dead, *left])),
            duplicates=self.books.duplicates(),
            audit=audit,
            agree=not differences,
            report=page,
            events=str(self._events),
            metrics=str(metrics_path),
            left=len(left),
            differences=differences,
        )

    def _broker_differences(self, broker: Any, dead: int) -> list[str]:
        """Compare with the broker's counts, which come a little later than its receipts."""
        deadline = time.monotonic() + SETTLING
        while True:
            statistics = {queue: broker.statistics(queue) for queue in self.queues}
            differences = reconciliation.broker_differences(self.books, statistics, dead)
            if not differences or time.monotonic() > deadline:
                return differences
            time.sleep(0.1)

    def _send(self, progress: Callable[[str, int], None]) -> None:
        with self._app.connect() as connection:
            session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
            producer = session.create_producer()
            for number, (destination, body) in enumerate(self._module.messages(self._messages), 1):
                if number % _TOGETHER == 1 and self.interrupted:
                    break
                producer.send(jmsx.Message(body), destination=destination)
                self._commit_some(session, number, progress)

    def _commit_some(
        self, session: jmsx.Session, number: int, progress: Callable[[str, int], None]
    ) -> None:
        if number % _TOGETHER == 0 or number == self._messages:
            session.commit()
            self._app.wait(0)
            progress("sending", number)

    def _drain(self, progress: Callable[[str, int], None]) -> None:
        """Wait until all is settled, or nothing moves any more, or we are told to stop."""
        last, since = self.books.open_keys(), time.monotonic()
        while last and not self.interrupted:
            self._app.wait(0.1)
            now_open = self.books.open_keys()
            progress("draining", len(self.books.sent) - now_open)
            if now_open != last:
                last, since = now_open, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                return


def _keys_in(broker: Any, queues: Iterable[str]) -> list[str]:
    """Return the keys of the messages that lie in `queues`, by their URIs."""
    return [
        message.headers.get("jmsx_key", "") for queue in queues for message in broker.browse(queue)
    ]


@contextlib.contextmanager
def fresh_broker(kind: str) -> Iterator[Any]:
    """Start a broker of that `kind` for this run, yield it, and remove it afterwards; raises ConfigurationError."""
    with plugins.load("jmsx.brokers", kind).for_audit() as broker:
        yield broker


def find_example() -> Path:
    """Return the example application: beside this module in a wheel, in `examples` of a checkout."""
    for place in (Path(__file__).parent, Path(__file__).parents[2] / "examples"):
        if (place / "orders.py").exists():
            return place / "orders.py"
    raise ConfigurationError("the example orders.py is not installed; use --app FILE")


def load_example(path: Path) -> ModuleType:
    """Return the module at `path`, which must have an `app` and a function `messages(count)`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ConfigurationError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not isinstance(getattr(module, "app", None), jmsx.App) or not hasattr(module, "messages"):
        raise ConfigurationError(f"{path} must have an App called app, and messages(count)")
    return module


def _exposition(metrics: Any) -> bytes:
    from prometheus_client import generate_latest  # noqa: PLC0415 - only with the extra

    text: bytes = generate_latest(metrics.registry)
    return text


__all__ = ["ConnectionFailedError", "DemoResult", "Trial", "find_example", "fresh_broker"]
