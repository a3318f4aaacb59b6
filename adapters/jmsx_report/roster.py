"""Which processes should be in the log: for each service as many as expected, or as on the day before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report.additive import DAY_US
from jmsx_report.clocks import Clocks
from jmsx_report.horizon import GAPS, Completeness
from jmsx_report.inline import at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


#: Columns of the roster: each writer's service and host, from when to when it may have written (by corrected clocks),
#: and how its log ended.
ROSTER: Final = {
    "writer": pl.String,
    "service": pl.String,
    "host": pl.String,
    "first_us": pl.Int64,
    "last_us": pl.Int64,
    "ended": pl.String,
}


def roster(found: Completeness, writers: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """
    Return the writers of a log whose service is known; columns as `ROSTER`.

    Each is taken to have run as long as its clock's uncertainty allows: that two did not run at once must be proven.

    Args:
        found: as `horizon.completeness`.
        writers: writer, service, host.
        clocks: of the writers.

    """
    return (
        found.writers.lazy()
        .join(writers.lazy().select("writer", "service", "host"), on="writer")
        .drop_nulls(["service", "first_us"])
        .with_columns(clocks.earliest("first_us"), clocks.latest("last_us"))
        .select(*ROSTER)
        .pipe(at_once)
    )


def kept(here: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Return the roster `here`, with writers known from earlier reports that wrote within two days before its end."""
    newest = here["last_us"].max()
    since = newest - 2 * DAY_US if isinstance(newest, int) else 0
    others = before.filter(pl.col("last_us") >= since).join(here, on="writer", how="anti")
    return pl.concat([here, others])


def absent(
    here: pl.DataFrame, expected: Mapping[str, int], before: pl.DataFrame, newest_us: int | None
) -> pl.DataFrame:
    """
    Return the services that lack processes in the log; columns as `horizon.GAPS`, and `says`.

    A service in `expected` must have had so many processes at once. Any other service must have had as many at once, in
    the last 24 hours of the log, as it mostly had in the 24 hours before. So processes may be replaced by others on
    other hosts, even two by two, but a process that is gone is noticed.

    Args:
        here: the roster of the log.
        expected: service -> how many processes are there at once.
        before: what earlier reports knew, as `kept`.
        newest_us: as `horizon.reached`.

    """
    said = {
        service: f"service {service}: {heard} of {number} expected processes are heard of; the others are silent"
        for service, number in sorted(expected.items())
        if (heard := _at_once(here.filter(service=service))) < number
    }
    # Reports of unrelated logs may have been made in the same place.
    same = before["service"].is_in(here["service"].implode()).any()
    known = kept(here, before) if same else here
    fewer = {} if newest_us is None else dict(_fewer(here, known, newest_us))
    said = {service: fewer[service] for service in fewer.keys() - expected.keys()} | said
    rows = [
        {"service": service, "why": "an expected process is silent", "says": says}
        for service, says in sorted(said.items())
    ]
    return pl.DataFrame(rows, schema={**GAPS, "says": pl.String})


def _fewer(here: pl.DataFrame, known: pl.DataFrame, newest_us: int) -> Iterator[tuple[str, str]]:
    """Yield services with fewer processes in the last day than in the day before, and a sentence about each."""
    begin = newest_us - DAY_US
    earlier = known.filter(pl.col("last_us") >= begin - DAY_US, pl.col("first_us") < begin)
    earlier = earlier.with_columns(
        pl.col("first_us").clip(lower_bound=begin - DAY_US),
        pl.col("last_us").clip(upper_bound=begin),
    )
    lately = here.filter(pl.col("last_us") >= begin)
    for (service,), were in sorted(earlier.partition_by("service", as_dict=True).items()):
        now = lately.filter(service=service)
        number, heard = _mostly(were), _at_once(now)
        if heard < number:
            gone = sorted({*were["host"].drop_nulls()} - {*now["host"].drop_nulls()})
            who = f"what was on {', '.join(gone)}" if gone else "the rest"
            told = f"{heard} of the {number} processes of the day before are heard of"
            yield service, f"service {service}: {told}; {who} is silent"


def _at_once(lives: pl.DataFrame) -> int:
    """Return the largest number of processes that ran at one time; a process that has not ended still runs."""
    ends = lives.lazy().filter(pl.col("ended") != "open")
    steps = pl.concat(
        [
            lives.lazy().select(at="first_us", change=pl.lit(1)),
            ends.select(at="last_us", change=pl.lit(-1)),
        ]
    )
    # A process that begins at the moment when another ends ran at the same time.
    ordered = steps.sort("at", "change", descending=[False, True]).pipe(at_once)
    most = ordered["change"].cum_sum().max()
    return most if isinstance(most, int) else 0


def _mostly(lives: pl.DataFrame) -> int:
    """Return the median number of processes that ran at once, over the time in which any ran."""
    steps = sorted(
        step
        for first, last in lives.select("first_us", "last_us").iter_rows()
        for step in ((first, 1), (last + 1, -1))
    )
    lasted: dict[int, int] = {}
    now, since = 0, steps[0][0]
    for at, change in steps:
        lasted[now] = lasted.get(now, 0) + at - since
        now, since = now + change, at
    del lasted[0]
    half, number = sum(lasted.values()) / 2, 0
    for number, length in sorted(lasted.items()):  # noqa: B007 - the last one is meant
        half -= length
        if half <= 0:
            break
    return number
