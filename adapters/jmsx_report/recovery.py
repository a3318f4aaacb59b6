"""How long connections and consumers were out of order, and how many messages were delayed by that."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx.core.events import Outcome
from jmsx_report.additive import Adds, Partial
from jmsx_report.events import Events, named
from jmsx_report.flows import DONE
from jmsx_report.latency import SOCKET
from jmsx_report.nothing import of_lines
from jmsx_report.table import Context, Sums, Table

_FAILED: Final = (Outcome.ROLLED_BACK.value, Outcome.DEAD_LETTERED.value)
_OF_CONSUMER: Final = ("writer", "session_id", "dest", "consumer")
_OF_SESSION: Final = ("writer", "session_id")


@of_lines("delivery")
def _runs(events: Events) -> pl.DataFrame:
    """
    Return one row for consecutive failures, by consumer and in order of `seq`: `n` failures, of `messages` messages.

    Only those successes are returned that may end a failure. Failures are combined only if no line is missing between
    them, so that another batch cannot have a line in between.
    """
    told = (
        events.coded("delivery")
        .lazy()
        .filter(pl.col("outcome").is_in([*_FAILED, *DONE]))
        .select(
            *SOCKET,
            "dest",
            "consumer",
            "seq",
            "ts_us",
            pl.col("outcome").is_in(_FAILED).alias("failed"),
            (pl.col("attempt") == 1).alias("first"),
            pl.col(_OF_CONSUMER).to_physical().name.prefix("_"),
        )
        .collect()
    )
    group = [f"_{name}" for name in _OF_CONSUMER]
    before = pl.col("failed").shift().over("range", *group)
    told = (
        in_ranges(told, events)
        .filter(pl.col("failed") | before.fill_null(value=True))
        .sort("range", *group, "seq")
    )
    here = pl.struct("range", *group, "failed")
    starts = told.select(here.ne_missing(here.shift())).to_series()
    return (
        told.with_columns(starts.cum_sum().alias("run"))
        .group_by("run")
        .agg(
            pl.col(*SOCKET, "dest", "consumer", "seq", "ts_us").first(),
            pl.col("failed").first().cast(pl.Int64),
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("first").sum().cast(pl.Int64).alias("messages"),
        )
        .drop("run")
        .pipe(named)
    )


def in_ranges(told: pl.DataFrame, events: Events) -> pl.DataFrame:
    """Add `range`, a number that is equal for lines of the writer between which no line is missing."""
    left_out = events.about("files")["repeated"]
    if left_out.sum() > 0:  # another batch has them, and they may lie between any two
        return told.sort("seq").with_columns(pl.col("seq").alias("range"))
    ranges = (
        events.about("ranges")
        .select(pl.col("writer").cast(pl.Categorical), "low")
        .with_row_index("range")
        .sort("low")
    )
    return told.sort("seq").join_asof(
        ranges, left_on="seq", right_on="low", by="writer", check_sortedness=False
    )


_RUNS: Final = Partial(
    "failure_runs",
    (*SOCKET, "dest", "consumer", "seq"),
    {
        "ts_us": Adds.MIN,
        "failed": Adds.MAX,
        "n": Adds.SUM,
        "messages": Adds.SUM,
    },
    _runs,
    apart=("writer", "seq"),
)


@of_lines("conn.lost", "conn.restored")
def _outages(events: Events) -> pl.DataFrame:
    return pl.concat(
        [
            events.of("conn.lost").select(
                *SOCKET,
                "seq",
                "ts_us",
                pl.lit(1, pl.Int64).alias("failed"),
                "reason",
                pl.lit(None, pl.Int64).alias("outage_us"),
            ),
            events.of("conn.restored").select(
                *SOCKET,
                "seq",
                "ts_us",
                pl.lit(0, pl.Int64).alias("failed"),
                pl.lit(None, pl.String).alias("reason"),
                "outage_us",
            ),
        ]
    )


_OUTAGES: Final = Partial(
    "outages",
    (*SOCKET, "seq"),
    {"ts_us": Adds.MIN, "failed": Adds.MAX, "reason": Adds.MIN, "outage_us": Adds.MAX},
    _outages,
)


@of_lines("delivery")
def _abandoned(events: Events) -> pl.DataFrame:
    return (
        events.coded("delivery")
        .filter(pl.col("outcome") == Outcome.ABANDONED.value)
        .group_by(SOCKET)
        .agg(pl.len().cast(pl.Int64).alias("messages"))
        .pipe(named)
    )


#: Deliveries that were abandoned because their connection was lost.
_ABANDONED: Final = Partial("abandoned", SOCKET, {"messages": Adds.SUM}, _abandoned)


def _episodes(rows: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Return one row for each episode, from the first failure to the next success (null if there is none)."""
    failed = pl.col("failed") == 1
    success = pl.col("failed") == 0
    # Names become numbers, which are sorted and compared faster. Sorted, the rows of one group are neighbours.
    one = [f"_{name}" for name in by]
    is_first = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in one)
    return (
        rows.with_columns(pl.col(by).cast(pl.Categorical).to_physical().name.prefix("_"))
        .sort(*one, "seq")
        .with_columns(is_first.alias("is_first"))
        .with_columns(
            (failed & (pl.col("is_first") | (pl.col("failed").shift() == 0))).alias("begins")
        )
        .with_columns((pl.col("is_first") | pl.col("begins")).cum_sum().alias("episode"))
        .group_by("episode", maintain_order=True)
        .agg(
            pl.col(*by, "epoch", "seq", "reason", "begins").first(),
            pl.col("ts_us").first().alias("start_us"),
            pl.col("ts_us").filter(success).first().alias("end_us"),
            pl.col("outage_us").filter(success).first(),
            pl.col("n", "messages").filter(failed).sum(),
        )
        .filter("begins")  # else it has only successes before the first failure
        .drop("episode", "begins")
    )


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    one = pl.lit(1, pl.Int64)
    outages = (
        sums[_OUTAGES.name]
        .join(sums[_ABANDONED.name], on=SOCKET, how="left", nulls_equal=True)
        .sort("seq")
        .with_columns(
            one.alias("n"),
            # Deliveries abandoned with a socket are counted at its first line that says it is lost.
            pl.when(one.cum_count().over(*SOCKET, "failed") == 1)
            .then(pl.col("messages"))
            .fill_null(0)
            .alias("messages"),
        )
    )
    runs = sums[_RUNS.name].with_columns(
        pl.lit(None, pl.String).alias("reason"), pl.lit(None, pl.Int64).alias("outage_us")
    )
    episodes = pl.concat(
        [
            _episodes(outages, _OF_SESSION).with_columns(pl.lit("connection").alias("what")),
            _episodes(runs, _OF_CONSUMER).with_columns(pl.lit("consumer").alias("what")),
        ],
        how="diagonal",
    )
    took = pl.col("end_us") - pl.col("start_us")
    return context.placed(episodes).select(
        *RECOVERY.grain,
        "session_id",
        "dest",
        "consumer",
        "reason",
        "start_us",
        "end_us",
        pl.coalesce("outage_us", took).alias("took_us"),
        pl.col("n").alias("failures"),
        "messages",
    )


#: Times of trouble, one row each; the mean of took_us is the MTTR. Columns: the grain (`what`: connection, or consumer;
#: `seq`: the line that it began with), session_id, dest and consumer (null: all of the connection), reason (why the
#: connection was lost), start_us (of the first failure), end_us (a connection: there again with all subscriptions; a
#: consumer: the first message that was done; null: not in this log), took_us, failures (connections lost, or deliveries
#: rolled back or dead-lettered), messages (that were delayed: deliveries that went with the connection, or messages
#: that failed for the first time).
RECOVERY: Final = Table(
    "recovery",
    ("service", "broker", "what", "writer", "seq"),
    (_RUNS, _OUTAGES, _ABANDONED),
    _gold,
)
