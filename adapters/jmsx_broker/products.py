"""The brokers that this package runs: which release, and the artefacts that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A broker as a list of Maven artefacts; what these depend on comes with them."""

    name: str  #: as people call it
    key: str  #: one word, for folders and the command line
    version: str
    image: str  #: the container image that its makers publish, with its tag
    home: str  #: the folder of the broker in that image
    coordinates: tuple[tuple[str, str, str], ...]  #: group, artefact, version
    #: SHA-256 of each jar that it runs with, by file name.
    hashes: Mapping[str, str] = field(repr=False, hash=False)
    excluded: str | None = None  #: a Maven group to exclude


def _apache(version: str, *artefacts: str) -> list[tuple[str, str, str]]:
    """Return coordinates of the project's own artefacts, in one version."""
    return [("org.apache.activemq", artefact, version) for artefact in artefacts]


def _hashes(name: str) -> Mapping[str, str]:
    """
    Return the SHA-256 of each jar from a file in the format of sha256sum; CONTRIBUTING.md says how to make one.

    If there is no such file, the result is empty and no jar may run.
    """
    path = Path(__file__).parent / "hashes" / f"{name}.sha256"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {jar: digest for digest, jar in map(str.split, lines)}


#: The newest release of which all artefacts can be resolved.
CLASSIC_VERSION: Final = "6.1.8"

CLASSIC: Final = Product(
    name="ActiveMQ Classic",
    key="classic",
    version=CLASSIC_VERSION,
    image=f"apache/activemq-classic:{CLASSIC_VERSION}",
    home="/opt/apache-activemq",
    coordinates=(
        *_apache(
            CLASSIC_VERSION,
            "activemq-broker",
            "activemq-client",
            "activemq-console",
            "activemq-jaas",
            "activemq-kahadb-store",
            "activemq-spring",
            "activemq-stomp",
        ),
        ("org.springframework", "spring-context", "6.2.10"),
        ("org.slf4j", "slf4j-simple", "2.0.17"),
        # The STOMP layer writes the answers of the statistics plugin with these optional dependencies of
        # activemq-stomp, in the versions of its parent; without them the broker drops the connection
        ("com.thoughtworks.xstream", "xstream", "1.4.21"),
        ("org.codehaus.jettison", "jettison", "1.5.4"),
    ),
    hashes=_hashes(f"classic-{CLASSIC_VERSION}"),
    excluded="commons-logging",  # Spring has its own bridge with the same classes, and complains when it meets this one
)

#: The newest release that resolves and runs on Java 17; later ones changed their group.
ARTEMIS_VERSION: Final = "2.44.0"

#: The jars, not the distribution: half the bytes, nothing to unpack, no web console.
ARTEMIS: Final = Product(
    name="ActiveMQ Artemis",
    key="artemis",
    version=ARTEMIS_VERSION,
    image=f"apache/activemq-artemis:{ARTEMIS_VERSION}",
    home="/opt/activemq-artemis",
    coordinates=(
        *_apache(
            ARTEMIS_VERSION, "artemis-server", "artemis-stomp-protocol", "artemis-openwire-protocol"
        ),
        ("org.slf4j", "slf4j-simple", "2.0.17"),
        # in the versions of the distribution, whose own poms disagree on them
        ("org.apache.commons", "commons-pool2", "2.12.1"),
        ("org.apache.commons", "commons-text", "1.14.0"),
    ),
    hashes=_hashes(f"artemis-{ARTEMIS_VERSION}"),
)
