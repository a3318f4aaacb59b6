"""
A supervisor of worker processes: it restarts them, answers health probes for all of them, and ends when all have ended.

Each worker has one end of a socket pair, to which it writes the URL of its own health endpoint. If the other end is
closed, the supervisor is dead, and the worker drains as after SIGTERM. So no worker is left behind, however the
supervisor ends. Workers run in (Unix) sessions of their own, because a terminal sends Ctrl-C to all foreground
processes of its session.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from jmsx.app.endpoint import Endpoint, application
from jmsx.app.health import HealthReport
from jmsx.app.signals import Signals
from jmsx.errors import JmsxError, ResourceAllocationError
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from wsgiref.types import StartResponse, WSGIEnvironment

#: Seconds before a worker that died is started again: the first pause, and the longest; each is twice the one before.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0

#: If a worker has run for so many seconds before it died, the next pause is FIRST_PAUSE again.
STEADY: Final = 60.0

#: Seconds beyond its drain timeout after which a worker is killed.
OVERTIME: Final = 5.0

#: The advice if the system cannot start another process.
ROOM: Final = (
    "end what has many processes or open files, or raise the limits of the user or container (ulimit -u, -n, pids,"
    " memory), and start it again"
)

#: Seconds between two checks of the workers and, with reload, of the files.
LOOK: Final = 0.2

#: Seconds that a worker has to answer a probe.
_ANSWER: Final = 3.0

#: The HTTP status 200, OK.
_OK: Final = 200

#: Seconds that a worker may take until it serves health; after that the whole application counts as unhealthy. For a
#: worker that dies again and again they count from its first death.
STARTING: Final = 60.0

#: The messages of a worker: where its application would serve health if it ran alone, where the worker serves it, and
#: that messages flow.
_WISHES: Final = b"wishes "
_SERVES: Final = b"serves "
_STARTED: Final = b"started"


class Supervised:
    """The worker's side of the socket pair with the descriptor `fd`; use it in a `with` block."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._told = False
        self.number = int(os.environ.get("JMSX_WORKER", "0"))
        self._over = False

    def serves(self, url: str, wished: str | None) -> None:
        """Tell, before the start, where health is served, and where the application would serve it if it ran alone."""
        self._tell(_SERVES + url.encode())
        if wished is not None:
            self._tell(_WISHES + wished.encode())

    def started(self) -> None:
        """Tell, once, that the application has started."""
        if not self._told:
            self._told = True
            self._tell(_STARTED)

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(line + b"\n")

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="jmsx-supervisor", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(1):
                pass
        if not self._over:  # the other end is closed, and only the supervisor had it
            os.kill(os.getpid(), signal.SIGTERM)


@dataclass(slots=True)
class Place:
    """The place of one worker; each time that the worker is started again, it gets a new process."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    socket: socket.socket | None = None
    url: str | None = None  #: URL of its health endpoint
    wishes: str | None = None  #: HOST:PORT where its application would serve health
    started: bool = False  #: whether messages flow, or did
    ending: bool = False  #: whether its process was told to end; told twice, it aborts
    began: float = 0.0
    failing: float | None = None  #: when it first died, with no steady run since
    due: float | None = 0.0  #: when to start it; None: it is not to be started
    pause: float = FIRST_PAUSE
    heard: bytearray = field(default_factory=bytearray)

    def listen(self) -> None:
        """Read the messages of the worker."""
        if self.socket is None or self.started:
            return
        with contextlib.suppress(OSError):  # nothing has come
            self.heard += self.socket.recv(4096)
        *lines, self.heard = self.heard.split(b"\n")
        for line in map(bytes, lines):
            if line.startswith(_WISHES):
                self.wishes = line.removeprefix(_WISHES).decode()
            elif line.startswith(_SERVES):
                self.url = line.removeprefix(_SERVES).decode()
            else:
                self.started = True

    def is_being_started(self, now: float) -> bool:
        """Return whether it serves no health because it is still starting, or has just died unnoticed."""
        dead = self.process is not None and self.process.poll() is not None
        if (self.url is not None and not dead) or (self.process is None and self.due is None):
            return False
        if self.failing is not None:
            return now - self.failing < STARTING
        return self.process is None or dead or now - self.began < STARTING

    def owes_an_answer(self, now: float) -> bool:
        """Return whether it must answer a scrape: its process is not ending, and serves or had its time to start."""
        if self.process is None or self.ending:
            return False
        return self.url is not None or now - self.began >= STARTING

    def start_again(self, now: float) -> float:
        """Note that its process died and is to be started again; returns in how many seconds."""
        if now - self.began >= STEADY:
            self.pause, self.failing = FIRST_PAUSE, None
        if self.failing is None:
            self.failing = now
        pause = self.pause
        self.due, self.pause = now + pause, min(2 * pause, LONGEST_PAUSE)
        return pause

    def forget(self) -> None:
        """Note that the process is gone."""
        if self.socket is not None:
            self.socket.close()
        self.process, self.socket, self.url, self.wishes = None, None, None, None
        self.started = self.ending = False
        self.heard.clear()

    def end(self) -> None:
        """Tell its process, once, to drain and end, and start no other."""
        self.due = None
        if self.process is not None and not self.ending and self.process.poll() is None:
            self.ending = True
            self.process.terminate()


class Supervisor:
    """
    Runs `command` in `count` processes until SIGTERM or Ctrl-C, or until all have ended with exit code 0.

    Args:
        command: a `jmsx run` command, to which the descriptor of the worker's socket is added.
        variables: environment variables of a worker, besides the supervisor's own.
        count: the number of workers.
        health: HOST:PORT where health and metrics of all workers are served together; None: with reload, where the
            application says; else nowhere.
        drain_timeout: seconds that a worker may drain.
        reload: the folder whose Python files are watched: if one changes, the workers are started again; None: none.
        announce: called with texts for the operator.

    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str],
        count: int,
        health: str | None,
        drain_timeout: float,
        reload: Path | None,
        announce: Callable[[str], object],
    ) -> None:
        self._command = tuple(command)
        self._variables = {**variables, "JMSX_WORKERS": "1"}
        self._health = health
        self._drain_timeout = drain_timeout
        self._reload = reload
        self._announce = announce
        self._places = [Place(number) for number in range(count)]
        self._stopping = False
        self._reached = False  #: whether a worker has ever started
        self._code = 0
        self.restarts = 0  #: how often a dead worker was restarted
        self.endpoint: Endpoint | None = None
        self._served: str | None = None  #: HOST:PORT that the application asked for

    def run(self) -> int:
        """Run, and return the exit code: 0 if all workers ended well, 1 if one did not, 130 after a second signal."""
        with Signals() as signals:
            if self._health is not None:
                self._serve(self._health)
            try:
                return self._supervise(signals)
            finally:
                self._kill()
                if self.endpoint is not None:
                    self.endpoint.close()

    # Processes -------------------------------------------------------------------------------------------------------

    def _supervise(self, signals: Signals) -> int:
        files = self._files()
        while True:
            for place in self._places:
                self._look_at(place)
            if self._is_over():
                return self._code
            number = signals.wait_briefly(LOOK)
            if number is None and files != (files := self._files()):
                number = self._start_again(signals)
            if number is not None:
                break
        count = len(self._running())
        workers = f"{counted(count, 'worker')} {'drains' if count == 1 else 'drain'}"
        self._announce(
            f"{number.name}: {workers}, {self._drain_timeout:g} s at the most; a second signal aborts"
        )
        return self._drain(signals)

    def _is_over(self) -> bool:
        if self._reload is not None:
            return False
        return not self._running() and all(place.due is None for place in self._places)

    def _look_at(self, place: Place) -> None:
        place.listen()
        self._reached = self._reached or place.started
        self._serve_where_wished(place)
        now = time.monotonic()
        if place.process is None:
            if place.due is not None and now >= place.due:
                self._try_to_start(place)
            return
        code = place.process.poll()
        lived = now - place.began
        if code is None:
            if lived >= STEADY:
                place.failing = None
            return
        place.forget()
        if code == 0:
            place.due = None  # it was told to end, or had nothing more to do
        elif self._reload is not None:
            place.due = None
            self._announce(
                f"worker {place.number} ended with {_ending(code)}; waiting for a change"
            )
        elif not self._reached and code == 1:
            self._code, place.due = 1, None  # it has logged why, and a second try would not help
            for other in self._places:
                other.end()
        else:
            pause = place.start_again(now)
            self.restarts += 1
            self._announce(
                f"worker {place.number} ended with {_ending(code)} after {lived:.1f} s; started again in {pause:g} s"
            )

    def _try_to_start(self, place: Place) -> None:
        """Start it, or try again later, unless no worker has been up yet, and none runs."""
        place.began = time.monotonic()
        try:
            self._start(place)
        except OSError as error:
            told = f"worker {place.number} could not be started: {error}"
            if not (self._reached or self._running()):
                raise ResourceAllocationError(f"{told}; {ROOM}") from error
            pause = place.start_again(time.monotonic())
            self._announce(f"{told}; tried again in {pause:g} s")

    def _start(self, place: Place) -> None:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)
            os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003 - it takes no keywords
            variables = {**self._variables, "JMSX_WORKER": str(place.number)}
            if self._reload is not None:
                # Python takes a compiled file for current if the source has the same size and time (in seconds).
                variables["PYTHONDONTWRITEBYTECODE"] = "1"
            place.process = subprocess.Popen(  # noqa: S603 - our own command
                [*self._command, f"--supervised={theirs.fileno()}"],
                env={**os.environ, **variables},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            unless_started.pop_all()
        ours.setblocking(False)  # noqa: FBT003 - it takes no keywords
        place.socket, place.due = ours, None

    def _start_again(self, signals: Signals) -> signal.Signals | None:
        """End all workers, and let them start again; return the signal that came meanwhile, after which none starts."""
        self._announce("a file has changed: workers start again")
        _, number = self._end(signals)
        if number is None:
            for place in self._places:
                place.due = 0.0
        return number

    def _drain(self, signals: Signals) -> int:
        self._stopping = True
        codes, number = self._end(signals)
        if number is not None:
            self._kill()
            return 130
        if not any(codes):
            self._announce("drained")
        return 1 if any(codes) else self._code

    def _end(self, signals: Signals) -> tuple[list[int], signal.Signals | None]:
        """Have all workers end, and wait for it: their exit codes, and the signal that came before all had ended."""
        for place in self._places:
            place.end()
        deadline = time.monotonic() + self._drain_timeout + OVERTIME
        codes: list[int] = []
        number = None
        while self._running() and number is None:
            for place in self._places:
                if place.process is not None and (code := place.process.poll()) is not None:
                    # a worker that SIGTERM kills had not begun to run: later it drains at the signal
                    codes.append(0 if code == -signal.SIGTERM else code)
                    place.forget()
            number = signals.wait_briefly(LOOK / 4)
            if time.monotonic() > deadline:
                self._announce("workers that did not end in time are killed")
                codes.append(1)
                self._kill()
        return codes, number

    def _running(self) -> list[Place]:
        return [place for place in self._places if place.process is not None]

    def _kill(self) -> None:
        for place in self._running():
            if place.process is not None:
                place.process.kill()
                place.process.wait()
            place.forget()

    def _files(self) -> dict[str, float]:
        """
        Return when each Python file was last changed; nothing where nobody looks.

        But for hidden folders and virtual environments, which have many and are not the program's. What goes away
        meanwhile has gone.
        """
        found: dict[str, float] = {}
        if self._reload is None:
            return found
        for folder, below, names in os.walk(self._reload):
            if "pyvenv.cfg" in names and Path(folder) != self._reload:
                below.clear()
                continue
            below[:] = [name for name in below if not name.startswith(".")]
            for name in names:
                if name.endswith(".py") and not name.startswith("."):
                    path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each costs more than all the rest
                    with contextlib.suppress(OSError):
                        found[path] = os.stat(path).st_mtime  # noqa: PTH116 - a Path for each costs more than all the rest
        return found

    # Health and metrics ----------------------------------------------------------------------------------------------

    def _serve(self, health: str) -> None:
        probes = {"/healthz": self._probe("healthz"), "/readyz": self._probe("readyz")}
        self.endpoint = Endpoint(health, application(probes, self._metrics)).begin()
        self._announce(f"health of all at {self.endpoint.url}")

    def _serve_where_wished(self, place: Place) -> None:
        """Where the application says, as it is now: with reload nobody but a worker can import it."""
        if self._reload is None or self._health is not None or place.wishes in (None, self._served):
            return
        self._served = place.wishes
        if self.endpoint is not None:
            self.endpoint.close()
            self.endpoint = None
        try:
            self._serve(str(place.wishes))
        except JmsxError as error:  # the next change of a file may mend it
            self._announce(f"error: {error}")

    def _probe(self, path: str) -> Callable[[], HealthReport]:
        def probe() -> HealthReport:
            told, ready = self._ask_all(path), path == "readyz"
            now = time.monotonic()
            excused = {
                one.number for one in self._places if not ready and one.is_being_started(now)
            }
            ok = all(code == _OK or number in excused for number, (code, _) in told.items())
            ok = ok and not (self._stopping and ready)
            workers = {str(number): json.loads(body) for number, (_, body) in told.items()}
            body = {
                "status": "ok" if ok else "not all are",
                "restarts": self.restarts,
                "workers": workers,
            }
            return HealthReport(ok=ok, body=body)

        return probe

    def _metrics(self, _environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        owed = self._who_owe_an_answer()
        answers = self._ask_all("metrics")
        owed &= self._who_owe_an_answer()  # not workers that came or went during the requests
        told = {number: body for number, (code, body) in answers.items() if code == _OK}
        up = "".join(
            f'jmsx_worker_up{{worker="{one.number}"}} {answered:d}\n'
            for one in self._places
            if (answered := answers[one.number][0] is not None) or one.number in owed
        )
        own = f"""\
# HELP jmsx_worker_up 1 for a worker that answers this scrape, 0 for one that does not, and neither starts nor ends.
# TYPE jmsx_worker_up gauge
{up}\
# HELP jmsx_worker_restarts_total Workers that died and were started again.
# TYPE jmsx_worker_restarts_total counter
jmsx_worker_restarts_total {self.restarts}
# HELP jmsx_workers_running Worker processes.
# TYPE jmsx_workers_running gauge
jmsx_workers_running {len(self._running())}
"""
        start("200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])
        return [f"{merged(told)}{own}".encode()]

    def _who_owe_an_answer(self) -> set[int]:
        now = time.monotonic()
        return {one.number for one in self._places if one.owes_an_answer(now)}

    def _ask_all(self, path: str) -> dict[int, tuple[int | None, str]]:
        """By number of the worker: HTTP's code, None where nobody answered, and what was said."""
        places = list(self._places)
        with ThreadPoolExecutor(len(places)) as pool:
            return dict(
                zip(
                    (place.number for place in places),
                    pool.map(lambda place: _ask(place, path), places),
                    strict=True,
                )
            )


def _ask(place: Place, path: str) -> tuple[int | None, str]:
    # Not by urllib, which would use a proxy from the environment for a request to our own worker.
    url, process = place.url, place.process
    if url is None:
        return None, '{"status": "not up"}'
    try:
        with contextlib.closing(
            http.client.HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER)
        ) as connection:
            connection.request("GET", f"/{path}")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:  # the latter if it dies while it answers
        told = {"status": f"no answer: {error}", "pid": None if process is None else process.pid}
        return None, json.dumps(told)


def merged(told: dict[int, str]) -> str:
    """Merge the metrics of several workers (text format): samples get a label `worker`, and each family occurs once."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for number, text in told.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("# ") and len(words := line.split(" ", 3)) > 2:  # noqa: PLR2004 - "# HELP name"
                family = words[2]
                heads, _ = families.setdefault(family, ([], []))
                if line not in heads and not any(
                    head.split(" ", 3)[1] == words[1] for head in heads
                ):
                    heads.append(line)
            elif line:
                families.setdefault(family, ([], []))[1].append(_labelled(line, number))
    lines = (line for heads, samples in families.values() for line in (*heads, *samples))
    return "".join(f"{line}\n" for line in lines)


def _labelled(sample: str, number: int) -> str:
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        comma = "" if rest.startswith("}") else ","
        return f'{name}{{worker="{number}"{comma}{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{worker="{number}"}} {value}'


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
