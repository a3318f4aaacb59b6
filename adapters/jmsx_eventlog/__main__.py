"""`python -m jmsx_eventlog`: print the schema as SCHEMA.md."""

from __future__ import annotations

import sys

from jmsx_eventlog.schema import markdown

sys.stdout.write(markdown())
