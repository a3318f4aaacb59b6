"""The few shapes that most panels have: a number, a rate, a share, quantiles."""

from __future__ import annotations

from typing import Final

from jmsx_dashboards.model import Panel, Query, View

J: Final = 'job=~"$job",instance=~"$instance"'  #: matchers of what belongs to a process
D: Final = J + ',destination=~"$destination"'  #: of what belongs to a destination
B: Final = J + ',broker=~"$broker"'  #: of what belongs to a connection
I: Final = "[$__rate_interval]"  # noqa: E741 - the window of every rate
R: Final = "[$__range]"  #: the whole time shown, for single numbers

AT_ALL: Final = ((1, "red"),)  #: one is too many


def ratio(
    title: str, description: str, part: str, whole: str, *thresholds: tuple[float, str]
) -> Panel:
    """Draw the share that `part` has in `whole` for each destination, 0 to 1."""
    by = "sum by (destination)"
    return Panel(
        title=title,
        description=description,
        unit="percentunit",
        queries=(Query(f"{by} (rate({part}{I})) / {by} (rate({whole}{I}))", "{{destination}}"),),
        thresholds=thresholds,
    )


#: Why most rates and gauges have no threshold.
_TRAFFIC: Final = "good depends on the traffic"


def rates(
    title: str,
    description: str,
    unit: str,
    series: str,
    *by: str,
    thresholds: tuple[tuple[float, str], ...] = (),
) -> Panel:
    """Draw the rate of `series` for each combination of the labels `by`."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=(Query(f"sum by ({', '.join(by)}) (rate({series}{I}))", legend),),
        thresholds=thresholds,
        unbounded="" if thresholds else _TRAFFIC,
    )


def gauge(
    title: str,
    description: str,
    unit: str,
    expr: str,
    legend: str,
    *,
    thresholds: tuple[tuple[float, str], ...] = (),
    base_color: str = "green",
    width: int = 8,
) -> Panel:
    """Draw `expr` as it is."""
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=(Query(expr, legend),),
        thresholds=thresholds,
        unbounded="" if thresholds else _TRAFFIC,
        base_color=base_color,
        width=width,
    )


def quantiles(
    title: str,
    description: str,
    histogram: str,
    matchers: str,
    by: str = "",
    *,
    thresholds: tuple[tuple[float, str], ...] = (),
) -> Panel:
    """Draw median, 95th and 99th percentile of `histogram`; with `by` the 95th for each value of that label."""
    levels = ((0.95, f"{{{{{by}}}}}"),) if by else ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    labels = f"le, {by}" if by else "le"
    return Panel(
        title=title,
        description=description,
        unit="s",
        queries=tuple(
            Query(
                f"histogram_quantile({level}, sum by ({labels})"
                f" (rate({histogram}_bucket{{{matchers}}}{I})))",
                legend,
            )
            for level, legend in levels
        ),
        thresholds=thresholds,
        unbounded="" if thresholds else "good depends on the policy",
    )


def stat(
    title: str,
    description: str,
    unit: str,
    expr: str,
    thresholds: tuple[tuple[float, str], ...],
    *,
    board: str = "",
) -> Panel:
    """Show one number."""
    return Panel(
        title=title,
        view=View.STAT,
        description=description,
        unit=unit,
        queries=(Query(expr),),
        thresholds=thresholds,
        width=4,
        height=3,
        board=board,
    )


def mean(histogram: str) -> str:
    """Return PromQL for the mean of `histogram` over all destinations."""
    return f"sum(rate({histogram}_sum{{{D}}}{I})) / sum(rate({histogram}_count{{{D}}}{I}))"
