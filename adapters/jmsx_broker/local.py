"""A broker as a child process: it leaves no process and no port behind, however this process ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Unpack

from jmsx.errors import ConfigurationError, IllegalStateError
from jmsx_broker.artefacts import libraries
from jmsx_broker.java import find_java
from jmsx_broker.own import OtherPorts, OwnBroker
from jmsx_broker.ports import HOST, check_free
from jmsx_broker.process import Child
from jmsx_broker.recipe import JAVA_OPTIONS, Listeners, Recipe

if TYPE_CHECKING:
    from pathlib import Path


class LocalBroker(OwnBroker):
    """
    A broker as a process on this machine, on the loopback.

    Args:
        recipe: which kind, and how it is configured.
        port: of STOMP; 0 takes a free one.
        data: the folder for messages and log, created if missing; None is a temporary one, removed by `close()`.
        others: as for `OwnBroker`.

    """

    def __init__(
        self, recipe: Recipe, port: int, *, data: Path | None = None, **others: Unpack[OtherPorts]
    ) -> None:
        super().__init__(recipe, port, **others)
        self._data = data.absolute() if data else None
        self._child: Child | None = None
        self._command: list[str | Path] = []
        self._log_start = 0

    def after_fork(self) -> None:
        """Let go of the broker's process in the child of a fork: it belongs to the parent."""
        super().after_fork()
        if self._child is not None:
            self._child.leave()
            self._child = None

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
        folder = self._data or self._scratch
        if folder is None:
            raise IllegalStateError("the broker has no folder before its first start")
        return folder / "broker.log"

    def stop(self, timeout: float = 15.0) -> None:
        """Stop the broker in good order, after `timeout` seconds by force; messages stay. Does nothing if stopped."""
        if self._child is not None:
            self._child.terminate(timeout)
            self._child = None

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL); persistent messages stay. Does nothing if it is stopped."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP): connections stay open and nothing answers."""
        self._running().freeze()

    def resume(self) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the broker ends by itself, at most `timeout` seconds; return its exit code, or None."""
        return self._running().wait(timeout)

    def _running(self) -> Child:
        if self._child is None:
            raise IllegalStateError(
                "the broker is not started; call start(), or use it in a `with` block"
            )
        return self._child

    def _folder(self) -> Path:
        """Return where it keeps everything."""
        return self._data or super()._folder()

    def _prepare(self) -> None:
        java = find_java()
        jars = libraries(self._recipe.product, java)
        self._command = [java, *JAVA_OPTIONS, "-cp", jars / "*", *self._recipe.main]

    def _launch(self) -> None:
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._write_configuration(folder)
        self.log.touch()
        self._log_start = self.log.stat().st_size
        self._child = Child(self._command, folder=folder, log=self.log, scratch=self._scratch)

    def _write_configuration(self, folder: Path) -> None:
        """Write the broker's configuration, readable for its owner only: it contains passwords."""
        listeners = Listeners(
            host=HOST,
            stomp=self._port,
            openwire=self._openwire_port,
            tls=self._tls_connector(self._tls_port),
        )
        for path, text in self._recipe.files(listeners).items():
            file = folder / path
            file.parent.mkdir(exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(text, encoding="utf-8")

    def _exit_code(self) -> int | None:
        return self._running().exit_code

    def _lost_a_port(self) -> bool:
        try:
            for port in filter(None, self._ports):
                check_free(port)
        except ConfigurationError:
            return True
        return False

    def _logged(self) -> str:
        return self.log.read_bytes()[self._log_start :].decode("utf-8", "replace")

    def _is_up(self) -> bool:
        logged = self._logged()
        return all(line in logged for line in self._recipe.up)
