"""The life cycle of a broker that jmsx starts itself, as a process or in a container."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
import weakref
from pathlib import Path
from typing import ClassVar, Final, Self, TypedDict
from urllib.parse import quote

from jmsx.drivers.process import left_behind, tell_of_forks
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    IllegalStateError,
    JmsxError,
    LinkError,
)
from jmsx_broker.broker import Broker
from jmsx_broker.certificates import Certificates, TlsConnector, TlsOptions, make_certificates
from jmsx_broker.ports import HOST, PortTakenError, check_free, free_port
from jmsx_broker.products import Product
from jmsx_broker.recipe import Recipe
from jmsx_broker.wire import Wire

#: Seconds at least for one attempt to connect.
_CONNECT: Final = 0.05

#: Attempts to start on free ports: what was free when we looked may be somebody else's a moment later.
_ATTEMPTS: Final = 3


class OtherPorts(TypedDict, total=False):
    """The options for the ports of an `OwnBroker` other than STOMP's; see there for meanings and defaults."""

    openwire_port: int
    tls: bool | TlsOptions
    tls_port: int


class OwnBroker(Broker):
    """
    A broker that jmsx starts itself; a context manager, or `start()` and at last `close()`.

    It can be stopped, killed and started again: messages, ports and log stay the same until `close()`.

    Args:
        recipe: which kind, and how it is configured.
        port: of STOMP; 0 takes a free one.
        openwire_port: for Java clients; 0 takes a free one.
        tls: whether it offers STOMP over TLS too, with certificates made for it; TlsOptions say how.
        tls_port: of STOMP over TLS; 0 takes a free one.

    """

    #: Seconds between two looks at a starting broker, which needs one or two seconds.
    _look: ClassVar[float] = 0.05

    def __init__(
        self,
        recipe: Recipe,
        port: int = 0,
        *,
        openwire_port: int = 0,
        tls: bool | TlsOptions = False,
        tls_port: int = 0,
    ) -> None:
        self._recipe = recipe
        self._port = port
        self._openwire_port = openwire_port
        self._tls = TlsOptions() if tls is True else tls or None
        self._tls_port = tls_port
        self._certificates: Certificates | None = None
        self._scratch: Path | None = None
        self._remove_scratch: weakref.finalize[..., OwnBroker] | None = None
        self._has_run = False  #: it may have messages to keep
        self._inherited = False  #: this is the child of a fork, and the broker the parent's
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, leave the broker and its folder to the parent, whatever is called in the child."""
        self._inherited = self._inherited or self._has_run
        if self._remove_scratch is not None:
            self._remove_scratch.detach()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def product(self) -> Product:
        """Which broker it is, in which version."""
        return self._recipe.product

    @property
    def url(self) -> str:
        """Where STOMP listens; raises IllegalStateError before the first start."""
        return f"stomp://{self._host()}:{self._started(self._port)}"

    @property
    def openwire_url(self) -> str:
        """Where Java clients connect to; raises IllegalStateError before the first start."""
        return f"tcp://{self._host()}:{self._started(self._openwire_port)}"

    @property
    def has_tls(self) -> bool:
        """Whether the broker offers STOMP over TLS."""
        return self._tls is not None

    @property
    def tls_url(self) -> str:
        """Where STOMP over TLS listens; raises IllegalStateError before the first start, or without `tls`."""
        return f"stomp+ssl://{self._host()}:{self._started(self._tls_port if self._tls else 0)}"

    @property
    def certificates(self) -> Certificates:
        """What a client of `tls_url` needs; raises IllegalStateError before the first start, or without `tls`."""
        if self._certificates is None:
            raise IllegalStateError("only a broker with tls=True has certificates, once started")
        return self._certificates

    @property
    def running(self) -> bool:
        """Whether the broker is there, paused or not."""
        raise NotImplementedError

    def start(self, timeout: float = 60.0) -> Self:
        """
        Start the broker and wait until STOMP answers, at most `timeout` seconds (fetching what it needs not counted).

        Raises ConfigurationError for what is missing on this machine, a used port, or a broker that ends;
        BrokerTimeoutError when it does not answer in time; ConnectionFailedError when it has to be fetched and cannot.
        After an error nothing is left behind, save the data of a broker that ran before.
        """
        if self._inherited:
            raise left_behind("the broker was started", "make another one in the child")
        if self.running:
            raise IllegalStateError("the broker is started already")
        self.kill()  # the rest of a broker that ended by itself
        self._prepare()
        try:
            self._launch_on_ports(timeout)
        except BaseException:
            self.kill()
            if not self._has_run:
                self.close()
            raise
        self._has_run = True
        return self

    def stop(self, timeout: float = 15.0) -> None:
        """Stop the broker in good order, after `timeout` seconds by force; messages stay. Does nothing if stopped."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL); persistent messages stay. Does nothing if it is stopped."""
        raise NotImplementedError

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing answers."""
        raise NotImplementedError

    def resume(self) -> None:
        """Let a paused broker go on."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the broker, and remove its data if they are temporary; does nothing in the child of a fork."""
        if self._inherited:
            return
        try:
            self.stop()
        finally:
            self._has_run = False
            if self._remove_scratch is not None:
                self._remove_scratch()
                self._scratch = self._remove_scratch = self._certificates = None

    def _asking_url(self) -> str:
        user = next(iter(self._recipe.users.items()), None)
        if user is None:
            return self.url
        return self.url.replace("//", f"//{quote(user[0], safe='')}:{quote(user[1], safe='')}@", 1)

    def _host(self) -> str:
        """Return where clients find it."""
        return HOST

    def _prepare(self) -> None:
        """Find or fetch what it needs to start."""
        raise NotImplementedError

    def _launch(self) -> None:
        """Start it and do not wait."""
        raise NotImplementedError

    def _exit_code(self) -> int | None:
        """Return how it ended, None while it runs."""
        raise NotImplementedError

    def _logged(self) -> str:
        """Return what it logged since it was launched."""
        raise NotImplementedError

    def _is_up(self) -> bool:
        """Return whether this broker itself, and not another program, may answer on the port by now."""
        return True

    def _lost_a_port(self) -> bool:
        """Return whether another program took one of the broker's ports, now that the broker has ended."""
        return False  # where ports are opened before it is launched

    def _folder(self) -> Path:
        """Return a folder for its files on this machine; it goes with `close()`."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="jmsx-broker-"))
            # the folder is removed even if nobody closes the stopped broker
            self._remove_scratch = weakref.finalize(
                self, shutil.rmtree, self._scratch, ignore_errors=True
            )
        return self._scratch

    def _started(self, port: int) -> int:
        if port == 0:
            raise IllegalStateError("the broker has no port before its first start")
        return port

    def _launch_on_ports(self, timeout: float) -> None:
        """Launch the broker on its ports, a free one for each 0, and wait until it answers; retry if one was taken."""
        given = self._ports
        for attempt in range(1, _ATTEMPTS + 1):
            self._choose_ports()
            try:
                self._launch()
                self._await_answer(time.monotonic() + timeout)
            except PortTakenError:
                if self._ports == given or attempt == _ATTEMPTS:
                    raise
                self.kill()
                self._port, self._openwire_port, self._tls_port = given
            else:
                return

    @property
    def _ports(self) -> tuple[int, int, int]:
        return self._port, self._openwire_port, self._tls_port

    def _choose_ports(self) -> None:
        """Replace a 0 by a free port, once and for all; raise ConfigurationError if a given one is taken."""
        for port in self._ports:
            if port != 0:
                check_free(port)
        self._port = self._port or free_port()
        self._openwire_port = self._openwire_port or free_port()
        if self._tls is not None:
            self._tls_port = self._tls_port or free_port()

    def _tls_connector(self, port: int) -> TlsConnector | None:
        """Return what the configuration has to say of TLS; the certificates are made at the first start."""
        if self._tls is None:
            return None
        if self._certificates is None:
            self._certificates = make_certificates(self._folder() / "tls", self._tls.names)
        return TlsConnector(
            port=port,
            password=self._certificates.password,
            require_client_certificate=self._tls.require_client_certificate,
        )

    def _await_answer(self, deadline: float) -> None:
        """Wait until STOMP answers CONNECTED."""
        while not (self._is_up() and self._answers(deadline)):
            if (code := self._exit_code()) is not None:
                kind = PortTakenError if self._lost_a_port() else ConfigurationError
                raise self._failure(kind, f"ended with {code} while starting")
            if time.monotonic() >= deadline:
                raise self._failure(BrokerTimeoutError, "did not answer in time")
            time.sleep(self._look)

    def _answers(self, deadline: float) -> bool:
        try:
            Wire(self._asking_url(), timeout=max(deadline - time.monotonic(), _CONNECT)).close()
        except (LinkError, BrokerTimeoutError):
            return False
        return True

    def _failure(self, kind: type[JmsxError], what: str) -> JmsxError:
        """Return an error that quotes the end of the log, without Java's stack lines."""
        return kind(f"the broker {what}; the end of its log:\n{log_tail(self._logged())}")


def log_tail(log: str, lines: int = 12, width: int = 400) -> str:
    """Return the last `lines` lines of a log without stack frames and blank lines, each cut to `width` characters."""
    stack = re.compile(r"\s*$|\s+(at |\.\.\. )")
    telling = [line for line in log.splitlines() if not stack.match(line)]
    return "\n".join(f"  {line[:width]}" for line in telling[-lines:]) or "  (empty)"
