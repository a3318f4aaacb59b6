"""`python -m jmsx_spark EVENTS OUT`: make the report of an event log."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from jmsx.errors import JmsxError
from jmsx_spark.engine import report

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Make the report, print the verdict and where the report lies.

    Returns 0 if the audit is balanced, 2 if it is suspect, 3 if it is unverifiable, 1 if there is no report.
    """
    parser = argparse.ArgumentParser(prog="python -m jmsx_spark", description=__doc__)
    parser.add_argument("events", help="directory of the event log")
    parser.add_argument("out", help="directory for the tables and report.html")
    parser.add_argument(
        "--deadline",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="what was sent less than this before the end of the log may be in flight",
    )
    given = parser.parse_args(arguments)
    try:
        result = report(given.events, given.out, deadline_seconds=given.deadline)
    except JmsxError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    verdict = str(result.audit["verdict"])
    sys.stdout.write(f"{result.line}\n{result.report}\n")
    return {"balanced": 0, "suspect": 2}.get(verdict, 3)


if __name__ == "__main__":
    sys.exit(main())
