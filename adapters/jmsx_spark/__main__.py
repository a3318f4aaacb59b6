"""`python -m jmsx_spark EVENTS …` is `jmsx report EVENTS --engine spark …`."""

from __future__ import annotations

import sys

from jmsx.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["report", "--engine", "spark"]
    main()
