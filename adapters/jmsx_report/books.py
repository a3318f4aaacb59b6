"""What the log says before single keys are looked at: sends and settlements by bucket, who ran, and up to when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report import balance, brokerbook, copies, presence
from jmsx_report.additive import Partial
from jmsx_report.clocks import Clocks
from jmsx_report.consumption import SUBSCRIPTIONS
from jmsx_report.fanout import Routes, is_queue, routes
from jmsx_report.flows import (
    AGAIN,
    BUCKET_US,
    CLOSINGS,
    COUNTS,
    DOUBTS,
    FLOWS,
    HEARD_OF,
    IN_HAND,
    PLANS,
    READERS,
    SPANS,
)
from jmsx_report.horizon import NOTES, RUNS, Completeness, Horizon, completeness, horizon, reached
from jmsx_report.inline import at_once
from jmsx_report.period import Period, flowed, within
from jmsx_report.roster import ROSTER, absent, roster
from jmsx_report.table import Context, Sums

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Every partial that the audit uses, except those of its `Context`, and except `stories`, which is made when the log is
#: read a second time.
PARTIALS: Final[tuple[Partial, ...]] = (
    FLOWS,
    READERS,
    HEARD_OF,
    SPANS,
    CLOSINGS,
    IN_HAND,
    SUBSCRIPTIONS,
    PLANS,
    DOUBTS,
    AGAIN,
    COUNTS,
    RUNS,
    NOTES,
    brokerbook.STATS,
    brokerbook.TRAFFIC,
    copies.COPIES,
    copies.IDLE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The parameters of the audit; instants and durations in microseconds."""

    deadline_us: int = 0  #: messages sent or due again less than this ago may still wait
    expect: Mapping[str, int] = field(default_factory=dict)  #: service -> processes at once
    #: As `roster.kept`.
    before: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=ROSTER))
    quarantine: pl.DataFrame | None = None  #: as `health.QUARANTINE`, with writer (null: unknown)
    passed_over: pl.DataFrame | None = None  #: path, why, writer: files that were not read
    open_segments: tuple[str, ...] = ()


#: The columns kept of a flow with its route; there may be millions of rows.
_BY_ROUTE: Final = (
    "writer",
    "session_id",
    "epoch",
    "outcome",
    "dest",
    "route",
    "hour_us",
    "bucket",
    "n",
)


@dataclass(frozen=True)
class Books:
    """What the log says before single keys are looked at."""

    flows: pl.DataFrame
    beyond: pl.DataFrame  #: as `flows.FLOWS`, of messages of other times than the period
    #: One row for each copy that somebody should receive: as `balance.sends_by_route`, the columns _BY_ROUTE
    sends: pl.DataFrame
    #: Those that are audited: as `balance.deliveries_by_route`, the same columns
    deliveries: pl.DataFrame
    senders: pl.DataFrame  #: as `balance.senders`
    readers: pl.DataFrame  #: as `flows.READERS`, and whoever else is heard to read a queue
    #: As `flows.HEARD_OF`, of consumers that are not in `readers`: their subscription is unknown.
    heard_of: pl.DataFrame
    closings: pl.DataFrame  #: as `flows.CLOSINGS`
    #: As `flows.IN_HAND`, of consumers that stated how much they have; the fields of its structs are columns.
    in_hand: pl.DataFrame
    of_consumers: pl.DataFrame  #: as `flows.IN_HAND`, of all consumers
    subscriptions: pl.DataFrame  #: as `consumption.SUBSCRIPTIONS`
    routes: Routes
    complete: Completeness
    of_all: Completeness  #: the same, whatever the period is
    clocks: Clocks
    horizon: Horizon
    compared: pl.DataFrame  #: as `balance.buckets`
    own: pl.Series  #: as `balance.own_shards`
    begun: pl.DataFrame  #: as `presence.beginnings`
    removed: pl.DataFrame  #: as `presence.removals`
    copies: pl.DataFrame  #: as `copies.watched`
    book: pl.DataFrame  #: as `brokerbook.reconciled`
    sent_back: pl.Series  #: as `brokerbook.sent_back`
    asked: Period
    terms: Terms
    context: Context
    counts: pl.DataFrame
    doubts: pl.DataFrame
    #: bucket, hour_us: as `flows.AGAIN`, without the buckets of keys without a time into which this log's senders sent
    again: pl.DataFrame
    roster: pl.DataFrame  #: as `roster.roster`
    absent: pl.DataFrame  #: as `roster.absent`

    @cached_property
    def touched(self) -> pl.DataFrame:
        """
        The routes that each writer sends to or reads: writer, route, reads.

        If the lines are missing that tell a consumer's subscription, it may have any subscription of its destination.
        """
        routes = self.routes.reads.lazy()
        sends = self.senders.lazy().select("route", writer="sender")
        reads = self.readers.lazy().join(routes, on=["dest", "subscription"], nulls_equal=True)
        heard_of = self.heard_of.lazy().join(routes, on="dest")
        return (
            pl.concat(
                rows.select("writer", "route", pl.lit(value).alias("reads"))
                for rows, value in ((sends, False), (reads, True), (heard_of, True))
            )
            .group_by("writer", "route")
            .agg(pl.col("reads").any())
            .pipe(at_once)
        )

    @cached_property
    def compared_beyond(self) -> pl.DataFrame:
        """Sends and settlements of every bucket outside the period; as `balance.buckets`."""
        return balance.buckets(
            balance.sends_by_route(self.beyond, self.routes),
            balance.deliveries_by_route(self.beyond, self.routes),
        )

    @cached_property
    def own_beyond(self) -> pl.Series:
        """The buckets of keys without a time, outside the period, into which a process of this log sent."""
        return balance.own_shards(self.compared_beyond)

    @cached_property
    def places(self) -> pl.DataFrame:
        """Service and broker of each route: the service that reads it, or else sends to it; null if unknown."""
        services = (
            self.touched.lazy()
            .join(self.context.writers.lazy().select("writer", "service"), on="writer")
            .drop_nulls("service")
            .group_by("route", "reads")
            .agg(pl.col("service").unique().sort().str.join(", "))
            .sort("reads", descending=True)
            .unique("route", keep="first", maintain_order=True)
            .select("route", "service")
        )
        sockets = ("writer", "session_id", "epoch")
        brokers = (
            pl.concat(
                rows.lazy().select("route", *sockets) for rows in (self.sends, self.deliveries)
            )
            .unique()
            .join(
                self.context.sockets.lazy().select(*sockets, "broker"),
                on=list(sockets),
                nulls_equal=True,
            )
            .drop_nulls("broker")
            .group_by("route")
            .agg(pl.col("broker").unique().sort().str.join(", "))
        )
        return services.join(brokers, on="route", how="full", coalesce=True).pipe(at_once)

    @cached_property
    def sole(self) -> pl.DataFrame:
        """The destination of each route that has only one: route, sole."""
        return (
            self.routes.expects.lazy()
            .group_by("route")
            .agg(pl.col("dest").n_unique().alias("many"), pl.col("dest").min().alias("sole"))
            .filter(pl.col("many") == 1)
            .select("route", "sole")
            .pipe(at_once)
        )

    @cached_property
    def cuts(self) -> pl.DataFrame:
        """The horizon by the clock of each sender: sender, cut_us; no rows where nobody writes any more."""
        if not self.horizon.living or self.horizon.until_us is None:
            return pl.DataFrame(schema={"sender": pl.String, "cut_us": pl.Int64})
        offset = self.clocks.believed("sender")
        return (
            self.flows.filter(pl.col("kind") == "send")
            .select(sender="writer")
            .unique()
            .with_columns((offset + self.horizon.until_us).alias("cut_us"))
        )

    @property
    def whole(self) -> bool:
        """Whether nothing is missing, of nobody and at no time, as far as anything here tells."""
        aside, passed_over = self.terms.quarantine, self.terms.passed_over
        untold = (self.of_all.holes, self.of_all.drops, self.of_all.untold)
        lacking = (*untold, self.horizon.silent, self.absent, aside, passed_over)
        died = (self.of_all.writers["ended"] == "recovered").any()
        return not died and all(rows is None or rows.is_empty() for rows in lacking)

    @property
    def deadline_us(self) -> int:
        """The deadline; while processes still run at least the time by which their lines may lag behind."""
        if self.horizon.living:
            return max(self.terms.deadline_us, balance.GRACE_US)
        return self.terms.deadline_us


def books(sums: Sums, context: Context, terms: Terms, asked: Period) -> Books:
    """Gather what the merged partials `sums` (name -> rows, as `PARTIALS`) say of messages of the period `asked`."""
    clocked = context.clocks
    # Of all writers, whatever the period is.
    of_all = _completeness(sums, clocked)
    here = roster(of_all, context.writers, clocked)
    beyond = sums[FLOWS.name].filter(~flowed(asked))
    sums = within(sums, asked, clocked)
    flowing = sums[FLOWS.name]
    readers, heard_of = _readers(sums[READERS.name], sums[HEARD_OF.name])
    sent = flowing.filter(pl.col("kind") == "send")["dest"].drop_nulls().unique()
    read = readers.select("dest", "subscription").unique()
    found_routes = routes(sent, read.iter_rows())
    complete = of_all if asked.since_us is None else _completeness(sums, clocked)
    sends = balance.sends_by_route(flowing, found_routes)
    deliveries = balance.deliveries_by_route(flowing, found_routes)
    compared = balance.buckets(sends, deliveries)
    own = balance.own_shards(compared)
    senders = balance.senders(flowing, found_routes)
    stats = sums[brokerbook.STATS.name].join(
        context.sockets.select("writer", "session_id", "epoch", "broker"),
        on=["writer", "session_id", "epoch"],
        how="left",
        nulls_equal=True,
    )
    of_consumers = sums[IN_HAND.name].unnest("said", "done")
    until = horizon(complete, clocked, terms.open_segments)
    book = brokerbook.reconciled(
        stats,
        sums[brokerbook.TRAFFIC.name],
        found_routes.expects,
        found_routes.reads,
        clocked,
        sockets=context.sockets,
        until_us=asked.until_us,
    )
    return Books(
        flows=flowing,
        beyond=beyond,
        sends=sends.select(_BY_ROUTE),
        deliveries=deliveries.select(_BY_ROUTE),
        senders=senders,
        readers=readers,
        heard_of=heard_of,
        closings=sums[CLOSINGS.name],
        in_hand=of_consumers.drop_nulls("told_us"),
        of_consumers=of_consumers,
        subscriptions=sums[SUBSCRIPTIONS.name],
        routes=found_routes,
        complete=complete,
        of_all=of_all,
        clocks=clocked,
        horizon=until,
        compared=compared,
        own=own,
        begun=presence.beginnings(sends.filter("fanned"), compared, found_routes, readers, clocked),
        removed=presence.removals(sums[SPANS.name], sends, compared, clocked),
        copies=copies.watched(
            sums[copies.COPIES.name],
            sums[copies.IDLE.name],
            found_routes,
            sockets=context.sockets,
            clocks=clocked,
            until=until,
            deadline_us=terms.deadline_us,
        ),
        book=book,
        sent_back=brokerbook.sent_back(book, sums[PLANS.name], found_routes),
        asked=asked,
        terms=terms,
        context=context,
        counts=sums[COUNTS.name],
        doubts=sums[DOUBTS.name],
        again=sums[AGAIN.name].filter(~pl.col("bucket").is_in(own.implode())),
        roster=here,
        absent=absent(here, terms.expect, terms.before, reached(of_all, clocked)),
    )


def _readers(known: pl.DataFrame, heard_of: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `Books.readers` and `Books.heard_of`: readers of a queue are known, as they need no subscription."""
    others = heard_of.join(known, on=["writer", "dest", "consumer"], how="anti")
    queues = [dest for dest in others["dest"].unique() if is_queue(dest)]
    there = pl.col("dest").is_in(queues)
    of_queues = others.filter(there).with_columns(
        pl.lit(None, pl.String).alias("subscription"), pl.lit(0, pl.Int64).alias("deliveries")
    )
    return pl.concat([known, of_queues.select(known.columns)]), others.filter(~there)


def _completeness(sums: Sums, clocks: Clocks) -> Completeness:
    found = completeness(sums[RUNS.name], sums[NOTES.name])
    return replace(found, writers=clocks.ended(found.writers))


def third_look(held: Books) -> pl.Series:
    """Return the buckets outside the period in which messages may be settled that nobody here sent."""
    comparable = (pl.col("bucket") >= 0) | pl.col("bucket").is_in(held.own_beyond.implode())
    doubtful = ~pl.col("balanced") & (pl.col("settled_n") > 0)
    return held.compared_beyond.filter(comparable & doubtful)["bucket"]


_IS_REPEATED: Final = (
    (pl.col("unconfirmed_n") > 0)
    & (pl.col("confirmed_n") > 0)
    & (pl.col("settled_n") > pl.col("confirmed_n"))
    & (pl.col("bucket") >= 0)
)


def second_look(held: Books) -> pl.Series:
    """
    Return the buckets that need `flows.stories`.

    They do not balance, or are cut by the horizon, or have repeats, or copies of dead letters that nobody read, or
    messages that went back to the broker, which must be told apart in the broker's counts.
    """
    dirty = balance.suspicious(held.compared, held.own, held.begun, held.removed)["bucket"]
    # A send without an answer may have been done, and sent again at once, which `again` does not see.
    repeated = held.compared.filter(_IS_REPEATED)["bucket"]
    cut = held.cuts["cut_us"] // BUCKET_US * BUCKET_US
    present = held.compared["bucket"]
    cut = cut.filter(cut.is_in(present.implode()))
    moved = copies.in_doubt(held.copies, held.compared)["bucket"]
    looked = [dirty, repeated, cut, held.again["bucket"], moved, held.sent_back]
    return pl.concat(looked).unique().sort()
