"""What consumers did, minute by minute, and when they were subscribed: gathered once for several tables."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx.core.events import SETTLED, Outcome
from jmsx_report.additive import MINUTE_US, Adds, Partial, total
from jmsx_report.events import Events, named
from jmsx_report.flows import DONE
from jmsx_report.horizon import RUNS
from jmsx_report.latency import SOCKET
from jmsx_report.nothing import of_lines
from jmsx_report.table import Sums

#: Microseconds within which a message should be done after its sending; the alerts use the same target.
LATENCY_TARGET_US: Final = 30_000_000
#: The key of one consumer on one socket: sessions that use the same consumer name are several consumers.
SUBSCRIPTION: Final = (*SOCKET, "dest", "consumer")
_KEYS: Final = (*SUBSCRIPTION, "minute_us")
_SPANS: Final = {
    "handler": ("start_us", "end_us"),
    "buffer": ("recv_us", "start_us"),
    "ack": ("end_us", "ts_us"),
}


@of_lines("delivery")
def _consumed(events: Events) -> pl.DataFrame:
    done = pl.col("outcome").is_in(DONE)
    took = pl.col("ts_us") - pl.col("sent_us")
    told = (
        events.coded("delivery")
        .lazy()
        .select(
            *SUBSCRIPTION,
            (pl.col("ts_us") // MINUTE_US * MINUTE_US).alias("minute_us"),
            pl.col("outcome").is_in([str(one) for one in sorted(SETTLED)]).alias("settled"),
            (pl.col("outcome") == Outcome.DEAD_LETTERED.value).alias("dead_lettered"),
            done.alias("done"),
            (done & took.is_not_null()).alias("timed"),
            (done & (took > LATENCY_TARGET_US)).alias("late"),
            *(
                pl.when(done).then(pl.col(end) - pl.col(start)).alias(name)
                for name, (start, end) in _SPANS.items()
            ),
        )
        .collect()
    )
    return (
        told.group_by(_KEYS)
        .agg(
            pl.col("settled", "dead_lettered", "done", "timed", "late").sum().cast(pl.Int64),
            *(pl.col(name).count().cast(pl.Int64).alias(f"{name}_n") for name in _SPANS),
            *(total(told, name).alias(f"{name}_us") for name in _SPANS),
            pl.col("ack").max().alias("ack_max_us"),
        )
        .pipe(named)
    )


#: Deliveries by consumer and minute of settlement: how many were settled, how many done (`timed`: of these with the
#: broker's timestamp; `late`: of the timed ones later than the target), and how long the done ones took.
CONSUMPTION: Final = Partial(
    "consumption",
    _KEYS,
    {
        **dict.fromkeys(("settled", "dead_lettered", "done", "timed", "late"), Adds.SUM),
        **{f"{name}_n": Adds.SUM for name in _SPANS},
        **{f"{name}_us": Adds.SUM for name in _SPANS},
        "ack_max_us": Adds.MAX,
    },
    _consumed,
    apart=("writer", "minute_us"),
)


@of_lines("sub.open", "sub.close")
def _opened_and_closed(events: Events) -> pl.DataFrame:
    one, none = pl.lit(1, pl.Int64), pl.lit(0, pl.Int64)
    return pl.concat(
        [
            events.of("sub.open").select(
                *SUBSCRIPTION,
                "ack_mode",
                "prefetch",
                pl.col("ts_us").alias("opened_us"),
                one.alias("opened"),
                none.alias("closed"),
            ),
            events.of("sub.close").select(
                *SUBSCRIPTION,
                pl.col("ts_us").alias("closed_us"),
                none.alias("opened"),
                one.alias("closed"),
                pl.col("seq").alias("closed_seq"),
            ),
        ],
        how="diagonal",
    )


#: Each consumer of each socket, from its first `sub.open` to its last `sub.close` (`closed_seq`), and how many of both
#: there are.
SUBSCRIPTIONS: Final = Partial(
    "subscriptions",
    SUBSCRIPTION,
    {
        "ack_mode": Adds.MIN,
        "prefetch": Adds.MAX,
        "opened_us": Adds.MIN,
        "closed_us": Adds.MAX,
        "opened": Adds.SUM,
        "closed": Adds.SUM,
        "closed_seq": Adds.MAX,
    },
    _opened_and_closed,
)


@of_lines("conn.lost", "conn.closed")
def _ended(events: Events) -> pl.DataFrame:
    return pl.concat(
        events.of(kind).select(*SOCKET, pl.col("ts_us").alias("ended_us"))
        for kind in ("conn.lost", "conn.closed")
    )


#: When each socket ended, if it did.
ENDS: Final = Partial("socket_ends", SOCKET, {"ended_us": Adds.MIN}, _ended)

#: The partials that `presence` needs.
PRESENCE: Final = (SUBSCRIPTIONS, ENDS, RUNS)


def presence(sums: Sums) -> pl.DataFrame:
    """
    Return from when to when each consumer was subscribed: SUBSCRIPTION, opened_us, left_us.

    It left when it was closed, its socket ended, or its writer wrote its last line, whichever came first.
    """
    last = sums[RUNS.name].group_by("writer").agg(pl.col("last_us").max())
    return (
        sums[SUBSCRIPTIONS.name]
        .join(sums[ENDS.name], on=SOCKET, how="left", nulls_equal=True)
        .join(last, on="writer", how="left")
        .select(
            *SUBSCRIPTION,
            "opened_us",
            pl.min_horizontal("closed_us", "ended_us", "last_us").alias("left_us"),
        )
    )
