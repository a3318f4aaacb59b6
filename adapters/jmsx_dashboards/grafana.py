"""The boards as Grafana imports them: its classic schema, which every Grafana from 10 on reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.boards import BOARDS
from jmsx_dashboards.model import Board, Links, Panel, Query, View
from jmsx_dashboards.shapes import B, D, J

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS: Final = 24
_SCHEMA: Final = 41
_DATASOURCE: Final = {"type": "prometheus", "uid": "$datasource"}

#: The boards' variables with the queries of their values, in an order in which each narrows the next.
VARIABLES: Final[dict[str, str]] = {
    "job": "label_values(jmsx_build_info, job)",
    "instance": 'label_values(jmsx_build_info{job=~"$job"}, instance)',
    "destination": f"label_values(jmsx_processed_messages_total{{{J}}}, destination)",
    "broker": f"label_values(jmsx_disconnects_total{{{J}}}, broker)",
}

#: The annotations on all panels: name, query, label to show and colour.
ANNOTATIONS: Final = (
    (
        "Alerts",
        'ALERTS{alertname=~"Jmsx.*",alertstate="firing",job=~"$job|"}',
        "{{alertname}}",
        "red",
    ),
    (
        "Connections lost",
        f'increase(jmsx_disconnects_total{{{B},reason!="closed"}}[$__rate_interval]) > 0',
        "{{instance}} {{reason}}",
        "orange",
    ),
    (
        "Dead letters",
        f"increase(jmsx_dead_lettered_messages_total{{{D}}}[$__rate_interval]) > 0",
        "{{destination}} {{reason}}",
        "purple",
    ),
    (
        "Started",
        f"time() - jmsx_start_timestamp_seconds{{{J}}} < 120",
        "{{instance}}",
        "blue",
    ),
)

#: The URL parameters that a link to another board passes on.
_ALONG: Final = "&".join(
    ["${__url_time_range}", *(f"${{{name}:queryparam}}" for name in VARIABLES)]
)
#: The page that a panel links to if no alert watches it: it explains how to read the panels.
_READING: Final = "Reading.md"

_FORMATS: Final = {View.HEATMAP: "heatmap", View.BARGAUGE: "heatmap", View.TABLE: "table"}
_INSTANT: Final = frozenset({View.STAT, View.BARGAUGE, View.TABLE})


def boards_json(links: Links) -> dict[str, str]:
    """Return the JSON of every board, by its uid."""
    return {
        board.uid: json.dumps(_board(board, links), indent=2, sort_keys=True) + "\n"
        for board in BOARDS
    }


def watching(panel: Panel) -> list[str]:
    """Return the names of the alerts that refer to a panel."""
    return [alert.name for alert in ALERTS if alert.panel == panel.title]


def described(panel: Panel) -> str:
    """Return the panel's description, with the names of the alerts that watch it."""
    names = ", ".join(watching(panel))
    return f"{panel.description} Watched by {names}." if names else panel.description


def runbook(panel: Panel) -> str:
    """Return the page below the runbooks that says what to do about a panel."""
    return f"{name}.md" if (name := next(iter(watching(panel)), "")) else _READING


def placed(board: Board) -> Iterator[tuple[Panel | str, dict[str, int]]]:
    """Yield each panel, or the title of a row, with its position: as high as there is room, then as far left."""
    bottom = 0
    for row in board.rows:
        if row.title:
            yield row.title, {"x": 0, "y": bottom, "w": _COLUMNS, "h": 1}
            bottom += 1
        heights = [bottom] * _COLUMNS
        for panel in row.panels:
            starts = range(_COLUMNS - panel.width + 1)
            y, x = min((max(heights[x : x + panel.width]), x) for x in starts)
            yield panel, {"x": x, "y": y, "w": panel.width, "h": panel.height}
            heights[x : x + panel.width] = [y + panel.height] * panel.width
        bottom = max(heights)


def _board(board: Board, links: Links) -> dict[str, Any]:
    panels = []
    for number, (one, place) in enumerate(placed(board), 1):
        if isinstance(one, str):
            row = {"type": "row", "title": one, "collapsed": False, "panels": []}
            panels.append({**row, "gridPos": place, "id": number})
        else:
            panels.append({**_panel(one, board, links), "gridPos": place, "id": number})
    return {
        "uid": board.uid,
        "title": board.title,
        "description": f"{board.description} Made by `jmsx dashboards export`.",
        "tags": ["jmsx", "jms", "activemq"],
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "graphTooltip": 1,
        "schemaVersion": _SCHEMA,
        "templating": {"list": [_source(), *(_variable(*one) for one in VARIABLES.items())]},
        "annotations": {"list": [_annotation(*one) for one in ANNOTATIONS]},
        "links": [
            {
                "title": "jmsx",
                "type": "dashboards",
                "tags": ["jmsx"],
                "asDropdown": False,
                "icon": "dashboard",
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "the other boards, with the same choice",
                "url": "",
            }
        ],
        "panels": panels,
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "query": query,
        "datasource": _DATASOURCE,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def _annotation(name: str, expr: str, title: str, color: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": _DATASOURCE,
        "enable": True,
        "iconColor": color,
        "expr": expr,
        "titleFormat": title,
    }


def _panel(panel: Panel, board: Board, links: Links) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": panel.view.value,
        "title": panel.title,
        "description": described(panel),
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel, links)},
        "targets": [_target(panel, query, "ABCDEFGH"[n]) for n, query in enumerate(panel.queries)],
        "links": [
            {
                "title": f"More on {board.leads_to.removeprefix('jmsx-')}",
                "url": f"{links.grafana}/d/{panel.board or board.leads_to}?{_ALONG}",
            },
            {
                "title": "What to do",
                "url": f"{links.runbooks}/{runbook(panel)}",
                "targetBlank": True,
            },
        ],
    }
    if panel.view is View.TIMESERIES:
        made["options"] = {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif panel.view is View.BARGAUGE:
        made["options"] = {
            "orientation": "horizontal",
            "displayMode": "basic",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    elif panel.view is View.STAT:
        made["options"] = {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    elif panel.view is View.TABLE:
        made["transformations"] = _transformations(panel)
    return made


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"value": None, "color": panel.base_color}]
    steps += [{"value": value, "color": color} for value, color in panel.thresholds]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "noValue": "none" if panel.view is View.TABLE else "0",
    }
    if panel.view is View.TIMESERIES:
        custom: dict[str, Any] = {"fillOpacity": 10, "axisSoftMin": 0, "showPoints": "never"}
        if panel.thresholds:
            custom["thresholdsStyle"] = {"mode": "dashed"}
        if panel.stacked:
            custom["stacking"] = {"mode": "normal"}
        defaults["custom"] = custom
    return defaults


def _overrides(panel: Panel, links: Links) -> list[dict[str, Any]]:
    """Return Grafana's overrides for single columns of a table: times, and links to runbooks."""
    since = {"id": "unit", "value": "dateTimeFromNow"}
    found = [_override(column, since) for column in panel.times]
    for column, page in panel.runbooks.items():
        url = f"{links.runbooks}/{page.format('${__value.text}')}"
        link = {"title": "What to do", "url": url, "targetBlank": True}
        found.append(_override(column, {"id": "links", "value": [link]}))
    return found


def _override(column: str, *properties: dict[str, Any]) -> dict[str, Any]:
    return {"matcher": {"id": "byName", "options": column}, "properties": list(properties)}


def _transformations(panel: Panel) -> list[dict[str, Any]]:
    """Return Grafana's transformations that join all queries into one table: one row for each set of labels."""
    names = {
        ("Value" if len(panel.queries) == 1 else f"Value #{'ABCDEFGH'[n]}"): query.legend or "value"
        for n, query in enumerate(panel.queries)
    }
    order = {column: number for number, column in enumerate(panel.columns)}
    by_source = {new: old for old, new in names.items()}
    indexes = {by_source.get(column, column): number for column, number in order.items()}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True, "__name__": True},
                "indexByName": indexes,
                "renameByName": names,
            },
        },
    ]


def _target(panel: Panel, query: Query, reference: str) -> dict[str, Any]:
    instant = panel.view in _INSTANT
    return {
        "expr": query.expr,
        "refId": reference,
        "legendFormat": query.legend,
        "format": _FORMATS.get(panel.view, "time_series"),
        "instant": instant,
        "range": not instant,
        "datasource": _DATASOURCE,
    }
