"""A broker as a child process of ours: it leaves no process and no port behind, however we end."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    IllegalStateError,
    JmsxError,
)
from jmsx_broker.artefacts import libraries
from jmsx_broker.broker import Broker
from jmsx_broker.certificates import (
    FOLDER,
    Certificates,
    TlsConnector,
    TlsOptions,
    make_certificates,
)
from jmsx_broker.java import find_java
from jmsx_broker.process import Child
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from jmsx_broker.products import Product

_HOST: Final = "127.0.0.1"

#: Options of the Java machine. The heap holds the 256 MB of messages that the configurations allow.
_JAVA_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:-UsePerfData",  # leaves a file in the temp folder when killed
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

#: Free ports are taken from below the range (Linux: from 32768) that the system gives to outgoing connections: there, a
#: client that keeps calling a stopped broker would sooner or later get the broker's port for itself, and connect to it.
_FREE_PORTS: Final = range(18000, 32000)

#: Seconds between two looks at a starting broker, which needs one or two seconds.
_LOOK: Final = 0.05


class LocalBroker(Broker):
    """
    A broker on this machine; a context manager, or `start()` and at last `close()`.

    It can be stopped, killed and started again: messages, ports and log stay the same until `close()`.

    Args:
        port: of STOMP; 0 takes a free one.
        openwire_port: for Java clients; 0 takes a free one.
        data: the folder for messages and log, created if missing; None is a temporary one, removed by `close()`.
        tls: whether it offers STOMP over TLS too, with certificates made for it; TlsOptions say how.
        tls_port: of STOMP over TLS; 0 takes a free one.

    """

    product: ClassVar[Product]  #: what it is made of

    _configuration_file: ClassVar[str]  #: where it looks for it, in its working folder
    _up: ClassVar[tuple[str, ...]]  #: what its log says when its connectors listen
    _tls_up: ClassVar[tuple[str, ...]] = ()  #: and when that of TLS does
    _main: ClassVar[tuple[str, ...]]  #: options and main class of its Java

    def __init__(
        self,
        port: int = 0,
        *,
        openwire_port: int = 0,
        data: Path | None = None,
        tls: bool | TlsOptions = False,
        tls_port: int = 0,
    ) -> None:
        self._port = port
        self._openwire_port = openwire_port
        self._data = data
        self._tls = TlsOptions() if tls is True else tls or None
        self._tls_port = tls_port
        self._certificates: Certificates | None = None
        self._scratch: Path | None = None
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where STOMP listens; raises IllegalStateError before the first start."""
        return f"stomp://{_HOST}:{self._started(self._port)}"

    @property
    def openwire_url(self) -> str:
        """Where Java clients connect to; raises IllegalStateError before the first start."""
        return f"tcp://{_HOST}:{self._started(self._openwire_port)}"

    @property
    def has_tls(self) -> bool:
        """Whether it offers STOMP over TLS."""
        return self._tls is not None

    @property
    def tls_url(self) -> str:
        """Where STOMP over TLS listens; raises IllegalStateError before the first start, or without `tls`."""
        return f"stomp+ssl://{_HOST}:{self._started(self._tls_port if self._tls else 0)}"

    @property
    def certificates(self) -> Certificates:
        """What a client of `tls_url` needs; raises IllegalStateError before the first start, or without `tls`."""
        if self._certificates is None:
            raise IllegalStateError(
                "a broker has certificates from its first start on, with tls=True"
            )
        return self._certificates

    @property
    def running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self._child is not None and self._child.exit_code is None

    @property
    def pid(self) -> int:
        """The process id of the broker's Java; raises IllegalStateError while it is not started."""
        return self._running().pid

    @property
    def log(self) -> Path:
        """The broker's log file; raises IllegalStateError while there is none."""
        return self._folder() / "broker.log"

    def start(self, timeout: float = 60.0) -> Self:
        """
        Start the broker and wait until STOMP answers, at most `timeout` seconds (fetching its jars not counted).

        Raises ConfigurationError for a missing Java, a used port, or a broker that ends; BrokerTimeoutError when it
        does not answer in time; the errors of `libraries` when it has to be fetched and cannot. After an error
        nothing is left behind, save the data of a broker that ran before.
        """
        if self.running:
            raise IllegalStateError("the broker is started already")
        self.kill()  # what is left of one that ended by itself
        java = find_java()
        jars = libraries(self.product, java)
        self._choose_ports()
        first = not self._has_folder()
        try:
            before = self._launch(java, jars)
            deadline = time.monotonic() + timeout
            self._await_connectors(before, deadline)
            self._await_answer(before, deadline)
        except BaseException:
            self.kill()
            if first:
                self.close()
            raise
        return self

    def stop(self, timeout: float = 15.0) -> None:
        """Stop it in good order, after `timeout` seconds by force; messages stay. Stopped already, do nothing."""
        if self._child is not None:
            self._child.terminate(timeout)
            self._child = None

    def kill(self) -> None:
        """End it as a crash would (SIGKILL); persistent messages stay. Stopped already, do nothing."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the broker ends by itself, at most `timeout` seconds; return its exit code, or None."""
        return self._running().wait(timeout)

    def close(self) -> None:
        """Stop it, and remove its data if they are temporary."""
        try:
            self.stop()
        finally:
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
                self._scratch = None
                self._certificates = None

    def _running(self) -> Child:
        if self._child is None:
            raise IllegalStateError("the broker is not started")
        return self._child

    def _started(self, port: int) -> int:
        if port == 0:
            raise IllegalStateError("the broker has no port before its first start")
        return port

    def _has_folder(self) -> bool:
        return self._data is not None or self._scratch is not None

    def _folder(self) -> Path:
        folder = self._data or self._scratch
        if folder is None:
            raise IllegalStateError("the broker has no folder before its first start")
        return folder

    def _choose_ports(self) -> None:
        """Replace a 0 by a free port, once and for all; raise ConfigurationError if a given one is taken."""
        for port in (self._port, self._openwire_port, self._tls_port):
            if port != 0:
                _check_free(port)
        self._port = self._port or _free_port()
        self._openwire_port = self._openwire_port or _free_port()
        if self._tls is not None:
            self._tls_port = self._tls_port or _free_port()

    def _tls_connector(self) -> TlsConnector | None:
        """What the configuration has to say of TLS; the certificates are made at the first start."""
        if self._tls is None:
            return None
        if self._certificates is None:
            self._certificates = make_certificates(self._folder() / FOLDER, self._tls.names)
        return TlsConnector(
            port=self._tls_port,
            password=self._certificates.password,
            require_client_certificate=self._tls.require_client_certificate,
        )

    def _configuration(self) -> str:
        """The text of its configuration, for its ports."""
        raise NotImplementedError

    def _launch(self, java: Path, jars: Path) -> int:
        """Start the process in its working folder; return the size that its log had before."""
        if self._data is not None:
            self._data = self._data.absolute()
            self._data.mkdir(parents=True, exist_ok=True)
        elif self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="jmsx-broker-"))
        folder = self._folder()
        configuration = folder / self._configuration_file
        configuration.parent.mkdir(exist_ok=True)
        configuration.touch(mode=0o600)  # it has passwords
        configuration.write_text(self._configuration(), encoding="utf-8")
        self.log.touch()
        before = self.log.stat().st_size
        command: list[str | Path] = [java, *_JAVA_OPTIONS, "-cp", jars / "*", *self._main]
        self._child = Child(command, folder=folder, log=self.log, scratch=self._scratch)
        return before

    def _await_connectors(self, before: int, deadline: float) -> None:
        """Wait until the log, from byte `before` on, tells that it listens: ours, not a stranger's."""
        awaited = (*self._up, *(self._tls_up if self.has_tls else ()))
        while not all(line in self._logged(before) for line in awaited):
            self._pause_for_start(before, deadline)

    def _await_answer(self, before: int, deadline: float) -> None:
        """Wait until STOMP answers CONNECTED."""
        while True:
            try:
                Wire(self.url, timeout=max(deadline - time.monotonic(), _LOOK)).close()
            except (ConnectionFailedError, BrokerTimeoutError):
                self._pause_for_start(before, deadline)
            else:
                return

    def _pause_for_start(self, before: int, deadline: float) -> None:
        """Wait a moment for a starting broker; raise if it has ended or its time is over."""
        if (code := self._running().exit_code) is not None:
            raise self._failure(ConfigurationError, f"ended with {code} while starting", before)
        if time.monotonic() >= deadline:
            raise self._failure(BrokerTimeoutError, "did not answer in time", before)
        time.sleep(_LOOK)

    def _logged(self, before: int) -> str:
        return self.log.read_bytes()[before:].decode("utf-8", "replace")

    def _failure(self, kind: type[JmsxError], what: str, before: int) -> JmsxError:
        """An error that quotes the end of the log, without Java's stack lines."""
        return kind(f"the broker {what}; the end of its log:\n{log_tail(self._logged(before))}")


def log_tail(log: str, lines: int = 12, width: int = 400) -> str:
    """The last `lines` lines of a log that say something: no stack frames, each at most `width` characters."""
    stack = re.compile(r"\s*$|\s+(at |\.\.\. )")
    telling = [line for line in log.splitlines() if not stack.match(line)]
    return "\n".join(f"  {line[:width]}" for line in telling[-lines:]) or "  (empty)"


def _check_free(port: int) -> None:
    """Raise ConfigurationError if nobody can listen on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"cannot listen on {_HOST}:{port}: {error}") from error


def _free_port() -> int:
    """A port that nobody listens on now."""
    for _ in range(100):
        port = secrets.choice(_FREE_PORTS)
        with contextlib.suppress(ConfigurationError):
            _check_free(port)
            return port
    raise ConfigurationError(f"no free port from {_FREE_PORTS.start} to {_FREE_PORTS.stop}")
