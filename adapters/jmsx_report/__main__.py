"""`python -m jmsx_report EVENTS …` is `jmsx report EVENTS --engine local …`."""

from __future__ import annotations

import sys

from jmsx.cli import main

if __name__ == "__main__":  # and not in the processes that read segments, which import it as well
    if not any(one.partition("=")[0] == "--engine" for one in sys.argv):
        sys.argv[1:1] = ["--engine", "local"]
    sys.argv[1:1] = ["report"]
    main()
