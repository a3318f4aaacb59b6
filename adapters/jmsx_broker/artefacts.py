"""
The broker's jars: fetched once per user, then read from a cache without network.

Maven fetches them where there is one; else the Ivy that PySpark ships does. Both use the registry that they are
configured for, so a company's mirror is honoured. A cache folder appears by one rename and is therefore whole, and two
processes that fetch at once do not disturb each other.

What was fetched, and what lies in the cache, runs only if it is what jmsx was tested with: the SHA-256 of every jar is
in the repository (`hashes/`), so neither the registry nor whoever can write to the cache is trusted.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx.errors import ConfigurationError, ConnectionFailedError
from jmsx_broker.products import ARTEMIS, CLASSIC, Product

if TYPE_CHECKING:
    from collections.abc import Mapping


_log = logging.getLogger("jmsx.broker")

#: JVM options for a Java that lives for seconds: optimized compilation would not pay.
_BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_MAVEN_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

#: Matches the line of a fetching tool's output that says why it failed; the first such line is shown.
_BLAME: Final = re.compile(r"\[ERROR\] \S|not found|Exception")

#: Seconds for one fetch of 15 MB in some 40 files.
_PATIENCE: Final = 900.0


def classic_libraries(java: Path) -> Path:
    """Return the folder with every jar of ActiveMQ Classic; see `libraries`."""
    return libraries(CLASSIC, java)


def artemis_libraries(java: Path) -> Path:
    """Return the folder with every jar of ActiveMQ Artemis; see `libraries`."""
    return libraries(ARTEMIS, java)


def libraries(product: Product, java: Path) -> Path:
    """
    Return the folder with every jar of `product`; fetched if it is not in the cache, which takes half a minute.

    Raises ConfigurationError when there is nothing to fetch with or a jar is not the one that is expected,
    ConnectionFailedError when fetching failed.
    """
    folder = cache_folder(product, os.environ)
    if not is_complete(product, folder):
        _log.info("fetching %s %s to %s", product.name, product.version, folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch:
            jars = fetch(product, java, Path(scratch))
            check_hashes(product, jars)
            _publish(product, jars, folder)
    check_hashes(product, folder)
    return folder


def check_hashes(product: Product, folder: Path) -> None:
    """Raise ConfigurationError unless each jar in `folder` is one that `product` was tested with."""
    for jar in sorted(folder.glob("*.jar")):
        expected = product.hashes.get(jar.name)
        if expected is None:
            raise ConfigurationError(
                f"{jar} is no part of {product.name} {product.version} as jmsx knows it; remove the folder, and it is"
                " fetched again"
            )
        with jar.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != expected:
            raise ConfigurationError(
                f"{jar} is not what jmsx was tested with: its SHA-256 is {found}, and should be {expected}. Remove the"
                " folder, and it is fetched again; if that ends here too, do not trust where it comes from"
            )


def is_cached(product: Product) -> bool:
    """Return whether a broker can be started without network."""
    return is_complete(product, cache_folder(product, os.environ))


def is_complete(product: Product, folder: Path) -> bool:
    """Return whether `folder` has each artefact of `product`; their dependencies were fetched with them."""
    return all(
        (folder / f"{name}-{version}.jar").is_file() for _, name, version in product.coordinates
    )


def cache_root(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the user's cache for jmsx: JMSX_CACHE, else where the platform keeps caches."""
    if chosen := environment.get("JMSX_CACHE"):
        return Path(chosen)
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base, "jmsx")
    home = Path(environment["HOME"]) if "HOME" in environment else Path.home()
    return home / ("Library/Caches" if platform == "darwin" else ".cache") / "jmsx"


def maven_project(product: Product) -> str:
    """Return a pom.xml that depends on the artefacts of `product`."""
    exclusions = (
        f"<exclusions><exclusion><groupId>{product.excluded}</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        if product.excluded
        else ""
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{exclusions}</dependency>\n"
        for group, name, version in product.coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>jmsx</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def ivy_module(product: Product) -> str:
    """Return an ivy.xml that depends on the artefacts of `product`."""
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}"/>\n'
        for group, name, version in product.coordinates
    )
    exclusion = f'<exclude org="{product.excluded}"/>' if product.excluded else ""
    return (
        '<ivy-module version="2.0"><info organisation="jmsx" module="broker"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        '<dependencies defaultconf="default->runtime(default),master(default)">\n'
        f"{dependencies}{exclusion}</dependencies></ivy-module>\n"
    )


def cache_folder(product: Product, environment: Mapping[str, str]) -> Path:
    """Return the cache folder of exactly these artefacts: another list is another folder."""
    wanted = repr((product.coordinates, product.excluded))
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    return cache_root(environment) / f"{product.key}-{product.version}-{digest}"


def fetch(product: Product, java: Path, scratch: Path) -> Path:
    """Fetch into `scratch` with the first tool that manages to; return the folder of the jars."""
    what = f"{product.name} {product.version}"
    tools = _tools(product, java, scratch)
    if not tools:
        raise ConfigurationError(
            f"{what} is not in the cache, and there is nothing to fetch it with."
            " Install Maven (apt-get install maven, brew install maven) or pip install 'jmsx[spark]'"
        )
    failures = []
    for name, (command, jars) in tools.items():
        said = _run(command, scratch)
        if is_complete(product, jars):
            return jars
        failures.append(f"{name} said: {said}")
    raise ConnectionFailedError(f"cannot fetch {what}; is there a network? " + "; ".join(failures))


def _tools(product: Product, java: Path, scratch: Path) -> dict[str, tuple[list[str | Path], Path]]:
    """Return, by the name of each installed tool, its command and the folder that it copies the jars to."""
    tools: dict[str, tuple[list[str | Path], Path]] = {}
    if maven := shutil.which("mvn"):
        (scratch / "pom.xml").write_text(maven_project(product), encoding="utf-8")
        jars = scratch / "maven"
        options = [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        tools["Maven"] = (
            [maven, "-q", "-B", "-C", "-Dstyle.color=never", _MAVEN_GOAL, *options],
            jars,
        )
    if ivy := _find_ivy():
        (scratch / "ivy.xml").write_text(ivy_module(product), encoding="utf-8")
        jars = scratch / "ivy"
        # maven-plugin: the packaging that the pom of activemq-protobuf, a plain jar, declares
        options = ["-types", "jar", "bundle", "maven-plugin", "-warn"]
        options += ["-cache", f"{scratch / 'ivy-cache'}", "-ivy", "ivy.xml"]
        options += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        tools["Ivy"] = ([java, *_BRIEF, "-jar", ivy, *options], jars)
    return tools


def _find_ivy() -> Path | None:
    """Return the Ivy among PySpark's jars, if PySpark is installed (which is not imported for it)."""
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar")), None)


def _run(command: list[str | Path], folder: Path) -> str:
    """Run a fetching tool to its end; return what it said of its failure."""
    try:
        done = subprocess.run(  # noqa: S603 - a tool found on this machine, with our own arguments
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    told = [line.strip()[:300] for line in done.stdout.splitlines() if line.strip()]
    blamed = [line for line in told if _BLAME.search(line)]
    return (
        " | ".join(list(dict.fromkeys(blamed))[:2] or told[-2:])
        or f"nothing (exit {done.returncode})"
    )


def _publish(product: Product, jars: Path, folder: Path) -> None:
    """Move `jars` to `folder` in one step; whoever came first with a whole folder wins."""
    if folder.exists() and not is_complete(product, folder):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        jars.rename(folder)
    except OSError:
        if not is_complete(product, folder):
            raise
