"""
A child process that dies when this process does, whatever way this one dies.

Two small shells see to that, each in a session of its own, where the terminal's Ctrl-C does not reach it:

- The gate becomes the child: it waits for one line from us and then replaces itself by the command. If we die first,
  it reads the end of the pipe and goes away.
- The watch reads a pipe that only this process writes to. If the pipe ends without the word that all is well, this
  process is dead, and the watch kills the child and removes its scratch folder.

PR_SET_PDEATHSIG is not used: it fires when the *thread* that started the child ends, and exists on Linux only.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_GATE: Final = 'read -r go && exec "$@" </dev/null'

_WATCH: Final = """
read -r word && exit
kill -9 "$1"
tries=100
while kill -0 "$1" 2>/dev/null && [ "$tries" -gt 0 ]; do tries=$((tries - 1)); sleep 0.05; done
[ -z "$2" ] || rm -rf -- "$2"
"""


class Child:
    """
    A running command; ends at the latest when this process ends.

    Args:
        command: the program and its arguments.
        folder: its working folder.
        log: the file that its output is added to.
        scratch: a folder that is removed if this process dies; None keeps everything.

    """

    def __init__(
        self, command: list[str | Path], *, folder: Path, log: Path, scratch: Path | None
    ) -> None:
        with log.open("ab") as output:
            self._process = _open_shell(_GATE, *command, folder=folder, output=output)
        self._watch: subprocess.Popen[bytes] | None = None
        try:
            self._watch = _open_shell(_WATCH, self.pid, scratch or "")
            _tell(self._process)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process id of the command itself."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the command ended, or None while it runs."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop it (SIGSTOP), and return when all its threads stand still; nothing happens if it has ended."""
        self.send_signal(signal.SIGSTOP)
        # the main thread gets the signal, and stops the others only when it is scheduled: wait for that
        if self._process.poll() is None:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def wait(self, timeout: float | None = None) -> int | None:
        """
        Wait until it has ended by itself, at most `timeout` seconds; return its exit code or None.

        Even without a `timeout` one of infinity is passed: Popen then polls, and so notes each signal. Its blocking
        `waitpid()` would miss a Ctrl-C that comes just before it, or that another thread gets.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(math.inf if timeout is None else timeout)
        return None

    def terminate(self, timeout: float) -> None:
        """Ask it to end, wait `timeout` seconds, then kill it; interrupted, kill it at once."""
        try:
            self.send_signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
            self.send_signal(signal.SIGTERM)
            self.wait(timeout)
        finally:
            self.kill()

    def leave(self) -> None:
        """Close the pipes in the child of a fork, or the watch would not notice the end of the parent."""
        for shell in (self._process, self._watch):
            if shell is not None:
                _close(shell)

    def kill(self) -> None:
        """End it now and wait until it is gone, with everything that watched it."""
        self._process.kill()
        self._process.wait()
        _close(self._process)
        if self._watch is not None:
            _tell(self._watch)
            self._watch.wait()


def _open_shell(
    script: str,
    *arguments: object,
    folder: Path | None = None,
    output: IO[bytes] | int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start one of the two shells."""
    return subprocess.Popen(  # noqa: S603 - our own script
        ["/bin/sh", "-c", script, "jmsx", *map(str, arguments)],
        cwd=folder or "/",
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _tell(shell: subprocess.Popen[bytes]) -> None:
    """Write the word that a shell waits for; do nothing if the shell has ended."""
    if shell.stdin is not None and not shell.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            shell.stdin.write(b"ok\n")
            shell.stdin.flush()
    _close(shell)


def _close(shell: subprocess.Popen[bytes]) -> None:
    """Close our end of a shell's pipe."""
    if shell.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            shell.stdin.close()
