"""The imports of the fake broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jmsx.testing

PACKAGE = Path(jmsx.testing.__file__).parent


def test_no_import_is_hidden_from_python() -> None:
    """What is imported for its type is imported like the rest, so that a circle cannot be imported at all."""
    modules = sorted(PACKAGE.rglob("*.py"))
    assert len(modules) > 20
    assert [path.name for path in modules if "TYPE_CHECKING" in path.read_text("utf-8")] == []


def test_importing_jmsx_does_not_import_it() -> None:
    """It costs an application in production nothing."""
    code = "import jmsx, sys; jmsx.App; jmsx.Connection; print('jmsx.testing' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
