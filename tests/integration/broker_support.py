"""What the tests of `jmsx_broker` share: a way to send, programs as child processes, and looks at what is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx_broker.artemis_recipe import PERMISSIONS, ArtemisRecipe
from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.local import LocalBroker
from jmsx_broker.recipe import Listeners
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from jmsx_broker import Broker
    from jmsx_broker.artemis_recipe import Setting
    from jmsx_broker.products import Product
    from jmsx_broker.recipe import Recipe


def send(
    broker: Broker, queue: str, bodies: Iterable[bytes], headers: dict[str, str] | None = None
) -> None:
    """Send persistent messages; return when the broker has confirmed the last, and with it all."""
    with Wire(broker.url, timeout=30) as wire:
        head = {**queue_headers(wire, queue), "persistent": "true", **(headers or {})}
        *rest, last = (Frame("SEND", head, body) for body in bodies)
        for frame in rest:
            wire.send(frame)
        wire.request(last)


def queue_headers(wire: Wire, queue: str) -> dict[str, str]:
    """How a SEND or SUBSCRIBE names a queue to this broker."""
    if wire.is_artemis:
        return {
            "destination": queue,
            "destination-type": "ANYCAST",
            "subscription-type": "ANYCAST",
        }
    return {"destination": f"/queue/{queue}"}


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie that nobody has collected."""
    told = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.strip()[:1] not in {"", "Z"}


def is_listening(url: str) -> bool:
    """Whether somebody accepts connections at `url`."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) == 0


def eventually(holds: Callable[[], bool], timeout: float = 15.0) -> bool:
    """Whether `holds` comes true within `timeout` seconds; mostly it does at once, and then is looked at more often."""
    deadline, pause = time.monotonic() + timeout, 0.002
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(1.5 * pause, 0.05)
    return True


@contextlib.contextmanager
def python(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in a group of its own with pipes to it; ended with the block, if it has not ended before."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints; an AssertionError with its last words if there is none."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


@dataclass(frozen=True, slots=True)
class _Changed:
    """A recipe with other words in its configuration."""

    recipe: Recipe
    changes: tuple[tuple[str, str], ...]

    @property
    def product(self) -> Product:
        """As it is."""
        return self.recipe.product

    @property
    def users(self) -> Mapping[str, str]:
        """As they are."""
        return self.recipe.users

    @property
    def main(self) -> tuple[str, ...]:
        """As it is."""
        return self.recipe.main

    @property
    def up(self) -> tuple[str, ...]:
        """As it is."""
        return self.recipe.up

    def files(self, listeners: Listeners) -> dict[str, str]:
        """Its files, changed."""
        files = self.recipe.files(listeners)
        for old, new in self.changes:
            assert any(old in text for text in files.values())
            files = {name: text.replace(old, new) for name, text in files.items()}
        return files


def changed(recipe: Recipe, *changes: tuple[str, str], openwire_port: int = 0) -> LocalBroker:
    """A broker, not yet started, in whose configuration each (old, new) was replaced."""
    return LocalBroker(_Changed(recipe, changes), 0, openwire_port=openwire_port)


def changed_classic(*changes: tuple[str, str], tls: bool = False) -> LocalBroker:
    """A Classic, not yet started, in whose activemq.xml each (old, new) was replaced."""
    return LocalBroker(_Changed(ClassicRecipe(), changes), 0, tls=tls)


def changed_artemis(
    *changes: tuple[str, str],
    settings: Mapping[str, Mapping[str, Setting]] | None = None,
    data: Path | None = None,
) -> LocalBroker:
    """An Artemis with these address settings, not yet started, in whose broker.xml each (old, new) was replaced."""
    recipe = _Changed(ArtemisRecipe(address_settings=settings or {}), changes)
    return LocalBroker(recipe, 0, data=data)


#: Who may do everything on a guarded broker, and who may do what the guard lets him; their passwords.
GUARDS: Final = {"admin": "secret", "clerk": "secret"}


def guarded_classic(**entries: str) -> LocalBroker:
    """
    A Classic, not yet started, where `clerk` may do what `entries` say, and nothing else.

    Each is a destination (as `queue_orders` for the queues `orders.>`) and the rights, such as "read write".
    """
    rules = []
    for name, rights in entries.items():
        kind, _, pattern = name.partition("_")
        given = " ".join(
            f'{right}="{"clerks," if right in rights else ""}admins"'
            for right in ("read", "write", "admin")
        )
        rules.append(f'<authorizationEntry {kind}="{pattern.replace("_", ".")}.>" {given}/>')
    everything = 'read="admins" write="admins" admin="admins"'
    told = 'read="admins,clerks" write="admins,clerks" admin="admins,clerks"'
    rules += [f'<authorizationEntry {kind}=">" {everything}/>' for kind in ("queue", "topic")]
    rules.append(f'<authorizationEntry topic="ActiveMQ.Advisory.>" {told}/>')
    plugin = (
        "<authorizationPlugin><map><authorizationMap><authorizationEntries>"
        f"{''.join(rules)}</authorizationEntries></authorizationMap></map></authorizationPlugin></plugins>"
    )
    groups = (
        (
            f'username="{name}" password="secret" groups="users"',
            f'username="{name}" password="secret" groups="{name}s"',
        )
        for name in GUARDS
    )
    return LocalBroker(_Changed(ClassicRecipe(users=GUARDS), (("</plugins>", plugin), *groups)), 0)


def guarded_artemis(
    entries: Mapping[str, str], settings: Mapping[str, Mapping[str, Setting]] | None = None
) -> LocalBroker:
    """An Artemis, not yet started, where `clerk` has, on addresses that match, the named permissions and no others."""
    rules = "".join(
        f'<security-setting match="{match}">'
        + "".join(
            f'<permission type="{kind}" roles="admins{",clerks" if kind in rights.split() else ""}"/>'
            for kind in PERMISSIONS
        )
        + "</security-setting>"
        for match, rights in {"#": "", **entries}.items()
    )
    recipe = ArtemisRecipe(users=GUARDS, address_settings=settings or {})
    files = recipe.files(Listeners(host="127.0.0.1", stomp=1, openwire=2))
    whole = re.search("<security-settings>.*</security-settings>", files["etc/broker.xml"])
    assert whole is not None
    changes = (
        (whole[0], f"<security-settings>{rules}</security-settings>"),
        (files["etc/roles.properties"], "admins=admin\nclerks=clerk\n"),
    )
    return LocalBroker(_Changed(recipe, changes), 0)


def as_clerk(broker: Broker) -> str:
    """The URL of a guarded broker for `clerk`."""
    return broker.url.replace("://", "://clerk:secret@")


def executable(path: Path, script: str) -> Path:
    """A shell script that stands for a program of the machine."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
