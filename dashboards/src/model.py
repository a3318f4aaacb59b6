"""What dashboards and rules are made of, before anything is written in Grafana's or Prometheus' words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote_plus

DASHBOARD: Final = "jmsx-overview"  #: Grafana's uid of the overview, and the name of its file
TARGET_LABELS: Final = ("job", "instance")  #: what Prometheus adds to each series that it scrapes


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
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; what its numbers mean stands in the description."""

    title: str
    view: View = View.TIMESERIES
    description: str  #: what it is, what good looks like, what to do
    unit: str  #: as Grafana names units: `s`, `mps`, `cps`, `percentunit`, `short`, `none`
    queries: tuple[Query, ...]
    thresholds: tuple[
        tuple[float, str], ...
    ] = ()  #: from which value on which colour; none on purpose
    base_color: str = "green"  #: below the first threshold
    stacked: bool = False
    width: int = 8  #: of 24 columns
    height: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A query that Prometheus answers beforehand; its name is `level:metric:operations`."""

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
    severity: Severity
    labels: tuple[str, ...]  #: what identifies one firing
    summary: str  #: one line; `{destination}` and the like are put in
    description: str  #: what it means; likewise
    panel: str  #: the panel to look at first
    impact: str
    causes: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """Where runbooks and dashboards are."""

    runbooks: str = (
        "dashboards/runbooks"  #: a folder or URL; by default the path in this repository
    )
    grafana: str = ""  #: Grafana's root URL; by default paths from whatever root the reader is at

    def annotations(self, alert: Alert) -> dict[str, str]:
        """Word the annotations of `alert` as a template for Prometheus."""
        texts = {label: f"{{{{ $labels.{label} }}}}" for label in alert.labels}
        quoted = {label: f"{{{{ $labels.{label} | urlquery }}}}" for label in alert.labels}
        return self._annotations(alert, texts, quoted)

    def rendered(self, alert: Alert, labels: dict[str, str]) -> dict[str, str]:
        """Word the annotations of `alert` as Prometheus renders them for `labels`."""
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
            "dashboard_url": f"{self.grafana}/d/{DASHBOARD}"
            + ("?" + variables if variables else ""),
        }


#: The overview's variables that are labels.
_VARIABLES: Final = frozenset({"job", "instance", "destination", "broker"})
