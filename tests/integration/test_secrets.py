"""Passwords: in no log, metric, event, repr, error or output, whatever fails; each path is driven with a canary."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, Queue, TlsOptions
from jmsx.app import App
from jmsx.config.uri import parse_broker_uri
from jmsx.errors import JmsxError
from jmsx.jms.session import link_of
from jmsx_broker.wire import Wire
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver, serve
from tests.integration.liar import CONNECTED, Client, Liar, message, receipt
from tests.integration.listening import HOST
from tests.integration.support import Diary, within
from tests.integration.tls_support import Authority, TlsServer, greet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)

CANARY = "k4n4r1#/?&@:%ü"
QUOTED = "k4n4r1%23%2F%3F%26%40%3A%25%C3%BC"
#: What would give it away, in whichever form.
TRACE = "k4n4r1"


def refuse(client: Client) -> None:
    """Repeat in an ERROR, in each of its places, what the client said."""
    client.obey(until="CONNECT")
    text = client.said.decode().rpartition("passcode:")[2].partition("\n")[0].replace(":", "\\c")
    client.say(f"ERROR\nmessage:bad {text}\n{text}:x\n\nno {text}\0".encode())


def parrot(client: Client) -> None:
    """Say what the client says."""
    for _ in client.frames():
        client.say(client.said)


def mutter(client: Client) -> None:
    """Say the password alone."""
    client.obey(until="CONNECT")
    client.say(client.said.rpartition(b"passcode:")[2])


def betray(client: Client) -> None:
    """Be a broker that refuses what comes after CONNECT, and tells the password with it."""
    client.obey(until="SUBSCRIBE")
    text = client.said.decode().rpartition("passcode:")[2].partition("\n")[0].replace(":", "\\c")
    client.say(f"ERROR\nmessage:no {text}\n\n{text}\0".encode())
    client.say(f"MESSAGE\n{text}\n\nx\0".encode())


def vanish(client: Client) -> None:
    """Take one frame, and go."""
    client.obey(until="CONNECT")


def vanish_later(client: Client) -> None:
    """Take a subscription, send it a message, and go."""
    frame = client.obey(until="SUBSCRIBE")
    if frame is not None:
        client.say(receipt(frame), message(frame.headers["id"], 1))


def silent(client: Client) -> None:
    """Say nothing."""
    for _ in client.frames():
        pass


def stranger(client: Client) -> None:
    """Be no broker that is known."""
    client.obey(until="CONNECT")
    client.say(CONNECTED.replace(b"ActiveMQ", b"Strange"))


class Ear:
    """Hears all that jmsx gives out: events, metrics, event log, logs, errors with their causes, reprs."""

    def __init__(self, folder: Path) -> None:
        self.diary = Diary()
        self.metrics = PrometheusObserver()
        self._folder = folder
        self.log = EventLog(folder, service="canary")
        self.heard: list[str] = []

    def options(self) -> dict[str, Any]:
        """Options of a connection that talks to all of them."""
        return {
            "observers": [self.diary, self.metrics, self.log],
            "connect_timeout": 0.5,
            "request_timeout": 0.5,
        }

    def note(self, *things: object) -> None:
        """Keep how things show themselves."""
        for thing in things:
            self.heard += [repr(thing), str(thing)]
            if isinstance(thing, BaseException):
                self.heard += traceback.format_exception(thing)
                self.note(*(one for one in (thing.__cause__, thing.__context__) if one is not None))

    def everything(self) -> str:
        """All that was heard."""
        with serve(self.metrics, port=0) as endpoint:
            fetched = subprocess.run(
                [sys.executable, "-c", f"import urllib.request as u; print(u.urlopen({endpoint.url!r}).read())"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        self.log.close()
        files = [file.read_text("utf-8") for file in self._folder.rglob("*") if file.is_file()]
        return "\n".join([*self.heard, *map(repr, self.diary.events), fetched.stdout, *files])


def use(url: str, ear: Ear, **options: Any) -> None:
    """Connect, subscribe, send, receive, close; note whatever is raised."""
    try:
        connection = Connection(url, **ear.options(), **options)
    except JmsxError as error:
        ear.note(error)
        return
    connection.set_exception_listener(ear.note)
    ear.note(connection, connection.options, vars(connection), vars(connection._links))

    def work() -> None:
        connection.start()
        session = connection.create_session()
        link = link_of(session)
        engine = link.engine
        ear.note(session, link, engine, vars(session), vars(link), vars(engine), vars(link.calls))
        consumer = session.create_consumer(Queue("q"))
        ear.note(consumer, consumer.receive(0.3))
        session.create_producer(Queue("q")).send(Message("x"))

    for call in (work, connection.close):
        raised = within(10, call).error
        if raised is not None:
            ear.note(raised)


SCRIPTS = [refuse, parrot, mutter, betray, vanish, vanish_later, silent, stranger]


@pytest.mark.parametrize("script", SCRIPTS)
def test_whatever_the_broker_does(
    script: Callable[[Client], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also when it repeats the password, and when everything is logged, stomp.py's frames included."""
    caplog.set_level(logging.DEBUG)
    ear = Ear(tmp_path)
    with Liar(script) as liar:
        use(liar.url, ear, username="u", password=CANARY)
        use(liar.url.replace("://", f"://u:{QUOTED}@"), ear)
        use(f"failover:({liar.url})?jms.userName=u&jms.password={QUOTED}", ear)
    # all that came has been read now; whoever was closed before it spoke said nothing
    said = [client.said for client in liar.clients if client.said]
    assert all(f"passcode:{CANARY}".encode() in one for one in said)
    assert len(said) >= 3
    assert any(record.name == "stomp.py" for record in caplog.records)
    spoken = "".join(capfd.readouterr())
    assert TRACE not in ear.everything() + caplog.text + spoken
    assert len(ear.heard) > 20


def test_nobody_listens_and_nothing_fits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Addresses without a broker, and options that are refused."""
    caplog.set_level(logging.DEBUG)
    ear = Ear(tmp_path)
    for url in (
        f"stomp://u:{QUOTED}@127.0.0.1:1",
        f"failover:(stomp://u:{QUOTED}@127.0.0.1:1,stomp://no.such.host.example:1)?timeout=1",
        f"stomp://u:{CANARY}@127.0.0.1:1",
        f"stomp://u:{QUOTED}@{'x' * 70}:1",
        f"stomp://127.0.0.1:1?jms.password={CANARY}",
    ):
        use(url, ear)
    for options in (
        {"password": CANARY.encode()},
        {"password": f"{CANARY}\n"},
        {"passwort": CANARY},
        {"tls": CANARY},
        {"heartbeat": CANARY},
        {"client_id": f"{CANARY}\0"},
    ):
        use("stomp://127.0.0.1:1", ear, **options)
    assert TRACE not in ear.everything() + caplog.text
    assert len(ear.heard) > 20


def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The password of the connection and that of the key, when the broker is trusted and when it is not."""
    caplog.set_level(logging.DEBUG)
    (tmp_path / "log").mkdir()
    ear = Ear(tmp_path / "log")
    authority = Authority.in_folder(tmp_path)
    certificate, key = authority.client(CANARY)
    tls = partial(TlsOptions, certificate_file=certificate, key_file=key)
    secret: dict[str, Any] = {"username": "u", "password": CANARY}
    with TlsServer(authority.certificate(HOST), greet, clients=authority) as server:
        use(server.url, ear, tls=tls(ca_file=authority.file, key_password=CANARY), **secret)
        use(server.url, ear, tls=tls(key_password=CANARY), **secret)
        use(server.url, ear, tls=tls(key_password=f"{CANARY}!"), **secret)
        use(server.url, ear, tls=tls(), **secret)
        use(f"{server.url}?tls.keyPassword={QUOTED}", ear)
        options = parse_broker_uri(
            f"{server.url}?tls.keyPassword={QUOTED}&tls.certificateFile={certificate}"
        )
        ear.note(options, options.options, options.options.tls)
    assert TRACE not in ear.everything() + caplog.text
    assert len(ear.heard) > 20


def test_the_app_and_the_command_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`jmsx run` tells where it runs, and not as whom."""
    caplog.set_level(logging.DEBUG)
    url = f"stomp://u:{QUOTED}@127.0.0.1:1"
    (tmp_path / "shop.py").write_text(
        "from jmsx.app import App\n\napp = App(reconnect=False)\n"
        "app.consumer('queue://q')(lambda message: None)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "jmsx.cli", "run", "shop:app"],
        cwd=tmp_path, env={"JMSX_BROKER_URL": url, "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode != 0
    assert "127.0.0.1:1" in run.stderr
    app = App(url, password=CANARY, reconnect=False)
    app.consumer("queue://q")(lambda _message: None)
    ear = Ear(tmp_path / "log")
    with pytest.raises(JmsxError) as caught:
        app.start()
    ear.note(app, caught.value)
    for address in (url, f"http://u:{QUOTED}@h", f"stomp://u:{CANARY}@h:port"):
        with pytest.raises(JmsxError) as caught:
            Wire(address, timeout=0.2)
        ear.note(caught.value)
    assert TRACE not in run.stdout + run.stderr + ear.everything() + caplog.text
