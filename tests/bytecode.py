"""
What Python has compiled for a run of tests is kept, though beside the sources it may not be.

Where PYTHONDONTWRITEBYTECODE is set, each process that a test starts would compile all that it imports: a seventh of
the processor time of the unit tests (measured). pytest loads this before any other plugin, so that they are kept, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
