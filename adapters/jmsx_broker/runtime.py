"""
The files that a Java needs to run in an empty root: itself, and the libraries of this machine that it is linked with.

A container image is made of these files where none can be pulled. That takes seconds and no network, and the Java in
the image is the one that also runs the broker as a process. Only Linux runs such an image.
"""

from __future__ import annotations

import re
import subprocess
import sys
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Files of a JDK that a broker does not need.
_LEFT_OUT: Final = frozenset({"src.zip", "ct.sym"})

#: Libraries that glibc loads by name when a host is looked up; since 2.34 they are within it.
_BY_NAME: Final = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")

#: Where the loader looks for what is not in its standard folders.
_LOADER_CACHE: Final = Path("/etc/ld.so.cache")

_HOME: Final = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_LINKED: Final = re.compile(r"(?:=> |^\s*)(/\S+) \(0x", re.MULTILINE)


def java_home(java: Path) -> Path:
    """Return the folder of the Java that `java` starts; raises ConfigurationError if it does not say it."""
    told = _output(java, "-XshowSettings:properties", "-version")
    found = _HOME.search(told)
    if found is None:
        raise ConfigurationError(f"{java} does not tell its java.home")
    return Path(found[1].strip())


def runtime_files(java: Path) -> Iterator[Path]:
    """
    Yield each file that `java` needs, by the path at which it must lie.

    Raises ConfigurationError on a machine whose files cannot run in a Linux container.
    """
    if sys.platform != "linux":
        raise ConfigurationError("images are made of this machine's Java; that needs Linux")
    home = java_home(java)
    own = list(_java_files(home))
    yield from own
    programs = [file for file in own if file.name == "java" or ".so" in file.suffixes]
    found = _LINKED.findall(_output("ldd", *programs))
    linked = {Path(normpath(library)) for library in found}
    folders = {library.parent for library in linked if library.name.startswith("libc.so")}
    named = {folder / name for folder in folders for name in _BY_NAME}
    shared = {file for file in linked | named | {_LOADER_CACHE} if file.is_file()}
    yield from sorted(shared - set(own))


def _java_files(home: Path) -> Iterator[Path]:
    """Yield the files of the Java at `home`, without what only a compiler needs."""
    yield home / "bin/java"
    for folder in ("lib", "conf"):
        for file in sorted((home / folder).rglob("*")):
            if file.is_file() and file.name not in _LEFT_OUT:
                yield file


def _output(*command: str | Path) -> str:
    """Return all that a program prints, however it ends."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java, and the loader of this machine
            command, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"cannot run {command[0]}: {error}") from error
    return done.stdout + done.stderr
