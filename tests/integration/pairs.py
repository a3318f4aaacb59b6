"""Two brokers: of which one stands by, with the other's store or a copy; and that pass messages on."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest

from jmsx.errors import IllegalStateError
from jmsx_broker.artemis_recipe import ArtemisRecipe
from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.ports import HOST, free_port
from tests.integration.broker_support import changed, eventually
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from jmsx_broker.local import LocalBroker

#: What a broker's log says when it stands by: Classic's, Artemis', and of one that has a copy. That says what the one
#: before says as soon as it begins to copy, and never works if the other one ends before it is done.
_STANDS_BY: Final = {
    "classic": "slave mode waiting a lock",
    "shared-store": "waiting for primary to fail before activating",
    "replication": "AMQ221024",
}

#: Seconds for a start, or for the other one to take over, on a machine that has much else to do.
_PATIENCE: Final = 40.0


class Pair:
    """`first` works, and `second` stands by; a context manager that ends both, and removes their `store`."""

    def __init__(self, kind: str, first: LocalBroker, second: LocalBroker, store: Path) -> None:
        self.first, self.second = first, second
        self._words, self._store = _STANDS_BY[kind], store
        self._start: Call[LocalBroker] | None = None

    def __enter__(self) -> Self:
        self.first.start()
        self._start = Call(lambda: self.second.start(2 * _PATIENCE))  # ends when it works
        if not eventually(self._stands_by, _PATIENCE):
            self.close()
            pytest.fail("no broker stands by")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End both."""
        self.first.close()  # so that the start of the other one comes to its end
        if self._start is not None:
            self._start.join(_PATIENCE)
        self.second.close()
        shutil.rmtree(self._store, ignore_errors=True)

    def take_over(self) -> float:
        """Kill the first; return how many seconds later the second one answered."""
        began = time.monotonic()
        self.first.kill()
        assert self._start is not None
        assert self._start.join(_PATIENCE).error is None
        return time.monotonic() - began

    def give_back(self) -> None:
        """Start the first again, which takes over what the second one has, and works from then on."""
        self.first.start(_PATIENCE)

    def _stands_by(self) -> bool:
        try:
            return self._words in self.second.log.read_text("utf-8", "replace")
        except (OSError, IllegalStateError):
            return False


def classic_pair() -> Pair:
    """The lock of one KahaDB tells who works; who waits for it looks twice a second, not every ten."""
    store = Path(tempfile.mkdtemp(prefix="jmsx-pair-"))
    locker = '<locker><shared-file-locker lockAcquireSleepInterval="500"/></locker>'
    changes = (
        ('dataDirectory="data"', f'dataDirectory="{store}"'),
        (
            '<kahaDB directory="data/kahadb"/>',
            f'<kahaDB directory="{store}/kahadb">{locker}</kahaDB>',
        ),
    )
    one, other = (changed(ClassicRecipe(), *changes) for _ in range(2))
    return Pair("classic", one, other, store)


def artemis_pair() -> Pair:
    """A primary and its backup, with one journal."""
    store = Path(tempfile.mkdtemp(prefix="jmsx-pair-"))
    shared = [
        (f">data/{each}<", f">{store}/{each}<")
        for each in ("bindings", "journal", "large-messages", "paging")
    ]
    on_shutdown = "<failover-on-shutdown>true</failover-on-shutdown>"
    return _artemis_pair("shared-store", on_shutdown, on_shutdown, store, *shared)


def artemis_replicas(*changes: tuple[str, str]) -> Pair:
    """A primary, and a backup with a journal of its own, to which the primary copies what it has."""
    looks = "<check-for-active-server>true</check-for-active-server>"
    gives_back = "<allow-failback>true</allow-failback>"
    store = Path(tempfile.mkdtemp(prefix="jmsx-pair-"))
    return _artemis_pair("replication", looks, gives_back, store, *changes)


def _artemis_pair(
    kind: str, primary: str, backup: str, store: Path, *changes: tuple[str, str]
) -> Pair:
    """A pair by its `kind` of policy, and by the options of each."""
    one, other = free_port(), free_port()

    def member(role: str, options: str, own: int, peer: int) -> LocalBroker:
        policy = f"""<ha-policy><{kind}><{role}>{options}</{role}></{kind}></ha-policy>
    {_cluster(own, peer)}
    <acceptors>"""
        recipe = ArtemisRecipe(
            up=("erver is now active",),  # with a number of its own for each role
            address_settings={"#": {"max-delivery-attempts": -1}},
        )
        return changed(recipe, ("<acceptors>", policy), *changes, openwire_port=own)

    first, second = member("primary", primary, one, other), member("backup", backup, other, one)
    return Pair(kind, first, second, store)


def _cluster(own: int, other: int) -> str:
    """What makes a cluster of two, by the ports where they talk."""
    return f"""<connectors><connector name="own">tcp://{HOST}:{own}</connector>
      <connector name="other">tcp://{HOST}:{other}</connector></connectors>
    <cluster-user>pair</cluster-user><cluster-password>secret</cluster-password>
    <cluster-connections><cluster-connection name="pair"><connector-ref>own</connector-ref>
      <static-connectors><connector-ref>other</connector-ref></static-connectors>
    </cluster-connection></cluster-connections>"""


def artemis_cluster() -> tuple[LocalBroker, LocalBroker]:
    """Two that share the load and redistribute at once what waits where nobody reads it; not yet started."""
    ports = free_port(), free_port()
    settings = {"#": {"redistribution-delay": 0, "max-delivery-attempts": -1}}
    one, other = (
        changed(
            ArtemisRecipe(address_settings=settings),
            ("<acceptors>", f"{_cluster(own, peer)}\n    <acceptors>"),
            openwire_port=own,
        )
        for own, peer in (ports, ports[::-1])
    )
    return one, other


def classic_network(options: str = "", body: str = "") -> tuple[LocalBroker, LocalBroker]:
    """Two with a duplex bridge, which the first one builds to the second; not yet started."""
    port = free_port()
    bridge = (
        f'<networkConnectors><networkConnector name="bridge" duplex="true" {options}'
        f' uri="static:(tcp://{HOST}:{port})?initialReconnectDelay=100&amp;useExponentialBackOff=false">{body}'
        "</networkConnector></networkConnectors>"
    )
    named = 'brokerName="jmsx"'
    return (
        changed(
            ClassicRecipe(),
            (named, 'brokerName="one"'),
            ("<persistenceAdapter>", f"{bridge}<persistenceAdapter>"),
        ),
        changed(ClassicRecipe(), (named, 'brokerName="other"'), openwire_port=port),
    )
