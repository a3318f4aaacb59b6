"""Every snippet of the README runs, on a real broker."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app import App

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

README = (Path(__file__).parents[2] / "README.md").read_text()
HEADED = re.findall(r"^### (.+?)$|^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def snippets() -> list[Any]:
    """(code) of each Python block, named by the heading above it."""
    found, heading = [], ""
    for title, code in HEADED:
        heading = title or heading
        if code:
            found.append(pytest.param(code, id=heading.replace(" ", "-")))
    return found


@pytest.mark.parametrize("code", snippets())
def test_snippet(
    code: str, classic_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as it stands; an app that it makes starts and stops; a test in it passes."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippet"}
    program = compile(code.replace("stomp://localhost:61613", classic_broker.url), "README", "exec")
    exec(program, names)  # noqa: S102 - running the snippets is the test
    for name, value in list(names.items()):
        if isinstance(value, App):
            with value:
                pass
        elif inspect.isfunction(value) and name.startswith("test_"):
            value(classic_broker)


def test_the_readme_has_snippets() -> None:
    """The pattern above finds them: a renamed fence must not make this file pass empty."""
    assert len(snippets()) >= 5
    assert README.count("```python") == len(snippets())
