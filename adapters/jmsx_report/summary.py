"""The audit in plain values, ready for JSON: what programs and people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx.log import counted
from jmsx_report.balance import TWICE
from jmsx_report.books import Books
from jmsx_report.clocks import TOLD_US
from jmsx_report.conclusions import (
    BALANCED,
    DOUBTS,
    LISTED,
    NUMBER_OF,
    NUMBERS,
    PROOFS,
    PROVES,
    SAMPLED,
    SUSPECT,
    TOLD,
    UNVERIFIABLE,
    late_confirmed,
    long,
    together,
    wide,
    worst,
)
from jmsx_report.flows import PLAUSIBLE_US
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_rows
from jmsx_report.wording import moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _readable(held: Books) -> pl.DataFrame:
    """Return the destinations that stand for each route, because they are sent to or read: dest, route."""
    both = (held.routes.expects, held.routes.reads)
    return pl.concat(rows.lazy().select("dest", "route") for rows in both).unique().pipe(at_once)


#: Other explanations of a count that is too low: the log cannot exclude them, so such a count changes no verdict.
_ANEW: Final = (
    "the counters began anew (the broker was restarted, or the queue was removed and made again),"
    " or another broker behind the address counted them"
)
#: Findings from the broker's counts, by column of `brokerbook.BOOK`: the name of the finding, and its sentence.
_BY_THE_BROKER: Final = {
    "foreign_in": (
        "foreign_producers",
        "at least {} came from foreign producers, which keep no log here, or were moved there, as dead letters are",
    ),
    "foreign_out": (
        "foreign_consumers",
        "at least {} went to foreign consumers, which keep no log here, or were moved or removed by hand",
    ),
    "fewer_in": (
        "uncounted_sends",
        (
            "{} fewer came than its senders were told: they wait for their time or expired as they came,"
            f" {_ANEW}, or the broker has lost them"
        ),
    ),
    "fewer_out": (
        "uncounted_acks",
        (f"{{}} fewer went than consumers say that they settled: they come again, or {_ANEW}"),
    ),
    "size": ("waiting", "{} left there unread"),
    "expired": ("expired", "{} expired"),
}


#: The same if lines of the route's senders or readers are missing, which may have been about these messages.
_IN_A_GAP: Final = {
    "foreign_in": (
        "untold_producers",
        (
            "at least {} came of which no line is here: from foreign producers, moved there as dead letters are, or the"
            " lines are missing"
        ),
    ),
    "foreign_out": (
        "untold_consumers",
        (
            "at least {} went of which no line is here: to foreign consumers, moved or removed by hand, or the lines"
            " are missing"
        ),
    ),
}


def _finding(what: str, where: str, says: str) -> dict[str, Any]:
    return {"what": what, "where": where, "says": says}


def _clock(row: Mapping[str, Any]) -> str:
    """Word a row of `Clocks.told`: a clock that is ahead looks like messages that all waited, unless it is proven."""
    is_ahead = row["offset_us"] > 0
    side = "ahead of" if is_ahead else "behind"
    if abs(row["believed_us"]) >= TOLD_US:
        return f"is about {abs(row['offset_us']) / 1e6:.1f} s {side} the broker's"
    most = abs(row["high_us"] if is_ahead else row["low_us"])
    return f"may be up to {most / 1e6:.1f} s {side} the broker's; nothing proves that"


def _under_way(
    held: Books, found: pl.DataFrame, planned: pl.DataFrame, in_hand: pl.DataFrame
) -> list[dict[str, Any]]:
    """Return findings on where unsettled messages are, as far as known; `planned` as `balance.plans`."""
    told = [
        _finding(
            "planned",
            route,
            f"{route}: {counted(n, 'message')} in a planned wait for redelivery"
            + (f", the last until {moment(until_us)} UTC" if until_us < PLAUSIBLE_US[1] else ""),
        )
        for route, n, until_us in _waiting(planned, found, held).head(LISTED).iter_rows()
    ]
    return (
        told
        + [
            _finding(
                "in_hand",
                route,
                f"{route}: its consumers have {counted(n, 'message')} of which nothing else is told",
            )
            for route, n in _had(in_hand, found).head(LISTED).iter_rows()
        ]
        + [
            _finding(
                "closed_readers",
                route,
                f"{route}: all of its consumers were closed in order, the last at {moment(closed_us)} UTC;"
                f" {counted(n, 'message')} sent about then or later may wait there for the next one,"
                " if nobody without a log has had them",
            )
            for route, n, closed_us in _left(found).head(LISTED).iter_rows()
        ]
    )


@of_rows
def _left(found: pl.DataFrame) -> pl.DataFrame:
    """Return how many messages wait where all readers have closed, and since when: route, n, closed_us."""
    return (
        found.filter(pl.col("awaiting_reader") > 0)
        .group_by("route")
        .agg(pl.col("awaiting_reader").sum(), pl.col("closed_us").max())
        .sort("route")
    )


@of_rows
def _waiting(planned: pl.DataFrame, found: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Return how many messages are in a planned wait, and until when: route, in_flight, until_us."""
    believed = held.clocks.believed()
    now = held.complete.writers.select((pl.col("last_us") - believed).max()).item()
    still = (
        planned.filter(pl.col("over_us") == pl.col("until_us"))
        .with_columns(pl.col("until_us") - believed)
        .filter(pl.col("until_us") > pl.lit(now, pl.Int64))
        .group_by("msg_key", "route")
        .agg(pl.col("until_us").max())
    )
    return (
        found.filter(pl.col("in_flight") > 0)
        .join(still, on=["msg_key", "route"])
        .group_by("route")
        .agg(pl.col("in_flight").sum(), pl.col("until_us").max())
        .sort("route")
    )


@of_rows
def _had(in_hand: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return how many messages consumers hold, on routes with unaccounted messages: route, in_hand."""
    late = found.filter(pl.col("unaccounted") > 0).select("route").unique()
    return (
        in_hand.filter(pl.col("in_hand") > 0)
        .join(late, on="route")
        .sort("route")
        .select("route", "in_hand")
    )


def _findings(
    held: Books,
    missing: pl.DataFrame,
    judged: pl.DataFrame,
    clocks: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what a person should know besides the numbers: what, where, says; `clocks` as `Clocks.told`."""
    told = [_finding("gap", who or "?", f"{who}: {why}") for who, why in _gaps(missing, LISTED)]
    told += [
        _finding("roster", row["service"], row["says"]) for row in held.absent.iter_rows(named=True)
    ]
    told += _quiet(held)
    told += [
        _finding("not_audited", dest, f"{dest} is not audited: {why}")
        for dest, why in sorted(held.routes.unaudited.items())[:LISTED]
    ]
    told += [
        _finding("clock", row["writer"], f"the clock of {row['writer']} {_clock(row)}")
        for row in clocks[:LISTED]
    ]
    gapped = set(missing["route"])
    for row in held.book.sort("route").iter_rows(named=True):
        by_the_broker = _BY_THE_BROKER | (_IN_A_GAP if row["route"] in gapped else {})
        told += [
            _finding(
                what,
                row["route"],
                f"{row['route']}: by the broker's count {words.format(counted(row[column], 'message'))}",
            )
            for column, (what, words) in by_the_broker.items()
            if row[column]
        ]
    if held.doubts.height:
        told.append(
            _finding(
                "transactions",
                "",
                f"{held.doubts.height} transactions ended in doubt: nobody knows whether they were committed",
            )
        )
    if held.terms.passed_over is not None:
        told += [
            _finding("not_read", row["path"], f"{row['path']} was not read: {row['why']}")
            for row in held.terms.passed_over.head(LISTED).iter_rows(named=True)
        ]
    if held.terms.quarantine is not None:
        told += [
            _finding("quarantine", row["path"], f"{row['path']}, line {row['line']}: {row['why']}")
            for row in held.terms.quarantine.head(LISTED).iter_rows(named=True)
        ]
    told += _removals(held)
    words = PROOFS | DOUBTS | TOLD
    sums = judged.group_by("dest").agg(pl.col(words).clip(lower_bound=0).sum()).sort("dest")
    for name, text in words.items():
        numbers = [(dest, n) for dest, n in zip(sums["dest"], sums[name], strict=True) if n > 0]
        told += [
            _finding(NUMBER_OF.get(name, name), dest, f"{dest}: {text.format(n)}")
            for dest, n in numbers[:LISTED]
        ]
    return told


def _gaps(missing: pl.DataFrame, most: int) -> list[tuple[str | None, str]]:
    """Return the writers or services whose lines may be missing, and why; the first `most`."""
    if missing.is_empty():
        return []
    return missing.select("who", "why").unique().sort("who", "why").head(most).rows()


def _quiet(held: Books) -> list[dict[str, Any]]:
    """Return findings on writers that have not ended, and are silent while others write: since when."""
    newest = held.horizon.newest_us
    if newest is None:
        return []
    return [
        _finding(
            "silent",
            writer,
            f"{writer}: silent since {moment(end_us)} UTC, while others wrote until {moment(newest)} UTC:"
            " it has no connection open, it hangs, its log cannot be written (such as on a full disk), it died,"
            " or the rest is not here"
            + ("; what was sent after that is not judged" if waited else ""),
        )
        for writer, end_us, waited in held.horizon.quiet.sort("end_us", "writer")
        .head(LISTED)
        .iter_rows()
    ]


def _removals(held: Books) -> list[dict[str, Any]]:
    """Return findings on each durable subscription that was removed: when."""
    once = held.removed.group_by("route", "at_us").agg(
        pl.col("again_us").is_not_null().any().alias("again")
    )
    return [
        _finding(
            "subscription_removed",
            route,
            f"{route} was removed at {moment(at_us)} UTC: what was sent after that"
            + (", until it began again," if again else "")
            + " is not owed to it",
        )
        for route, at_us, again in once.sort("route", "at_us").head(LISTED).iter_rows()
    ]


def _doubted(held: Books, rows: pl.DataFrame) -> dict[str, str]:
    """Return the routes that the broker's counts cast doubt on as a whole, each with the reason."""
    opened = rows.group_by("route").agg(
        (pl.col("in_flight") + pl.col("unread") + pl.col("unaccounted")).sum().alias("open")
    )
    doubts = {}
    for row in held.book.join(opened, on="route", how="left").sort("route").iter_rows(named=True):
        if row["foreign_out"]:
            doubts[row["route"]] = (
                f"{counted(row['foreign_out'], 'message')} went to consumers of which no line is here, or were moved or"
                " removed by hand"
            )
        elif row["size"] > (row["open"] or 0) and not held.horizon.living:
            doubts[row["route"]] = f"{row['size']} messages wait in the queue unread"
    return doubts


def _since(held: Books, stories: pl.DataFrame) -> int:
    """Return how many messages of those that are audited were sent after the horizon."""
    if held.cuts.is_empty():
        return 0
    sends = (
        pl.col("kind").eq("send")
        & pl.col("outcome").eq("confirmed")
        & pl.col("dest").is_in(held.routes.expects["dest"].unique().implode())
    )
    whole = (
        held.flows.filter(sends)
        .join(held.cuts, left_on="writer", right_on="sender")
        .filter(pl.col("bucket") > pl.col("cut_us"))["n"]
        .sum()
    )
    partly = (
        stories.filter(sends)
        .join(held.cuts, left_on="writer", right_on="sender")
        .filter((pl.col("bucket") <= pl.col("cut_us")) & (pl.col("key_us") > pl.col("cut_us")))["n"]
        .sum()
    )
    return int(whole or 0) + int(partly or 0)


def summary(
    held: Books,
    found: pl.DataFrame,
    rows: pl.DataFrame,
    *,
    numbered: pl.DataFrame,
    missing: pl.DataFrame,
    stories: pl.DataFrame,
    planned: pl.DataFrame,
    in_hand: pl.DataFrame,
    gone: pl.DataFrame,
) -> dict[str, Any]:
    """
    Write the audit as plain values: see `ReportResult.audit`.

    Args:
        held: what the log says before single keys are looked at.
        found: the keys that were looked at, as `balance.judged`, with what `conclusions.explained` adds, and `cause`.
        rows: as `conclusions`.
        numbered: as `conclusions.numbers`.
        missing: as `placed_gaps`.
        stories: as that partial.
        planned: as `balance.plans`.
        in_hand: as `balance.in_hand`.
        gone: as `copies.unclaimed`.

    """
    named = _readable(held)
    doubts = _doubted(held, rows)
    # A message is one, although each route gets a copy: it is counted once, at the destination it was sent to.
    by_hour = _own_numbers(held, found, numbered)
    own = {
        row.pop("dest"): row
        for row in by_hour.group_by("dest").agg(pl.col(NUMBERS).sum()).iter_rows(named=True)
    }
    totals = {name: sum(numbers[name] for numbers in own.values()) for name in NUMBERS}
    rows = rows.sort("dest", "route", "hour_us").with_row_index("row")
    # Rows are also reported at the destination that is read; but not where several destinations are read together.
    read = held.routes.reads.lazy().select("dest", "route").unique()
    again = rows.lazy().drop("dest").join(read, on="route").select(rows.columns)
    by_name = (
        pl.concat([rows.lazy(), again]).unique(["dest", "row"], maintain_order=True).pipe(at_once)
    )
    verdicts: dict[str, list[str]] = {}
    reasons = together(by_name)
    for dest, verdict in by_name.filter(~pl.col("later")).select("dest", "verdict").iter_rows():
        verdicts.setdefault(dest, []).append(verdict)
    for dest in by_name.filter(~pl.col("later") & PROVES)["dest"]:
        verdicts[dest].append(SUSPECT)
    for dest, route in named.sort("dest", "route").iter_rows():
        if route in doubts:
            verdicts.setdefault(dest, []).append(UNVERIFIABLE)
            reasons.setdefault(dest, []).append(doubts[route])
    samples = _sample_keys(found, gone)
    destinations = {
        dest: {
            **own[dest],
            "sample_keys": samples.get(dest, []),
            "verdict": worst(verdicts.get(dest, [])),
            "reasons": list(dict.fromkeys(reasons.get(dest, [])))[:LISTED],
        }
        for dest in sorted(own)
    }
    until = held.horizon.until_us
    since = _since(held, stories)
    whole, why = _whole(held, rows=rows, missing=missing, doubts=doubts, totals=totals, since=since)
    quarantined = 0 if held.terms.quarantine is None else held.terms.quarantine.height
    faults = held.complete.faults()
    if held.terms.open_segments:
        faults.append(f"{counted(len(held.terms.open_segments), 'segment')} still open")
    if held.terms.passed_over is not None and held.terms.passed_over.height:
        faults.append(f"{counted(held.terms.passed_over.height, 'file')} not read")
    if quarantined:
        faults.append(f"{counted(quarantined, 'line')} put aside")
    clocks = held.clocks.told()
    findings = _findings(held, missing, rows, clocks)
    findings += _under_way(held, found, planned, in_hand)
    counts = held.counts.to_dicts()
    return {
        "verdict": whole,
        "reasons": why,
        "horizon": until,
        "since": since,
        **totals,
        "destinations": destinations,
        "hours": _hours(by_name, by_hour),
        "quarantined": quarantined,
        "findings": findings,
        "lost": _listed(found, pl.col("proven")),
        "unsettled": _listed(found, (pl.col("unaccounted") > 0) & ~pl.col("proven")),
        "repeated": _listed(found, pl.sum_horizontal(TWICE) > 0),
        "not_audited": dict(sorted(held.routes.unaudited.items())),
        "clocks": clocks,
        "counts": tally(counts),
        "counts_by_destination": {
            dest: tally(mine) for dest, mine in sorted(_by_dest(counts).items())
        },
        "completeness": {
            "complete": not faults,
            "auditable": not missing.height and not quarantined,
            "faults": faults,
            "open_segments": list(held.terms.open_segments),
            "unreadable_lines": quarantined,
            "writers": held.complete.as_json(),
        },
    }


#: The numbers of each hour.
_HOURLY: Final = ("sent", "settled", "done", "unaccounted", "duplicates")


def _hours(rows: pl.DataFrame, own: pl.DataFrame) -> list[dict[str, Any]]:
    """
    Return one object for each destination and hour of sending.

    The verdict is that of all routes that the destination stands for, as in `rows`; the numbers are its `own`, so that
    those of its hours add up to those of the destination.
    """
    found: dict[tuple[str, int], dict[str, Any]] = {}
    told = rows.join(own, on=["dest", "hour_us"], how="left", suffix="_own")
    for row in told.sort("dest", "hour_us", "route", "row").iter_rows(named=True):
        here = found.setdefault(
            (row["dest"], row["hour_us"]),
            {"dest": row["dest"], "hour_us": row["hour_us"], "verdict": BALANCED, "reasons": []}
            | {name: row[f"{name}_own"] or 0 for name in _HOURLY},
        )
        here["verdict"] = worst((here["verdict"], row["verdict"]))
        here["reasons"] = list(dict.fromkeys([*here["reasons"], *row["reasons"]]))
    return list(found.values())


def _by_dest(counts: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in counts:
        if row["dest"] is not None:
            found.setdefault(row["dest"], []).append(row)
    return found


def _own_numbers(held: Books, found: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """Return the numbers of each destination and hour of sending by its own lines, each message once."""
    sends = (
        held.flows.lazy()
        .filter(
            (pl.col("kind") == "send")
            & (pl.col("outcome") == "confirmed")
            & pl.col("dest").is_in(held.routes.expects["dest"].unique().implode())
        )
        .with_columns(pl.lit("").alias("route"))
    )
    # If any copy of an unconfirmed message was settled, that proves that it was sent.
    late = (
        found.lazy()
        .filter(pl.col("late_confirmed") > 0)
        .unique(["msg_key", "dest"], keep="first", maintain_order=True)
        .with_columns(pl.col("late_confirmed").alias("n"))
    )
    in_bulk = (
        late_confirmed(held, found)
        .lazy()
        .sort("route")
        .unique(
            ["writer", "session_id", "epoch", "dest", "hour_us", "bucket"],
            keep="first",
            maintain_order=True,
        )
    )
    others = numbered.lazy().filter(pl.col("number") != "sent")
    rows = pl.concat([*map(long, (sends, late, in_bulk)), others])
    return wide(rows, ("dest", "hour_us")).pipe(at_once)


def _sample_keys(found: pl.DataFrame, gone: pl.DataFrame) -> dict[str, list[str]]:
    wrong = found.filter(pl.sum_horizontal("unaccounted", *TWICE) > 0)
    keys = pl.concat([rows.select("dest", "msg_key") for rows in (wrong, gone)])
    if keys.is_empty():
        return {}
    rows = keys.group_by("dest").agg(pl.col("msg_key").unique().sort().head(SAMPLED))
    return dict(rows.iter_rows())


def _listed(found: pl.DataFrame, which: pl.Expr) -> list[dict[str, Any]]:
    """Return the oldest keys that satisfy `which`, with the time of sending and the last fate."""
    if found.is_empty():
        return []
    return (
        found.filter(which)
        .sort("key_us", "msg_key", "route")
        .head(LISTED)
        .select(
            "msg_key",
            "dest",
            pl.col("route").alias("subscription"),
            "key_us",
            "last_us",
            "last_fate",
            "cause",
        )
        .to_dicts()
    )


def _whole(
    held: Books,
    *,
    rows: pl.DataFrame,
    missing: pl.DataFrame,
    doubts: Mapping[str, str],
    totals: Mapping[str, int],
    since: int,
) -> tuple[str, list[str]]:
    """Return the overall verdict, and the reasons."""
    proven = rows.filter(PROVES.any().over("dest") & (PROVES | ~pl.col("later")))
    if proven.height:
        return SUSPECT, _why(proven)
    reasons = _why(rows.filter(~pl.col("later")))
    reasons += [f"{route}: {why}" for route, why in sorted(doubts.items())]
    reasons += [f"{who}: {why}" for who, why in _gaps(missing, SAMPLED)]
    if held.terms.quarantine is not None and held.terms.quarantine.height:
        reasons.append(f"{counted(held.terms.quarantine.height, 'line')} put aside")
    if totals["sent"] - since <= 0:
        reasons.append("no message was sent up to the horizon, so nothing is proven")
    elif totals["settled"] == 0 and totals["in_flight"] >= totals["sent"] - since:
        reasons.append("no message is settled, and none is overdue yet, so nothing is proven")
    return (UNVERIFIABLE, list(dict.fromkeys(reasons))) if reasons else (BALANCED, [])


def _why(rows: pl.DataFrame) -> list[str]:
    """Return the reasons of some rows, by destination, a few."""
    return [f"{dest}: {reason}" for dest, told in together(rows).items() for reason in told][
        :LISTED
    ]


def tally(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """
    Return the counts of `flows.COUNTS` by name.

    All are messages, save `ack_frames` and those of transactions and links.
    """

    def lines(kind: str, outcome: str | None = None) -> int:
        return sum(
            row["n"] for row in rows if row["kind"] == kind and outcome in (None, row["outcome"])
        )

    def messages(kind: str) -> int:
        return sum(row["messages"] for row in rows if row["kind"] == kind)

    outcomes = sorted(
        {row["outcome"] for row in rows if row["kind"] == "delivery" and row["outcome"]}
    )
    return {
        "received": messages("recv.batch"),
        "deliveries": lines("delivery"),
        **{outcome: lines("delivery", outcome) for outcome in outcomes},
        "processed": lines("delivery", "acknowledged") + lines("delivery", "committed"),
        "redelivered": sum(row["again"] for row in rows if row["kind"] == "delivery"),
        "redelivered_flagged": sum(row["flagged"] for row in rows if row["kind"] == "delivery"),
        "redeliveries_scheduled": lines("redelivery.scheduled"),
        "dlq": lines("dlq"),
        "dlq_failed": lines("dlq.failed"),
        "sends": lines("send"),
        "sends_confirmed": lines("send", "confirmed"),
        "ack_frames": lines("ack.batch"),
        "acknowledgements": messages("ack.batch"),
        "acknowledgements_dropped": messages("ack.dropped"),
        "tx_committed": lines("tx.commit"),
        "tx_rolled_back": lines("tx.rollback"),
        "tx_in_doubt": lines("tx.in_doubt"),
        "connections_lost": lines("conn.lost"),
    }
