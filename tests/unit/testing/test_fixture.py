"""The fixture that pytest offers to who has jmsx installed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def test_the_fixture(tmp_path: Path) -> None:
    """Each test gets what makes harnesses, and they end with it."""
    (tmp_path / "test_shop.py").write_text("""
import pytest
from jmsx import App

pytestmark = pytest.mark.parametrize("kind", ["classic", "artemis"])

app = App()

@app.consumer("queue://q")
def handle(message):
    pass

def test_it(jmsx_harness, kind):
    mq = jmsx_harness(app, kind)
    mq.send("queue://q", "x")
    assert len(mq.handler(handle).calls) == 1

def test_it_again(jmsx_harness, kind):
    mq = jmsx_harness(app, kind)
    assert mq.handler(handle).calls == []
""")
    others = [
        f"-pno:{one}" for one in ("anyio", "cacheprovider", "hypothesispytest", "timeout", "xdist")
    ]
    command = [sys.executable, "-m", "pytest", "-q", *others, str(tmp_path)]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "4 passed" in told.stdout, told.stdout
