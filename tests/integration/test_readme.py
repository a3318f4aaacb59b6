"""Every snippet of the README and of the guide runs, on a real broker."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app import App
from jmsx.testing import harness
from jmsx_broker import ClassicBroker, TlsOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md"))]
HEADED = re.compile(r"^#{1,3} (.+?)$|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TLS_URL = "stomp+ssl://localhost:61612"


def patience(code: str) -> list[pytest.MarkDecorator]:
    """One with Spark takes 17 s of a processor, which on a busy machine is more than two minutes."""
    return [pytest.mark.timeout(600)] if "pyspark" in code else []


def snippets() -> list[Any]:
    """(code) of each Python block, named by its page and the heading above it; each once, wherever it stands."""
    found: dict[str, Any] = {}
    for page in reversed(PAGES):  # the guide's own first
        heading, before = "", ""
        for title, code in HEADED.findall(page.read_text("utf-8")):
            heading = title or heading
            if code:
                place = page.parent.name if page.stem == "README" else page.stem
                name = f"{place}-{heading.replace(' ', '-')}"
                # it goes on with the one before
                whole = code if "import" in code else before + code
                found.setdefault(whole, pytest.param(whole, id=name, marks=patience(whole)))
                before = whole
    return list(found.values())


@contextlib.contextmanager
def tls_broker(folder: Path) -> Iterator[str]:
    """The URL of a broker that wants certificates; they lie in `folder` under the README's names."""
    with ClassicBroker(tls=TlsOptions(require_client_certificate=True)) as broker:
        files = broker.certificates
        shutil.copy(files.authority, folder / "ca.pem")
        shutil.copy(files.client_certificate, folder / "shop.pem")
        shutil.copy(files.client_key, folder / "shop.key")
        yield broker.tls_url


@pytest.mark.parametrize("code", snippets())
def test_snippet(
    code: str, classic_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as it stands; an app that it makes starts and stops; a test in it passes."""
    monkeypatch.chdir(tmp_path)
    code = code.replace("stomp://localhost:61613", classic_broker.url)
    if "pyspark" in code:  # whose JVM, if another test has started it, works in another folder
        # a JVM that lives for seconds takes half the processor time if it compiles nothing well
        options = (
            f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        )
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
        subprocess.run([sys.executable, "-c", code], check=True, timeout=500, env=environment)
    elif TLS_URL in code:
        with tls_broker(tmp_path) as url:
            run(code.replace(TLS_URL, url), classic_broker)
    else:
        run(code, classic_broker)


def run(code: str, classic_broker: Broker) -> None:
    """Run a snippet, and what it makes."""
    names: dict[str, Any] = {"__name__": "snippet"}
    program = compile(code, "README", "exec", dont_inherit=True)  # not our own __future__
    exec(program, names)  # noqa: S102 - running the snippets is the test
    tests = {name: value for name, value in names.items() if name.startswith("test_")}
    for value in names.values():
        if isinstance(value, App) and not tests:
            with value:
                pass
    for test in tests.values():
        wanted = inspect.signature(test).parameters
        if "jmsx_harness" in wanted:
            with contextlib.ExitStack() as harnesses:
                test(lambda *given, harnesses=harnesses: harnesses.enter_context(harness(*given)))
        else:
            test(*[classic_broker] * len(wanted))


def test_there_are_snippets() -> None:
    """The pattern above finds them: a renamed fence must not make this file pass empty."""
    assert len(snippets()) >= 15
    for page in PAGES:
        text = page.read_text("utf-8")
        assert text.count("```python") == sum(bool(code) for _, code in HEADED.findall(text)), page


def test_every_page_is_in_the_guide() -> None:
    """Each of them is named on the first one, and in the site's contents."""
    guide = (ROOT / "examples" / "README.md").read_text("utf-8")
    site = (ROOT / "examples" / "site" / "mkdocs.yml").read_text("utf-8")
    for page in (ROOT / "examples").glob("*/*.md"):
        name = f"{page.parent.name}/{page.name}"
        assert f"({name})" in guide
        assert f": {name}\n" in site


@pytest.mark.timeout(120)
def test_the_site_is_built(tmp_path: Path) -> None:
    """Without a warning: each link leads somewhere, also between pages that are made from the code."""
    config = ROOT / "examples" / "site" / "mkdocs.yml"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-q",
        f"-f{config}",
        f"-d{tmp_path}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, words in {
        "options": "jms.redeliveryPolicy.maximumRedeliveries",
        "errors": "look first",
    }.items():
        assert words in (tmp_path / "reference" / name / "index.html").read_text("utf-8")
