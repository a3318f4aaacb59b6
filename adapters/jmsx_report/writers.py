"""Facts about each process and its sockets, such as service and broker, which most lines do not repeat."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import Adds, Partial, added
from jmsx_report.clocks import CLOCKED, clocks
from jmsx_report.events import Events
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_lines
from jmsx_report.table import Context, Sums


@of_lines("log.open")
def _opened(events: Events) -> pl.DataFrame:
    return added(WRITERS, events.of("log.open").select(*WRITERS.keys, *WRITERS.adds))


@of_lines("conn.up")
def _connected(events: Events) -> pl.DataFrame:
    sockets = events.of("conn.up").select(*SOCKETS.keys, *SOCKETS.adds)
    return added(SOCKETS, sockets)


#: One row for each writer that has a `log.open` line.
WRITERS: Final = Partial(
    "writers",
    ("writer",),
    {"service": Adds.MIN, "host": Adds.MIN, "version": Adds.MIN},
    _opened,
    apart=("writer",),
)
#: One row for each socket that has a `conn.up` line: a session may reach another broker when it reconnects.
SOCKETS: Final = Partial(
    "sockets",
    ("writer", "session_id", "epoch"),
    {"broker": Adds.MIN, "broker_kind": Adds.MIN},
    _connected,
    apart=("writer",),
)


def context(sums: Sums) -> Context:
    """Gather what tables need to know of writers; `sums` has KNOWN."""
    writers = sums[WRITERS.name]
    seen = [writers, *(sums[partial.name] for partial in CLOCKED)]
    hosts = (
        pl.concat(rows.lazy().select("writer") for rows in seen)
        .unique()
        .join(writers.lazy().select("writer", "host"), on="writer", how="left")
        .pipe(at_once)
    )
    return Context(writers=writers, sockets=sums[SOCKETS.name], clocks=clocks(sums, hosts))


#: The partial tables that `context` reads.
KNOWN: Final = (WRITERS, SOCKETS, *CLOCKED)
