"""Checks a log for lines and files that a report would put into quarantine, without making a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jmsx_report.batch import each
from jmsx_report.local import content
from jmsx_report.segments import batches, survey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def faults(directory: Path) -> Iterator[str]:
    """
    Yield what is wrong with the log in `directory`: "PATH:LINE: WHY", or "PATH: WHY" for a whole file.

    Raises:
        ConfigurationError: there is no segment, or one cannot be read.

    """
    log = survey(directory)
    for row in log.files.filter("unread").iter_rows(named=True):
        yield f"{row['path']}: {row['why']}"
    for batch in batches(log.segments):
        contents = [replace(content(directory, one), path=one.path) for one in batch]
        for rows in each(lambda events: events.about("quarantine"), [(contents, None)]):
            for row in rows.sort("path", "line").iter_rows(named=True):
                place = f":{row['line']}" if row["line"] else ""
                yield f"{row['path']}{place}: {row['why']}"
