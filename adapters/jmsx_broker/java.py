"""Find a Java that can run the broker, or say how to install one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The oldest Java (feature release) that ActiveMQ Classic 6 runs on. Source: its class files are version 61.
MINIMUM_JAVA: Final = 17

#: Seconds that `java -version` may take; it takes 0.1 s on an idle machine.
_PATIENCE: Final = 30.0

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """
    Return the `java` to use: the one named by JMSX_JAVA, else JAVA_HOME's or PATH's, whichever is new enough.

    Raises ConfigurationError, with the command that installs one, when none is.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for origin, java in _candidates(environment):
        version = java_version(java)
        if version is not None and version >= MINIMUM_JAVA:
            return java
        found = "is not a working Java" if version is None else f"is Java {version}"
        refused.append(f"{java} ({origin}) {found}")
    seen = "; ".join(refused) or "no java found by JMSX_JAVA, JAVA_HOME or PATH"
    raise ConfigurationError(
        f"the broker needs Java {MINIMUM_JAVA} or newer: {seen}. Install it with: {install_command()}"
    )


def java_version(java: Path) -> int | None:
    """Return the feature release of the executable `java` (8, 11, 17, …), or None if it does not tell."""
    try:
        told = _VERSION.search(_told(java, java.stat().st_mtime_ns if java.is_file() else None))
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(told[1]) if told else None


@cache  # every start of a broker asks, and a Java takes 0.1 s of processor time to answer
def _told(java: Path, _changed: int | None) -> str:
    """Return the output of `java -version`; cached until the file's time of change is another."""
    answer = subprocess.run(  # noqa: S603 - the user's own Java
        [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    return answer.stderr + answer.stdout


def install_command(platform: str = sys.platform) -> str:
    """Return what a person types to get Java on this platform."""
    if platform == "darwin":
        return f"brew install openjdk@{MINIMUM_JAVA}"
    return f"apt-get install openjdk-{MINIMUM_JAVA}-jre-headless"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield where a Java may be, best first, with the place that names it; JMSX_JAVA, if set, is the only one."""
    if chosen := environment.get("JMSX_JAVA"):
        yield "JMSX_JAVA", Path(chosen)
        return
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found)
