"""Boards as a page and as pictures, for whoever has no Grafana; drawn by Matplotlib from what Prometheus answers."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from jmsx.plugins import needing

with needing("jmsx_dashboards"):
    import matplotlib as mpl
    from matplotlib import dates
    from matplotlib.figure import Figure
    from matplotlib.table import Table
    from matplotlib.ticker import FuncFormatter

from jmsx_dashboards.asking import Prometheus, Series, Span, single, table
from jmsx_dashboards.grafana import described, placed, runbook
from jmsx_dashboards.model import Board, Links, Panel, View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

_COLUMN: Final = 0.75  #: inches
_LINE: Final = 0.36  #: inches
_HEAD: Final = 0.7  #: inches, for the title of the board
_LINES: Final = 8  #: more could not be distinguished
_LETTERS_AN_INCH: Final = 11.5  #: of a table, as large as it may be
_LETTERS: Final = 44  #: of a name in a legend
_COLOURS: Final = {"green": "#2e7d4f", "yellow": "#b98900", "red": "#c02942"}
_PALETTE: Final = (
    *("#3366aa", "#dd7733", "#2e9e8f", "#aa4499", "#7a8b22", "#cc3355", "#665599", "#888888"),
)
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 7,
    "axes.edgecolor": "#999999",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "svg.hashsalt": "jmsx",
}
#: Units of time, longest first: seconds and symbol.
_DURATIONS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (0.001, "ms"))
_THOUSAND: Final = 1000


def told(value: float, unit: str) -> str:
    """Return `value` with its unit, as a reader expects it."""
    if unit == "s":
        return _duration(value)
    if unit == "percentunit":
        return f"{100 * value:,.0f} %" if abs(value) >= 1 else f"{100 * value:.3g} %"
    behind = {"mps": " msg/s", "cps": "/s", "Bps": " B/s"}.get(unit, "")
    if abs(value) >= _THOUSAND:
        return f"{value:,.0f}{behind}"
    return f"{value:.3g}{behind}"


def _duration(seconds: float) -> str:
    for length, name in _DURATIONS:
        if abs(seconds) >= length:
            return f"{seconds / length:.3g} {name}"
    return "0 s" if not seconds else f"{seconds * 1e6:.3g} µs"


def _cell(panel: Panel, column: str, value: Any, span: Span) -> str:
    if value is None:
        return ""
    if column in panel.times:
        at = datetime.fromtimestamp(value / 1000, UTC)
        return f"{at:%H:%M:%S} UTC, {_duration(max(span.end - value / 1000, 0.0))} ago"
    return told(value, panel.unit) if isinstance(value, float) else str(value)


def _colour(panel: Panel, value: float) -> str:
    name = panel.base_color
    for bound, colour in panel.thresholds:
        if value >= bound:
            name = colour
    return _COLOURS[name]


# Pictures ----------------------------------------------------------------------------------------------------------


def write_picture(
    path: Path, board: Board, answers: dict[str, list[list[Series]]], span: Span
) -> None:
    """Draw a whole board into a PNG; `answers` by the titles of panels. Raises OSError."""
    places = list(placed(board))
    width = 24 * _COLUMN
    height = max(place["y"] + place["h"] for _, place in places) * _LINE + _HEAD
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), facecolor="white")
        figure.text(0.01, 1 - 0.3 / height, board.title, fontsize=15, weight="bold")
        figure.text(0.01, 1 - 0.55 / height, f"{board.description} {_span(span)}", fontsize=8)
        for one, place in places:
            _place(figure, one, place, answers, span)
        figure.savefig(path, dpi=100, metadata={"Software": None})


def _place(
    figure: Figure,
    one: Panel | str,
    place: dict[str, int],
    answers: dict[str, list[list[Series]]],
    span: Span,
) -> None:
    """Draw a panel, or the heading of a row, at its position on the board."""
    width, height = figure.get_size_inches()
    left = place["x"] * _COLUMN / width
    top = 1 - (_HEAD + place["y"] * _LINE) / height
    if isinstance(one, str):
        figure.text(0.01, top - 0.25 / height, one, fontsize=11, weight="bold", color="#444444")
        return
    wide, high = place["w"] * _COLUMN / width, place["h"] * _LINE / height
    figure.text(left + 0.15 / width, top - 0.2 / height, one.title, fontsize=8.5, weight="bold")
    _fill(figure, (left, top - high, wide, high - 0.3 / height), one, answers[one.title], span)


def _fill(
    figure: Figure,
    place: tuple[float, float, float, float],
    panel: Panel,
    answers: list[list[Series]],
    span: Span,
) -> None:
    """Draw a panel into a place of the figure (left, bottom, width, height, in shares of it), with its scales."""
    left, bottom, wide, high = place
    width, height = figure.get_size_inches()
    bare = panel.view in {View.STAT, View.TABLE}  # no scales
    below = (0.1 if bare else 0.35) / height
    begin, wide, high = left + 0.15 / width, wide - 0.35 / width, high - below
    axes = figure.add_axes((begin, bottom + below, wide, high))
    draw(axes, panel, answers, span)
    box = None if bare else axes.get_tightbbox()  # only drawing tells the width of a scale
    if box is not None:
        missing = max(begin - box.transformed(figure.transFigure.inverted()).x0, 0.0)
        axes.set_position((begin + missing, bottom + below, wide - missing, high))


def draw(axes: Axes, panel: Panel, answers: list[list[Series]], span: Span) -> None:
    """Draw one panel."""
    if panel.view is View.STAT:
        _draw_stat(axes, panel, answers)
    elif panel.view is View.TABLE:
        _draw_table(axes, panel, answers, span)
    elif not any(answers):
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing", ha="center", va="center", color="#999999")
    elif panel.view is View.BARGAUGE:
        _draw_bars(axes, panel, answers)
    else:
        _DRAWN[panel.view](axes, panel, [one for series in answers for one in series])
        axes.set_xlim(_date(span.start), _date(span.end))
        locator = dates.AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]  # matplotlib.dates has no types
        axes.xaxis.set_major_locator(locator)
        short = dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]  # matplotlib.dates has no types
        axes.xaxis.set_major_formatter(short)
        axes.xaxis.get_offset_text().set_visible(False)


def _draw_stat(axes: Axes, panel: Panel, answers: list[list[Series]]) -> None:
    values = [one.last for series in answers for one in series]
    value = values[0] if values else 0.0
    axes.set_axis_off()
    axes.add_patch(
        mpl.patches.Rectangle((0, 0), 1, 1, transform=axes.transAxes, color=_colour(panel, value))
    )
    text = told(value, panel.unit)
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=17, color="white", weight="bold")


def _draw_table(axes: Axes, panel: Panel, answers: list[list[Series]], span: Span) -> None:
    columns, rows = table(panel, answers)
    axes.set_axis_off()
    if not rows:
        axes.text(0.5, 0.5, "none", ha="center", va="center", color="#2e7d4f", fontsize=10)
        return
    shown = [column for column in columns if any(row.get(column) for row in rows)]
    texts = [[_cell(panel, column, row.get(column), span) for column in shown] for row in rows[:9]]
    by_column = zip(shown, zip(*texts, strict=True), strict=True)
    widths = [max(map(len, (name, *column))) + 2 for name, column in by_column]
    inner = 1 - 2 * Table.AXESPAD  # Table always keeps this space at its left
    size = min(9.0, 9.0 * _LETTERS_AN_INCH * _COLUMN * panel.width * inner / sum(widths))
    drawn = axes.table(
        cellText=texts,
        colLabels=shown,
        colWidths=[inner * width / sum(widths) for width in widths],
        loc="upper left",
        cellLoc="left",
        edges="horizontal",
    )
    drawn.auto_set_font_size(value=False)
    drawn.set_fontsize(size)
    drawn.scale(1, 1.35)
    for (row, _), cell in drawn.get_celld().items():
        cell.set_edgecolor("#dddddd")
        cell.set_text_props(weight="bold" if row == 0 else "normal")


def _draw_bars(axes: Axes, panel: Panel, answers: list[list[Series]]) -> None:
    bars = [bar for series in answers for bar in single(series)][:14]
    places = range(len(bars), 0, -1)
    axes.barh(
        list(places),
        [value for _, value in bars],
        color=[_colour(panel, value) if panel.thresholds else _PALETTE[0] for _, value in bars],
        height=0.45,
    )
    axes.set_yticks([])
    for place, (name, _) in zip(places, bars, strict=True):
        axes.annotate(
            name[:_LETTERS],
            (0.005, place + 0.45),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7.5,
        )
    for place, (_, value) in zip(places, bars, strict=True):
        axes.annotate(
            told(value, panel.unit),
            (1, place),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
        )
    axes.set_ylim(0.6, len(bars) + 0.8)
    axes.grid(visible=False)
    axes.set_xlim(0, max((value for _, value in bars), default=1.0) * 1.25 or 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: told(value, panel.unit)))


def _draw_lines(axes: Axes, panel: Panel, series: Sequence[Series]) -> None:
    moving = [one for one in series if any(value for _, value in one.points)]
    series = moving or series
    shown = sorted(series, key=lambda one: -max(value for _, value in one.points))[:_LINES]
    if panel.stacked:
        times = sorted({at for one in shown for at, _ in one.points})
        values = [[dict(one.points).get(at, 0.0) for at in times] for one in shown]
        labels = [_label(one, panel) for one in shown]
        axes.stackplot(
            [_date(at) for at in times], values, labels=labels, colors=_PALETTE, alpha=0.8
        )
    else:
        for one, colour in zip(shown, _PALETTE, strict=False):
            times_of = [_date(at) for at, _ in one.points]
            values_of = [value for _, value in one.points]
            axes.plot(times_of, values_of, color=colour, linewidth=1.2, label=_label(one, panel))
    top = max(value for one in series for _, value in one.points)
    for bound, name in panel.thresholds:
        if bound <= 2 * top:
            axes.axhline(bound, color=_COLOURS[name], linewidth=0.8, linestyle="--")
    bottom = min(0.0, *(value for one in series for _, value in one.points))
    axes.set_ylim(bottom * 1.1, axes.get_ylim()[1] if top > 0 else 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: told(value, panel.unit)))
    more = f"and {len(series) - _LINES} more" if len(series) > _LINES else None
    legend = axes.legend(loc="upper left", fontsize=6, framealpha=0.7, title=more, borderpad=0.2)
    legend.get_frame().set_linewidth(0)
    legend.set_in_layout(False)  # it stands within the axes, and takes longest to measure


def _label(one: Series, panel: Panel) -> str:
    name = one.name[:_LETTERS] or panel.title
    return f"{name}: {told(one.last, panel.unit)}"


def _draw_heat(axes: Axes, panel: Panel, series: Sequence[Series]) -> None:
    bounds = sorted(series, key=lambda one: float(one.labels["le"]))
    times = sorted({at for one in bounds for at, _ in one.points})
    grid = []
    below = [0.0] * len(times)
    for one in bounds:
        known = dict(one.points)
        at_most = [known.get(at, 0.0) for at in times]
        grid.append([max(now - before, 0.0) for now, before in zip(at_most, below, strict=True)])
        below = at_most
    edges = [_date(at) for at in times]
    axes.pcolormesh(
        [*edges, edges[-1] + (edges[-1] - edges[0]) / max(len(edges) - 1, 1)],
        list(range(len(bounds) + 1)),
        grid,
        cmap="YlOrRd",
    )
    names = [one.labels["le"] for one in bounds]
    told_names = ["more" if name == "+Inf" else told(float(name), panel.unit) for name in names]
    axes.set_yticks([place + 1 for place in range(len(names))][::2], told_names[::2])


def _draw_states(axes: Axes, panel: Panel, series: Sequence[Series]) -> None:
    for place, one in enumerate(series[:_LINES]):
        times = [_date(at) for at, _ in one.points]
        step = (times[-1] - times[0]) / max(len(times) - 1, 1) or 1e-4
        colours = [_colour(panel, value) for _, value in one.points]
        axes.broken_barh([(at, step) for at in times], (place + 0.15, 0.7), facecolors=colours)
        axes.text(
            0.01,
            place + 0.5,
            one.name,
            transform=axes.get_yaxis_transform(),
            va="center",
            color="white",
        )
    axes.set_ylim(0, max(len(series), 1))
    axes.set_yticks([])


_DRAWN: Final = {
    View.TIMESERIES: _draw_lines,
    View.HEATMAP: _draw_heat,
    View.STATE_TIMELINE: _draw_states,
}


def _date(seconds: float) -> float:
    """Convert seconds since the epoch to Matplotlib's dates: days since 1970."""
    return seconds / 86_400


# The page ----------------------------------------------------------------------------------------------------------


def page(
    boards: Sequence[Board],
    answers: dict[str, dict[str, list[list[Series]]]],
    span: Span,
    links: Links,
) -> str:
    """Return one self-contained HTML page; `answers` by the uids of boards and the titles of panels."""
    parts = [_section(board, answers[board.uid], span, links) for board in boards]
    names = " ".join(f'<a href="#{board.uid}">{escape(board.title)}</a>' for board in boards)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>jmsx boards</title><style>{_CSS}</style></head>
<body><nav>{names}</nav><p>{_span(span)}</p>{"".join(parts)}</body></html>
"""


def _section(board: Board, answers: dict[str, list[list[Series]]], span: Span, links: Links) -> str:
    cards = []
    for one, place in placed(board):
        where = (
            f"grid-column:{place['x'] + 1}/span {place['w']};"
            f"grid-row:{place['y'] + 1}/span {place['h']}"
        )
        if isinstance(one, str):
            cards.append(f'<h3 style="{where}">{escape(one)}</h3>')
            continue
        link = f"{links.runbooks}/{runbook(one)}"
        cards.append(
            f'<figure style="{where}"><figcaption title="{escape(described(one))}">{escape(one.title)}'
            f' <a href="{escape(link)}">?</a></figcaption>{_body(one, answers[one.title], span, links)}</figure>'
        )
    return (
        f'<section id="{board.uid}"><h2>{escape(board.title)}</h2><p>{escape(board.description)}</p>'
        f'<div class="grid">{"".join(cards)}</div></section>'
    )


def _body(panel: Panel, answers: list[list[Series]], span: Span, links: Links) -> str:
    if panel.view is View.STAT:
        value = next((one.last for series in answers for one in series), 0.0)
        colour = _colour(panel, value)
        return f'<div class="stat" style="background:{colour}">{told(value, panel.unit)}</div>'
    if panel.view is View.TABLE:
        return _html_table(panel, answers, span, links)
    with mpl.rc_context(_STYLE):
        # Matplotlib's own layout engine would draw the figure three times.
        figure = Figure(figsize=(panel.width * 0.6, panel.height * _LINE))
        _fill(figure, (0.0, 0.0, 1.0, 1.0 - 0.1 / (panel.height * _LINE)), panel, answers, span)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()[file.getvalue().index("<svg") :]


def _html_table(panel: Panel, answers: list[list[Series]], span: Span, links: Links) -> str:
    columns, rows = table(panel, answers)
    if not rows:
        return '<p class="none">none</p>'
    shown = [column for column in columns if any(row.get(column) for row in rows)]
    head = "".join(f"<th>{escape(column)}</th>" for column in shown)
    lines = []
    for row in rows:
        cells = []
        for column in shown:
            text = escape(_cell(panel, column, row.get(column), span))
            if column in panel.runbooks:
                link = f"{links.runbooks}/{panel.runbooks[column].format(row.get(column, ''))}"
                text = f'<a href="{escape(link)}">{text}</a>'
            number = isinstance(row.get(column), float) and column not in panel.times
            cells.append(f'<td class="n">{text}</td>' if number else f"<td>{text}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _span(span: Span) -> str:
    start, end = (datetime.fromtimestamp(at, UTC) for at in (span.start, span.end))
    return f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC."


_CSS: Final = """
:root{color-scheme:light dark;--page:#f4f5f7;--paper:#fff;--ink:#222;--line:#ddd;--link:#1f5fa8;--good:#2e7d4f}
@media screen and (prefers-color-scheme:dark){:root{--page:#12181f;--paper:#1a222b;--ink:#dde4ea;--line:#36414c;
--link:#6aa5e6;--good:#57c48b}figure svg{filter:invert(1) hue-rotate(180deg)}}
body{font:14px/1.4 system-ui,sans-serif;margin:1rem;background:var(--page);color:var(--ink)}
a{color:var(--link)}
nav a{margin-right:1em}
.grid{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:34px;gap:6px}
figure{margin:0;background:var(--paper);border:1px solid var(--line);border-radius:4px;padding:6px;min-width:0;
overflow:auto;display:flex;flex-direction:column}
figcaption{font-weight:600;font-size:13px}
figcaption a{float:right;text-decoration:none}
figure svg{width:100%;height:auto;min-height:0;flex:1}
h3{margin:4px 0}
table{border-collapse:collapse;width:100%;font-size:12.5px}
th,td{text-align:left;vertical-align:top;padding:3px 8px 3px 0;border-bottom:1px solid var(--line)}
td{overflow-wrap:anywhere}
td.n{white-space:nowrap}
.stat{flex:1;display:flex;align-items:center;justify-content:center;font-size:1.7rem;font-weight:700;color:#fff;
border-radius:3px}
.none{color:var(--good);text-align:center}
@media print,(max-width:1100px){.grid{display:flex;flex-wrap:wrap}.grid h3{flex:1 0 100%;break-after:avoid}
figure{flex:1 1 30%;max-width:49.5%;overflow:visible}figure:has(.stat){flex-basis:14%;min-height:5.5rem}
figure:has(table,.none){flex-basis:100%;max-width:none}}
@media print{body{margin:0;background:none}nav{display:none}section+section{break-before:page}
figure{break-inside:avoid;print-color-adjust:exact}table{font-size:11px}}
@page{size:A4 landscape;margin:10mm}
"""


def ask_all(
    prometheus: Prometheus, boards: Sequence[Board], span: Span
) -> dict[str, dict[str, list[list[Series]]]]:
    """Ask all panels; by the uids of boards and the titles of panels. Raises ConfigurationError."""
    return {
        board.uid: {panel.title: prometheus.answers(panel, span) for panel in board.panels}
        for board in boards
    }
