"""What older versions of ActiveMQ Artemis do; their jars are checked against the hashes beside this file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jmsx_broker.artemis_recipe import ArtemisRecipe
from jmsx_broker.local import LocalBroker
from jmsx_broker.products import ARTEMIS, ARTEMIS_VERSION
from tests.integration.artemis_support import Console
from tests.probes.support import expect

_HERE = Path(__file__).parent


def a73_older_brokers_tell_less() -> str:
    """`listQueues` of 2.28.0 and 2.33.0 has no field `internalQueue`; 2.28.0 calls `deadLetterAddress` `DLA`."""
    told = {version: _told_by(_older(version)) for version in ("2.28.0", "2.33.0")}
    told[ARTEMIS_VERSION] = _told_by(LocalBroker(ArtemisRecipe(), 0))
    expected = {
        "2.28.0": (False, "DLA"),
        "2.33.0": (False, "deadLetterAddress"),
        ARTEMIS_VERSION: (True, "deadLetterAddress"),
    }
    words = "; ".join(
        f"{version}: internalQueue {'there' if internal else 'missing'}, {name}"
        for version, (internal, name) in told.items()
    )
    expect(told == expected, words)
    return words


def _told_by(broker: LocalBroker) -> tuple[bool, str]:
    """Whether a queue has the field `internalQueue`, and what the address of dead letters is called in the settings."""
    with broker, Console(broker) as console:
        (queue,) = console.queues("NAME", "ExpiryQueue")
        settings = json.loads(console.ask("broker", "getAddressSettingsAsJSON", "a"))
    return "internalQueue" in queue, next(
        name for name, value in settings.items() if value == "DLQ"
    )


def _older(version: str) -> LocalBroker:
    """A broker of an older version, which needs a program to start it, and whose log says nothing."""
    lines = (_HERE / "hashes" / f"artemis-{version}.sha256").read_text("utf-8").splitlines()
    product = replace(
        ARTEMIS,
        version=version,
        coordinates=tuple(
            (group, name, version if own == ARTEMIS_VERSION else own)
            for group, name, own in ARTEMIS.coordinates
        ),
        hashes={jar: digest for digest, jar in map(str.split, lines)},
    )
    login, _, *_ = ArtemisRecipe().main
    main = (login, str(_HERE / "java" / "EmbeddedArtemis.java"))
    return LocalBroker(ArtemisRecipe(product=product, main=main, up=()), 0)
