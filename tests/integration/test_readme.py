"""Every snippet of the README runs, on a real broker."""

from __future__ import annotations

import contextlib
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app import App
from jmsx_broker import ClassicBroker, TlsOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

README = (Path(__file__).parents[2] / "README.md").read_text()
HEADED = re.findall(r"^### (.+?)$|^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TLS_URL = "stomp+ssl://localhost:61612"


def snippets() -> list[Any]:
    """(code) of each Python block, named by the heading above it."""
    found, heading = [], ""
    for title, code in HEADED:
        heading = title or heading
        if code:
            found.append(pytest.param(code, id=heading.replace(" ", "-")))
    return found


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
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    elif TLS_URL in code:
        with tls_broker(tmp_path) as url:
            run(code.replace(TLS_URL, url), classic_broker)
    else:
        run(code, classic_broker)


def run(code: str, classic_broker: Broker) -> None:
    """Run a snippet, and what it makes."""
    names: dict[str, Any] = {"__name__": "snippet"}
    program = compile(code, "README", "exec")
    exec(program, names)  # noqa: S102 - running the snippets is the test
    for name, value in list(names.items()):
        if isinstance(value, App):
            with value:
                pass
        elif inspect.isfunction(value) and name.startswith("test_"):
            value(*[classic_broker] * len(inspect.signature(value).parameters))


def test_the_readme_has_snippets() -> None:
    """The pattern above finds them: a renamed fence must not make this file pass empty."""
    assert len(snippets()) >= 5
    assert README.count("```python") == len(snippets())
