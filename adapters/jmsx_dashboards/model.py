"""The model of boards, alerts and rules, independent of the file formats of Grafana and Prometheus."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from jmsx.errors import ConfigurationError
from jmsx_prometheus.buckets import LATENCY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OVERVIEW: Final = "jmsx-overview"  #: Grafana's uid of the board that alerts lead to
TARGET_LABELS: Final = ("job", "instance")  #: what Prometheus adds to each series that it scrapes
#: The label that `jmsx run --workers` adds to each series of a worker; rules sum over it.
WORKER: Final = "worker"


class View(StrEnum):
    """How a panel draws."""

    STAT = "stat"
    TIMESERIES = "timeseries"
    HEATMAP = "heatmap"
    BARGAUGE = "bargauge"
    TABLE = "table"
    STATE_TIMELINE = "state-timeline"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    expr: str
    legend: str = ""  #: how a line is called; of a table the name of the column that has the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; the description says what its numbers mean."""

    title: str
    view: View = View.TIMESERIES
    description: str  #: what it is, what good looks like, what to do
    unit: str  #: as Grafana names units: `s`, `mps`, `cps`, `Bps`, `percentunit`, `short`, `none`
    queries: tuple[Query, ...]
    thresholds: tuple[tuple[float, str], ...] = ()  #: from which value on which colour
    unbounded: str = ""  #: why it has no threshold, where it has none
    base_color: str = "green"  #: below the first threshold
    stacked: bool = False
    width: int = 8  #: of 24 columns
    height: int = 8
    columns: tuple[str, ...] = ()  #: of a table, in their order
    times: tuple[str, ...] = ()  #: columns that are milliseconds since the epoch
    #: column -> page and anchor it leads to.
    runbooks: Mapping[str, str] = field(default_factory=dict)
    board: str = ""  #: the board to go to for more; by default the one of its row's link


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; without a title they stand alone."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    leads_to: str  #: the uid of the board that its panels lead to

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, from the top."""
        return tuple(panel for row in self.rows for panel in row.panels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording rule, a query that Prometheus computes regularly; its name is `level:metric:operations`."""

    record: str
    expr: str
    labels: tuple[str, ...]  #: what is left of the labels


class Severity(StrEnum):
    """Who is to be told."""

    PAGE = "page"  #: somebody, now
    TICKET = "ticket"  #: somebody, this week
    INFO = "info"  #: nobody; it explains other alerts


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert with its runbook."""

    name: str
    expr: str
    wait: str = "0m"  #: how long it must hold: `for` in Prometheus' rules
    seconds: tuple[int, ...] = ()  #: the numbers in `expr` that are seconds
    #: Seconds below which `timescale` never shortens `wait`: machines need real time
    least: float = 0.0
    severity: Severity
    labels: tuple[str, ...]  #: what identifies one firing
    summary: str  #: one line; `{destination}` and the like are put in
    description: str  #: what it means; values are put in as into `summary`
    panel: str  #: the panel to look at first
    impact: str
    causes: tuple[str, ...]
    steps: tuple[str, ...]
    queries: tuple[str, ...] = ()  #: to ask Prometheus first: which queue, which cause
    commands: tuple[str, ...] = ()  #: to ask the broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The error budget of a destination: which shares of its messages may go wrong."""

    dead_letters: float = 0.001  #: the share that may become dead letters, 0 to 1
    late: float = 0.01  #: the share that may take longer than `seconds`, 0 to 1
    seconds: float = 30.0  #: from the broker to the ACK; one of the histogram's bounds

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a share or latency that is not allowed."""
        for name in ("dead_letters", "late"):
            if not 0 < (share := getattr(self, name)) < 1 / FASTEST:
                raise ConfigurationError(
                    f"a budget's {name} is a share between 0 and {1 / FASTEST:.3f}, so that {FASTEST:g} times it is"
                    f" still less than all messages, not {share!r}"
                )
        if self.seconds not in LATENCY_SECONDS:
            known = ", ".join(f"{bound:g}" for bound in LATENCY_SECONDS)
            raise ConfigurationError(
                f"a budget's seconds are a bound of the latency's histogram ({known}), not {self.seconds!r}"
            )


#: How many times faster than allowed a budget is spent when somebody is paged.
FASTEST: Final = 14.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The parameters of recording rules and alerts: budgets, and a time scale for tests."""

    budget: Budget = field(default_factory=Budget)
    #: The budgets of destinations that have one of their own.
    of_destination: Mapping[str, Budget] = field(default_factory=dict)
    #: Windows, waits and ages are divided by this number, to make rules for short tests.
    timescale: float = 1.0

    @property
    def seconds(self) -> list[float]:
        """The latencies in the budgets, in seconds."""
        return sorted({one.seconds for one in (self.budget, *self.of_destination.values())})


def read_budgets(path: Path) -> Settings:
    """
    Read budgets from a TOML file: a table `default`, and one for each destination, such as `["queue://batch"]`.

    Each may have `dead_letters`, `late` (shares, 0 to 1) and `seconds`; what it does not have is as in `default`.
    Raises ConfigurationError.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"budgets cannot be read from {path}: {error}") from error
    default = _budget(path, "default", tables.pop("default", {}), {})
    shared = {one.name: getattr(default, one.name) for one in fields(Budget)}
    known = {name: _budget(path, name, table, shared) for name, table in tables.items()}
    return Settings(budget=default, of_destination=known)


def _budget(path: Path, name: str, table: Any, default: dict[str, float]) -> Budget:
    known = {one.name for one in fields(Budget)}
    if not isinstance(table, dict) or not table.keys() <= known:
        raise ConfigurationError(
            f"{path}: [{name!r}] is no table of {', '.join(sorted(known))}; destinations are quoted whole"
        )
    if not all(type(value) in (int, float) for value in table.values()):
        raise ConfigurationError(f"{path}: the values of [{name!r}] are numbers")
    return Budget(**(default | {key: float(value) for key, value in table.items()}))


@dataclass(frozen=True, slots=True)
class Links:
    """The URLs or folders of runbooks and boards."""

    #: A folder or URL; by default the path in this repository.
    runbooks: str = "dashboards/runbooks"
    grafana: str = ""  #: Grafana's root URL; by default paths from whatever root the reader is at

    def annotations(self, alert: Alert) -> dict[str, str]:
        """Return the annotations of `alert` as templates for Prometheus."""
        texts = {label: f"{{{{ $labels.{label} }}}}" for label in alert.labels}
        quoted = {label: f"{{{{ $labels.{label} | urlquery }}}}" for label in alert.labels}
        return self._annotations(alert, texts, quoted)

    def rendered(self, alert: Alert, labels: dict[str, str]) -> dict[str, str]:
        """Return the annotations of `alert` as Prometheus renders them for `labels`."""
        quoted = {label: quote_plus(value) for label, value in labels.items()}
        return self._annotations(alert, labels, quoted)

    def _annotations(
        self, alert: Alert, texts: dict[str, str], quoted: dict[str, str]
    ) -> dict[str, str]:
        variables = "&".join(
            f"var-{label}={quoted[label]}" for label in alert.labels if label in _VARIABLES
        )
        return {
            "summary": alert.summary.format(**texts),
            "description": alert.description.format(**texts),
            "runbook_url": f"{self.runbooks}/{alert.name}.md",
            "dashboard_url": f"{self.grafana}/d/{OVERVIEW}"
            + ("?" + variables if variables else ""),
        }


#: The labels that are also variables of the boards.
_VARIABLES: Final = frozenset({"job", "instance", "destination", "broker"})

_UNITS: Final = {"s": 1, "m": 60, "h": 3600}


def scaled(expr: str, seconds: tuple[int, ...], timescale: float) -> str:
    """Return `expr` with its windows, and the numbers in it that are `seconds`, divided by `timescale`."""
    if timescale == 1:
        return expr
    expr = re.sub(r"\[(\d+)([smh])\]", lambda w: f"[{shortened(w[1] + w[2], timescale)}]", expr)
    for number in (*seconds, *map(int, re.findall(r"jmsx_start_timestamp_seconds < (\d+)", expr))):
        expr = re.sub(rf"(?<![\w.]){number}(?![\w.])", f"{number / timescale:g}", expr)
    return expr


def shortened(duration: str, timescale: float, least: float = 0.0) -> str:
    """Return `duration`, such as `5m`, divided by `timescale`, but at least `least` seconds."""
    if timescale == 1:
        return duration
    seconds = max(int(duration[:-1]) * _UNITS[duration[-1]] / timescale, least)
    return f"{round(seconds * 1000)}ms"
