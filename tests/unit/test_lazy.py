"""Packages whose public names are imported when they are first asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jmsx
import jmsx_broker
import jmsx_eventlog
import jmsx_report


@pytest.mark.parametrize(
    "package", [jmsx, jmsx_broker, jmsx_eventlog, jmsx_report], ids=lambda one: one.__name__
)
def test_every_public_name_is_there(package: object) -> None:
    """And in `dir()`, for who looks for it."""
    for name in package.__all__:  # type: ignore[attr-defined]  # of a module
        assert getattr(package, name).__name__ == name
        assert name in dir(package)


def test_a_misspelt_name_is_none() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'jmsx' has no attribute 'Conection'"):
        _ = jmsx.Conection  # type: ignore[attr-defined]  # the refusal is what is tested


def test_an_app_loads_what_only_some_need_when_they_do() -> None:
    """A web server is for who serves health, the others for logs, models, metrics and adapters."""
    code = "import sys; from jmsx import App; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needless = {"http.server", "structlog", "pydantic", "prometheus_client", "importlib.metadata"}
    assert needless & set(done.stdout.split()) == set()
